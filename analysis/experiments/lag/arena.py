"""The arena's finals: what each recipe gains over tuned GRPO on stale data, and what it keeps of fresh.

The design is the text of analysis/arena/__init__.py; `testbed arena run` makes the runs.
"""

from __future__ import annotations

from pathlib import Path

from analysis.arena import table
from analysis.lab import Experiment
from analysis.tables.committed import Table

RESULTS = Path("results/arena")
"""Where `testbed arena run` writes."""
MARGIN = 0.05
"""Accuracy that counts; set before the runs."""
SHORT, ALL = ("sorted", "sums"), ("sorted", "sums", "guess")
"""Tasks that all arms have run at lag 64, and those that the arms asked most have: cut for cost, before
guess and length had run."""
TUNED, FRESH = {"arm": "grpo"}, {"arm": "grpo", "lag": 0}


def compute() -> Table:
    """Return the rows of all finals in RESULTS."""
    return Table.of(table.NAME, table.gathered(RESULTS), {"version": table.VERSION})


EXPERIMENT = Experiment(
    "arena",
    question="With rates and knobs tuned alike, which recipe gains on stale data, and how much?",
    source="this project",
    differs="a transformer of 7,000 weights on four tasks; lags in optimizer steps, the same for all rows",
    compute=compute,
    keys=("task", "lag", "arm", "run", "seed"),
    metrics=table.KEPT[5:],
    margins={"final accuracy that counts": MARGIN},
    figure="arena",
    command="testbed arena run --task all",
)


# What the placebo gains is what tuning and seeds alone make.
EXPERIMENT.claim(
    "the-placebo-equals-grpo-at-lag-64",
    "GRPO under another name, on other seeds, ends within 0.05 of GRPO at lag 64 on three tasks.",
).equal("final", {"arm": "placebo"}, TUNED, within=MARGIN, over={"lag": 64, "task": ALL})

GAINS = {
    "m2po-gains-over-tuned-grpo-at-lag-64": "m2po",
    "vcpo-gains-over-tuned-grpo-at-lag-64": "vcpo",
    "cispo-gains-over-tuned-grpo-at-lag-64": "cispo",
    "minpro-gains-over-tuned-grpo-at-lag-64": "minpro",
    "topr-gains-over-tuned-grpo-at-lag-64": "topr",
    "gspo-gains-over-tuned-grpo-at-lag-64": "gspo",
    "tis-gains-over-tuned-grpo-at-lag-64": "tis",
    "asymre-gains-over-tuned-grpo-at-lag-64": "asymre",
    "mis-gains-over-tuned-grpo-at-lag-64": "mis",
    "ppo-ewma-gains-over-tuned-grpo-at-lag-64": "ppo_ewma",
    "dapo-gains-over-tuned-grpo-at-lag-64": "dapo",
    "sapo-gains-over-tuned-grpo-at-lag-64": "sapo",
    "r2vpo-gains-over-tuned-grpo-at-lag-64": "r2vpo",
}
GAINS_ON_SHORT = {
    "ctpo-gains-over-tuned-grpo-at-lag-64": "ctpo",
    "rec-gains-over-tuned-grpo-at-lag-64": "rec",
    "dispo-gains-over-tuned-grpo-at-lag-64": "dispo",
    "icepop-gains-over-tuned-grpo-at-lag-64": "icepop",
    "decoupled-ppo-gains-over-tuned-grpo-at-lag-64": "decoupled",
    "oapl-gains-over-tuned-grpo-at-lag-64": "oapl",
    "rapid-gains-over-tuned-grpo-at-lag-64": "rapid",
    "holder-gains-over-tuned-grpo-at-lag-64": "holder",
}
"""Arm by claim: does the recipe gain what counts, on every task that it has run?"""
for _tasks, _claims in ((ALL, GAINS), (SHORT, GAINS_ON_SHORT)):
    for _name, _arm in _claims.items():
        EXPERIMENT.claim(
            _name,
            f"Tuned alike, {_arm} ends 0.05 above GRPO at lag 64, on each of: {', '.join(_tasks)}.",
        ).compare("final", {"arm": _arm}, TUNED, by=MARGIN, over={"lag": 64, "task": _tasks})

KEEPS = {
    "grpo-keeps-fresh-accuracy-at-lag-64": "grpo",
    "m2po-keeps-fresh-accuracy-at-lag-64": "m2po",
    "vcpo-keeps-fresh-accuracy-at-lag-64": "vcpo",
    "topr-keeps-fresh-accuracy-at-lag-64": "topr",
    "minpro-keeps-fresh-accuracy-at-lag-64": "minpro",
    "gspo-keeps-fresh-accuracy-at-lag-64": "gspo",
    "cispo-keeps-fresh-accuracy-at-lag-64": "cispo",
    "reinforce-keeps-fresh-accuracy-at-lag-64": "reinforce",
}
"""Arm by claim: is what stale data cost less than what counts?"""
for _name, _arm in KEEPS.items():
    EXPERIMENT.claim(
        _name,
        f"Tuned at lag 64, {_arm} ends at most 0.05 below GRPO on fresh data, on each of three tasks.",
    ).compare("final", {"arm": _arm, "lag": 64}, FRESH, by=-MARGIN, over={"task": ALL})
