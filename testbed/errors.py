"""Errors that a user can correct: one message each, with given input, expected input, and what to do."""

import difflib
import unicodedata
from collections.abc import Iterable, Mapping


class UserError(ValueError):
    """Bad input. The command line prints only the message and exits with code 2."""


class UnknownName(UserError):
    """A name that is not in a list; kind: what the list contains."""

    def __init__(self, message: str, kind: str, name: str) -> None:
        super().__init__(message)
        self.kind, self.name = kind, name


def suggest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest known name, or "" if none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""


MOST = 10
"""Most candidates in a message."""


def candidates(name: str, known: Iterable[str]) -> str:
    """Return "Known: a, b." in alphabetical order; of more than MOST names only the nearest ones."""
    names = sorted(known)
    if len(names) <= MOST:
        return f"Known: {', '.join(names)}."
    near = difflib.get_close_matches(name, names, n=MOST, cutoff=0.3)
    shown = list(dict.fromkeys([*near, *names]))[:MOST]
    return f"Known, {MOST} of {len(names)}: {', '.join(shown)}."


def unknown(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    """Return the error for a name that is not in a list, with the nearest one suggested."""
    names = sorted(known)
    said = f"Unknown {kind} '{name}'.{suggest(name, names)} {candidates(name, names)}"
    return UnknownName(said, kind, name)


SHOWN = 2000
"""Most characters of foreign text that a message repeats."""


OBEYED = ("Cc", "Cf", "Cs", "Zl", "Zp")
"""Unicode categories of invisible characters."""


def printable(text: object, most: int = SHOWN) -> str:
    r"""Escape text for a terminal and shorten its middle to `most` characters.

    Line breaks and tabs stay; other control characters, direction marks and surrogates become \x1b, \u202e or
    \ud800. Applying it twice changes nothing more. most: at least 60.
    """
    whole = str(text)
    shown = _escaped(whole[:most])
    if len(whole) <= most and len(shown) <= most:
        return shown
    start, end = shown[: most * 3 // 4 - 40], _escaped(whole[-most:])[-(most // 4) :]
    return f"{start} … {len(whole):,} in all … {end}"


def _escaped(text: str) -> str:
    return "".join(c if c in "\n\t" or unicodedata.category(c) not in OBEYED else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "surrogatepass").decode("ascii")


def listed(arguments: Mapping[str, object]) -> str:
    """Return "digits=3, noise=0.1", or "no arguments"."""
    return ", ".join(f"{name}={value}" for name, value in arguments.items()) or "no arguments"


def counted(number: int, what: str) -> str:
    """Return "1 cell" or "1,000 cells"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


PROBLEMS = 20
"""Most problems listed singly."""


def refuse(found: Iterable[str]) -> None:
    """Raise UserError with every distinct problem, at most PROBLEMS, and the number of others, if any."""
    told = list(dict.fromkeys(found))
    if len(told) > PROBLEMS:
        told = [*told[:PROBLEMS], f"… and {len(told) - PROBLEMS} more problems."]
    if told:
        raise UserError("\n".join(told))
