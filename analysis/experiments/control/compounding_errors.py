"""Cloning against on-policy correction: growth of an imitator's errors with the horizon."""

from analysis.kernels.imitation import corrected
from analysis.kernels.mechanisms import tightrope
from analysis.lab import Experiment, Frame, Groups, Part, Plot, Rows, Seeds, ask, columns, of_seeds, slopes
from testbed.rng import keys

NAME = "compounding-errors"
SEEDS, ROUNDS, LABELS, CONTEXTS = 24, 4, 128, 32
HORIZONS = (4, 8, 16, 32)
MARGIN = 0.02
"""Margin of the shortfall, per step of the horizon. Set before the table was made."""


def rows(seeds: Seeds) -> Rows:
    """Return the exact shortfall after 4 rounds of labeled episodes, 128 steps in all: in total and per
    step.
    """
    for horizon in HORIZONS:
        world, expert_SA = tightrope(contexts=CONTEXTS, horizon=horizon)
        both = corrected(
            world, expert_SA, keys(seeds, "compounding"), rounds=ROUNDS, episodes=LABELS // ROUNDS // horizon
        )
        for name, short_IR in zip(("cloning", "correction"), both, strict=True):
            found = {"shortfall": short_IR[-1], "share": short_IR[-1] / horizon}
            yield columns(seeds, horizon=horizon, learner=name, **found)


EXPERIMENT = Experiment(
    question="Is an imitator's shortfall quadratic in the horizon, and does data of its own make it linear?",
    source="Sun (2023), RL in the era of LLMs; Ross & Bagnell (2010); Ross, Gordon & Bagnell (2011)",
    differs="a rope of 32 contexts, tables, as many labeled steps at every horizon; PPO against replayed "
    "Q-learning is left out",
    compute=of_seeds(NAME, rows, SEEDS, {"rounds": ROUNDS, "labels": LABELS}),
    keys=("run", "seed", "horizon", "learner"), metrics=("shortfall", "share"),
    margins={"shortfall per step": MARGIN},
    figure=Plot(
        "final by setting", x="horizon", y="shortfall: shortfall against the expert", arm=("learner",),
        log="y",
        says="Shows how much less a learner's episode earns than the expert's (log axis), by horizon, on a "
        "rope where each wrong action leads off it; cloning learns from the expert's episodes; correction "
        "learns from one round of these and then from its own episodes with the expert's labels; both get "
        "as many labels.",
    ),
    systems={
        "RL in the Era of LLMs (perspective)": Part(
            "cloning against on-policy correction; no PPO, no Q-learning"
        )
    },
)  # fmt: skip


def difference_of_slopes(table: Frame) -> Groups:
    """Return the slope of cloning's shortfall over the horizon, minus that of correction's."""
    cloning, own = (slopes(table, "horizon", "shortfall", {"learner": n}) for n in ("cloning", "correction"))
    return {run: cloning[run] - own[run] for run in own}


ask(EXPERIMENT, "cloning-grows-faster-with-the-horizon", "Cloning's shortfall rises faster with the horizon "
    "than that of correction, by 0.02 a step.", by=MARGIN, outcome=difference_of_slopes)  # fmt: skip
