"""ArCHer: an off-policy critic of utterances against the reward alone and PPO, each tuned."""

from functools import cache, partial

import numpy as np

from analysis.lab import Experiment, Floats, Rows, Seeds, Settings, asks, columns, of_seeds, strips
from analysis.worlds.pilots import Arm

NAME = "utterance-critic"
WORLDS, TUNED_ON, TWICE = 96, 8, 2
"""Random games of a run, games for tuning, and learners per game."""
WANTED, MOST = 0.65, 4_000
"""Exact success that counts as learned (.85 is the best), and the talks after which a learner stops."""
FEWER = 1.25
"""Ratio of samples that counts as fewer. Set before the table was made. The source's factor of 100 cannot be
reached: REINFORCE needs 560 talks, and a batch has 16."""
FOURS = (8192.0, 32768.0, 131072.0, 524288.0, 2097152.0)
CRITICS, ENDLESS = (0.03, 0.1, 0.3), np.inf
UPDATES, NEWEST = (200.0, 800.0, ENDLESS), (100.0, 400.0, 1600.0)
"""Critic's updates a batch, on replayed and new talks. Endless updates solve the store: no grid is wider."""


def log_talks(learner: str, seed: int, settings: Settings) -> Floats:
    """Return the mean log of talks to the threshold over two learners on a game, [1, R].

    learner: its name in analysis.worlds.turn_games.
    """
    from analysis.worlds import turn_games as games  # imported here: it loads the compiler

    game, rates_R = games.game(seed), settings["rate"]
    critics_R, updates_R = (settings.get(name, np.zeros(len(rates_R))) for name in ("critic", "updates"))

    def talks(i: int, rate: float, critic: float, updates: float) -> int:
        how, times = ("CONVERGED", 0) if updates == ENDLESS else (learner, int(updates))
        return games.talks_to(game, 2 * seed + i, getattr(games, how), rate, critic, times, WANTED, MOST)

    found_R2 = [
        [np.log(max(games.BATCH, talks(i, *knobs))) for i in range(TWICE)]
        for knobs in zip(rates_R, critics_R, updates_R, strict=True)
    ]
    return np.mean(found_R2, axis=-1)[None]


ARMS = {
    "REINFORCE": Arm(partial(log_talks, "REINFORCE"), {"rate": tuple(2.0**k for k in range(4, 13))}),
    "token PPO": Arm(
        partial(log_talks, "PPO"),
        {"rate": (256.0, 1024.0, 4096.0, 16384.0, 65536.0, *FOURS[3:]), "critic": (0.003, 0.01, *CRITICS, 1)},
    ),
    "ArCHer": Arm(partial(log_talks, "REPLAYED"), {"rate": FOURS, "critic": CRITICS, "updates": UPDATES}),
    "ArCHer, no replay": Arm(
        partial(log_talks, "ON_POLICY"),
        {"rate": (*FOURS[2:], 4 * FOURS[-1]), "critic": (0.003, 0.01, 0.03, 0.1), "updates": NEWEST},
    ),
}


@cache
def tuned(arm: str) -> tuple[dict[str, float], list[str]]:
    """Return the settings with the fewest talks on 8 other games; a critic's rate of 1 keeps the newest."""
    return ARMS[arm].tuned(TUNED_ON, {"critic": 1.0, "updates": ENDLESS})


def rows(seeds: Seeds) -> Rows:
    """Return the talks of every arm to the threshold, geometric means of two learners, with its settings."""
    for name, arm in ARMS.items():
        best, ends = tuned(name)
        talks = np.exp([arm.at(seed, best)[0] for seed in seeds])
        said = {key: best.get(key, 0.0) for key in ("rate", "critic", "updates")}
        yield columns(seeds, arm=name, talks=talks, **said, at_end=" ".join(ends))


EXPERIMENT = Experiment(
    question="Does a critic of utterances need fewer samples than REINFORCE where nothing generalizes?",
    source="Zhou et al. (2024), ArCHer, arXiv:2402.19446",
    differs="tables, which do not generalize, in place of language models; targets that follow by .3, set "
    "on pilot games; random games of 8 turns of two tokens, an initial success of 1 in 300, and a reward "
    "only at the end",
    compute=of_seeds(NAME, rows, WORLDS, {"wanted": WANTED, "most": MOST, "tuned_on": TUNED_ON}),
    keys=("run", "seed", "arm"), metrics=("talks", "rate", "critic", "updates", "at_end"),
    margins={"factor of samples": FEWER},
    figure=strips("talks", "Shows talks until a success of 0.65 in random games on tables, 8 turns of two "
        "tokens with a reward only at the end; REINFORCE has the reward alone, PPO a critic of tokens, "
        "ArCHer a critic of whole utterances that learns from replayed talks, or only from the newest (no "
        "replay), each at its best setting.", x_label="talks to a success of 0.65", log="x"),
    systems={"ArCHer": "tables; rates in steps of four, critics in steps of three"},
)  # fmt: skip

asks(EXPERIMENT,
    ("an-utterance-critic-saves-samples", "In tables, which do not generalize, the utterance critic takes "
     "fewer talks than REINFORCE to a success of 0.65, by a factor of 1.25.", "ArCHer", "REINFORCE"),
    ("an-utterance-critic-saves-samples-of-a-token-critic", "In tables, which do not generalize, the "
     "utterance critic takes fewer talks than PPO with a critic of tokens to a success of 0.65, by a factor "
     "of 1.25.", "ArCHer", "token PPO"),
    outcome="talks", below=True, off={"arm": "ArCHer, no replay"}, times=1 / FEWER,
)  # fmt: skip
