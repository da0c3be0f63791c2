"""TRL: completions/completions_STEP.parquet, written with log_completions.

Format: GRPOTrainer.log of trl/trainer/grpo_trainer.py (TRL 1.16, read in the installed package): step,
prompt, completion (text, or messages), a column per reward function, extras, advantage. There are neither
tokens nor log-probabilities: --model computes both from the text. Reward weights are not written; the reward
here is the sum of the numeric columns, as a note says. A file holds the batches since the last log.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.record import Log, LoggedSequence, made, number, text, whole

KNOWN = ("step", "prompt", "completion", "advantage")


def read(paths: Sequence[Path]) -> Log:
    """Return prompts and completions as text, with advantages; equal prompts of one step are a group."""
    notes, found = ["Groups are not logged: equal prompts at one step are one group."], []
    for path in paths:
        rows = files.parquet_rows(path)
        rewards = [n for n in rows[0] if n not in KNOWN and all(_is_number(row[n]) for row in rows)]
        if rewards:
            notes.append(f"The reward is the sum of {', '.join(rewards)}: reward weights are not logged.")
        for n, row in enumerate(rows):
            found.append(_sequence(row, rewards, f"{path.name}, row {n + 1}"))
    return made("TRL", found, notes)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _sequence(row: Mapping[str, Any], rewards: Sequence[str], where: str) -> LoggedSequence:
    prompt, completion = (
        json.dumps(row[name]) if isinstance(row[name], list) else text(row[name], f"{where}: {name}")
        for name in ("prompt", "completion")
    )
    advantage = number(row.get("advantage"), f"{where}: advantage")
    given = [float(row[name]) for name in rewards if row[name] is not None]
    return LoggedSequence(
        step=whole(row["step"], f"{where}: step") or 0, sample=where, group=f"{row['step']}/{prompt}",
        mask=np.zeros(0, dtype=bool), reward=sum(given) if given else None, advantage=None,
        text=(prompt, completion), scalar_advantage=advantage,
    )  # fmt: skip


FILES, KEYS = ("completions_*.parquet",), ("completion", "advantage")
READER = Reader("trl", "completions/completions_STEP.parquet", FILES, KEYS, read)
