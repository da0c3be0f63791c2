"""Data that are 256 optimizer steps old: six recipes, each at the learning rate that is best for it there."""

from collections.abc import Mapping

import pandas as pd

from analysis.lab import Experiment, Part, Plot, Stop, Tuned, arm
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


NOW, THEN = {"lag": 0}, {"lag": OLD}
GRPO, M2, OAP = ({"recipe": name} for name in ("grpo", "m2po", "oapl"))

EXPERIMENT.claim(
    "m2po-at-lag-256-is-as-good-as-on-policy",
    "M2PO ends within 0.05 of its on-policy accuracy at lag 256, in the median over seeds.",
    source=M2PO,
).equal("accuracy", THEN, NOW, within=MARGIN, over=M2, floor=0.0)
EXPERIMENT.claim(
    "oapl-at-lag-256-is-as-good-as-on-policy",
    "OAPL ends within 0.05 of its on-policy accuracy at lag 256, in the median over seeds.",
    source=OAPL,
).equal("accuracy", THEN, NOW, within=MARGIN, over=OAP, floor=0.0)


def share_clipped(table: pd.DataFrame) -> Mapping[str, pd.Series]:
    """Return what M2PO clips of what GRPO clips, seed by seed."""
    return {"lag 256": (arm(table, CLIPPED, {**M2, **THEN}) / arm(table, CLIPPED, {**GRPO, **THEN})).dropna()}


EXPERIMENT.claim(
    "m2po-clips-a-tenth-of-what-grpo-clips",
    "At lag 256, M2PO clips less than a tenth of the share that GRPO clips, on most seeds.",
    source=f"{M2PO}: 1.22 % of tokens against 0.06 %",
).compare(share_clipped, by=SHARE, below=True)

for _name, _recipe, _title, _source in (
    ("m2po-ends-above-grpo-at-lag-256", "m2po", "M2PO", M2PO),
    ("oapl-ends-above-grpo-at-lag-256", "oapl", "OAPL", OAPL),
    ("vcpo-ends-above-grpo-at-lag-256", "vcpo", "VCPO", "VCPO (2026), arXiv:2602.17616"),
    ("topr-ends-above-grpo-at-lag-256", "topr", "TOPR", "Le Roux et al. (2025), arXiv:2503.14286"),
    ("asymre-ends-above-grpo-at-lag-256", "asymre", "AsymRE", "Arnal et al. (2025), arXiv:2506.20520"),
):
    EXPERIMENT.claim(
        _name, f"At lag 256, {_title} ends with a higher accuracy than GRPO, on most seeds.", source=_source
    ).compare("accuracy", {"recipe": _recipe}, GRPO, over=THEN)
