"""Tables of public stacks: each setting, and the objective or recipe that it selects here.

One file per stack defines a `Stack`: its settings with defaults, rules from settings to an objective, an
aggregation, an advantage, terms and an anchor, unsupported settings, and traps. The command `testbed
objectives from` (compose) and the pages docs/stacks/*.md (page) read the same tables.
"""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from testbed.errors import unknown


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
    change: Callable[[Any], Any] = lambda value: value
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
        """Names of all settings."""
        return tuple(key.name for key in self.keys)


def lower(span: str) -> float:
    """Return 0.5 of "0.5_5.0"; raise ValueError for text that is not a number."""
    return float(span.partition("_")[0])


def upper(span: str) -> float:
    """Return 5.0 of "0.5_5.0"; raise ValueError for text that is not a number."""
    return float(span.partition("_")[2])


@cache
def stacks() -> Mapping[str, Stack]:
    """Return every stack by name."""
    found = {}
    for module in sorted(item.name for item in pkgutil.iter_modules(__path__)):
        stack = getattr(importlib.import_module(f"{__name__}.{module}"), "STACK", None)
        if stack is not None:
            found[stack.name] = stack
    return found


def stack(name: str) -> Stack:
    """Return a stack; raise UserError with candidates for an unknown one."""
    known = {each.lower(): value for each, value in stacks().items()}
    if name.lower() not in known:
        raise unknown("stack", name, stacks())
    return known[name.lower()]
