"""Plants a bug in functions of the running process: every binding of a changed function runs the new code."""

import contextlib
import functools
import gc
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType

ROOT = Path(__file__).parents[2]
OPTIMIZED = 0x1
"""The flag of code that belongs to a function, not to a module or to the body of a class."""
OURS = ("testbed", "envs", "analysis")


@contextlib.contextmanager
def planted(file: str, old: str, new: str) -> Iterator[None]:
    """Replace `old` by `new` everywhere in `file`, for as long as the context lasts; the file is not written.

    The code of functions is exchanged, so that names that were imported elsewhere, registered functions,
    methods and properties see it too. Values that the project keeps in functools caches are forgotten.

    Raises ValueError where the text is not there, or changes what runs once at import: constants, defaults.
    """
    path = ROOT / file
    text = path.read_text()
    if old not in text:
        raise ValueError(f"{file} does not contain {old!r}")
    importlib.import_module(file.removesuffix(".py").removesuffix("/__init__").replace("/", "."))
    before, after = (
        compile(each, str(path), "exec", dont_inherit=True) for each in (text, text.replace(old, new))
    )
    changed = dict(_changed(before, after, file))
    swapped = _swap(changed, file)
    if not swapped:
        raise ValueError(f"{file}: no living function has the code that {old!r} is part of")
    try:
        yield
    finally:
        for function, code in swapped:
            function.__code__ = code
        _forget()


def _changed(before: CodeType, after: CodeType, file: str) -> Iterator[tuple[CodeType, CodeType]]:
    """Yield pairs of codes of functions that differ, outer ones too."""
    parts = [[each for each in code.co_consts if isinstance(each, CodeType)] for code in (before, after)]
    if before.co_flags & OPTIMIZED:
        if before != after:
            yield before, after
    elif _own(before) != _own(after):
        raise ValueError(f"{file}: the bug changes {before.co_name}, which ran at import; change a function")
    if [each.co_name for each in parts[0]] == [each.co_name for each in parts[1]]:
        for inner, other in zip(*parts, strict=True):
            yield from _changed(inner, other, file)


def _own(code: CodeType) -> tuple[object, ...]:
    """Return what code does itself, without the functions that it defines and without line numbers."""
    constants = tuple(repr(each) for each in code.co_consts if not isinstance(each, CodeType))
    return code.co_code, constants, code.co_names


def _swap(changed: dict[CodeType, CodeType], file: str) -> list[tuple[FunctionType, CodeType]]:
    """Give every living function of the file its new code; return each with the code that it had."""
    functions, _ = _ours(len(sys.modules))
    swapped = []
    for function in functions:
        code = function.__code__
        if code.co_filename.endswith(file) and code in changed:
            function.__code__ = changed[code]
            swapped.append((function, code))
    _forget()
    return swapped


def _forget() -> None:
    """Empty the project's caches."""
    for cache in _ours(len(sys.modules))[1]:
        cache.cache_clear()


@functools.lru_cache(maxsize=1)
def _ours(modules: int) -> tuple[list[FunctionType], list[functools._lru_cache_wrapper]]:
    """Return the project's living functions and caches; looked for again when modules were imported since."""
    del modules
    functions, caches = [], []
    gc.unfreeze()  # get_objects leaves out what conftest.py froze
    for each in gc.get_objects():
        if type(each) is FunctionType and each.__code__.co_filename.startswith(str(ROOT)):
            functions.append(each)
        elif type(each) is functools._lru_cache_wrapper and (each.__module__ or "").startswith(OURS):
            caches.append(each)
    gc.freeze()
    return functions, caches
