"""Data that are 256 optimizer steps old: six recipes, each at the learning rate that is best for it there."""

from functools import partial

import pandas as pd

from analysis.lab import (
    Arm,
    Evidence,
    Experiment,
    Part,
    Plot,
    Stop,
    Tuned,
    arms,
    at_floor,
    median_exceeds,
    median_stays_below,
    median_within,
)
from analysis.sweeps.base_runs import SMALL
from testbed.config.run import Run, grid

M2PO = "Zheng et al. (2025), Prosperity before Collapse, arXiv:2510.01161"
OAPL = "Ritter et al. (2026), arXiv:2602.19362"
OLD = 256
ON_POLICY = ("grpo", "m2po", "oapl")
MARGIN = 0.05
SHARE = 0.1
"""Of GRPO's clip share; the source has 1.22 % against 0.06 %."""
CLIPPED = "mean actor/clip_share"


def cells() -> tuple[Run, ...]:
    """Six recipes at lag 256, three of them on-policy too, each at its best rate."""
    recipes = (*ON_POLICY, "vcpo", "topr", "asymre")
    return (*grid(SMALL, recipe=ON_POLICY, lag=[0]), *grid(SMALL, recipe=recipes, lag=[OLD]))


EXPERIMENT = Experiment(
    "very-old-data",
    question="What can be learned from data that are 256 optimizer steps old, at a rate of one's own?",
    source=f"{M2PO}; {OAPL}; VCPO (2026), arXiv:2602.17616",
    differs="a transformer of 7,000 weights on running sums; 400 steps; rates chosen from four on 2 seeds",
    cells=cells,
    tuned=Tuned(rates=(3e-4, 1e-3, 3e-3, 1e-2)),
    stop=Stop(cap=32, begun_with=24),
    keys=("recipe", "lag", "seed"),
    metrics=(
        *("accuracy", "best", "start", "area", "collapsed", "rollouts_to 0.8", "last val/pass@8"),
        *(CLIPPED, "min rollout_corr/ess_kish_sequence_raw", "mean rollout_corr/kl_mu_pi_k3"),
        "mean actor/learning_rate",
    ),
    margins={"accuracy that counts as equal": MARGIN, "clip share, of GRPO's": SHARE},
    figure=Plot(
        "strips",
        x="accuracy: final accuracy",
        y="arm",
        of=lambda table: table.assign(arm=table["recipe"] + ", lag " + table["lag"].astype(str)),
        also=({"x": f"{CLIPPED}: share of tokens clipped"},),
    ),
    systems={
        "M2PO (Prosperity before Collapse)": Part(
            claims=("m2po-at-lag-256-is-as-good-as-on-policy", "m2po-clips-a-tenth-of-what-grpo-clips")
        ),
        "OAPL": Part(
            "lag 256, not 400 and more; final accuracy, not generations saved",
            claims=("oapl-at-lag-256-is-as-good-as-on-policy", "oapl-ends-above-grpo-at-lag-256"),
        ),
        "VCPO (Stable Asynchrony)": Part(
            "final accuracy against GRPO on old data", claims=("vcpo-ends-above-grpo-at-lag-256",)
        ),
    },
)


def _arm(recipe: str, lag: int = OLD) -> Arm:
    return {"recipe": recipe, "lag": lag}


def _as_good_as_on_policy(table: pd.DataFrame, recipe: str) -> Evidence:
    found = arms(table, "accuracy", {"old": _arm(recipe), "on-policy": _arm(recipe, 0)})
    note = (
        f"median change in final accuracy; medians {found['old'].median():.3f} at lag "
        f"{OLD}, {found['on-policy'].median():.3f} on-policy"
    )
    floored = ["both"] if at_floor([found["old"], found["on-policy"]], MARGIN) else []
    return median_within({recipe: found["old"] - found["on-policy"]}, MARGIN, note, floored)


def _above_grpo(table: pd.DataFrame, recipe: str) -> Evidence:
    """Return the evidence about the difference of final accuracies, paired by seed."""
    found = arms(table, "accuracy", {name: _arm(name) for name in (recipe, "grpo")})
    middle = found.median()
    note = f"median gain in final accuracy over GRPO; medians {middle[recipe]:.3f}, {middle['grpo']:.3f}"
    return median_exceeds(found[recipe] - found["grpo"], 0.0, note)


@EXPERIMENT.claim(source=M2PO)
def m2po_at_lag_256_is_as_good_as_on_policy(table: pd.DataFrame) -> Evidence:
    """M2PO ends within 0.05 of its on-policy accuracy at lag 256, in the median over seeds."""
    return _as_good_as_on_policy(table, "m2po")


@EXPERIMENT.claim(source=f"{M2PO}: 1.22 % of tokens against 0.06 %")
def m2po_clips_a_tenth_of_what_grpo_clips(table: pd.DataFrame) -> Evidence:
    """At lag 256, M2PO clips less than a tenth of the share that GRPO clips, on most seeds."""
    found = arms(table, CLIPPED, {name: _arm(name) for name in ("m2po", "grpo")})
    middle = found.median()
    note = f"median quotient; medians {middle['m2po']:.4f} and {middle['grpo']:.4f}"
    return median_stays_below(found["m2po"] / found["grpo"], SHARE, note)


@EXPERIMENT.claim(source=OAPL)
def oapl_at_lag_256_is_as_good_as_on_policy(table: pd.DataFrame) -> Evidence:
    """OAPL ends within 0.05 of its on-policy accuracy at lag 256, in the median over seeds."""
    return _as_good_as_on_policy(table, "oapl")


for _recipe, _title, _source in (
    ("m2po", "M2PO", M2PO),
    ("oapl", "OAPL", OAPL),
    ("vcpo", "VCPO", "VCPO (2026), arXiv:2602.17616"),
    ("topr", "TOPR", "Le Roux et al. (2025), arXiv:2503.14286"),
    ("asymre", "AsymRE", "Arnal et al. (2025), arXiv:2506.20520"),
):
    EXPERIMENT.claim(
        f"{_recipe}-ends-above-grpo-at-lag-256",
        source=_source,
        statement=f"At lag 256, {_title} ends with a higher accuracy than GRPO, on most seeds.",
    )(partial(_above_grpo, recipe=_recipe))
