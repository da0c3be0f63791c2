"""An averaged anchor on data of one age, and where partial rollouts have lost their old log-probabilities."""

from dataclasses import replace

from analysis.lab import Arm, Experiment, Part, Plot, Stop, Tuned
from analysis.sweeps.base_runs import SMALL
from testbed.config.run import Run

EWMA = "Hilton, Cobbe & Schulman (2021), arXiv:2110.00641"
LOST = "Missing Old Logits (2026), arXiv:2605.12070"
MARGIN = 0.01
"""Accuracy. Set before the sweep was run."""
ARMS: dict[str, Arm] = {
    "PPO, old": {"anchor": "behavior", "staleness": "exact"},
    "EWMA, old": {"anchor": "ewma", "staleness": "exact"},
    **{name: {"anchor": name, "staleness": "partial"} for name in ("snapshot", "ewma", "missing")},
}


def cells() -> tuple[Run, ...]:
    """Anchors at lag 16 and under partial rollouts, four passes over every batch, each at its best rate."""
    base = replace(SMALL, steps=200, recipe="decoupled")
    partial = replace(base, staleness="partial", staleness_args=(("tokens", 1),))
    return (
        *(replace(base, lag=16, anchor=name) for name in ("behavior", "ewma")),
        *(replace(partial, anchor=name) for name in ("snapshot", "ewma", "missing")),
    )


EXPERIMENT = Experiment(
    question="Does an average of earlier weights make old data, or lost log-probabilities, usable for PPO?",
    source=f"{EWMA}; {LOST}",
    differs="a transformer of 7,000 weights, sums of 6 digits; decay 0.889, untuned; 200 steps, four passes",
    cells=cells,
    tuned=Tuned(rates=(3e-4, 1e-3, 3e-3, 1e-2)),
    stop=Stop(block=16, cap=32, begun_with=16),
    keys=("staleness", "anchor", "seed"),
    metrics=("accuracy", "area", "collapsed", "mean actor/clip_share_last_pass"),
    margins={"accuracy that counts as equal": MARGIN},
    figure=Plot(
        "distribution",
        x="staleness",
        y="accuracy",
        arm=("anchor",),
        names={"behavior": "sampler (PPO)"},
        x_label="schedule of staleness (exact: lag 16)",
        y_label="final accuracy",
        says="Shows final accuracy of a transformer of 7,000 weights on sums of six digits, four passes "
        "over every batch, on data 16 steps old (exact) or on responses that grow by a token a step "
        "(partial): PPO clips around the sampler, around a moving average of the weights (EWMA), around the "
        "exact old log-probabilities (snapshot), or around the present weights as if these were lost "
        "(missing).",
    ),
    systems={
        "Missing Old Logits": Part(
            "the score that an EWMA recovers under partial rollouts; not its speed",
            claims=(
                "an-ewma-anchor-is-as-good-as-the-snapshot",
                "an-ewma-anchor-ends-above-missing-log-probabilities",
            ),
        ),
    },
)


EXPERIMENT.claim(
    "an-ewma-anchor-ends-above-missing-log-probabilities",
    "Under partial rollouts decoupled PPO with an averaged anchor ends at a higher accuracy than with the "
    "present weights in place of lost old log-probabilities, on most seeds.",
    source=LOST,
).compare("accuracy", ARMS["ewma"], ARMS["missing"])
EXPERIMENT.claim(
    "an-ewma-anchor-is-as-good-as-the-snapshot",
    "Under partial rollouts decoupled PPO with an averaged anchor ends within 0.01 of its accuracy with the "
    "exact old log-probabilities, in the median over seeds.",
    source=LOST,
).equal("accuracy", ARMS["ewma"], ARMS["snapshot"], within=MARGIN)
