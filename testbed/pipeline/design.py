"""One pipeline of asynchronous training as a value: slots, lengths, queue, admission, trainer, sync."""

import dataclasses
import math
import tomllib
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from testbed.errors import UserError, suggest
from testbed.words import split

MOST_SLOTS = 4_000_000


@dataclass(frozen=True)
class Design:
    """A generator of `slots` sequences and a trainer of batches, coupled by a queue; times in seconds.

    slots: sequences decoded at the same time, over all engines. engines: decoders that share them evenly.
    tau_0, tau_1: one token takes tau_0 + tau_1 c with c sequences per engine.
    length: distribution of a response's tokens before truncation at `max_length`: "lognormal" with that mean
        and standard deviation `sigma` of its logarithm, "fixed" (the mean), or "empirical" (`lengths`, each
        equally likely). correlation: of the normal scores of two responses to one prompt.
    tool_time: mean of an exponential wait at a response's end; its slot decodes nothing meanwhile.
    group: responses per prompt; a group is complete when its slowest member is.
    batch: responses per batch. updates: optimizer steps in a batch, equal mini-batches in queue order.
    pieces: parts in which the trainer accepts a batch as they arrive (gradient accumulation); 1: all at once.
    train_time: per batch. train_token_time: in addition, per trained token.
    queue: capacity in batches. queue_rule: reaction to a full queue: "block" starts no more responses
        (running ones still enter), "drop-oldest", "drop-newest". order: "fifo" or "lifo".
    max_age: drop groups that would be more updates old than this; None keeps all. age_of: start of a group's
        age, the weights of its "first" token or the oldest that wrote a "last" one.
    admission: limit on starts: "none"; "capacity" (AReaL) while accepted + running < (eta + v + 1) batch, v
        published batches; "threshold" (verl) at most (1 + threshold) batches x sync_every between two syncs,
        minus leftovers; "attempts" (PipelineRL) ceil(max_lag / group) groups, plus what is trained before a
        sync, more at every sync. eta, threshold, max_lag (in responses): their numbers.
    barrier: start the next batch of responses only when none is running (no refilled slots).
    sync_every: batches between two weight syncs. sync_time: of one. sync_blocking: both sides wait for it.
    in_flight: running responses continue with new weights; otherwise each keeps those it began with.
    pools: "split" runs both sides at once, "colocated" stops decoding while the trainer works.
    """

    slots: int = 256
    engines: int = 1
    tau_0: float = 0.02
    tau_1: float = 0.0
    length: Literal["lognormal", "fixed", "empirical"] = "lognormal"
    length_mean: float = 1000.0
    sigma: float = 0.5
    max_length: int = 8192
    lengths: tuple[int, ...] = ()
    correlation: float = 0.0
    tool_time: float = 0.0
    group: int = 8
    batch: int = 256
    updates: int = 1
    pieces: int = 1
    train_time: float = 15.0
    train_token_time: float = 0.0
    queue: float = 2.0
    queue_rule: Literal["block", "drop-oldest", "drop-newest"] = "block"
    order: Literal["fifo", "lifo"] = "fifo"
    max_age: int | None = None
    age_of: Literal["first", "last"] = "first"
    admission: Literal["none", "capacity", "threshold", "attempts"] = "none"
    eta: int = 0
    threshold: float = 0.0
    max_lag: int = 0
    barrier: bool = False
    sync_every: int = 1
    sync_time: float = 0.0
    sync_blocking: bool = True
    in_flight: bool = False
    pools: Literal["split", "colocated"] = "split"

    @property
    def youngest(self) -> int:
        """Updates between the newest possible weights and the last update before a weight sync."""
        return self.updates * self.sync_every - 1

    @property
    def queue_groups(self) -> int:
        return math.floor(self.queue * self.batch / self.group + 1e-9)


_HINTS = typing.get_type_hints(Design)
FIELDS = tuple(_HINTS)
_AT_LEAST: dict[str, float] = {
    **dict.fromkeys(("slots", "engines", "max_length", "group", "batch", "updates", "pieces"), 1),
    **dict.fromkeys(("sync_every", "length_mean"), 1),
    **dict.fromkeys(("tau_0", "tau_1", "sigma", "tool_time", "train_time", "train_token_time"), 0),
    **dict.fromkeys(("correlation", "queue", "max_age", "eta", "threshold", "max_lag", "sync_time"), 0),
}


def check(design: Design) -> Design:
    """Return the design, or raise UserError with one line per impossible number or pair of numbers."""
    wrong = [*_ranges(design)]
    wrong = wrong or [*_contradictions(design)]
    if wrong:
        raise UserError("\n".join(wrong))
    return design


