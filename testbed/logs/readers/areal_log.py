"""AReaL: LOGS/EXPERIMENT/TRIAL/rollout/VERSION/TASK.jsonl, written with rollout.dump_to_file.

Format: _dump_trajectory of areal/infra/workflow_executor.py (inclusionAI/AReaL 4aef98d8d): task_id,
sample_idx, seqlen, prompt_len, head_version, tail_version, reward, prompt, completion. Texts, special tokens
included, and versions of the weights, of a task's oldest and newest token. AReaL writes neither tokens nor
log-probabilities to files: --model and --behavior-model compute them from the text. It does not write the
optimizer step either: the newest version replaces it. Evaluation, in eval-rollout, is omitted.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from testbed.errors import UserError, counted
from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.record import Log, LoggedSequence, made, number, text, whole

NOTE = (
    "AReaL's rollout files hold texts, rewards and versions, but no log-probabilities; its step is not "
    "written: the version of the newest token stands for it."
)


def read(paths: Sequence[Path]) -> Log:
    """Return prompts and completions as text; a task is a group."""
    kept = [path for path in paths if "eval-rollout" not in path.parts]
    if not kept:
        raise UserError(f"{paths[0]} is a rollout of AReaL's evaluation; give files below rollout/.")
    notes, found, mixed = [NOTE], [], 0
    if len(kept) < len(paths):
        notes.append(f"{counted(len(paths) - len(kept), 'file')} of eval-rollout left out.")
    for path in kept:
        for where, row in files.json_lines(path, notes):
            step = whole(row["tail_version"], f"{where}: tail_version") or 0
            mixed += (whole(row["head_version"], f"{where}: head_version") or 0) < step
            found.append(
                LoggedSequence(
                    step=step,
                    sample=f"{row['task_id']}/{row['sample_idx']}",
                    group=f"{step}/{row['task_id']}",
                    mask=np.zeros(0, dtype=bool),
                    reward=number(row["reward"], f"{where}: reward"),
                    text=(
                        text(row["prompt"], f"{where}: prompt"),
                        text(row["completion"], f"{where}: completion"),
                    ),
                )
            )
    if mixed:
        notes.append(f"{mixed} of {len(found)} responses are of tasks with tokens of several versions.")
    return made("AReaL", found, notes)


KEYS = ("task_id", "sample_idx", "head_version", "tail_version", "completion")
READER = Reader("areal", "rollout/VERSION/TASK.jsonl", ("*.jsonl",), KEYS, read)
