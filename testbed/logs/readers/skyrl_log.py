"""SkyRL: dumped_data/global_step_N_training_input, as a .pt of plain tensors.

SkyRL writes a pickle of its TrainingInputBatch (trainer.dump_data_batch; dump_data in skyrl/train/trainer.py
of NovaSky-AI/SkyRL). Opening it would run code, so it is refused with the line that turns it into tensors.
Fields: sequences and attention_mask [B, S] with padding on the left, response_mask, loss_mask,
action_log_probs (trainer), rollout_logprobs (sampler), advantages [B, T], rewards [B, T] or [B]; the T
columns are the last of the S. Format: tried on a file of skyrl 0.3.0. SkyRL drops uids before dumping, so
sequences of one prompt form one group.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import UserError
from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.record import Log, LoggedSequence, made

NAMES = {"logp_mu": "rollout_logprobs", "logp_pi": "action_log_probs", "advantage": "advantages"}


def read(paths: Sequence[Path]) -> Log:
    """Return the sequences without their padding, on either side."""
    notes = ["Groups are not dumped: sequences of one prompt at one step are one group."]
    found = [one for path in paths for one in _batch(path)]
    return made("SkyRL", found, notes)


def _batch(path: Path) -> list[LoggedSequence]:
    held = files.tensors(path)
    missing = [n for n in ("sequences", "attention_mask", "loss_mask") if not hasattr(held.get(n), "numpy")]
    if missing:
        raise UserError(
            f"{path} has no tensor {', '.join(missing)}; expected a dump of SkyRL as plain tensors."
        )
    tensors = {name: value for name, value in held.items() if hasattr(value, "numpy")}
    # numpy has no bfloat16; float64 holds ids of tokens exactly.
    arrays = {name: value.to("cpu").double().numpy() for name, value in tensors.items()}
    step = files.number_in(path, r"global_step_(\d+)")
    width = arrays["loss_mask"].shape[1]
    for name in ("response_mask", *NAMES.values()):
        if name in arrays and arrays[name].shape != arrays["loss_mask"].shape:
            raise UserError(
                f"{path}: {name} has shape {arrays[name].shape}, loss_mask {arrays['loss_mask'].shape}; "
                "expected equal."
            )
    if arrays["sequences"].shape[1] < width:
        raise UserError(f"{path}: sequences are shorter than loss_mask; expected prompt and response.")
    return [_sequence(arrays, n, width, 0 if step is None else step) for n in range(len(arrays["sequences"]))]


def _sequence(arrays: Mapping[str, Any], n: int, width: int, step: int) -> LoggedSequence:
    token, real = arrays["sequences"][n].astype(np.int64), arrays["attention_mask"][n].astype(bool)
    kept = arrays.get("response_mask", arrays["attention_mask"][:, -width:])[n].astype(bool)
    response = np.concatenate([np.zeros(len(token) - width, dtype=bool), kept])
    prompt = token[real & ~response]  # reaches the last columns if all padding is on the left
    lists = {ours: arrays[theirs][n][kept] for ours, theirs in NAMES.items() if theirs in arrays}
    reward = arrays.get("rewards")
    return LoggedSequence(
        step=step, sample=str(n), group=f"{step}/{hashlib.sha256(prompt.tobytes()).hexdigest()[:12]}",
        mask=arrays["loss_mask"][n].astype(bool)[kept],
        reward=None if reward is None else float(np.sum(reward[n])), prompt=prompt, token=token[response],
        **lists,
    )  # fmt: skip


FILES = ("*training_input*.pt", "*.pkl")
READER = Reader("skyrl", "global_step_N_training_input.pt", FILES, ("sequences", "loss_mask"), read)
