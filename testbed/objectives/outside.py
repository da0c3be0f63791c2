"""Objectives in a user's file. Every call checks that inputs are unchanged and the loss is valid."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import UserError
from testbed.registry import Entry
from testbed.user_files import line_of_a_user, outside_function, settings_kept

_checked: dict[tuple[str, Callable[..., Tensor]], Entry] = {}


def outside_objective(name: str) -> Entry:
    """Return `file.py:function` as an Entry without promises; every call is checked.

    Raises UserError when the file cannot be read or run, has no such function, its first two parameters are
    not (logp_BT, batch), or the file has changed since its digest was taken.
    """
    entry = outside_function(name, 2, "(logp_BT, batch, *, hyper=…)")
    key = name, entry.function
    if key not in _checked:
        _checked[key] = Entry(entry.name, checked(entry.function, name), entry.source, entry.promises)
    return _checked[key]


def checked(function: Callable[..., Tensor], name: str) -> Callable[..., Tensor]:
    """Wrap the objective so that every call checks its result and its side effects.

    Raises UserError, naming the function and its line, if it returns anything but a floating tensor of
    logp_BT's shape that has a gradient; if it changes logp_BT or the batch in place; or if it exits or raises
    an error that cannot be printed. A loss that is not finite is a divergence: runs and cards report it.
    """
    line = f"{name}, line {inspect.unwrap(function).__code__.co_firstlineno}" if _has_code(function) else name
    reached = False  # True once a gradient reached logp_BT; checked once, because it costs a backward pass

    @functools.wraps(function)
    def call(logp_BT: Tensor, batch: Batch, **hyper: Any) -> Tensor:
        given = {"logp_BT": logp_BT, **_tensors(batch)}
        before = {field: (value._version, value.detach().clone()) for field, value in given.items()}
        nonlocal reached
        loss = _called(function, line, logp_BT, batch, hyper)
        for field, (version, value) in before.items():
            now = logp_BT if field == "logp_BT" else getattr(batch, field)
            # Values are compared too, because writes through .data or numpy do not count as a version.
            same = now is given[field] and now._version == version
            if not (same and torch.equal(now.detach().nan_to_num(), value.nan_to_num())):
                raise UserError(
                    f"{line} changes {field} in place, which later losses and logs read too. Work on a copy: "
                    f"{field}.clone()."
                )
        if wrong := _wrong(loss, logp_BT, reached):
            raise UserError(f"{line} {wrong}")
        reached = reached or (torch.is_grad_enabled() and logp_BT.requires_grad)
        return loss

    return call


def _has_code(function: object) -> bool:
    return hasattr(inspect.unwrap(function), "__code__")  # type: ignore[arg-type]


def _tensors(batch: Batch) -> dict[str, Tensor]:
    found = {item.name: getattr(batch, item.name) for item in fields(batch)}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}


def _called(
    function: Callable[..., Tensor], line: str, logp_BT: Tensor, batch: Batch, hyper: dict[str, Any]
) -> Tensor:
    try:
        with settings_kept():
            return function(logp_BT, batch, **hyper)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        if isinstance(error, TypeError) and error.__traceback__ and error.__traceback__.tb_next is None:
            raise UserError(f"{line} cannot be called: {error}.") from None  # the body never ran
        try:
            str(error)
        except BaseException:
            place = line_of_a_user(error) or line
            raise UserError(
                f"{place}: {type(error).__name__}, with a message that cannot be printed."
            ) from None
        raise
    except BaseException as error:
        place = line_of_a_user(error) or line
        raise UserError(
            f"{place}: {type(error).__name__} ends the program; expected a loss. Raise an Exception instead."
        ) from None


def _wrong(loss: object, logp_BT: Tensor, reached: bool) -> str:
    """Say what is wrong with a loss and what was expected; "" if it is fine."""
    expected = f"expected a loss per token, a floating tensor of shape {tuple(logp_BT.shape)} [..., B, T]"
    if inspect.iscoroutine(loss):
        loss.close()  # else Python warns later, elsewhere, that nobody awaited it
    if not isinstance(loss, Tensor):
        return f"returns {type(loss).__name__}; {expected}."
    if loss.shape != logp_BT.shape:
        return f"returns shape {tuple(loss.shape)}; {expected}. Spread a sequence's loss over its tokens."
    if not loss.is_floating_point() or loss.layout is not torch.strided or loss.device != logp_BT.device:
        found = f"{loss.dtype}, {loss.layout}, on {loss.device}"
        return f"returns {found}; {expected}, dense, on {logp_BT.device}."
    if torch.is_grad_enabled() and logp_BT.requires_grad and not (reached or _reaches(loss, logp_BT)):
        return f"returns a loss that does not depend on logp_BT (detached); {expected} with a gradient."
    return ""


def _reaches(loss: Tensor, logp_BT: Tensor) -> bool:
    """Return True if the loss has a gradient with respect to logp_BT, not only to other leaves."""
    if not loss.requires_grad:
        return False
    return torch.autograd.grad(loss.sum(), logp_BT, retain_graph=True, allow_unused=True)[0] is not None
