"""Plan, fill, look at and draw a large sweep, in a process of its own: folder, cells, filled packs."""

import contextlib
import io
import json
import resource
import sys
import time
from pathlib import Path

import numpy as np

from testbed.cli.run_sweep import describe, resolve
from testbed.config.run import Run
from testbed.execution.packs import plan
from testbed.results.parquet import encode
from testbed.results.store import Store, status

FIELDS = ("task", "recipe", "policy", "lag", "seed")


def sweep_file(path: Path, count: int) -> Path:
    """Write a sweep of count cells: ten lags, and seeds."""
    lags, seeds = list(range(10)), list(range(count // 10))
    path.write_text(f'[run]\ntask = "chain"\nsteps = 3\n[grid]\nlag = {lags}\nseed = {seeds}\n')
    return path


def columns(names: tuple[str, ...], cells: tuple[Run, ...]) -> dict[str, object]:
    """Return two rows per cell, with what the figure of exact ESS needs."""
    lag = np.repeat([cell.lag for cell in cells], 2)
    step = np.tile([0, 2], len(cells))
    ess = np.exp(-0.1 * lag * (1 + step))
    return {
        "cell": np.repeat(names, 2), "step": step,
        **{name: np.repeat([getattr(cell, name) for cell in cells], 2)
           for name in ("task", "recipe", "policy")},
        **{name: np.repeat([getattr(cell, name) for cell in cells], 2) for name in ("lag", "seed")},
        "exact/ess_kish_sequence": ess, "rollout_corr/ess_kish_sequence_raw": ess,
        "rollout_corr/ess_floor": np.full(len(ess), 1e-3), "exact/value": ess,
    }  # fmt: skip


def main(folder: str, count: str, packs: str) -> None:
    """Print CPU seconds of each part, and the peak memory in MiB, as JSON."""
    spent: dict[str, float] = {}
    began = time.process_time()

    def lap(name: str) -> None:
        nonlocal began
        spent[name] = round(time.process_time() - began, 2)
        began = time.process_time()

    root = Path(folder)
    path = sweep_file(root / "sweep.toml", int(count))
    cells = resolve(str(sweep_file(root / "small.toml", 1000)), [])
    with contextlib.redirect_stdout(io.StringIO()):
        describe(cells, root / "s", False)
        began = time.process_time()
        cells = resolve(str(path), [])
        describe(cells, root / "s", False)
        lap("dry run")
    planned = plan(cells)
    began = time.process_time()
    store = Store.start(root / "s", planned)
    lap("start")
    chosen = planned[: int(packs)]
    for pack in chosen:
        store.commit(pack.id, encode(columns(pack.names, pack.cells), pack), {})
    filled = sum(len(pack.cells) for pack in chosen)
    lap("fill")
    found = status(root / "s")
    assert (found.planned, found.done) == (int(count), filled)
    lap("status")
    again = Store.start(root / "s", planned)
    assert len(again.done()) == len(chosen)
    lap("resume")
    if filled:
        from paper_figs.save_figures import figures

        began = time.process_time()
        figures(["ess-collapse"], root / "s", root / "out")
        lap("figure")
    spent["cells"], spent["filled"] = int(count), filled
    spent["MiB"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    print(json.dumps(spent))


if __name__ == "__main__":
    main(*sys.argv[1:])
