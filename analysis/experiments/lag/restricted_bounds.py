"""DISPO on old data with one bound for wrong answers restricted at a time, at its own rate and at each arm's.

`python -m analysis.experiments.lag.restricted_bounds` chooses rates, arm by arm.
"""

from dataclasses import replace
from pathlib import Path

from analysis.arena.tasks import task
from analysis.experiments.lag.periodic_batches import METRICS
from analysis.lab import Part, Plot
from analysis.worlds.pilots import asks
from analysis.worlds.tuned_training import Family, Way, with_recipe

OLD = replace(task("sorted"), lag=64)
UPPER = 30
"""DISPO's bound for right answers, tuned in the arena."""
ARMS = {
    "dispo": with_recipe(OLD, "dispo", "eps_high_pos"),
    "small restricted": with_recipe(OLD, "dispo", "eps_high_pos", ("eps_low_neg", 0.2)),
    "large restricted": with_recipe(OLD, "dispo", "eps_high_pos", ("eps_high_neg", 0.2)),
}
"""Wrong answers weigh at least .8 in place of 0, or at most 1.2 in place of 101; right ones .8 to 31."""
BOUNDS = Family(
    {name: Way(at, (UPPER,), rates=(5.6e-4, 1e-3, 1.8e-3), pilots=6) for name, at in ARMS.items()}
    | {f"{name}, at dispo's rate": Way(at, (UPPER,), like="dispo") for name, at in list(ARMS.items())[1:]},
    Path(__file__).with_suffix(".csv"),
)
SEEDS, LATER, MARGIN = 32, 80_000, 0.05
"""Seeds of a run, offset past those of other tables; accuracy, as in the arena. Set before the table."""

EXPERIMENT = BOUNDS.experiment(
    (*METRICS, "collapsed", "min actor/entropy"), SEEDS, first=LATER,
    question="Does DISPO on old data collapse where one bound for wrong answers is restricted?",
    source="Karaman et al. (2026), DISPO, arXiv:2602.00983, abstract",
    differs="toy transformers that sort ten digits; bounds from a secondary source; answers of one length",
    margins={"accuracy lost": MARGIN},
    figure=Plot(
        "strips", x="accuracy: final accuracy", y="arm",
        says="Shows final accuracy of toy transformers that sort ten digits from data 64 steps old by DISPO, "
        "whose importance weights of wrong answers reach from 0 to 101, and with weights of at least .8 "
        "(small restricted) or at most 1.2 (large restricted), at each arm's best rate and at DISPO's.",
    ),
    systems={"DISPO": Part("one bound at a time, on one task; answers have one length")},
)  # fmt: skip
asks(EXPERIMENT,
    ("restricted-small-weights-of-wrong-answers-cost-dispo-accuracy",
     "On data 64 steps old DISPO ends 0.05 above the same with weights of at least .8 for wrong answers, "
     "each at its best rate.", "dispo", "small restricted"),
    ("restricted-large-weights-of-wrong-answers-cost-dispo-accuracy",
     "There DISPO ends 0.05 above the same with weights of at most 1.2 for wrong answers, each at its best "
     "rate.", "dispo", "large restricted"),
    by=MARGIN,
)  # fmt: skip
EXPERIMENT.claim(
    "restricted-small-weights-of-wrong-answers-collapse",
    "There, at DISPO's rate, more seeds collapse with weights of at least .8 for wrong answers than without.",
).happens("collapsed", {"arm": "small restricted, at dispo's rate"}, {"arm": "dispo"})
EXPERIMENT.claim(
    "restricted-large-weights-of-wrong-answers-collapse",
    "There, at DISPO's rate, more seeds collapse with weights of at most 1.2 for wrong answers than without.",
).happens("collapsed", {"arm": "large restricted, at dispo's rate"}, {"arm": "dispo"})


if __name__ == "__main__":
    BOUNDS.choose()
