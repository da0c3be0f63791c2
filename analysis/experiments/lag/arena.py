"""The arena's finals: what each recipe gains over tuned GRPO on stale data, and what it keeps of fresh.

The design is the text of analysis/arena/__init__.py; `testbed arena run` makes the runs.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.arena import table as finals
from analysis.arena.tasks import NEAR, PIPELINE
from analysis.lab import Arm, Evidence, Experiment, Part, arm, happens_mostly, must_exceed, must_vanish
from analysis.tables.committed import Table

RESULTS = Path("results/arena")
"""Where `testbed arena run` writes."""
MARGIN, LESS = 0.05, 0.02
"""Final accuracy that counts, and mean accuracy along the run that does; set before the runs."""
OLD, PASS = ("guess", "long"), ("sums", "guess")
"""Tasks with lag 256, and those where pass@8 has room."""
SHORT, ALL = ("sorted", "sums"), ("sorted", "sums", "guess")
"""Tasks that all arms have run at lag 64, and those that the arms asked most have: cut for cost, before
guess and length had run. On length staleness costs tuned GRPO nothing, so nothing can be asked there."""
TUNED, FRESH = {"arm": "grpo"}, {"arm": "grpo", "lag": 0}


def compute() -> Table:
    """Return the committed rows and those of all finals in RESULTS."""
    return Table.of(finals.NAME, finals.gathered(RESULTS, finals.load()), {"version": finals.VERSION})


def per_task(tasks: Sequence[str], *stems: str, what: str = "") -> Part:
    """Return the claims STEM-on-TASK."""
    return Part(what, tuple(f"{stem}-on-{task}" for stem in stems for task in tasks))


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
        "MinPRO (A Step Back)": per_task(
            OLD, "minpro-ends-above-tuned-cispo-at-lag-256", "minpro-ends-above-tuned-grpo-at-lag-256"
        ),
        "M2PO (Prosperity before Collapse)": Part(
            claims=(
                "m2po-keeps-fresh-accuracy-at-lag-256-on-long",
                "m2po-ends-above-tuned-grpo-at-lag-256-on-long",
            )
        ),
        "BAPO": per_task(SHORT, "bapo-gains-over-tuned-grpo-at-lag-64", "bapo-keeps-entropy-at-lag-64"),
        "CTPO (cumulative token)": per_task(
            SHORT, "ctpo-gains-over-tuned-grpo-at-lag-64", "ctpo-ends-above-tuned-gspo-at-lag-64"
        ),
        "SAPO": per_task(ALL, "sapo-gains-over-tuned-grpo-at-lag-64", "sapo-ends-above-tuned-gspo-at-lag-64"),
        "DISPO": per_task(
            SHORT, "dispo-ends-above-tuned-cispo-at-lag-64", "dispo-ends-above-tuned-dapo-at-lag-64"
        ),
        "MHPO": per_task(SHORT, "mhpo-gains-over-tuned-grpo-at-lag-64"),
        "SFPO (Slow-Fast)": per_task(
            SHORT, "sfpo-learns-faster-than-grpo", "sfpo-learns-faster-than-reused-grpo"
        ),
        "ReMix (Squeeze the Soaked Sponge)": Part(
            "rollouts saved on fresh data; not the length of responses",
            claims=("remix-needs-a-third-of-the-rollouts-of-grpo",),
        ),
        "max@k (Best of N Worlds)": per_task(PASS, "max-at-k-training-has-more-pass-at-8-than-grpo"),
        "Asynchronous RLHF": per_task(
            SHORT,
            "online-dpo-loses-less-to-lag-than-tuned-rloo",
            what="robustness of the loss; not that of larger models, nor speed",
        ),
    },
)


def on_each(
    stem: str, says: str, outcome: str, arms: tuple[Arm, Arm], tasks: Sequence[str], **asked: Any
) -> None:
    """Register a claim per task, STEM-on-TASK; arms: the one that is to have more, and its rival."""
    for task in tasks:
        EXPERIMENT.claim(f"{stem}-on-{task}", f"{says} on {task}.").compare(
            outcome, *arms, by=asked["by"], over={"task": task, **asked.get("over", {})}
        )


def ends_above(stem: str, arm_name: str, rival: str, lag: int, tasks: Sequence[str]) -> None:
    """Register per task whether an arm ends above another by what counts, both tuned at the lag."""
    says = f"Tuned alike, {arm_name} ends 0.05 above {rival} at lag {lag}"
    on_each(stem, says, "final", ({"arm": arm_name}, {"arm": rival}), tasks, by=MARGIN, over={"lag": lag})


def keeps(arm_name: str, lag: int, tasks: Sequence[str]) -> None:
    """Register per task whether what stale data cost an arm tuned there is less than what counts."""
    stem = f"{arm_name}-keeps-fresh-accuracy-at-lag-{lag}"
    says = f"Tuned at lag {lag}, {arm_name} ends at most 0.05 below GRPO on fresh data"
    on_each(stem, says, "final", ({"arm": arm_name, "lag": lag}, FRESH), tasks, by=-MARGIN)


# What the placebo gains is what tuning and seeds alone make.
for _task in ALL:
    EXPERIMENT.claim(
        f"the-placebo-equals-grpo-at-lag-64-on-{_task}",
        f"GRPO under another name, on other seeds, ends within 0.05 of GRPO at lag 64 on {_task}.",
    ).equal("final", {"arm": "placebo"}, TUNED, within=MARGIN, over={"lag": 64, "task": _task})

ON_ALL = """m2po vcpo cispo minpro topr gspo tis asymre mis ppo_ewma dapo sapo r2vpo""".split()  # noqa: SIM905
ON_SHORT = """ctpo rec dispo icepop decoupled oapl rapid holder bapo importance mhpo opmd p3o gmpo mdpo spear
dppo vespo aipo""".split()  # noqa: SIM905
for _arm in (*ON_ALL, *ON_SHORT):
    _stem = f"{_arm.replace('_', '-')}-gains-over-tuned-grpo-at-lag-64"
    ends_above(_stem, _arm, "grpo", 64, ALL if _arm in ON_ALL else SHORT)

ends_above("sapo-ends-above-tuned-gspo-at-lag-64", "sapo", "gspo", 64, ALL)
ends_above("dispo-ends-above-tuned-cispo-at-lag-64", "dispo", "cispo", 64, SHORT)
ends_above("dispo-ends-above-tuned-dapo-at-lag-64", "dispo", "dapo", 64, SHORT)
ends_above("ctpo-ends-above-tuned-gspo-at-lag-64", "ctpo", "gspo", 64, SHORT)
ends_above("minpro-ends-above-tuned-cispo-at-lag-256", "minpro", "cispo", 256, OLD)
ends_above("minpro-ends-above-tuned-grpo-at-lag-256", "minpro", "grpo", 256, OLD)
ends_above("m2po-ends-above-tuned-grpo-at-lag-256", "m2po", "grpo", 256, OLD)
ends_above("vcpo-ends-above-tuned-grpo-at-lag-256", "vcpo", "grpo", 256, OLD)

for _arm in ("grpo", "m2po", "vcpo", "topr", "minpro", "gspo", "cispo", "reinforce"):
    keeps(_arm, 64, ALL)
for _arm in ("grpo", "m2po", "vcpo"):
    keeps(_arm, 256, ("long",))

on_each(
    "bapo-keeps-entropy-at-lag-64",
    "Tuned alike, BAPO ends at lag 64 with 0.05 nats more entropy per token than GRPO",
    "entropy", ({"arm": "bapo"}, TUNED), SHORT, by=MARGIN, over={"lag": 64},
)  # fmt: skip

for _name, _arm, _rival in (
    ("sfpo-learns-faster-than-grpo", "sfpo_reuse", "grpo"),
    ("sfpo-learns-faster-than-reused-grpo", "sfpo_reuse", "grpo_reuse"),
    ("remix-learns-faster-than-reused-grpo", "remix_reuse", "grpo_reuse"),
    ("r2vpo-learns-faster-than-reused-grpo", "r2vpo_reuse", "grpo_reuse"),
):
    _says = f"On fresh data, updates a batch tuned for both, {_arm} has 0.02 more mean accuracy than {_rival}"
    on_each(_name, _says, "area", ({"arm": _arm}, {"arm": _rival}), SHORT, by=LESS, over={"lag": 0})

on_each(
    "max-at-k-training-has-more-pass-at-8-than-grpo",
    "On fresh data, tuned for pass@8, the policy gradient of max@k has 0.05 more pass@8 than GRPO",
    "pass@8", ({"arm": "max_at_k"}, {"arm": "grpo_pass"}), PASS, by=MARGIN, over={"lag": 0},
)  # fmt: skip


AGED = """grpo topr gspo ppo_ewma m2po vcpo minpro mis cispo reinforce""".split()  # noqa: SIM905
"""Arms on a pipeline's ages; the placebo, which is GRPO, has no place of its own in an order."""
TAU = 0.1
"""Kendall's tau by which two orders of them may agree less."""


