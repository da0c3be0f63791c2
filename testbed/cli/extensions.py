"""Commands, kinds of names and parts of commands that other packages add to the core.

Such a package names an `Extension` under the entry point group `testbed.commands`; the core names no such
package, and works without any.
"""

import functools
import pkgutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from testbed.errors import UserError
from testbed.registry import table_rows

GROUP = "testbed.commands"


@dataclass(frozen=True)
class Command:
    """One command of the command line.

    section: heading of `testbed --help`. name: one word, or two for a command of a group, "evidence run".
    help: the line of `testbed --help`, at most 56 characters. function: a function, or "module:name".
    options: keyword arguments of `typer.Typer.command`.
    """

    section: str
    name: str
    help: str
    function: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def load(self) -> Callable[..., Any]:
        found: Callable[..., Any] = pkgutil.resolve_name(self.function)
        return found


def read_commands(module: str, options: Mapping[str, Mapping[str, Any]] | None = None) -> tuple[Command, ...]:
    """Return the commands of commands.csv beside a module's file; options: those of some commands, by name.

    A command without a function is a group; its commands have two words.
    """
    more = options or {}
    return tuple(Command(**row, options=more.get(row["name"], {})) for row in table_rows(module, "commands"))


@dataclass(frozen=True)
class Kind:
    """One kind of names, for `testbed list` and `testbed show`.

    about: a description. rows: returns a row per name, with a column "name".
    places, pattern: the source files that define it and how a definition starts, for fast counting. several:
    True if loops define more than the pattern finds. shown: columns of the table; all by default. names:
    returns only the names, for kinds with slow rows. detail: returns what `show` prints of one name, by
    default the row. aliases: returns other names of a name. use: a command that uses a name.
    """

    about: str
    rows: Callable[[], list[dict[str, Any]]]
    places: str = ""
    pattern: str = ""
    several: bool = False
    shown: tuple[str, ...] = ()
    names: Callable[[], Iterable[str]] | None = None
    detail: Callable[[str], dict[str, Any]] | None = None
    aliases: Callable[[str], Iterable[str]] | None = None
    use: str = ""


@dataclass(frozen=True)
class Extension:
    """Additions of a package: commands, kinds by name, parts of core commands by name as "module:name"."""

    commands: tuple[Command, ...] = ()
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)


@functools.cache
def installed() -> tuple[Extension, ...]:
    """Return the additions of installed packages, in the order of their names."""
    from importlib.metadata import entry_points

    found = sorted(entry_points(group=GROUP), key=lambda entry: entry.name)
    return tuple(entry.load() for entry in found)


def has(part: str) -> bool:
    """Return True if an installed package adds this part."""
    return any(part in extension.parts for extension in installed())


def part(name: str) -> Any:
    """Return a part of a command that another package adds; raise UserError if none does."""
    for extension in installed():
        if name in extension.parts:
            return pkgutil.resolve_name(extension.parts[name])
    raise UserError(
        f"No installed package adds '{name}'. Install off-policy-testbed again, as by `make setup`."
    )
