"""TRL: trainer_state.json, the numbers by step in every checkpoint of a trainer.

Format: TrainerState.save_to_json of transformers/trainer_callback.py (5.23) with the keys that
GRPOTrainer.log of trl/trainer/grpo_trainer.py adds (TRL 1.16), both read in the installed packages:
log_history is a list of objects with step; evaluation has separate keys, eval_…. Keys ratio and kl identify a
trainer of trl/experimental/async_grpo; its kl is another number than GRPOTrainer's.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testbed.errors import UserError
from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.scalars import ScalarLog, scalar_log


def read(paths: Sequence[Path]) -> ScalarLog:
    """Return log_history; a run's last checkpoint includes the steps of earlier ones."""
    notes: list[str] = []
    entries = [entry for path in paths for entry in _entries(path)]
    if len(paths) > 1:
        notes.append(f"{len(paths)} files are one run; at a step that several have, the last file counts.")
    keys = {str(key) for _, _, entry in entries for key in entry}
    return scalar_log("TRL async" if "ratio" in keys else "TRL", entries, notes)


def _entries(path: Path) -> list[tuple[str, Any, Mapping[str, Any]]]:
    ((_, state),) = files.json_lines(path, [])
    history = state["log_history"]
    if not isinstance(history, list) or not all(isinstance(entry, dict) for entry in history):
        raise UserError(f"{path}: log_history is not a list of objects, as a trainer writes it.")
    if not history:
        raise UserError(
            f"{path}: log_history is empty, so nothing was logged before the checkpoint; lower logging_steps."
        )
    place = f"{path.name}, log_history"
    return [(f"{place} {n}", entry.get("step"), entry) for n, entry in enumerate(history, start=1)]


READER = Reader(
    "trl-scalars", "trainer_state.json", ("trainer_state.json",), ("log_history", "global_step"), read
)
