"""Policy improvement from small batches: adaptive sampling, mirror steps, tokens."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from analysis.lab import PILOT, Experiment, Grid, Part, Plot, Rows, Seeds, asks, columns, of_seeds, tuned
from analysis.worlds.offline_worlds import Worlds, random_worlds
from analysis.worlds.sampled_improvement import Arm, Tokens, learn
from testbed.rng import generator

NAME = "small-batches"
SEEDS, TRAININGS, ITERATIONS = 96, 6, 40
SAME = 0.02
"""Margin of scores, 1 being the optimum's lead over the uniform policy. Set before the table was made."""
TREE = Tokens.tree()

GENERAL = {
    "ppo": Arm(rate=20.0),
    "ppo, buffer": Arm(rate=30.0, kept=2),
    "props": Arm(rate=30.0, kept=3, adapt=10.0),
    "props, no adaptation": Arm(rate=30.0, kept=3),
    "ppo, plain advantages": Arm(rate=30.0, knob=0.4, scaled=False),
}
MANY = Arm("mirror", rate=4.0, scaled=False, passes=100)
"""Rates from 1 to 16 reach the same final score on pilot worlds: a hundred inner steps solve the problem."""
MIRRORS: dict[str, tuple[Arm, Grid]] = {
    "mdpo": (MANY, {"knob": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)}),
    "trust region": (
        Arm("trust region"),
        {"knob": (0.025, 0.05, 0.1, 0.2, 0.4, 0.8), "falls": (False, True)},
    ),
    "few steps, no kl": (
        Arm("mirror", knob=np.inf, scaled=False),
        {"rate": (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)},
    ),
}
"""Arms tuned in this file; a trust region may be constant or shrink as MDPO's steps do."""
WORDS = {
    "action": Arm(rate=30.0, knob=0.4, critic="action"),
    "decomposed": Arm(rate=50.0, knob=0.4, critic="decomposed"),
    "token": Arm(rate=100.0, critic="token", token_discount=0.9),
}
"""Every rate, clip and buffer has the best mean score of its grid on 64 other worlds."""
PILOTS = tuple(range(PILOT, PILOT + 64))


@cache
def chosen(name: str) -> tuple[Arm, bool]:
    """Return the best setting of an arm of MIRRORS on 64 pilot worlds, and whether it is an end of its
    grid.
    """
    arm, grid = MIRRORS[name]
    worlds = random_worlds(PILOTS)

    def score(**knobs: Any) -> float:
        how = replace(arm, **knobs)
        runs = [learn(worlds, how, iterations=ITERATIONS, batch=64, seed=PILOT + i) for i in range(2)]
        return float(np.mean(runs))

    best, ends = tuned(score, grid, endless={"falls": (False, True)})
    knobs: dict[str, Any] = best
    return replace(arm, **knobs), ends


def sentences(seeds: Seeds, composed: bool) -> Worlds:
    """Return random MDPs with 22 actions of 1 to 3 tokens; composed: rewards add up over the tokens."""
    plain = random_worlds(seeds, actions=len(TREE.reach_AN))
    if not composed:
        return plain
    found = []
    for seed, world in zip(seeds, plain.worlds, strict=True):
        each_SNV = generator(seed, f"{NAME} tokens").normal(size=(world.states, *TREE.after_NV.shape))
        reward_SA = (each_SNV[:, np.arange(len(TREE.after_NV)), TREE.token_AN] * TREE.reach_AN).sum(-1)
        found.append(replace(world, reward_SA=(reward_SA - reward_SA.mean()) / reward_SA.std()))
    return Worlds.of(tuple(found))


def trained(seeds: Seeds, name: str, worlds: Worlds, arms: Mapping[str, Arm], **more: Any) -> Rows:
    """Yield the mean score over 40 iterations and the final score of every arm, averaged over 6 trainings."""
    drawn, more = range(seeds[0], seeds[0] + TRAININGS), {"iterations": ITERATIONS, **more}
    for arm, how in arms.items():
        score_KR = np.mean([learn(worlds, how, seed=seed, **more) for seed in drawn], axis=0)
        yield columns(seeds, world=name, arm=arm, area=score_KR.mean(0), final=score_KR[-1])


