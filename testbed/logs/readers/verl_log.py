"""verl: ROLLOUT_DATA_DIR/STEP.jsonl, written with trainer.rollout_data_dir.

Format: _dump_generations of verl/trainer/ppo/ray_trainer.py (volcengine/verl): input, output, gts, score,
step, and fields added by the reward function; newer versions add uid or request_id. Text only, so --model
computes tokens and log-probabilities. The text has no special tokens, so the end token is missing too.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.record import Log, LoggedSequence, made, number, text, whole


def read(paths: Sequence[Path]) -> Log:
    """Return prompts and responses as text; groups by uid, or by equal prompts of one step."""
    notes: list[str] = []
    found: list[LoggedSequence] = []
    for path in paths:
        for where, row in files.json_lines(path, notes):
            step = whole(row["step"], f"{where}: step") or 0
            prompt = text(row["input"], f"{where}: input")
            found.append(
                LoggedSequence(
                    step=step,
                    sample=where,
                    group=f"{step}/{row.get('uid', prompt)}",
                    mask=np.zeros(0, dtype=bool),
                    reward=number(row["score"], f"{where}: score"),
                    text=(prompt, text(row["output"], f"{where}: output")),
                )
            )
            if "uid" not in row:
                notes.append("Without uid, equal prompts at one step are one group.")
    return made("verl", found, notes)


READER = Reader(
    "verl", "rollout_data_dir/STEP.jsonl", ("*.jsonl",), ("input", "output", "score", "step"), read
)
