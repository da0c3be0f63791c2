"""What share of tokens CTPO's windows clip at each position while a toy LLM learns to copy 48 tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.experiments.lag.class_rates import LITE
from analysis.lab import (
    Evidence,
    Experiment,
    Part,
    Plot,
    Seeds,
    all_exceed,
    difference,
    exceeds,
    must_vanish,
    of_seeds,
)
from analysis.worlds.edited_training import Arm, trained

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout

NAME = "clip-by-position-in-training"
LONG = 48
POWERS, LAGS, SEEDS, PART, FIRST = (0.0, 0.5, 1.0), (1, 64), 16, 8, 80
"""Powers of the window; lags; seeds of a run; tokens of a bin; first step that counts."""
AFTER = 2000
"""Added to seeds: those before served a first look that counted every tenth step and decided two claims."""
MARGIN = float(np.log(2))
"""Of log(share of the last bin / share of the first) that counts as uneven. Set before the table was made."""
ENDS = ({"position": LONG - PART / 2 + 0.5}, {"position": PART / 2 + 0.5})
"""The last bin and the first, by their middles."""
BASE = replace(
    LITE,
    task="copy",
    task_args=(("digits", LONG),),
    teacher_noise=0.06,
    recipe="ctpo",
    steps=160,
    log_every=160,
    learning_rate=3e-3,
)


class Spy:
    """Counts the tokens that a window clips at each position, [P, R, T], among those with an advantage."""

    def __init__(self) -> None:
        self.cut, self.told = np.zeros(()), np.zeros(())

    def __call__(self, batch: Batch, _rollout: Rollout, logp_RBT: Tensor, step: int) -> Batch:
        """Return the batch as it is."""
        from testbed.inspection.effective_weights import effective_weights

        if step >= FIRST:
            weights = [effective_weights("ctpo", logp_RBT, batch, p=power) for power in POWERS]
            told_RBT = batch.mask_BT & (batch.adv_BT != 0)
            cut = np.stack([(told_RBT & (w_RBT == 0)).sum(-2).numpy() for w_RBT in weights])
            self.cut, self.told = self.cut + cut, self.told + told_RBT.sum(-2).numpy()
        return batch


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Yield the share of tokens that each window clips, by bin of positions, while CTPO learns."""
    seeds = tuple(seed + AFTER for seed in seeds)
    for lag in LAGS:
        run, spy = replace(BASE, lag=lag), Spy()
        trained(Arm(run, change=lambda *_, spy=spy: spy), tuple(replace(run, seed=s) for s in seeds))
        cut, told = (x.reshape(*x.shape[:-1], -1, PART).sum(-1) for x in (spy.cut, spy.told))
        share_PRB = (cut + 0.5) / (told + 1)  # never 0, so that it has a logarithm
        p, r, b = (place.ravel() for place in np.indices(share_PRB.shape))
        yield pd.DataFrame(
            {
                "lag": lag,
                "power": np.array(POWERS)[p],
                "seed": np.array(seeds)[r],
                "position": b * PART + PART / 2 + 0.5,
                "share": share_PRB.ravel(),
            }
        )


EXPERIMENT = Experiment(
    NAME,
    question="Does only a window that widens with the root of the position clip every position alike?",
    source="CTPO (2026), arXiv:2605.07331",
    differs="copying 48 digits, a transformer of 7,000 weights; CTPO learns, and all windows see its batches",
    compute=of_seeds(NAME, rows, SEEDS),
    keys=("run", "lag", "power", "seed", "position"),
    metrics=("share",),
    margins={"log of the factor between first and last tokens that counts as uneven": MARGIN},
    figure=Plot(
        "curves by arm",
        x="position",
        y="share",
        arm=("lag", "power"),
        y_label="share of clipped tokens",
        log="y",
    ),
    systems={"CTPO (cumulative token)": Part("clip share by position at 48 tokens; accuracy: long-windows")},
)


@EXPERIMENT.claim(
    "a-root-window-clips-positions-alike-on-young-data-in-training",
    statement="At lag 1, CTPO's window clips the first and last 8 of 48 tokens alike, to a factor of 2.",
)
def alike(table: pd.DataFrame) -> Evidence:
    """Return the equivalence evidence of the log of both shares' quotient, by seed and run."""
    grown = difference(table, "share", *ENDS, power=0.5, lag=1, log=True)
    return must_vanish(grown, MARGIN, "log 2 less the log of the factor between last and first tokens")


for _name, _words, _ends, _power, _lag in (
    ("a-constant-window-clips-last-tokens-more", "At lag 1, a constant window", ENDS, 0.0, 1),
    ("a-linear-window-clips-first-tokens-more", "At lag 1, one as wide as the position", ENDS[::-1], 1.0, 1),
    ("on-old-data-a-root-window-clips-last-tokens-more", "At lag 64, CTPO's window", ENDS, 0.5, 64),
):
    EXPERIMENT.claim(
        f"{_name}-in-training",
        statement=(
            f"{_words} clips the {'last' if _ends is ENDS else 'first'} 8 of 48 tokens over twice as "
            "often as those at the other end."
        ),
    )(exceeds(MARGIN, "share", *_ends, power=_power, lag=_lag, log=True))


def flatter(table: pd.DataFrame, power: float) -> dict[str, np.ndarray]:
    """Return by how much a window's ends are further apart than those of CTPO's, logs without sign, lag 1."""
    apart = {p: difference(table, "share", *ENDS, power=p, lag=1, log=True) for p in (power, 0.5)}
    return {run: np.abs(x_N) - np.abs(apart[0.5][run]) for run, x_N in apart[power].items()}


for _rival, _power in (("a constant", 0.0), ("a linear", 1.0)):
    EXPERIMENT.claim(
        f"a-root-window-clips-more-alike-than-{_rival.replace(' ', '-')}-one-in-training",
        statement=(
            "At lag 1, the shares of the first and last 8 of 48 tokens that CTPO's window clips are closer "
            f"to each other than those that {_rival} one clips."
        ),
    )(all_exceed(0.0, "log distance of both ends' shares, less that of CTPO's window", flatter, _power))
