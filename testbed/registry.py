"""Registry class for everything with a name: objectives, advantages, recipes, tasks, claims, figures."""

import csv
import importlib
import inspect
import pkgutil
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from testbed.errors import UserError, suggest, unknown

Function = TypeVar("Function", bound=Callable[..., Any])

SIGNED = frozenset({"alpha", "baseline", "end", "p", "start"})
"""Hyperparameters that may be negative, though a default is positive."""
RANGED = ("testbed.advantages", "testbed.objectives", "testbed.recipes")
"""Packages whose ranges are checked here; others check their own, a user's functions have none."""
DIVISORS = frozenset({"tau_neg", "tau_pos", "temp"})
"""Hyperparameters by which a formula divides."""


@dataclass(frozen=True)
class Entry:
    """A registered function, its citation and the promises that contract tests check."""

    name: str
    function: Callable[..., Any]
    source: str
    promises: Mapping[str, Any] = field(default_factory=dict)

    @property
    def base(self) -> str:
        """The name before "@": `m2po` for the variant `m2po@author`."""
        return self.name.partition("@")[0]

    @property
    def family(self) -> str:
        """The folder of its package that contains it, or "" for an entry outside any."""
        parts = self.function.__module__.split(".")
        return parts[2] if len(parts) > 3 else ""

    @property
    def defaults(self) -> dict[str, Any]:
        """Hyperparameters (keyword-only parameters) and their defaults."""
        parameters = inspect.signature(self.function).parameters.values()
        return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}

    @property
    def formula(self) -> str:
        """The docstring's first line."""
        return (inspect.getdoc(self.function) or "").split("\n", 1)[0]

    def bind(self, **hyper: Any) -> Callable[..., Any]:
        """Return the function with hyperparameters set; UserError for an unknown one, or one out of range.

        In the packages RANGED a number whose default is positive is at least 0, or above 0 in DIVISORS.
        """
        defaults = self.defaults
        for name, value in hyper.items():
            if name not in defaults:
                known = ", ".join(defaults) or "none"
                hint = suggest(name, defaults)
                raise UserError(f"'{self.name}' has no hyperparameter '{name}'.{hint} It has: {known}.")
            if name not in SIGNED and self._too_small(name, value, defaults[name]):
                least = "above 0" if name in DIVISORS else "at least 0"
                raise UserError(f"'{self.name}' has {name} = {value:g}, expected {least}.")
        return partial(self.function, **hyper)

    def _too_small(self, name: str, value: Any, default: Any) -> bool:
        """Return True for a number below 0, or a divisor of 0, where the default is positive."""
        ours = self.function.__module__.startswith(RANGED)
        if not (ours and _number(value) and _number(default) and default > 0):
            return False
        return not value > 0 and not (value == 0 and name not in DIVISORS)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def table_rows(module: str, name: str) -> Iterator[dict[str, str]]:
    """Yield the rows of the CSV table of that name beside a module's file."""
    with Path(module).with_name(f"{name}.csv").open(newline="", encoding="utf-8") as file:
        yield from csv.DictReader(file)


def described(
    function: Callable[..., Any], hyper: Mapping[str, Any], first_line: str, note: str, **fixed: Any
) -> Callable[..., Any]:
    """Return a function whose hyperparameters are `hyper`, with these defaults, under a docstring of its own.

    fixed: further arguments, which nobody tunes.
    """
    inputs = [p for p in inspect.signature(function).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    tuned = [inspect.Parameter(k, inspect.Parameter.KEYWORD_ONLY, default=v) for k, v in hyper.items()]
    made = partial(function, **{**hyper, **fixed})
    told = {
        "__doc__": "\n\n".join(filter(None, (first_line, textwrap.fill(note, 106, break_on_hyphens=False)))),
        "__module__": getattr(function, "func", function).__module__,
        "__signature__": inspect.Signature([*inputs, *tuned]),
        "__annotations__": {name: type(value) for name, value in hyper.items()},
    }
    vars(made).update(told)
    return made


class Registry(Mapping[str, Entry]):
    """A read-only mapping from name to Entry, filled by a decorator.

    Args:
        kind: singular noun for entries; used in messages.
        package: location of entries; its modules and folders are imported at the first look-up.
        usual: promises of entries that do not give them.
    """

    def __init__(self, kind: str, package: str | None = None, **usual: Any) -> None:
        self.kind, self._usual = kind, usual
        self._package = package
        self._entries: dict[str, Entry] = {}

    def __call__(self, name: str, *, source: str, **promises: Any) -> Callable[[Function], Function]:
        """Decorate a function to register it under a name; a repeated name raises UserError."""

        def register(function: Function) -> Function:
            self.add(Entry(name, function, source, {**self._usual, **promises}))
            return function

        return register

    def variant(self, name: str, *, source: str, **promises: Any) -> Callable[[Function], Function]:
        """Register `name@source`; it inherits the promises of `name`, except for given ones."""
        base = self._entries[name.partition("@")[0]]
        return self(name, source=source, **{**base.promises, **promises})

    def add(self, entry: Entry) -> None:
        """Register an entry; raise UserError naming the other module if the name is taken."""
        if entry.name in self._entries:
            other = self._entries[entry.name].function.__module__
            raise UserError(
                f"{self.kind} '{entry.name}' is already registered by {other}; pick another name."
            )
        self._entries[entry.name] = entry

    def _load(self) -> dict[str, Entry]:
        if self._package is not None:
            package, self._package = self._package, None
            path = importlib.import_module(package).__path__
            for module in pkgutil.walk_packages(path, f"{package}."):
                importlib.import_module(module.name)
        return self._entries

    def variants(self, name: str) -> list[str]:
        """Return the names of the variants of an entry, `name@source`, sorted."""
        return [other for other in self if "@" in other and self[other].base == name]

    def __getitem__(self, name: str) -> Entry:
        entries = self._load()
        if name not in entries:
            raise unknown(self.kind, name, entries)
        return entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._load()

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._load()))

    def __len__(self) -> int:
        return len(self._load())
