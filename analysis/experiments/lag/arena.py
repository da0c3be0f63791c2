"""The arena's finals: what each recipe gains over tuned GRPO on stale data, and what it keeps of fresh.

The design is the text of analysis/arena/__init__.py; `testbed arena run` makes the runs.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from analysis.arena import table as finals
from analysis.lab import Evidence, Experiment, Part, arm, happens_mostly, must_exceed
from analysis.tables.committed import Table

RESULTS = Path("results/arena")
"""Where `testbed arena run` writes."""
MARGIN, LESS = 0.05, 0.02
"""Final accuracy that counts, and mean accuracy along the run that does; set before the runs."""
OLD = ("guess", "length", "long")
"""Tasks with lag 256."""
SHORT, ALL = ("sorted", "sums"), ("sorted", "sums", "guess")
"""Tasks that all arms have run at lag 64, and those that the arms asked most have: cut for cost, before
guess and length had run."""
TUNED, FRESH = {"arm": "grpo"}, {"arm": "grpo", "lag": 0}


def compute() -> Table:
    """Return the rows of all finals in RESULTS."""
    return Table.of(finals.NAME, finals.gathered(RESULTS), {"version": finals.VERSION})


EXPERIMENT = Experiment(
    "arena",
    question="With rates and knobs tuned alike, which recipe gains on stale data, and how much?",
    source="this project",
    differs="a transformer of 7,000 weights on four tasks; lags in optimizer steps, the same for all rows",
    compute=compute,
    keys=("task", "lag", "arm", "run", "seed"),
    metrics=finals.KEPT[5:],
    margins={"final accuracy that counts": MARGIN},
    figure="arena",
    command="testbed arena run --task all",
    systems={
        "MinPRO (A Step Back)": Part(
            claims=("minpro-ends-above-tuned-cispo-at-lag-256", "minpro-ends-above-tuned-grpo-at-lag-256")
        ),
        "M2PO (Prosperity before Collapse)": Part(
            claims=("m2po-keeps-fresh-accuracy-at-lag-256", "m2po-ends-above-tuned-grpo-at-lag-256")
        ),
        "BAPO": Part(
            "bounds by the share of gradient mass; accuracy and entropy on two tasks",
            claims=("bapo-gains-over-tuned-grpo-at-lag-64", "bapo-keeps-entropy-at-lag-64"),
        ),
        "CTPO (cumulative token)": Part(
            claims=("ctpo-gains-over-tuned-grpo-at-lag-64", "ctpo-ends-above-tuned-gspo-at-lag-64")
        ),
        "SAPO": Part(claims=("sapo-gains-over-tuned-grpo-at-lag-64", "sapo-ends-above-tuned-gspo-at-lag-64")),
        "DISPO": Part(
            claims=("dispo-ends-above-tuned-cispo-at-lag-64", "dispo-ends-above-tuned-dapo-at-lag-64")
        ),
        "MHPO": Part(claims=("mhpo-gains-over-tuned-grpo-at-lag-64",)),
        "SFPO (Slow-Fast)": Part(
            "mean accuracy along the run, on fresh data",
            claims=("sfpo-learns-faster-than-grpo", "sfpo-learns-faster-than-reused-grpo"),
        ),
        "ReMix (Squeeze the Soaked Sponge)": Part(
            "rollouts saved on fresh data; not the length of responses",
            claims=("remix-needs-a-third-of-the-rollouts-of-grpo", "remix-learns-faster-than-reused-grpo"),
        ),
        "max@k (Best of N Worlds)": Part(claims=("max-at-k-training-has-more-pass-at-8-than-grpo",)),
        "Asynchronous RLHF": Part(
            "robustness of the loss; not that of larger models, nor speed",
            claims=("online-dpo-loses-less-to-lag-than-tuned-rloo",),
        ),
    },
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
    "bapo-gains-over-tuned-grpo-at-lag-64": "bapo",
    "importance-weights-gain-over-tuned-grpo-at-lag-64": "importance",
    "mhpo-gains-over-tuned-grpo-at-lag-64": "mhpo",
    "opmd-gains-over-tuned-grpo-at-lag-64": "opmd",
    "p3o-gains-over-tuned-grpo-at-lag-64": "p3o",
    "gmpo-gains-over-tuned-grpo-at-lag-64": "gmpo",
    "mdpo-gains-over-tuned-grpo-at-lag-64": "mdpo",
    "spear-gains-over-tuned-grpo-at-lag-64": "spear",
    "dppo-gains-over-tuned-grpo-at-lag-64": "dppo",
    "vespo-gains-over-tuned-grpo-at-lag-64": "vespo",
    "aipo-gains-over-tuned-grpo-at-lag-64": "aipo",
}
"""Arm by claim: does the recipe gain what counts, on every task that it has run?"""
for _tasks, _claims in ((ALL, GAINS), (SHORT, GAINS_ON_SHORT)):
    for _name, _arm in _claims.items():
        EXPERIMENT.claim(
            _name,
            f"Tuned alike, {_arm} ends 0.05 above GRPO at lag 64, on each of: {', '.join(_tasks)}.",
        ).compare("final", {"arm": _arm}, TUNED, by=MARGIN, over={"lag": 64, "task": _tasks})

OVER = {
    "sapo-ends-above-tuned-gspo-at-lag-64": ("sapo", "gspo", 64, ALL),
    "dispo-ends-above-tuned-cispo-at-lag-64": ("dispo", "cispo", 64, SHORT),
    "dispo-ends-above-tuned-dapo-at-lag-64": ("dispo", "dapo", 64, SHORT),
    "ctpo-ends-above-tuned-gspo-at-lag-64": ("ctpo", "gspo", 64, SHORT),
    "minpro-ends-above-tuned-cispo-at-lag-256": ("minpro", "cispo", 256, OLD),
    "minpro-ends-above-tuned-grpo-at-lag-256": ("minpro", "grpo", 256, OLD),
    "m2po-ends-above-tuned-grpo-at-lag-256": ("m2po", "grpo", 256, OLD),
    "vcpo-ends-above-tuned-grpo-at-lag-256": ("vcpo", "grpo", 256, OLD),
}
"""Arm, rival, lag and tasks by claim: does the arm end higher by what counts, both tuned there?"""
for _name, (_arm, _rival, _lag, _where) in OVER.items():
    EXPERIMENT.claim(
        _name,
        f"Tuned alike, {_arm} ends 0.05 above {_rival} at lag {_lag}, on each of: {', '.join(_where)}.",
    ).compare("final", {"arm": _arm}, {"arm": _rival}, by=MARGIN, over={"lag": _lag, "task": _where})

for _arm in ("m2po", "vcpo", "grpo"):
    EXPERIMENT.claim(
        f"{_arm}-keeps-fresh-accuracy-at-lag-256",
        f"Tuned at lag 256, {_arm} ends at most 0.05 below GRPO on fresh data after 900 steps (task long).",
    ).compare("final", {"arm": _arm, "lag": 256}, FRESH, by=-MARGIN, over={"task": "long"})

EXPERIMENT.claim(
    "bapo-keeps-entropy-at-lag-64",
    "Tuned alike, BAPO ends at lag 64 with 0.05 nats more entropy per token than GRPO, on sorted and sums.",
).compare("entropy", {"arm": "bapo"}, TUNED, by=MARGIN, over={"lag": 64, "task": SHORT})

for _name, _arm, _rival in (
    ("sfpo-learns-faster-than-grpo", "sfpo_reuse", "grpo"),
    ("sfpo-learns-faster-than-reused-grpo", "sfpo_reuse", "grpo_reuse"),
    ("remix-learns-faster-than-reused-grpo", "remix_reuse", "grpo_reuse"),
    ("r2vpo-learns-faster-than-reused-grpo", "r2vpo_reuse", "grpo_reuse"),
):
    EXPERIMENT.claim(
        _name,
        f"On fresh data {_arm} has 0.02 more accuracy along the run than {_rival}, on sorted and sums; the "
        "number of updates on a batch is tuned for both.",
    ).compare("area", {"arm": _arm}, {"arm": _rival}, by=LESS, over={"lag": 0, "task": SHORT})

EXPERIMENT.claim(
    "max-at-k-training-has-more-pass-at-8-than-grpo",
    "On fresh data, tuned for pass@8, the policy gradient of max@k has 0.05 more pass@8 than GRPO, on sums "
    "and guess.",
    source="Best of N Worlds, arXiv:2510.23393",
).compare(
    "pass@8", {"arm": "max_at_k"}, {"arm": "grpo_pass"}, by=MARGIN, over={"lag": 0, "task": ("sums", "guess")}
)


@EXPERIMENT.claim(source="ReMix, arXiv:2507.06892: 30 to 450 times fewer rollouts")
def remix_needs_a_third_of_the_rollouts_of_grpo(table: pd.DataFrame) -> Evidence:
    """On fresh data ReMix has 80 % of GRPO's final accuracy in under a third of GRPO's steps, on most seeds
    of sorted; the number of updates on a batch is tuned.
    """
    where = {"task": "sorted", "lag": 0}
    ours, theirs = (arm(table, "steps_to_fresh", {"arm": name, **where}) for name in ("remix_reuse", "grpo"))
    return happens_mostly(3 * ours < theirs, "share of seeds in which ReMix needs under a third of the steps")


@EXPERIMENT.claim(source="Noukhovitch et al. (2024), arXiv:2410.18252: online DPO is the most robust")
def online_dpo_loses_less_to_lag_than_tuned_rloo(table: pd.DataFrame) -> Evidence:
    """From fresh data to lag 64, tuned at each, online DPO loses 0.05 less accuracy than RLOO, on sorted and
    sums each.
    """

    def kept(name: str, task: str) -> pd.Series:
        stale, fresh = (arm(table, "final", {"arm": name, "lag": lag, "task": task}) for lag in (64, 0))
        return stale - fresh

    saved = {task: kept("online_dpo", task) - kept("rloo", task) for task in SHORT}
    return must_exceed(saved, MARGIN, "accuracy lost less")


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
