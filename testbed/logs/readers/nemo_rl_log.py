"""NeMo-RL: train_data_stepN.jsonl in the log folder.

Format: nemo_rl/algorithms/grpo.py (the fields) and nemo_rl/utils/logger.py (log_batched_dict_as_jsonl) of
NVIDIA-NeMo/RL: one line per sequence, each a micro-batch of one, so that values are lists of one. token_ids
and the log-probabilities span prompt, response and padding on the right up to the batch's longest, with 0
where token_loss_mask is 0; generation_logprobs are the sampler's, prev_logprobs the trainer's before the
update. There are no groups and no versions. Older files without token_loss_mask are refused.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import UserError
from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.record import Log, LoggedSequence, bools, floats, ints, made, number


def read(paths: Sequence[Path]) -> Log:
    """Return the sequences of all steps; drops and counts those with sample_loss_mask 0."""
    notes = ["Groups are not logged: sequences of one prompt at one step are one group."]
    found, left = [], 0
    for path in paths:
        step = files.number_in(path, r"train_data_step(\d+)")
        for place, row in files.json_lines(path, notes):
            if number(alone(row.get("sample_loss_mask", 1)), f"{place}: sample_loss_mask") == 0:
                left += 1
                continue
            found.append(_sequence(row, place, 0 if step is None else step))
    if left:
        notes.append(f"{left} sequences have sample_loss_mask 0, so that the loss did not see them: dropped.")
    return made("NeMo-RL", found, notes)


def alone(value: Any) -> Any:
    """Return the element of a list of one; return anything else unchanged."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def tokens(value: Any) -> Any:
    """Return a list per token from a list of one list; a plain list, even of one token, is unchanged."""
    return value[0] if isinstance(value, list) and len(value) == 1 and isinstance(value[0], list) else value


def _sequence(row: Mapping[str, Any], where: str, step: int) -> LoggedSequence:
    if "token_loss_mask" not in row:
        raise UserError(
            f"{where} has no token_loss_mask: prompt and padding have log-probability 0 there and cannot be "
            "told from tokens of the policy. Log with a newer NeMo-RL."
        )
    mask = bools(tokens(row["token_loss_mask"]), f"{where}: token_loss_mask")
    length = number(alone(row.get("input_lengths")), f"{where}: input_lengths")
    end = len(mask) if length is None else int(length)
    first = int(np.argmax(mask))
    lists: dict[str, Any] = {
        ours: None if (got := kind(tokens(row.get(theirs)), f"{where}: {theirs}")) is None else got
        for ours, theirs, kind in (
            ("token", "token_ids", ints),
            ("logp_mu", "generation_logprobs", floats),
            ("logp_pi", "prev_logprobs", floats),
        )
    }
    prompt = None if lists["token"] is None else lists["token"][:first]
    digest = where if prompt is None else hashlib.sha256(prompt.tobytes()).hexdigest()[:12]
    cut: dict[str, Any] = {name: None if value is None else value[first:end] for name, value in lists.items()}
    return LoggedSequence(
        step=step,
        sample=str(row.get("idx", where)),
        group=f"{step}/{digest}",
        mask=mask[first:end],
        reward=number(alone(row.get("rewards")), f"{where}: rewards"),
        prompt=prompt,
        advantage=_spread(tokens(row.get("advantages")), len(mask), where)[first:end]
        if row.get("advantages") is not None
        else None,
        **cut,
    )


def _spread(value: Any, length: int, where: str) -> Any:
    """Return an advantage per token, from a list per token or one number for all."""
    found = floats(value if isinstance(value, list) else [value], f"{where}: advantages")
    assert found is not None
    return np.full(length, found[0]) if len(found) == 1 else found


FILES, KEYS = ("train_data_step*.jsonl",), ("generation_logprobs", "input_lengths")
READER = Reader("nemo-rl", "train_data_stepN.jsonl", FILES, KEYS, read)
