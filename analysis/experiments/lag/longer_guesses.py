"""M2PO and GRPO on data 256 steps old, and fresh data, after 5,400 steps of guessing over turns."""

from analysis.experiments.lag.longer_training import MARGIN, METRICS, SEEDS, ask_all, family
from analysis.lab import Part, strips

ARMS = family("guess", __file__)
EXPERIMENT = ARMS.experiment(
    METRICS, SEEDS, first=80_000_000,
    question="Do M2PO and GRPO on data 256 steps old end as high as fresh data in guessing over turns?",
    source="Zheng et al. (2025), M2PO, arXiv:2510.01161",
    differs="transformers of 7,000 weights that guess a number over turns",
    margins={"accuracy lost, or gained by a threshold": MARGIN},
    figure=strips("accuracy: final accuracy", "Shows final accuracy after 5,400 steps of toy transformers "
        "that guess a number over turns: GRPO on fresh data, M2PO and GRPO on data 256 steps old, each at "
        "the rate, threshold and clip that suit 5,400 steps."),
    systems={"M2PO (Prosperity before Collapse)": Part("a small model", ("m2po-*",))},
)  # fmt: skip
ask_all(EXPERIMENT, "-on-guess", " of guessing")
