"""What share of tokens CTPO's windows clip at each position while a toy LLM learns to copy 48 tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.claims import Evidence
from analysis.comparisons import must_vanish
from analysis.edited_training import Arm, trained
from analysis.experiment import Experiment
from analysis.experiments.class_rates import COPY, LONG
from analysis.plot import Plot
from analysis.replication import Seeds, difference, exceeds, of_seeds

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout

NAME = "clip-by-position-in-training"
POWERS, LAGS, SEEDS, PART, FIRST, EVERY = (0.0, 0.5, 1.0), (4, 64), 8, 8, 80, 10
"""Powers of the window; lags; seeds of a run; tokens of a bin; first step that counts, and how many apart."""
MARGIN = float(np.log(1.5))
"""Of log(share of the last bin / share of the first) that counts as uneven. Set before the table was made."""
ENDS = (PART / 2 + 0.5, LONG - PART / 2 + 0.5)
"""Middles of the first and of the last bin."""
BASE = replace(COPY[LONG], recipe="ctpo", steps=160, log_every=160, learning_rate=1e-2)


class Spy:
    """Counts the tokens without a weight at each position among those with an advantage, [R, T] each."""

    def __init__(self, power: float) -> None:
        self.power, self.cut, self.all = power, 0.0, 0.0

    def __call__(self, batch: Batch, _rollout: Rollout, logp_RBT: Tensor, step: int) -> Batch:
        from testbed.inspection.effective_weights import effective_weights

        if step >= FIRST and step % EVERY == 0:
            weight_RBT = effective_weights("ctpo", logp_RBT, batch, p=self.power)
            told_RBT = batch.mask_BT & (batch.adv_BT != 0)
            self.cut += (told_RBT & (weight_RBT == 0)).sum(-2).double().numpy()
            self.all += told_RBT.sum(-2).double().numpy()
        return batch


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Yield the share of clipped tokens by bin of positions, of CTPO trained with each window at each lag."""
    for power, lag in product(POWERS, LAGS):
        run, spy = replace(BASE, lag=lag, recipe_args=(("p", power),)), Spy(power)
        trained(Arm(run, change=lambda *_, spy=spy: spy), tuple(replace(run, seed=s) for s in seeds))
        cut_RB, all_RB = (x.reshape(len(seeds), -1, PART).sum(-1) for x in (spy.cut, spy.all))
        share_RB = (cut_RB + 0.5) / (all_RB + 1)  # never 0, so that it has a logarithm
        place = np.indices(share_RB.shape)
        yield pd.DataFrame(
            {
                "power": power,
                "lag": lag,
                "seed": np.array(seeds)[place[0]].ravel(),
                "position": (place[1] * PART + PART / 2 + 0.5).ravel(),
                "share": share_RB.ravel(),
            }
        )


def _alike(table: pd.DataFrame, lag: int) -> Evidence:
    first, last = ({"position": each} for each in ENDS)
    grown = difference(table, "share", last, first, power=0.5, lag=lag, log=True)
    return must_vanish(grown, MARGIN, "log 1.5 less the log of the factor between last and first tokens")


EXPERIMENT = Experiment(
    NAME,
    question="Does only a window that widens with the root of the position clip every position alike?",
    source="CTPO (2026), arXiv:2605.07331",
    differs="copying 48 digits, a transformer of 7,000 weights, steps 80 to 160; one learning rate",
    compute=of_seeds(NAME, rows, SEEDS),
    keys=("run", "power", "lag", "seed", "position"),
    metrics=("share",),
    margins={"log of the factor between first and last tokens that counts as uneven": MARGIN},
    figure=Plot(
        "curves by arm", x="position", y="share", arm=("lag", "power"), y_label="share of clipped tokens"
    ),
    systems=("CTPO (cumulative token)",),
)


for _lag in LAGS:
    _ends = ({"position": ENDS[1]}, {"position": ENDS[0]})
    EXPERIMENT.claim(
        f"a-root-window-clips-positions-alike-in-training-at-lag-{_lag}",
        statement=f"At lag {_lag} CTPO clips the first and last 8 of 48 tokens alike, to a factor of 1.5.",
    )(partial(_alike, lag=_lag))
    EXPERIMENT.claim(
        f"a-window-that-does-not-widen-clips-last-tokens-more-at-lag-{_lag}",
        statement=f"At lag {_lag} a constant window clips the last 8 tokens 1.5 times as often as the first.",
    )(exceeds(MARGIN, "share", *_ends, power=0.0, lag=_lag, log=True))
    EXPERIMENT.claim(
        f"a-window-as-wide-as-the-position-clips-first-tokens-more-at-lag-{_lag}",
        statement=(
            f"At lag {_lag} a window as wide as the position clips the first 8 tokens 1.5 times as often as "
            "the last."
        ),
    )(exceeds(MARGIN, "share", *_ends[::-1], power=1.0, lag=_lag, log=True))