def rows(seeds: Seeds) -> Rows:
    """Yield the scores of every arm in its family of worlds."""
    arms, at_end = dict(GENERAL), dict.fromkeys(GENERAL, False)
    for arm in MIRRORS:
        arms[arm], at_end[arm] = chosen(arm)
    arms["mdpo, no kl"] = replace(arms["mdpo"], knob=np.inf)
    for frame in trained(seeds, "random", random_worlds(seeds), arms, batch=64):
        yield frame.assign(**{"at end": int(at_end.get(frame["arm"].iloc[0], False))})
    for name in ("composed", "unrelated"):
        yield from trained(seeds, name, sentences(seeds, name == "composed"), WORDS, batch=128, tokens=TREE)


EXPERIMENT = Experiment(
    question="From small batches, what do adaptive sampling, mirror steps and other critics add to PPO?",
    source="PROPS (2023), MDPO (2020), POAD (2024), as each claim says",
    differs="tables with TD critics; steps are independent draws of the occupancy; 40 batches",
    compute=of_seeds(NAME, rows, SEEDS, {"iterations": ITERATIONS, "trainings": TRAININGS}),
    keys=("run", "seed", "world", "arm"), metrics=("area", "final", "at end"),
    budget="40 iterations, for which settings were chosen",
    margins={"score that counts as equal": SAME},
    figure=Plot(
        "strips", x="area: mean score of 40 iterations", y="arm",
        says="Shows the score (0 the uniform policy, 1 the optimum) averaged over 40 small batches; on "
        "random MDPs: PPO from the last batch, with scaled or plain advantages, from a buffer of two, or "
        "from three drawn adaptively (props) or not; mirror steps with a KL or none (mdpo), few gradient "
        "steps, and an exact trust region; for actions of several tokens: backups over actions, over tokens, "
        "or discounted only between actions (decomposed).",
    ),
    systems={
        "PROPS": Part("learning speed in random MDPs; sampling error is not measured", ("props-*",)),
        "MDPO": Part(claims=("mdpo-*",)),
        "POAD": Part(claims=("decomposed-*",)),
    },
)  # fmt: skip

PROPS = "Corrado & Hanna (2023), PROPS, arXiv:2311.08290"
asks(EXPERIMENT,
    ("props-learns-faster-than-a-plain-buffer", "In random MDPs PPO from three batches, drawn adaptively, "
     "has a higher mean score over training than PPO from a buffer of the best length drawn on policy, and "
     "than from three such batches.", "props", ("ppo, buffer", "props, no adaptation")),
    ("props-learns-faster-than-ppo", "In random MDPs PPO from adaptively drawn batches has a mean score over "
     "training 0.02 above that of on-policy PPO.", "props", "ppo", SAME),
    outcome="area", source=PROPS, gates={}, over={"world": "random"},
)  # fmt: skip

MDPO = "Tomar et al. (2020), MDPO, arXiv:2005.09814"
RANDOM, OFF = {"world": "random"}, {"arm": "mdpo, no kl"}
asks(EXPERIMENT,
    ("mdpo-is-no-worse-than-a-trust-region", "A hundred inner gradient steps with a KL term have a mean "
     "score at most 0.02 below an exact trust region of the best radius, constant or falling.", "mdpo",
     "trust region", -SAME, {"source": MDPO, "off": OFF}),
    ("mdpo-is-no-worse-than-ppo", "Their mean score is at most 0.02 below that of PPO at its best clip and "
     "rate.", "mdpo", "ppo, plain advantages", -SAME, {"source": MDPO, "off": OFF}),
    ("mdpo-needs-its-kl", "A hundred inner steps with a KL term have a higher mean score than ten without "
     "one at their best rate.", "mdpo", "few steps, no kl",
     {"source": "this project: early stopping in place of the KL"}),
    outcome="area", over=RANDOM,
)  # fmt: skip

POAD, WHERE = "Wen et al. (2024), POAD, arXiv:2405.15821", {"world": ("composed", "unrelated")}
asks(EXPERIMENT,
    ("decomposed-actions-beat-a-token-backup", "With actions of one to three tokens PPO has a mean score "
     "0.02 higher by decomposed backups than by backups over tokens at their best discount.", "decomposed",
     "token", SAME, {"over": WHERE}),
    ("decomposed-actions-beat-an-action-backup", "With actions of one to three tokens, that add up to the "
     "reward, PPO has a higher mean score by decomposed backups than by backups over whole actions.",
     "decomposed", "action", {"over": {"world": "composed"}}),
    outcome="area", source=POAD, gates={},
)  # fmt: skip
