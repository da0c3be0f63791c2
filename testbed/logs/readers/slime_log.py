"""slime and miles: the .pt files of --save-debug-rollout-data and --save-debug-train-data, or --dump-details.

Format: slime/utils/types.py (Sample.to_dict: a rollout file is {rollout_id, samples}),
slime/utils/train_dump_utils.py (a train file per rank, {rollout_id, rank, rollout_data}) of THUDM/slime.
Train files with `samples` and `dp_shards` are a later format, read by its field names (sample_index,
log_probs, advantages); it could not be confirmed against the writer. The two kinds are joined by sample
index. weight_versions names the weights of a response's parts, not of its tokens. Everything is loaded with
weights_only, so dumps with other objects are refused.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import UserError
from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.record import Log, LoggedSequence, bools, floats, ints, made, number, whole

Row = dict[str, Any]
COLUMNS = {
    "tokens": "tokens", "response_lengths": "response_length", "loss_masks": "loss_mask", "rewards": "reward",
    "rollout_log_probs": "rollout_log_probs", "log_probs": "log_probs", "advantages": "advantages",
}  # fmt: skip
"""Columns of a rank's rollout_data, and their names in one sample."""


def read(paths: Sequence[Path]) -> Log:
    """Return rollout and train data joined by sample index; reports how many could not be joined."""
    rollout: dict[tuple[int, int], Row] = {}
    train: dict[tuple[int, int], Row] = {}
    for path in paths:
        held = files.tensors(path)
        if not isinstance(held, dict) or not {"samples", "rollout_data"} & set(held):
            raise UserError(
                f"{path} has neither samples nor rollout_data; expected a dump of slime or miles."
            )
        step = int(held.get("rollout_id") or 0)
        is_train = "rollout_data" in held or "dp_shards" in held
        for index, row in _rows(held):
            (train if is_train else rollout)[step, index] = row
    notes = _unjoined(rollout, train)
    mixed: list[bool] = []
    rows = {at: rollout.get(at, {}) | _known(train.get(at, {})) for at in sorted(rollout or train)}
    found = [_sequence(step, index, row, mixed) for (step, index), row in rows.items()]
    if any(mixed):
        notes.append(
            f"{sum(mixed)} of {len(mixed)} responses mix weights versions, and the log does not say which "
            "token has which: all their tokens get the oldest version, so ages are upper bounds."
        )
    return made("slime", found, notes)


def _rows(held: Mapping[str, Any]) -> list[tuple[int, Row]]:
    """Return (sample index, row) of a file of either kind."""
    if "samples" in held:
        rows = [dict(row) for row in held["samples"]]
        # A Sample's index may be None; read as 0, all such samples would be one.
        named = ((row.get("sample_index"), row.get("index"), n) for n, row in enumerate(rows))
        indices = [int(next(each for each in known if each is not None)) for known in named]
        return list(zip(indices, rows, strict=True))
    data = held["rollout_data"]
    indices = data.get("sample_indices")
    if indices is None:
        raise UserError("rollout_data has no sample_indices: its ranks cannot be told apart or joined.")
    columns = {ours: data[theirs] for theirs, ours in COLUMNS.items() if data.get(theirs) is not None}
    return [(int(i), {name: each[n] for name, each in columns.items()}) for n, i in enumerate(indices)]


def _known(row: Row) -> Row:
    return {name: value for name, value in row.items() if value is not None}


def _unjoined(rollout: Mapping[Any, Row], train: Mapping[Any, Row]) -> list[str]:
    if not train:
        return [
            "No train data were given (--save-debug-train-data), so that the trainer's log-probabilities "
            "are missing."
        ]
    if not rollout:
        return ["No rollout data were given (--save-debug-rollout-data): groups and versions are missing."]
    lost, foreign = len(set(rollout) - set(train)), len(set(train) - set(rollout))
    told = f"{lost} of {len(rollout)} samples have no train data: the files of some ranks may be missing."
    notes = [told] if lost else []
    return notes + ([f"{foreign} train samples have no rollout data: dropped."] if foreign else [])


def _sequence(step: int, index: int, row: Row, mixed: list[bool]) -> LoggedSequence:
    where = f"rollout {step}, sample {index}"
    row = files.Row(row, where)
    token = ints(row["tokens"], f"{where}: tokens")
    length = whole(row["response_length"], f"{where}: response_length") or 0
    if token is None or not 0 < length < len(token):
        return LoggedSequence(step, str(index), where, np.zeros(0, dtype=bool))
    given = row.get("loss_mask")
    mask = np.ones(length, bool) if given is None else bools(given, f"{where}: loss_mask")
    if row.get("remove_sample"):
        mask = np.zeros_like(mask)
    advantage = floats(row.get("advantages"), f"{where}: advantages")
    numbers = [v for v in row.get("weight_versions") or [] if str(v).isdigit()]
    versions = [whole(v, f"{where}: weight_versions") or 0 for v in numbers]
    mixed.append(len(set(versions)) > 1)
    reward = row.get("reward")
    group = row.get("group_index")
    return LoggedSequence(
        step=step,
        sample=str(index),
        group=f"{step}/{'' if group is not None else 'alone '}{index if group is None else group}",
        mask=mask,
        reward=number(reward, where) if not isinstance(reward, dict) else None,
        prompt=token[:-length],
        token=token[-length:],
        logp_mu=floats(row.get("rollout_log_probs"), f"{where}: rollout_log_probs"),
        logp_pi=floats(row.get("log_probs"), f"{where}: log_probs"),
        version=np.full(length, min(versions)) if versions else None,
        advantage=advantage if advantage is None or len(advantage) != 1 else np.full(length, advantage[0]),
    )


READER = Reader("slime", "rollout and train dumps, *.pt", ("*.pt",), ("rollout_id",), read)
