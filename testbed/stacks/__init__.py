"""Tables of public stacks: each setting, and the objective or recipe that it selects here.

stacks.csv names the stacks, settings.csv their settings with defaults, and rules.csv the rules from settings
to an objective, an aggregation, an advantage, terms and an anchor, unsupported settings, and traps. The
command `testbed objectives from` (compose) and the pages docs/stacks/*.md (page) read the same tables.

In rules.csv `when` holds setting=value, a|b for one of several, or a name of CONDITIONS; `args` holds
ours=value, or ours=$setting, ours=$setting:conversion (a name of CONVERSIONS), ours=$setting?value where
theirs is null.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from testbed.errors import unknown
from testbed.registry import table_rows
from testbed.words import named_values, value_of


@dataclass(frozen=True)
class Key:
    """A setting of a stack.

    name: its configuration name; `path` is its place there, so that longer spellings work too.
    default: its value if unset. otherwise: the setting that supplies its value if it is null.
    by: defaults that depend on another setting: (its name, {its value: default}).
    choices: allowed texts, besides those in the rules.
    text: True for a value that is text of any kind ("0.5_5.0").
    note: the page's remark on it.
    """

    name: str
    default: Any
    path: str = ""
    otherwise: str = ""
    by: tuple[str, Mapping[str, Any]] | None = None
    choices: tuple[str, ...] = ()
    text: bool = False
    note: str = ""


@dataclass(frozen=True)
class Their:
    """The value of one of their settings, converted to ours; `words` describes the conversion on the page.

    absent: our value if theirs is null; None: it must be given.
    """

    key: str
    change: Callable[[Any], Any]
    words: str = ""
    absent: float | None = None


@dataclass(frozen=True)
class Is:
    """A condition on a setting other than equality, and its text on the page."""

    words: str
    holds: Callable[[Any], bool]


def is_number(value: Any) -> bool:
    """Return True for a number that is not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


GIVEN = Is("set", lambda value: value is not None and value is not False and value != 0)
ABSENT = Is("not set", lambda value: value is None or value is False or value == 0)
NUMBER = Is("a number", is_number)
RANGE = Is('"low_high"', lambda value: isinstance(value, str) and "_" in value)
CONDITIONS = {
    "SET": GIVEN,
    "UNSET": ABSENT,
    "NUMBER": NUMBER,
    "RANGE": RANGE,
    "ZERO": Is("0", lambda value: value == 0),
    "BELOW_ONE": Is("below 1", lambda value: is_number(value) and value < 1),
}

When = Mapping[str, Any]
"""Setting -> the value it must have, a tuple of values, or an Is; all of them together."""


@dataclass(frozen=True)
class Rule:
    """A rule: if `when` holds, use our `name` with `args` (numbers, names, or their settings).

    aggregation, length: replace the aggregation of the settings for an objective that needs it. denominator:
    "kept" if dropped tokens leave it. coefficient: of a term. note: shown with the result.
    """

    when: When
    name: str
    args: Mapping[str, Any] = field(default_factory=dict)
    aggregation: str = ""
    length: float | Their = 0.0
    denominator: str = "all"
    coefficient: float | Their = 0.0
    note: str = ""


@dataclass(frozen=True)
class Refusal:
    """Settings without an equivalent here, and the reason."""

    when: When
    why: str


@dataclass(frozen=True)
class Stack:
    """A public stack; the first rule that holds selects objective, aggregation, advantage and anchor.

    terms: all that hold are added. passes: the setting of updates per batch. traps: sentences. An anchor's
    name is that of `Run.anchor`.
    """

    name: str
    title: str
    source: str
    keys: tuple[Key, ...]
    objectives: tuple[Rule, ...]
    aggregations: tuple[Rule, ...]
    advantages: tuple[Rule, ...]
    anchors: tuple[Rule, ...]
    terms: tuple[Rule, ...] = ()
    refusals: tuple[Refusal, ...] = ()
    traps: tuple[str, ...] = ()
    passes: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(key.name for key in self.keys)


def lower(span: str) -> float:
    """Return 0.5 of "0.5_5.0"; raise ValueError for text that is not a number."""
    return float(span.partition("_")[0])


