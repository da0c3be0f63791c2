"""A lag trace: one row per trained sample, checked on reading and writing; CSV or Parquet by extension.

The file couples a pipeline, simulated or recorded, to a learner. Its rows are in training order, in batches
0, 1, 2, …; the learner gives every sample the weights that began it, and plots its return against `time`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from testbed.errors import UserError, suggest
from testbed.pipeline.design import Design

WHOLE = ("batch", "group", "member", "length", "version_start", "version_end", "version_trained")
COLUMNS = (*WHOLE, "time")
"""batch: counted from 0 or 1, without gaps. group, member: prompt and answer. length: tokens.
version_start, version_end, version_trained: optimizer updates in the weights of the first token, of the last
token, and of the sample's gradient. time: seconds from the start to its training."""
ENDINGS = (".csv", ".parquet")
TOKENS = ("", "first", "last")
MOST_WRONG = 10
"""Most wrong lines named in one message."""


@dataclass(frozen=True)
class Trace:
    """Columns of equal length N, see COLUMNS."""

    column_B: Mapping[str, NDArray[Any]]

    def __len__(self) -> int:
        return len(self.column_B["batch"])


def record(design: Design, batches: int, seed: int = 0) -> Trace:
    """Return the checked trace of a simulated pipeline's first batches, warm-up included."""
    from testbed.pipeline.simulate import trace_rows

    row_BK, time_B, _ = trace_rows(design, batches, seed)
    names = ("group", "member", "length", "version_start", "version_end", "version_trained", "batch")
    column_B: dict[str, NDArray[Any]] = {name: row_BK[:, names.index(name)] for name in WHOLE}
    return check(Trace(column_B | {"time": time_B}), "the simulated trace")


def check(trace: Trace, name: str) -> Trace:
    """Return the trace, or raise UserError with the wrong lines (from 2, after the header).

    Wrong are: negative numbers, an empty sample, a sample trained before it ended or ended before it began (a
    negative lag), gaps or decreases in the batches, decreasing versions or times, and repeated members.
    """
    if not len(trace):
        raise UserError(f"{name} has no rows; expected one per trained sample.")
    wrong = sorted((int(row) + 2, why) for row_K, why in _faults(trace) for row in row_K)
    if wrong:
        lines = [f"{name}:{line}: {why}" for line, why in wrong[:MOST_WRONG]]
        more = [f"… and {len(wrong) - MOST_WRONG} more."] if len(wrong) > MOST_WRONG else []
        raise UserError("\n".join(lines + more))
    return trace


def _faults(trace: Trace) -> list[tuple[NDArray[np.int64], str]]:
    c = trace.column_B
    step_B = np.diff(c["batch"], prepend=0)
    pair_B2 = np.stack([c["group"], c["member"]], axis=1)
    twice_B = np.ones(len(trace), bool)
    twice_B[np.unique(pair_B2, axis=0, return_index=True)[1]] = False
    found = {
        "a number is negative.": np.any([c[name] < 0 for name in COLUMNS], axis=0),
        "length is 0.": c["length"] == 0,
        "time is not a finite number.": ~np.isfinite(c["time"]),
        "negative lag: version_trained is below version_end.": c["version_trained"] < c["version_end"],
        "version_end is below version_start.": c["version_end"] < c["version_start"],
        "gap: a batch is missing before this row's.": step_B > 1,
        "batch is below that of the row above.": step_B < 0,
        "version_trained is below that of the row above.": np.diff(c["version_trained"], prepend=0) < 0,
        "time is before that of the row above.": np.diff(c["time"], prepend=0.0) < 0,
        "this member of the group is trained twice.": twice_B,
    }
    return [(np.flatnonzero(bad_B), why) for why, bad_B in found.items()]


@dataclass(frozen=True)
class Lags:
    """Schedule for a learner: ages of the groups of every optimizer update, and its time.

    age_TN: int64; update t trains N groups, in the order of the trace. time_T: seconds from the start to the
    update, when its last sample was taken.
    """

    age_TN: NDArray[np.int64]
    time_T: NDArray[np.float64]


