"""SePPO's losers: samples of a checkpoint some steps back, or of any, against those of the reference."""

from functools import cache

from analysis.experiments.pairs.preference_sets import regrets
from analysis.lab import Experiment, Grid, Rows, Seeds, asks, columns, of_seeds, strips
from analysis.worlds.pilots import Arm
from analysis.worlds.preference_learners import STEPS, demonstrations

NAME = "lagged-losers"
WORLDS, FRESH, PILOTS, LESS = 96, 680_000, 24, 1.05
"""Random worlds of a run, which begin so far beyond those of other tables; pilot worlds; factor of regret
that counts as less. Set before the table was made."""
PAIRS: Grid = {"rate": tuple(2.0**i for i in range(-6, 4)), "beta": tuple(2.0**i for i in range(-12, 3))}
GRIDS: dict[str, Grid] = {
    "reference's losers": PAIRS,
    "lagged": {"lag": (8, 16, 32, 64), **PAIRS},
    "any checkpoint": {"lag": (-1,), **PAIRS},
}
LONGEST = {"lag": 64}
"""Beyond it most steps of a run have the start's losers, as the rival has."""


@cache
def tuned(learner: str) -> tuple[dict[str, float], list[str]]:
    """Return the settings of least regret on pilot worlds, and those at an end of their grid."""
    return Arm(regrets(demonstrations(learner)), GRIDS[learner]).tuned(PILOTS, LONGEST)


def rows(seeds: Seeds) -> Rows:
    """Return the regret of the learners on all prompts, by world."""
    for learner, grid in GRIDS.items():
        best, ends = tuned(learner)
        arm = Arm(regrets(demonstrations(learner)), grid)
        found = [arm.at(FRESH + seed, best)[0] for seed in seeds]
        said = {"knob": best.get("lag", STEPS), "rate": best["rate"], "beta": best["beta"]}
        yield columns(seeds, learner=learner, regret=found, **said, at_end=" ".join(ends))


EXPERIMENT = Experiment(
    question="Do losers from earlier checkpoints leave less regret than the reference's?",
    source="Zhang et al. (2024), SePPO, arXiv:2410.05255",
    differs="log-linear policies, 16 prompts of 6 answers, regret in true reward; the checkpoint that makes "
    "losers is the reference of the loss too; no anchor, no images",
    compute=of_seeds(NAME, rows, WORLDS, {"pilots": PILOTS, "steps": STEPS}),
    keys=("run", "seed", "learner"), metrics=("regret", "knob", "rate", "beta", "at_end"),
    margins={"factor of regret": LESS},
    figure=strips("regret", "Shows true regret (log axis) of log-linear policies that learn from "
        "demonstrations on 16 prompts of 6 answers, with losers drawn by the reference or by a checkpoint of "
        "up to 64 steps ago, or drawn from all before.", y="learner", log="x"),
    systems={"SePPO": "without its anchor"},
)  # fmt: skip

asks(EXPERIMENT,
    ("changing-losers-beat-fixed-ones", "As losers, samples of checkpoints of at most 64 of 150 steps ago "
     "leave less regret than samples of the reference, by a factor of 1.05, both tuned.",
     {"learner": "reference's losers"}, {"learner": "lagged"}),
    ("losers-of-any-checkpoint-beat-fixed-ones", "As losers, samples of a checkpoint drawn anew at every "
     "step from all before leave less regret than samples of the reference, by a factor of 1.05, both tuned.",
     {"learner": "reference's losers"}, {"learner": "any checkpoint"}),
    outcome="regret", times=LESS,
)  # fmt: skip