def _ranges(design: Design) -> typing.Iterator[str]:
    for name in FIELDS:
        value = getattr(design, name)
        choices = typing.get_args(_HINTS[name])
        if typing.get_origin(_HINTS[name]) is Literal and value not in choices:
            yield f"{name}={value}: expected one of {', '.join(choices)}.{suggest(str(value), choices)}"
        elif isinstance(value, float | int) and not math.isfinite(value):
            yield f"{name}={value}: expected a finite number."
        elif name in _AT_LEAST and value is not None and value < _AT_LEAST[name]:
            yield f"{name}={value}: expected at least {_AT_LEAST[name]:g}."
    if not 0 <= design.correlation <= 1:
        yield f"correlation={design.correlation}: expected 0 to 1."
    if design.slots > MOST_SLOTS:
        yield f"slots={design.slots}: at most {MOST_SLOTS} are simulated; scale slots and batch down."


def _contradictions(design: Design) -> typing.Iterator[str]:
    d = design
    if d.batch % d.group:
        yield f"batch={d.batch} is not a multiple of group={d.group}: whole groups are trained. Change one."
    elif (d.batch // d.group) % d.pieces:
        yield f"pieces={d.pieces} does not divide the {d.batch // d.group} groups of a batch. Change one."
    if d.batch % d.updates:
        yield f"updates={d.updates} does not divide batch={d.batch}. Change one."
    if d.queue < 1:
        yield (
            f"queue={d.queue:g} holds {d.queue * d.batch:g} responses, a batch needs {d.batch}: the trainer "
            "would never start. Give queue=1 or more."
        )
    if d.max_age is not None and d.max_age < d.youngest:
        yield (
            f"max_age={d.max_age} is below the smallest possible age {d.youngest} of the last update "
            f"before a weight sync (updates={d.updates} x sync_every={d.sync_every} - 1): no response could "
            f"be young enough. Give max_age={d.youngest} or more, or fewer updates between syncs."
        )
    if d.admission == "capacity" and (d.eta + 1) < d.sync_every:
        yield (
            f"eta={d.eta} admits {d.eta + 1} batches before a weight sync, sync_every={d.sync_every} needs "
            f"{d.sync_every}: the trainer would starve. Give eta={d.sync_every - 1} or more."
        )
    if d.engines > d.slots:
        yield f"engines={d.engines} exceeds slots={d.slots}: every engine needs a slot."
    if d.tau_0 + d.tau_1 <= 0:
        yield "tau_0=0 and tau_1=0: decoding takes no time. Give one of them."
    if d.length == "empirical" and (not d.lengths or min(d.lengths) < 1):
        yield "length=empirical needs lengths=a,b,c of at least 1 token each."
    if d.length != "empirical" and d.lengths:
        yield f"lengths is given, but length={d.length} does not read it. Give length=empirical."


def from_words(words: Sequence[str], base: Design | None = None) -> Design:
    """Return the design with `field=value` words applied, as ["slots=64", "queue_rule=drop-oldest"].

    Raises UserError with one line per wrong word, or those of `check`.
    """
    values: dict[str, Any] = {}
    wrong = []
    for word in words:
        try:
            name, text = split(word, "field=value, as slots=64")
        except UserError as error:
            wrong.append(str(error))
            continue
        if name not in FIELDS:
            wrong.append(f"'{word}': unknown field '{name}'.{suggest(name, FIELDS)}")
        elif name in values:
            wrong.append(f"'{word}': '{name}' is given twice.")
        else:
            try:
                values[name] = _value(name, text)
            except ValueError as error:
                wrong.append(f"'{word}': {error}")
    if wrong:
        raise UserError("\n".join(wrong))
    return check(dataclasses.replace(base or Design(), **values))


def to_words(design: Design) -> list[str]:
    """Return the shortest words from which `from_words` makes the design: its non-default fields."""
    base = Design()
    given = {name: getattr(design, name) for name in FIELDS if getattr(design, name) != getattr(base, name)}
    return [f"{name}={_text(value)}" for name, value in given.items()]


def from_toml(path: Path) -> list[str]:
    """Return the words of a TOML file with one field per line; raise UserError if it cannot be read."""
    try:
        fields = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}. Expected a TOML file of fields.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path} is not TOML: {error}.") from None
    return [f"{name}={_text(value)}" for name, value in fields.items()]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _value(name: str, text: str) -> Any:
    kind = _HINTS[name]
    if typing.get_origin(kind) is Literal:
        return text
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError("expected true or false.")
        return text.lower() == "true"
    if name == "lengths":
        return tuple(_number(int, each) for each in text.split(","))
    if name == "max_age" and text.lower() == "none":
        return None
    return _number(float if kind is float else int, text)


def _number(kind: type, text: str) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"expected {'a number' if kind is float else 'a whole number'}.") from None
