"""The record of training tokens, version 1: one object per sequence, as JSON lines or as Parquet.

record: 1, the version of this format. source: the writer. step: optimizer step that trained on it. sample,
group: names; sequences of one group answer the same prompt at the same step. reward, temperature: numbers or
null. trainer_version: weights version of logp_pi. prompt: token ids, or null. The others are null if not
written, or lists with an entry per token of the response, tool output included and padding excluded: token:
ids. mask: True if the policy chose the token. logp_mu, logp_pi, logp_anchor: log-probabilities (nats) under
the sampling engine, the trainer, and the trainer at the anchor; null if one is missing, "-inf" for log 0.
version: weights version that sampled the token. advantage.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from envs.arrays import Floats, Ints
from testbed.errors import UserError, printable
from testbed.results import atomic_files

RECORD = "TESTBED_RECORD"
"""Environment variable: folder where a run of this bench writes its tokens."""
VERSION = 1
PER_TOKEN = ("token", "mask", "logp_mu", "logp_pi", "logp_anchor", "version", "advantage")
FIELDS = (
    "record", "source", "step", "sample", "group", "reward", "temperature", "trainer_version", "length",
    "prompt",
    *PER_TOKEN,
)  # fmt: skip
_WHOLE = ("token", "version")
EXACT = 2**53
"""Largest integer that float64 distinguishes from its neighbors."""


@dataclass(frozen=True)
class LoggedSequence:
    """One sequence of the record, see the head of this file; arrays [T], None if not written."""

    step: int
    sample: str
    group: str
    mask: NDArray[np.bool_]
    source: str = ""
    reward: float | None = None
    temperature: float | None = None
    trainer_version: int | None = None
    prompt: Ints | None = None
    token: Ints | None = None
    logp_mu: Floats | None = None
    logp_pi: Floats | None = None
    logp_anchor: Floats | None = None
    version: Ints | None = None
    advantage: Floats | None = None
    text: tuple[str, str] | None = None
    """Prompt and response as text, for stacks that write no tokens; not part of the record."""
    scalar_advantage: float | None = None
    """Advantage of a response with unknown tokens; not part of the record."""

    def __post_init__(self) -> None:
        """Raise UserError if a list is not as long as the mask, or ids are not int64."""
        for name in PER_TOKEN:
            value = getattr(self, name)
            if value is not None and len(value) != len(self.mask):
                raise UserError(
                    f"step {self.step}, sample {self.sample}: {name} has {len(value)} entries, mask has "
                    f"{len(self.mask)}; expected one per token of the response."
                )
            if value is not None and name in _WHOLE and value.dtype != np.int64:
                raise UserError(
                    f"step {self.step}, sample {self.sample}: {name} is {value.dtype}, expected int64."
                )

    @property
    def length(self) -> int:
        """Number of tokens that the policy chose."""
        return int(self.mask.sum())

    def plain(self) -> dict[str, Any]:
        """Return the sequence as JSON-able fields in the order of FIELDS."""
        row: dict[str, Any] = {"record": VERSION, "length": self.length}
        for name in FIELDS:
            if name not in row:
                value = getattr(self, name)
                row[name] = [_plain(v) for v in value.tolist()] if isinstance(value, np.ndarray) else value
        return {name: row[name] for name in FIELDS}


@dataclass(frozen=True)
class Log:
    """Sequences ordered by step, their writer, and notes on what reading dropped or assumed."""

    source: str
    sequences: tuple[LoggedSequence, ...]
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        """Make displayed texts printable; raise UserError for a log without sequences."""
        object.__setattr__(self, "source", printable(self.source))
        object.__setattr__(self, "notes", tuple(map(printable, self.notes)))
        if not self.sequences:
            raise UserError(f"The {self.source} log holds no sequence with a token that the policy chose.")

    @property
    def steps(self) -> list[int]:
        """The steps, ascending."""
        return sorted({one.step for one in self.sequences})

    def has(self, name: str) -> bool:
        """Return True if every sequence has a field."""
        return all(getattr(one, name) is not None for one in self.sequences)

    def some(self, name: str) -> int:
        """Return the number of sequences with a field."""
        return sum(getattr(one, name) is not None for one in self.sequences)

    def at(self, step: int) -> "Log":
        """Return the sequences of one step."""
        return replace(self, sequences=tuple(one for one in self.sequences if one.step == step))


def made(source: str, sequences: Iterable[LoggedSequence], notes: Iterable[str] = ()) -> Log:
    """Return a log; drops sequences without a policy token, and notes their number."""
    every = list(sequences)
    kept = [one for one in every if one.mask.any() or one.text is not None]
    told = list(dict.fromkeys(notes))
    if len(kept) < len(every):
        lost = f"{len(every) - len(kept)} of {len(every)} sequences"
        told.append(f"{lost} have no token under their mask: dropped.")
    ordered = sorted(kept, key=lambda one: one.step)
    return Log(source, tuple(replace(one, source=one.source or source) for one in ordered), tuple(told))


def joined(logs: Sequence[Log]) -> Log:
    """Return several logs as one."""
    source = ", ".join(dict.fromkeys(log.source for log in logs))
    many = len(logs) > 1
    each = [(log.source, one) for log in logs for one in log.sequences]
    every = [replace(one, group=f"{name}/{one.group}") if many else one for name, one in each]
    every.sort(key=lambda one: one.step)
    return Log(source, tuple(every), tuple(dict.fromkeys(note for log in logs for note in log.notes)))


def floats(values: Any, where: str) -> Floats | None:
    """Return a list of numbers as float64 [T], null as NaN; None for None. UserError for anything else."""
    if values is None:
        return None
    try:
        found = np.array([math.nan if v is None else v for v in _flat(values)], dtype=np.float64)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UserError(f"{where} is {_shown(values)}…, expected a list of numbers.") from error
    if found.ndim != 1:
        raise UserError(f"{where} has lists inside its list, expected a list of numbers.")
    return found


def ints(values: Any, where: str) -> Ints | None:
    """Return a list of whole numbers as int64 [T]; None for None. UserError for anything else."""
    found = floats(values, where)
    if found is None:
        return None
    if not (np.isfinite(found) & (found == np.round(found)) & (np.abs(found) <= EXACT)).all():
        raise UserError(f"{where} holds numbers that are not whole, or beyond 2^53; expected ids.")
    return found.astype(np.int64)


def bools(values: Any, where: str) -> NDArray[np.bool_]:
    """Return a list of truth values or of 0 and 1 as bool [T]; UserError for anything else."""
    found = floats(values, where)
    if found is None or not np.isin(found, (0.0, 1.0)).all():
        raise UserError(f"{where} is {_shown(values)}, expected a list of 0 and 1.")
    return found.astype(bool)


def number(value: Any, where: str) -> float | None:
    """Return a finite number, None for null and NaN; UserError for anything else."""
    if value is None:
        return None
    try:
        found = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise UserError(f"{where} is {_shown(value)}, expected a number.") from error
    if math.isinf(found):
        raise UserError(f"{where} is infinite, expected a finite number.")
    return None if math.isnan(found) else found


def whole(value: Any, where: str) -> int | None:
    """Return a whole number, None for null; UserError for a fraction or one beyond 2^53."""
    found = number(value, where)
    if found is None:
        return None
    if found != round(found) or abs(found) > EXACT:
        raise UserError(f"{where} is {_shown(value)}, expected a whole number of at most 2^53.")
    return int(found)


def text(value: Any, where: str) -> str:
    """Return a text; UserError for anything else."""
    if not isinstance(value, str):
        raise UserError(f"{where} is {_shown(value)}, expected a text.")
    return value


def _shown(value: Any) -> str:
    try:
        return str(value)[:60]
    except (ValueError, RecursionError):  # integers of more than 4,300 digits, lists nested too deep
        return f"a {type(value).__name__} that cannot be shown"


def _plain(value: Any) -> Any:
    """Return a number in JSON form: NaN is null, infinities are words."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _flat(values: Any) -> Any:
    return values.tolist() if hasattr(values, "tolist") else values