def upper(span: str) -> float:
    """Return 5.0 of "0.5_5.0"; raise ValueError for text that is not a number."""
    return float(span.partition("_")[2])


def low_bound(threshold: Any) -> float:
    """Return the lower bound of "0.6_1.4", and 1/x of a single number x."""
    return lower(threshold) if isinstance(threshold, str) else 1 / threshold


def high_bound(threshold: Any) -> float:
    """Return the upper bound of "0.6_1.4", and a single number itself."""
    return upper(threshold) if isinstance(threshold, str) else float(threshold)


def level(option: str) -> str:
    """Return sequence_sum of "seq_sum_k1"."""
    return option.rpartition("_")[0].replace("seq_", "sequence_")


CONVERSIONS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "": (lambda value: value, ""),
    "around_one": (lambda clip: 1 + 2 * clip, "1 + 2 pg_clip"),
    "before": (lambda mode: mode.partition("_")[0], "token or sequence"),
    "geometric": ({"token": "token", "sequence": "geometric"}.__getitem__, "token; geometric for sequence"),
    "inverse": (lambda bound: 1 / bound, "1 over it"),
    "kind": (lambda option: option[-2:], "k2 or k3"),
    "level": (level, "token, sequence_sum or sequence_mean"),
    "level_or_max": (level, "token, sequence_sum, sequence_mean or sequence_max"),
    "lower": (lower, "its lower half"),
    "upper": (upper, "its upper half"),
    "low_bound": (low_bound, "its lower half; 1/x of one number x"),
    "high_bound": (high_bound, "its upper half"),
}
"""Functions of a setting's value, and their text on the page."""


def _when(cell: str) -> When:
    wanted: dict[str, Any] = {}
    for word in cell.split():
        name, _, text = word.partition("=")
        each = tuple(CONDITIONS.get(part) or value_of(part) for part in text.split("|") if part)
        wanted[name] = each if "|" in text else each[0]
    return wanted


def _value(given: Any) -> Any:
    if not (isinstance(given, str) and given.startswith("$")):
        return given
    read, _, absent = given[1:].partition("?")
    key, _, conversion = read.partition(":")
    change, words = CONVERSIONS[conversion]
    return Their(key, change, words, value_of(absent) if absent else None)


def _key(row: Mapping[str, str]) -> Key:
    other, *defaults = row["by"].split() or [""]
    return Key(
        row["setting"], value_of(row["default"]), row["path"], row["otherwise"],
        by=(other, named_values(defaults)) if other else None,
        choices=tuple(row["choices"].split()), text=bool(row["text"]), note=row["note"],
    )  # fmt: skip


def _rule(row: Mapping[str, str]) -> Rule:
    args = {name: _value(value) for name, value in named_values(row["args"].split()).items()}
    length, coefficient = (_value(value_of(row[column] or "0.0")) for column in ("length", "coefficient"))
    counted = row["denominator"] or "all"
    return Rule(
        _when(row["when"]), row["name"], args, row["aggregation"], length, counted, coefficient, row["note"]
    )


PARTS = ("objective", "aggregation", "advantage", "anchor", "term")


@cache
def stacks() -> Mapping[str, Stack]:
    """Return every stack by name."""
    named, settings, rules = (list(table_rows(__file__, name)) for name in ("stacks", "settings", "rules"))
    found = {}
    for about in named:
        name = about["stack"]
        of = [row for row in rules if row["stack"] == name]
        keys = tuple(_key(row) for row in settings if row["stack"] == name)
        rule = {part: tuple(_rule(row) for row in of if row["part"] == part) for part in PARTS}
        found[name] = Stack(
            name, about["title"], about["source"], keys,
            rule["objective"], rule["aggregation"], rule["advantage"], rule["anchor"], rule["term"],
            tuple(Refusal(_when(row["when"]), row["note"]) for row in of if row["part"] == "refusal"),
            tuple(row["note"] for row in of if row["part"] == "trap"),
            about["passes"],
        )  # fmt: skip
    return found


def stack(name: str) -> Stack:
    """Return a stack; raise UserError with candidates for an unknown one."""
    known = {each.lower(): value for each, value in stacks().items()}
    if name.lower() not in known:
        raise unknown("stack", name, stacks())
    return known[name.lower()]
