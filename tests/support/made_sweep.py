"""A results folder of made-up learning curves: any cells, any loss of accuracy, no training."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from analysis.tables.outcomes import ACCURACY, ESS, ESS_FLOOR
from analysis.tables.tails import BINS, HISTOGRAM
from testbed.config.run import Run, cell_id, grid
from testbed.execution.packs import plan
from testbed.results.parquet import encode
from testbed.results.store import Store

STEPS = np.arange(0, 100, 10)
TOY = Run(task="running-sum", policy="toy", steps=100, learning_rate=3e-3)
CELLS = grid(TOY, recipe=["grpo", "reinforce"], lag=[0, 8, 64], seed=range(4))

Accuracy = Callable[[Run], np.ndarray]


def accuracy(run: Run) -> np.ndarray:
    """Return a curve that rises to 0.9 and a seed's 0.01; REINFORCE at lag 64 is at 0 from step 60."""
    rise_L = np.minimum(0.9, STEPS / 50) + run.seed / 100
    return np.where((STEPS >= 60) & (run.recipe == "reinforce") & (run.lag == 64), 0.0, rise_L)


def columns(runs: Iterable[Run], curve: Accuracy = accuracy) -> dict[str, Any]:
    """Return what a pack of these cells might have logged: every field of Run, and six metrics."""
    runs = tuple(runs)
    size = len(STEPS)
    found: dict[str, Any] = {
        "cell": np.repeat([cell_id(run) for run in runs], size),
        "step": np.tile(STEPS, len(runs)),
    }
    for name in asdict(runs[0]):
        values = [getattr(run, name) for run in runs]
        if name.endswith("_args"):
            values = [",".join(f"{k}={v}" for k, v in pairs) for pairs in values]
        found[name] = np.repeat(np.array(values), size)
    found[ACCURACY] = np.concatenate([curve(run) for run in runs])
    found["diverged"] = np.isnan(found[ACCURACY]).astype(float)
    found[ESS] = np.repeat([1 / (1 + run.lag) for run in runs], size)
    found[ESS_FLOOR] = np.full(size * len(runs), 1 / 64)
    found["reward/mean"] = np.nan_to_num(found[ACCURACY]) / 2
    found[HISTOGRAM] = [np.bincount([64, 64, 66 + r.lag // 16], minlength=BINS) for r in runs for _ in STEPS]
    return found


def made(folder: Path, cells: Iterable[Run] = CELLS, curve: Accuracy = accuracy) -> Path:
    """Fill a results folder with these cells and return it."""
    packs = plan(cells)
    store = Store.start(folder, packs)
    for pack in packs:
        assert store.commit(pack.id, encode(columns(pack.cells, curve), pack), {})
    return folder
