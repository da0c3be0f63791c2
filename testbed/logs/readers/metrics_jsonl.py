"""verl, tinker-cookbook and others: a step's numbers on a line of JSON.

Format: {"step": …, "data": {key: number}} of FileLogger in verl/utils/tracking.py (volcengine/verl
b178a3cd5), written with "file" in trainer.logger to PROJECT/EXPERIMENT.jsonl; orjson writes NaN as null. Flat
lines {"step": …, key: number} are write_metrics of tinker_cookbook/stores/training_store.py (tinker-cookbook
9dfcc3a2), written to metrics.jsonl. Keys may use dots instead of slashes. W&B's history as JSON lines has
train/ before the keys of TRL (transformers/integrations) and OpenRLHF (openrlhf/trainer/ppo_utils/loggers.py,
OpenRLHF/OpenRLHF 82c060e61). The stack is the one with the most matching keys.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import UserError
from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.scalars import ScalarLog, nothing_known, scalar_log, stack_of

STEPS = ("step", "global_step", "training/global_step", "train/global_step")
"""Keys that hold the step; the first one present counts."""


def read(paths: Sequence[Path]) -> ScalarLog:
    """Return lines by step; omits and counts lines without one."""
    notes: list[str] = []
    rows = [row for path in paths for row in files.json_lines(path, notes)]
    entries = [(where, _step(row), _data(row, where)) for where, row in rows]
    placed = [entry for entry in entries if entry[1] is not None]
    if not placed:
        raise UserError(
            f"{paths[0]} has no step in any line. A line needs 'step' beside its metrics, as verl writes it."
        )
    if len(placed) < len(entries):
        notes.append(f"{len(entries) - len(placed)} of {len(entries)} lines have no step: left out.")
    keys = list(dict.fromkeys(str(key) for _, _, data in placed for key in data if key not in STEPS))
    stack = stack_of(keys)
    if not stack:
        raise nothing_known(keys, "")
    return scalar_log(stack, placed, notes)


def _step(row: Mapping[str, Any]) -> Any:
    return next((row[name] for name in STEPS if row.get(name) is not None), None)


def _data(row: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return the numbers of a line, which are below data or next to the step."""
    data = row.get("data", row)
    if not isinstance(data, dict):
        raise UserError(f"{where}: data is a {type(data).__name__}, expected an object of numbers by key.")
    return data


def accepts(row: Mapping[str, Any]) -> bool:
    """Return True if a flat line has a step, mostly numbers, and a key that some stack logs."""
    numbers = sum(isinstance(value, int | float | None) for value in row.values())
    return _step(row) is not None and 2 * numbers > len(row) and bool(stack_of(map(str, row)))


def lacks(row: Mapping[str, Any]) -> str:
    """Return the keys that a line of a step's numbers misses: its step, or any metric known here."""
    stack = stack_of(map(str, row))
    if stack and _step(row) is None:
        return f"{', '.join(STEPS[:-1])} or {STEPS[-1]}, beside numbers of {stack}"
    return "" if stack or _step(row) is None else "a key of `testbed list metrics` beside its step"


READER = Reader("metrics-jsonl", "EXPERIMENT.jsonl", ("*.jsonl",), ("step", "data"), read, accepts, lacks)
