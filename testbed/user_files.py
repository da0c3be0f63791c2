"""Objectives, tasks and schedules in a user's file, `path/to/file.py:function`, and digests of files."""

import ast
import contextlib
import hashlib
import importlib.util
import inspect
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NoReturn

from testbed.errors import UserError, printable, suggest
from testbed.registry import Entry

DIGEST = 12
"""Number of sha256 hexadecimal digits that identify a version of the file."""

_loaded: dict[str, Entry] = {}
_modules: set[str] = set()


def in_a_file(name: str) -> bool:
    """Return True if a name is that of a function in a user's file."""
    return ".py:" in name or name.endswith(".py")


def pin(name: str) -> str:
    """Return `file.py:function#digest`, the name that identifies this version of the file in results.

    Built-in names are returned unchanged. Raises UserError if the file cannot be read or run, or lacks the
    function or class.
    """
    if not in_a_file(name):
        return name
    _found(name)
    path, function, digest = _split(name)
    return f"{path}:{function}#{digest or unchanged(path)}"


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return a short name for each recipe: one from a file by its function, with more if two clash."""
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


def outside_function(name: str, positional: int, expected: str) -> Entry:
    """Return a function with that many positional parameters as an Entry; raise UserError as `pin` does."""
    entry = _found(name)
    path, function, _ = _split(name)
    parameters = inspect.signature(entry.function).parameters.values()
    given = [p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.POSITIONAL_ONLY)]
    if len(given) != positional:
        raise UserError(
            f"{function} in {path} has positional parameters {', '.join(given) or 'none'}; "
            f"expected {expected}."
        )
    return entry


def outside_callable(name: str) -> Entry:
    """Return a function or class of a file as an Entry, with any parameters; raise as `pin` does."""
    return _found(name)


def outside_constructor(name: str) -> Entry:
    """Return a class or function that must be callable without arguments; raise UserError as `pin` does.

    Its parameters must be keyword-only, each with a default.
    """
    entry = _found(name)
    path, function, _ = _split(name)
    for p in inspect.signature(entry.function).parameters.values():
        if p.kind is not p.VAR_KEYWORD and (p.kind is not p.KEYWORD_ONLY or p.default is p.empty):
            raise UserError(
                f"Parameter '{p.name}' of {function} in {path} must be keyword-only and have a default, as "
                f"in (*, {p.name}=…): the name alone has to make a task."
            )
    return entry


def _found(name: str) -> Entry:
    """Return the named object of the file, loaded once per version of the file."""
    path, function, digest = _split(name)
    if not function:
        raise UserError(f"'{name}' names no function of the file; expected {path}:function.{_has(path)}")
    now = unchanged(path, digest)
    key = f"{path.resolve()}:{function}#{now}"
    if key not in _loaded:
        _loaded[key] = _entry(name, path, function, now)
    return _loaded[key]


def _has(path: Path) -> str:
    """Return " It has: …." with the functions and classes of a file that parses as Python."""
    try:
        body = ast.parse(path.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return ""
    known = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    return f" It has: {', '.join(known) or 'none'}."


def _split(name: str) -> tuple[Path, str, str]:
    path, _, rest = name.rpartition(".py:") if ".py:" in name else (name.removesuffix(".py"), "", "")
    function, _, digest = rest.partition("#")
    return Path(f"{path}.py"), function, digest


def unchanged(path: Path, digest: str = "", expected: str = "path/to/file.py:function") -> str:
    """Return the digest of a file that a run depends on.

    Raises UserError if the file cannot be read (`expected` describes it), or its digest differs from the
    given one.
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
    _modules.add(spec.name)
    try:
        with settings_kept():
            spec.loader.exec_module(module)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a script may call exit() on import
        lines = [line for file, line, _ in _passed(error) if Path(file).name == path.name]
        place = f" (line {lines[0]})" if lines else ""
        raise UserError(f"{path} cannot be run: {words_of(error)}{place}") from error
    found = getattr(module, function, None)
    if not callable(found):
        known = [n for n, v in vars(module).items() if callable(v) and v.__module__ == spec.name]
        hint = suggest(function, known)
        raise UserError(f"{path} has no function '{function}'.{hint} It has: {', '.join(known) or 'none'}.")
    return Entry(name, found, f"{path}, sha256 {digest}")


@contextlib.contextmanager
def settings_kept() -> Iterator[None]:
    """Restore torch's gradient mode and default dtype, and numpy's error mode, after a user's code.

    A file that sets them for itself must not change how everything else is computed.
    """
    import numpy as np
    import torch

    dtype = torch.get_default_dtype()
    with torch.set_grad_enabled(torch.is_grad_enabled()), np.errstate(), no_silent_exit():
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)


@contextlib.contextmanager
def no_silent_exit() -> Iterator[None]:
    """Let os._exit raise SystemExit, as sys.exit does: a user's code would end a sweep without a word."""
    leave, here = os._exit, (os.getpid(), threading.get_ident())

    def exits(status: int) -> NoReturn:
        if (os.getpid(), threading.get_ident()) != here:
            leave(status)  # a fork of the user's, or a thread of ours
        raise SystemExit(status)

    os._exit = exits
    try:
        yield
    finally:
        os._exit = leave


def source_of(name: str) -> str:
    """Return the source of the function or class named by `file.py:function#digest`.

    Raises UserError if the file cannot be read, has changed, or does not define it at its top level.
    """
    path, function, digest = _split(name)
    unchanged(path, digest)
    text = path.read_text(encoding="utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == function:
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            return "\n".join(text.splitlines()[first - 1 : node.end_lineno])
    raise UserError(f"{path} does not define {function} at its top level.")


def line_of_a_user(error: BaseException) -> str:
    """Return "mine.py:17, in my_loss", the deepest line of a user's file in an error's traceback, or ""."""
    files = {str(getattr(sys.modules.get(module), "__file__", "")) for module in _modules}
    return next((f"{file}:{line}, in {name}" for file, line, name in _passed(error) if file in files), "")


def words_of(error: BaseException) -> str:
    """Return any error as "ValueError: its message", printable and bounded, even if `__str__` raises."""
    name = type(error).__name__
    try:
        return printable(f"{name}: {error}")
    except KeyboardInterrupt:
        raise
    except BaseException:
        return f"{name}, with a message that cannot be printed"


def _passed(error: BaseException) -> list[tuple[str, int, str]]:
    """Return (file, line, function) of every frame in the error's traceback, the deepest first."""
    frames = traceback.extract_tb(error.__traceback__)
    return [(frame.filename, frame.lineno or 0, frame.name) for frame in reversed(frames)]