def _finals(table: pd.DataFrame, task: str, lag: int) -> pd.DataFrame:
    """Return the finals of AGED, a row per seed."""
    found = {name: arm(table, "final", {"arm": name, "lag": lag, "task": task}) for name in AGED}
    return pd.DataFrame(found).dropna()


def _mean_cost(table: pd.DataFrame, task: str) -> Evidence:
    more = (_finals(table, task, PIPELINE) - _finals(table, task, NEAR)).dropna().mean(axis=1)
    return must_vanish(
        {task: more}, MARGIN, "mean final of the arms on a pipeline's ages, less that at lag 16"
    )


def _order(table: pd.DataFrame, task: str) -> Evidence:
    aged, old = _finals(table, task, PIPELINE), _finals(table, task, NEAR)
    less = []
    for seed in aged.index.intersection(old.index):
        others = old.drop(seed).mean()
        less.append(others.corr(aged.loc[seed], "kendall") - others.corr(old.loc[seed], "kendall"))
    return must_exceed({task: pd.Series(less)}, -TAU, "tau on a pipeline's ages, less that at lag 16")


EXPERIMENT.claim(
    "a-pipelines-ages-cost-grpo-what-their-mean-does-on-sorted",
    "At lag 16's settings, GRPO on ages of a pipeline with mean 16 ends within 0.05 of lag 16 on sorted.",
).equal("final", {**TUNED, "lag": PIPELINE}, {**TUNED, "lag": NEAR}, within=MARGIN, over={"task": "sorted"})
EXPERIMENT.claim(
    "a-pipelines-ages-cost-recipes-what-their-mean-does-on-sorted",
    "At lag 16's settings, ten recipes on ages of a pipeline with mean 16 end in the mean within 0.05 of lag "
    "16 on sorted.",
)(partial(_mean_cost, task="sorted"))
EXPERIMENT.claim(
    "a-pipelines-ages-rank-recipes-as-their-mean-does-on-sorted",
    "Ten recipes on ages of a pipeline with mean 16 agree in order with their means at lag 16 as well as at "
    "lag 16, by Kendall's tau less 0.1, on sorted.",
)(partial(_order, task="sorted"))


