"""Check arguments given by name against the names and types that a function declares."""

import inspect
import typing
from collections.abc import Callable, Collection, Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal

from testbed.errors import suggest

PLAIN = (bool, int, float, str, NoneType)
"""Types that a command-line word or a TOML value can have; nothing else is checked."""


def wrong_arguments(
    what: str, function: Callable[..., Any], given: Mapping[str, Any], hidden: Collection[str] = ()
) -> Iterator[str]:
    """Yield a sentence for every argument that the function lacks or that has a value of another type.

    what: the subject of the sentence, as "policy 'toy'". hidden: parameters that users may not set. A type is
    the parameter's annotation, else that of its default; only numbers, text, booleans and choices of these
    are checked.
    """
    declared = {name: kind for name, kind in types_of(function).items() if name not in hidden}
    for name in given:
        if name not in declared:
            yield f"{what} has no argument '{name}'.{suggest(name, declared)} {signature(declared)}"
    yield from wrong_types(what, function, given)


def wrong_types(what: str, function: Callable[..., Any], given: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for every argument with a value of another type than the function's parameter."""
    declared = types_of(function) if given else {}
    for name, value in given.items():
        if name in declared and (reason := mistyped(value, declared[name])):
            yield f"{what} has {name} = {value!r} ({type(value).__name__}), expected {reason}."


def signature(declared: Mapping[str, Any]) -> str:
    """Return "It has: width (int), heads (int)." in the order of the parameters."""
    shown = ", ".join(f"{name} ({_spelled(kind)})" for name, kind in declared.items())
    return f"It has: {shown or 'none'}."


def types_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the declared type of every named parameter; Any for undeclared ones."""
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
    """Return the expected type, as "a number", if the value does not have it; else ""."""
    if not _checkable(kind) or _fits(value, kind):
        return ""
    if typing.get_origin(kind) is Literal:
        return "one of " + ", ".join(map(repr, typing.get_args(kind)))
    return " or ".join(WORDS[part] for part in typing.get_args(kind) or (kind,))


def _fits(value: Any, kind: Any) -> bool:
    """Return True if a value has the type; integers are numbers, booleans are not."""
    if typing.get_origin(kind) is Literal:
        return value in typing.get_args(kind)
    parts = typing.get_args(kind) or (kind,)
    return type(value) in parts or (float in parts and type(value) is int)


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    inner = function.__init__ if inspect.isclass(function) else function
    try:
        return typing.get_type_hints(inner)
    except Exception:  # a name for type checkers only: use the defaults
        return {}


def _of_default(default: Any) -> Any:
    if type(default) is int or type(default) is float:
        return float  # a default of 1 must also allow 0.5
    return type(default) if type(default) in (bool, str) else Any


def _checkable(kind: Any) -> bool:
    if typing.get_origin(kind) is Literal:
        return True
    # Of generic types only unions: the int in Sequence[int] is an item, not a value.
    plain = typing.get_origin(kind) in (None, typing.Union, UnionType)
    return plain and all(part in PLAIN for part in typing.get_args(kind) or (kind,))


WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text", NoneType: "nothing"}


def _spelled(kind: Any) -> str:
    if typing.get_origin(kind) is Literal:
        return " | ".join(map(repr, typing.get_args(kind)))
    return kind.__name__ if isinstance(kind, type) else str(kind).removeprefix("typing.")
