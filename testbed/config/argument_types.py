"""Check arguments given by name against the names and types that a function declares."""

import inspect
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from types import NoneType
from typing import Any, Literal

from testbed.errors import suggest

PLAIN = (bool, int, float, str, NoneType)
"""Types that a word of the command line or a TOML value can have; nothing else is checked."""


def wrong_arguments(
    what: str, function: Callable[..., Any], given: Mapping[str, Any], hidden: Collection[str] = ()
) -> Iterator[str]:
    """Yield a sentence for every argument that the function lacks or that has a value of another type.

    what: the subject of the sentence, as "policy 'toy'". hidden: parameters that are not the user's to give.
    A type is the parameter's annotation, else that of its default; what is neither a number, text, a truth
    value nor a choice of such is not checked.
    """
    declared = {name: kind for name, kind in types_of(function).items() if name not in hidden}
    for name in given:
        if name not in declared:
            yield f"{what} has no argument '{name}'.{suggest(name, declared)} {signature(declared)}"
    yield from wrong_types(what, function, given)


def wrong_types(what: str, function: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for every argument of the function with a value of another type; others pass."""
    declared = types_of(function) if given else {}
    for name, value in given.items():
        if name in declared and (reason := mistyped(value, declared[name])):
            yield f"{what} has {name} = {value!r} ({type(value).__name__}), expected {reason}."


def signature(declared: Mapping[str, Any]) -> str:
    """Return "It has: width (int), heads (int)." in the order of the parameters."""
    shown = ", ".join(f"{name} ({_spelled(kind)})" for name, kind in declared.items())
    return f"It has: {shown or 'none'}."


def types_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the declared type of every parameter that can be given by name; Any where none is declared."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    hints = _hints(function)
    return {
        p.name: hints.get(p.name, _of_default(p.default))
        for p in parameters
        if p.kind in (p.KEYWORD_ONLY, p.POSITIONAL_OR_KEYWORD)
    }


def mistyped(value: Any, kind: Any) -> str:
    """Return what was expected where the value is not of this type, as "a number", and "" where it is."""
    if not _checkable(kind) or _fits(value, kind):
        return ""
    return _expected(kind)


def _fits(value: Any, kind: Any) -> bool:
    """Return whether a value has the type; a whole number is a number, a truth value is not."""
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    parts = typing.get_args(kind) or (kind,)
    return type(value) in parts or (float in parts and type(value) is int)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    inner = function.__init__ if inspect.isclass(function) else function
    try:
        return typing.get_type_hints(inner)
    except Exception:  # a name that only a type checker sees: the defaults have to tell
        return {}


def _of_default(default: Any) -> Any:
    if type(default) is int or type(default) is float:
        return float  # eps=1 in a file of the user's says nothing against eps=0.5
    return type(default) if type(default) in (bool, str) else Any


def _checkable(kind: Any) -> bool:
    if typing.get_origin(kind) is Literal:
        return True
    parts = typing.get_args(kind) or (kind,)
    return all(part in PLAIN for part in parts) and typing.get_origin(kind) not in (tuple, list, dict)


WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "nothing"}


def _expected(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(kind)))
    return " or ".join(WORDS[part] for part in typing.get_args(kind) or (kind,))


def _spelled(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return " | ".join(map(repr, typing.get_args(kind)))
    return kind.__name__ if isinstance(kind, type) else str(kind).removeprefix("typing.")