def from_plain(row: Mapping[str, Any], where: str) -> LoggedSequence:
    """Return a sequence from the fields of `plain`; UserError for another version or a wrong field."""
    if row.get("record") != VERSION:
        raise UserError(f"{where}: record is {row.get('record')!r}, this version reads {VERSION}.")
    missing = [name for name in ("step", "sample", "group", "mask") if row.get(name) is None]
    if missing:
        raise UserError(f"{where}: {', '.join(missing)} missing.")
    lists: dict[str, Any] = {
        name: (ints if name in _WHOLE else floats)(row.get(name), f"{where}: {name}")
        for name in PER_TOKEN
        if name != "mask"
    }
    return LoggedSequence(
        step=whole(row["step"], f"{where}: step") or 0, sample=str(row["sample"]), group=str(row["group"]),
        source=str(row.get("source") or ""), mask=bools(row["mask"], f"{where}: mask"),
        reward=number(row.get("reward"), f"{where}: reward"),
        temperature=number(row.get("temperature"), f"{where}: temperature"),
        trainer_version=whole(row.get("trainer_version"), f"{where}: trainer_version"),
        prompt=ints(row.get("prompt"), f"{where}: prompt"), **lists,
    )  # fmt: skip


def write(log: Log, path: Path) -> None:
    """Write a log as Parquet, or as JSON lines for another extension; UserError if it cannot be written."""
    rows = [one.plain() for one in log.sequences]
    if path.suffix == ".parquet":
        content = parquet_bytes(rows)
    else:
        content = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows).encode()
    with atomic_files.mended(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    atomic_files.replace(path, content)


def parquet_bytes(rows: Sequence[Mapping[str, Any]]) -> bytes:
    """Return rows of `plain` as a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    numbers = {"mask": pa.bool_(), **dict.fromkeys(_WHOLE, pa.int64())}
    types = {name: pa.list_(numbers.get(name, pa.float64())) for name in PER_TOKEN}
    types |= {"prompt": pa.list_(pa.int64()), **dict.fromkeys(("source", "sample", "group"), pa.string())}
    types |= dict.fromkeys(("reward", "temperature"), pa.float64())
    schema = pa.schema([(name, types.get(name, pa.int64())) for name in FIELDS])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([_numeric(row) for row in rows], schema), sink, compression="zstd")
    content: bytes = sink.getvalue().to_pybytes()
    return content


def _numeric(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a row of `plain`: words for infinities to numbers, names to valid UTF-8."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, list):
            found[name] = [float(v) if isinstance(v, str) else v for v in value]
        elif isinstance(value, str):
            found[name] = value.encode("utf-8", "backslashreplace").decode()
        else:
            found[name] = value
    return found
