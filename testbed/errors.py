"""Errors a user can mend: one message each, saying what was given, what was expected, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(ValueError):
    """Bad input. The command line prints the message alone and exits with code 2."""


def suggest(name: str, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the nearest known name, or "" when none is near."""
    near = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean '{near[0]}'?" if near else ""


def unknown(kind: str, name: str, known: Iterable[str]) -> UserError:
    """Return the error for a name that is not in a list, with the nearest one suggested."""
    names = sorted(known)
    return UserError(f"Unknown {kind} '{name}'.{suggest(name, names)} Known: {', '.join(names)}.")