@EXPERIMENT.claim(source="ReMix, arXiv:2507.06892: 30 to 450 times fewer rollouts")
def remix_needs_a_third_of_the_rollouts_of_grpo(table: pd.DataFrame) -> Evidence:
    """On fresh data ReMix has 80 % of GRPO's final accuracy in under a third of GRPO's steps, on most seeds
    of sorted; the number of updates on a batch is tuned.
    """
    where = {"task": "sorted", "lag": 0}
    names = ("remix_reuse", "grpo")
    steps = pd.DataFrame(
        {name: arm(table, "steps_to_fresh", {"arm": name, **where}) for name in names}
    ).dropna()
    sooner = 3 * steps["remix_reuse"] < steps["grpo"]
    return happens_mostly(sooner, "share of seeds in which ReMix needs under a third of the steps")


def _lost_less(table: pd.DataFrame, task: str) -> Evidence:
    def kept(name: str) -> pd.Series:
        stale, fresh = (arm(table, "final", {"arm": name, "lag": lag, "task": task}) for lag in (64, 0))
        return stale - fresh

    return must_exceed({task: kept("online_dpo") - kept("rloo")}, MARGIN, "accuracy lost less")


for _task in SHORT:
    EXPERIMENT.claim(
        f"online-dpo-loses-less-to-lag-than-tuned-rloo-on-{_task}",
        source="Noukhovitch et al. (2024), arXiv:2410.18252: online DPO is the most robust",
        statement="From fresh data to lag 64, tuned at each, online DPO loses 0.05 less accuracy than RLOO "
        f"on {_task}.",
    )(partial(_lost_less, task=_task))
