"""REC's clip and its importance weights on old data, every arm at its best."""

from dataclasses import replace
from functools import partial

from analysis.arena.tasks import task
from analysis.experiments.lag.periodic_batches import METRICS
from analysis.lab import Frame, Groups, ask, inside, paired, strips
from analysis.worlds.tuned_training import Family, Way, with_recipe

SOURCE = "Yao et al. (2025), Group-relative REINFORCE is secretly an off-policy algorithm, arXiv:2509.24203"
BASE = task("sorted")
LAGS = {"lag 16": 16, "lag 64": 64, "offline": BASE.steps}
"""Offline all data come from the first weights."""
CLIPS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8)
"""REC's bound below and above a ratio of 1; beyond the last there is no clip."""
ARMS = {"clip": "none", "clip and weights": "importance"}
RATES = (5.6e-4, 1e-3, 1.8e-3)
OPEN = (("eps_low", 1e9), ("eps_high", 1e9))


def _ways(lag: int) -> dict[str, Way]:
    at = partial(with_recipe, replace(BASE, lag=lag), "rec")
    ways = {
        name: Way(at("eps_low+eps_high", ("weight", weight)), CLIPS, True, rates=RATES, pilots=6)
        for name, weight in ARMS.items()
    }
    bare = Way(at("", ("weight", "none"), *OPEN), rates=RATES)
    return {**ways, "no clip": bare} if lag > LAGS["lag 16"] else ways


TUNED = Family(
    {f"{name}, {when}": way for when, lag in LAGS.items() for name, way in _ways(lag).items()},
)
SEEDS, LATER, MARGIN = 32, 90_000, 0.05
"""Seeds of a run, offset past those of other tables; accuracy, as in the tables of one rate."""

EXPERIMENT = TUNED.experiment(
    (*METRICS, "collapsed"),
    SEEDS,
    first=LATER,
    question="Each at its best, what do REC's clip and its importance weights add on old data?",
    source=SOURCE,
    differs="a transformer of 7,000 weights sorts ten digits; 300 steps of 32 responses, each used once",
    margins={"accuracy gained or lost": MARGIN},
    figure=strips(
        "accuracy: final accuracy",
        "Shows final accuracy of toy transformers that sort ten "
        "digits, by the age of the data; offline all data come from the first weights; REC is REINFORCE with "
        "a group baseline that drops tokens beyond a one-sided clip, without or with importance weights; no "
        "clip drops nothing; each arm has its best rate and clip.",
    ),
    systems={"REC (Group-relative REINFORCE is off-policy)": "the clip against the weights"},
)


def without_weights(table: Frame) -> Groups:
    """Return the lead of the clip alone over clip and importance weights at each age, by seed."""
    clip, both = ARMS
    return {
        when: paired(table, "accuracy", {"arm": f"{clip}, {when}"}, {"arm": f"{both}, {when}"})
        for when in LAGS
    }


CHECKS = {"tuned": inside(arm=[f"{name}, {when}" for name in ARMS for when in LAGS])}
_WHERE = "at lags 16 and 64 and on fixed data, each at its best rate and clip."
ask(EXPERIMENT, "tuned-rec-clip-alone-ends-no-lower", "REC's one-sided clip alone ends less than 0.05 below "
    f"clip and importance weights {_WHERE}", by=-MARGIN, outcome=without_weights, gates=CHECKS)  # fmt: skip
EXPERIMENT.claim(
    "tuned-rec-importance-weights-change-nothing",
    f"REC's importance weights change the final accuracy by less than 0.05 {_WHERE}",
    gates=CHECKS,
).equal(without_weights, within=MARGIN)
for _name, _when, _says in (
    ("tuned-rec-clip-gains-at-lag-64", "lag 64", "At lag 64"),
    ("tuned-rec-clip-gains-offline", "offline", "On fixed data"),
):
    ask(
        EXPERIMENT, _name, f"{_says} REC with its clip ends 0.05 more accurate than the same without a "
        "clip, each at its best rate and clip.", f"clip, {_when}", f"no clip, {_when}", MARGIN,
    )  # fmt: skip