def lags(trace: Trace, name: str, token: str = "") -> Lags:
    """Return a checked trace by optimizer updates: age = version_trained - version of the oldest member.

    Update t trains the samples with version_trained = first + t, so several updates per batch are several of
    a learner's steps.

    Args:
        trace: as `read` or `record` return it.
        name: of the trace, for messages.
        token: which token's version counts for a sample with several (in-flight updates): "first" (the
            oldest) or "last"; "" refuses such a sample.

    Raises UserError with the line if an update trains nothing, a group is trained in two, updates differ in
    the number of groups, or a sample has several versions and `token` does not choose.
    """
    c = trace.column_B
    step_B = c["version_trained"] - c["version_trained"][0]
    _, first_N, group_B = np.unique(c["group"], return_index=True, return_inverse=True)
    _refuse_unmappable(c, step_B, step_B[first_N][group_B], name, token)
    age_N = np.zeros(len(first_N), dtype=np.int64)
    begun_B = c["version_end" if token == "last" else "version_start"]
    np.maximum.at(age_N, group_B, c["version_trained"] - begun_B)
    order_N = np.argsort(first_N)
    size_T = np.bincount(step_B[first_N])
    if odd := np.flatnonzero(size_T != size_T[0])[:1].tolist():
        raise UserError(
            f"{name}:{int(np.searchsorted(step_B, odd[0])) + 2}: this update trains {size_T[odd[0]]} groups, "
            f"the first one {size_T[0]}; all batches of a learner have the same number of prompts."
        )
    last_T = np.searchsorted(step_B, np.arange(len(size_T)), side="right") - 1
    return Lags(age_N[order_N].reshape(len(size_T), -1), c["time"][last_T].astype(np.float64))


def _refuse_unmappable(
    c: Mapping[str, NDArray[Any]],
    step_B: NDArray[np.int64],
    group_step_B: NDArray[np.int64],
    name: str,
    token: str,
) -> None:
    if token not in TOKENS:
        raise UserError(f"token is '{token}', expected {' or '.join(TOKENS[1:])}.{suggest(token, TOKENS)}")
    skipped_B = np.diff(step_B, prepend=0) > 1
    mixed_B = (c["version_end"] != c["version_start"]) & (token == "")
    found = {
        "gap: version_trained skips an update, which would leave a learner without data.": skipped_B,
        "its group is trained in two updates; a learner keeps groups whole.": step_B != group_step_B,
        "the weights change inside this sample, which has one version in a learner's batch; "
        "choose with token=first or token=last.": mixed_B,
    }
    for why, bad_B in found.items():
        if bad_B.any():
            raise UserError(f"{name}:{int(np.argmax(bad_B)) + 2}: {why}")


def write(trace: Trace, path: Path) -> None:
    """Write the checked trace, always with the same bytes. Raises UserError for another extension."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    check(trace, str(path))
    table = pa.table({name: trace.column_B[name] for name in COLUMNS})
    if _ending(path) == ".csv":
        pa_csv.write_csv(table, path)
    else:
        pq.write_table(table, path, compression="zstd")


def read(path: Path) -> Trace:
    """Return the trace of a file. Raises UserError for missing columns, or the lines of `check`."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv
    import pyarrow.parquet as pq

    kinds = {name: pa.int64() for name in WHOLE} | {"time": pa.float64()}
    try:
        if _ending(path) == ".csv":
            table = pa_csv.read_csv(path, convert_options=pa_csv.ConvertOptions(column_types=kinds))
        else:
            table = pq.read_table(path)
    except FileNotFoundError:
        raise UserError(
            f"{path}: the file does not exist. Write one with: testbed pipeline --trace {path}"
        ) from None
    except pa.ArrowInvalid as error:
        raise UserError(f"{path} cannot be read as a trace: {error}.") from None
    missing = [name for name in COLUMNS if name not in table.column_names]
    if missing:
        raise UserError(f"{path} lacks {', '.join(missing)}; a trace has the columns {', '.join(COLUMNS)}.")
    column_B = {}
    for name in COLUMNS:
        column = table[name]
        empty_B = np.flatnonzero(column.is_null().to_numpy())
        if len(empty_B):
            raise UserError(f"{path}:{empty_B[0] + 2}: {name} is empty.")
        if column.type != kinds[name]:
            raise UserError(f"{path}: {name} holds {column.type}, expected {kinds[name]}.")
        column_B[name] = column.to_numpy()
    return check(Trace(column_B), str(path))


def _ending(path: Path) -> str:
    if path.suffix not in ENDINGS:
        raise UserError(f"{path}: expected a file that ends in {' or '.join(ENDINGS)}.")
    return path.suffix
