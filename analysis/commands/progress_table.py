"""The table above the progress bar of a sweep: a row per arm with cells done, best, last, collapsed."""

from collections.abc import Iterable
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.sweeps.finished_cells import Finished

ROWS = 12
"""Most arms that are shown; with more of them, the lags of a recipe share a row."""


class ProgressTable:
    """Collect finished packs of a sweep with these cell ids, and display them by arm."""

    def __init__(self, cells: Iterable[str]) -> None:
        from analysis.sweeps.finished_cells import arm_of

        cells = list(cells)
        self._with_lag = len({arm_of(cell) for cell in cells}) <= ROWS
        self._planned: dict[str, set[str]] = {}
        for cell in cells:
            self._planned.setdefault(arm_of(cell, self._with_lag), set()).add(cell)
        self._found: dict[str, dict[str, Finished]] = {}
        self._shares: dict[str, float] = {}

    def add(self, content: bytes) -> None:
        """Add the result file of a pack."""
        from analysis.sweeps.finished_cells import arm_of, finished

        for one in finished(content):
            arm = arm_of(one.cell, self._with_lag)
            self._planned.setdefault(arm, set()).add(one.cell)
            self._found[arm] = {**self._found.get(arm, {}), one.cell: one}

    def steps(self, cells: Iterable[str], share: float) -> None:
        """Record the completed share of steps, 0 to 1, of these running cells."""
        self._shares |= dict.fromkeys(cells, share)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row per arm: cells done, median of best and last value, how many collapsed or diverged."""
        return [self._row(arm) for arm in list(self._planned)]

    def _row(self, arm: str) -> dict[str, Any]:
        finished = self._found.get(arm, {})
        found = list(finished.values())
        parts = sum(self._shares.get(cell, 0.0) for cell in self._planned[arm] - finished.keys())
        done = f"{len(found) + parts:.1f}" if parts else str(len(found))
        row: dict[str, Any] = {"arm": arm, "done": f"{done}/{len(self._planned[arm])}"}
        for name in ("best", "last"):
            row[name] = f"{median(getattr(one, name) for one in found):.3f}" if found else ""
        told = [one.collapsed for one in found if one.collapsed is not None]
        row["collapsed"] = sum(told) if told else ""
        if any(one.diverged for arm_found in self._found.values() for one in list(arm_found.values())):
            row["diverged"] = sum(one.diverged for one in found) if found else ""
        return row

    def __rich__(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        rows = self.rows()
        table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        for name in rows[0] if rows else ():
            table.add_column(name, justify="left" if name == "arm" else "right", no_wrap=True)
        for row in rows[:ROWS]:
            table.add_row(*(Text(str(value)) for value in row.values()))
        if len(rows) > ROWS:
            table.add_row(Text(f"… and {len(rows) - ROWS} more"))
        return table
