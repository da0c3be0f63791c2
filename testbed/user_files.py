"""Objectives in a user's own file, `path/to/file.py:function`, and digests of files that runs depend on."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from testbed.errors import UserError, suggest
from testbed.registry import Entry

DIGEST = 12
"""Hexadecimal digits of the sha256 that name a version of the file."""

_loaded: dict[str, Entry] = {}


def pin(name: str) -> str:
    """Return `file.py:function#digest`: the name by which a result knows this version of the file.

    Raises UserError when the file cannot be read or has no such function.
    """
    outside_objective(name)
    path, function, digest = _split(name)
    return f"{path}:{function}#{digest or unchanged(path)}"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return what to call each recipe: one from a file by its function, with more where two clash."""
    names = sorted(set(names))
    forms = {name: _forms(name) for name in names}
    taken = Counter(form for found in forms.values() for form in found)
    return {name: next((f for f in found if taken[f] == 1), name) for name, found in forms.items()}


def _forms(name: str) -> tuple[str, ...]:
    """Return names of a recipe, the shortest first."""
    if ".py:" not in name:
        return (name,)
    path, function, digest = _split(name)
    return function, f"{path.name}:{function}", f"{function}#{digest}"


def outside_objective(name: str) -> Entry:
    """Return the function as an Entry without promises.

    Raises UserError when the file cannot be read or run, has no such function, its first two parameters
    are not (logp_BT, batch), or the file has changed since its digest was taken.
    """
    path, function, digest = _split(name)
    now = unchanged(path, digest)
    key = f"{path.resolve()}:{function}#{now}"
    if key not in _loaded:
        _loaded[key] = _entry(name, path, function, now)
    return _loaded[key]


def _split(name: str) -> tuple[Path, str, str]:
    path, _, rest = name.rpartition(".py:")
    function, _, digest = rest.partition("#")
    return Path(f"{path}.py"), function, digest


def unchanged(path: Path, digest: str = "", expected: str = "path/to/file.py:function") -> str:
    """Return the digest of a file that a run depends on.

    Raises UserError when the file cannot be read (`expected` says what it should be), or has another digest
    than the one that is given.
    """
    try:
        now = hashlib.sha256(path.read_bytes()).hexdigest()[:DIGEST]
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}. Expected {expected}.") from error
    if digest and digest != now:
        raise UserError(
            f"{path} has digest {now}, but the run was planned with {digest}: the file has changed. "
            "Restore it, or run into a new folder."
        )
    return now


def _entry(name: str, path: Path, function: str, digest: str) -> Entry:
    spec = importlib.util.spec_from_file_location(f"outside_{path.stem}_{digest}", path)
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file. Expected path/to/file.py:function.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # a script may call exit() when it is imported
        raise UserError(f"{path} cannot be run: {type(error).__name__}: {error}") from error
    found = getattr(module, function, None)
    if not callable(found):
        known = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == spec.name]
        hint = suggest(function, known)
        raise UserError(f"{path} has no function '{function}'.{hint} It has: {', '.join(known) or 'none'}.")
    positional = [
        p for p in inspect.signature(found).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    if len(positional) != 2:
        names = ", ".join(p.name for p in positional) or "none"
        raise UserError(
            f"{function} in {path} has positional parameters {names}; expected (logp_BT, batch, *, hyper=…)."
        )
    return Entry(name, found, f"{path}, sha256 {digest}")
