"""Every world by name: tabular worlds and token tasks, found in every module of this package."""

import difflib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import envs.tokens
from envs.tokens.token_task import TokenTask

Constructor = TypeVar("Constructor", bound=Callable[..., Any])

_TABULAR_MODULES = ("envs.logged_bandit", "envs.mdps")
# These declare no world; importing them would load gymnasium or Numba, which may be missing.
_WITHOUT_WORLDS = frozenset({"envs.tokens.token_gym_env", "envs.tokens.tree_kernel"})

_declared: dict[str, Callable[..., Any]] = {}


def world(name: str) -> Callable[[Constructor], Constructor]:
    """Declare a constructor (keyword-only arguments, all with defaults) as the world `name`.

    Raises ValueError if another module has the name, or an argument is positional or has no default.
    """

    def declare(constructor: Constructor) -> Constructor:
        other = _declared.get(name)
        # A reloaded module declares its names again; that is not a clash.
        if other is not None and _home(other) != _home(constructor):
            raise ValueError(
                f"world {name!r} of {_home(constructor)} is already declared by {_home(other)}; rename one."
            )
        for parameter in inspect.signature(constructor).parameters.values():
            if parameter.kind is not parameter.KEYWORD_ONLY or parameter.default is parameter.empty:
                raise ValueError(
                    f"argument {parameter.name!r} of world {name!r} must be keyword-only and have a default: "
                    "the name alone has to make a world."
                )
        _declared[name] = constructor
        return constructor

    return declare


def _home(constructor: Callable[..., Any]) -> str:
    return f"{constructor.__module__}.{constructor.__qualname__}"


@cache
def _import_all() -> None:
    tasks = [info.name for info in pkgutil.iter_modules(envs.tokens.__path__, "envs.tokens.")]
    for module in (*_TABULAR_MODULES, *(name for name in tasks if name not in _WITHOUT_WORLDS)):
        importlib.import_module(module)


def worlds() -> Mapping[str, Callable[..., Any]]:
    """Constructors by name, sorted, read-only."""
    _import_all()
    return MappingProxyType(dict(sorted(_declared.items())))


def kind(name: str) -> Literal["finite-mdp", "token-task", "token-tree"]:
    """Type that the world's constructor returns."""
    constructor = _constructor(name)
    if constructor.__module__ in _TABULAR_MODULES:
        return "finite-mdp"
    is_task = inspect.isclass(constructor) and issubclass(constructor, TokenTask)
    return "token-task" if is_task else "token-tree"


def describe(name: str) -> str:
    """First line of the world's docstring."""
    return (inspect.getdoc(_constructor(name)) or "").partition("\n")[0]


def make(name: str, **arguments: Any) -> Any:
    """Make the world `name`; ValueError with the nearest spelling for an unknown name or argument."""
    constructor = _constructor(name)
    known = inspect.signature(constructor).parameters
    for argument in arguments:
        if argument not in known:
            raise ValueError(
                f"world {name!r} takes no argument {argument!r}. {_nearest(argument, list(known))}"
            )
    return constructor(**arguments)


def token_task(name: str, args: Mapping[str, Any]) -> TokenTask:
    """Make the cataloged token task `name`; ValueError for an unknown name, or a world of another kind."""
    if kind(name) != "token-task":
        raise ValueError(
            f"the world {name!r} is a {kind(name)}, not a token task; take one that writes tokens."
        )
    task: TokenTask = make(name, **args)
    return task


def _constructor(name: str) -> Callable[..., Any]:
    known = worlds()
    if name not in known:
        raise ValueError(f"unknown world {name!r}. {_nearest(name, list(known))}")
    return known[name]


def _nearest(given: str, known: list[str]) -> str:
    close = difflib.get_close_matches(given, known, n=1)
    return (f"Did you mean {close[0]!r}? " if close else "") + f"Known: {', '.join(known)}."
