"""One token with an outlying ratio in a sequence of tokens on policy: what is left of the others' gradient
(SAPO).
"""

from itertools import product

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, exact, short_of
from analysis.tables.committed import Table

NAME = "outlier-token"
LENGTHS = (8, 16, 32, 64)
OUTLIERS = tuple(float(x) for x in np.geomspace(1.0, 100.0, 17))
OBJECTIVES = {"GRPO": "ppo_clip", "GSPO": "gspo", "GMPO": "gmpo", "SAPO": "sapo"}


def kept(name: str, length: int, outlier: float, sign: float) -> tuple[float, float]:
    """Return the others' weight over the one they have on policy, and the outlier's over the same."""
    import torch

    from testbed.data.batch import Batch
    from testbed.inspection.effective_weights import effective_weights

    def weights(ratio: float) -> torch.Tensor:
        mu = torch.full((1, length), -1.0, dtype=torch.float64)
        moved = torch.zeros_like(mu)
        moved[0, 0] = float(np.log(ratio))
        one = torch.ones(1, dtype=torch.float64)
        batch = Batch(mu, torch.full_like(mu, sign), mu < 0, sign * one, torch.zeros(1, dtype=torch.int64))
        return effective_weights(name, mu + moved, batch)[0]

    found, base = weights(outlier), float(weights(1.0)[1])
    return float(found[1:].mean()) / base, float(found[0]) / base


def compute() -> Table:
    """Return a row per objective, length, sign of A and outlying ratio."""
    rows = [
        (label, length, int(sign), outlier, *kept(name, length, outlier, sign))
        for (label, name), length, sign, outlier in product(
            OBJECTIVES.items(), LENGTHS, (1.0, -1.0), OUTLIERS
        )
    ]
    columns = ["objective", "length", "advantage", "outlier", "others", "own"]
    return Table.of(NAME, pd.DataFrame(rows, columns=columns), {"ratios": "one token's; all others 1"})


EXPERIMENT = Experiment(
    NAME,
    question="What does one outlying token leave of the gradient of the tokens beside it?",
    source="SAPO (2025), arXiv:2511.20347",
    differs="exact weights of one sequence; no training",
    compute=compute,
    keys=("objective", "length", "advantage", "outlier"),
    metrics=("others", "own"),
    margins={"of the others' weight": 0.0},
    figure=Plot(
        "curves by arm", x="outlier: ratio of one token of 16", y="others: weight of the others",
        arm=("objective",), where={"length": 16, "advantage": 1}, log="x",
    ),
    systems={"SAPO": Part("weights beside an outlying token; no stability in training")},
)  # fmt: skip


@EXPERIMENT.claim()
def sapo_keeps_the_tokens_beside_an_outlier() -> Evidence:
    """Whatever the ratio of one token, from 1 to 100, SAPO and GRPO leave the other 7 to 63 tokens their
    whole weight, for either sign of A; SAPO's own weight of the outlier is below 1e-9 from 32 on.
    """
    gaps = []
    for name, length, sign, outlier in product(
        ("sapo", "ppo_clip"), LENGTHS, (1.0, -1.0), (1.0, 3.0, 32.0, 100.0)
    ):
        others, own = kept(name, length, outlier, sign)
        gaps.append(abs(others - 1))
        if name == "sapo" and outlier >= 32:
            gaps.append(own)
    return exact(gaps, 1e-9, "largest distance of the others' weight from 1, and weight of the outlier")


@EXPERIMENT.claim()
def gspo_drops_or_swells_the_tokens_beside_an_outlier() -> Evidence:
    """GSPO gives them nothing for A > 0 as soon as the geometric mean passes its bound, which a ratio of 1.03
    does at length 64, and for A < 0 that mean: 1.78 times their weight at ratio 100 and length 8.
    """
    gaps = [
        kept("gspo", length, outlier, 1.0)[0] for length, outlier in product(LENGTHS, (1.03, 10.0, 100.0))
    ]
    for length, outlier in product(LENGTHS, (10.0, 100.0)):
        gaps.append(abs(kept("gspo", length, outlier, -1.0)[0] - outlier ** (1 / length)))
    return exact(
        [*gaps, short_of(kept("gspo", 8, 100.0, -1.0)[0], 1.77)], 1e-9, "largest distance of a weight"
    )
