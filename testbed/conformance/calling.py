"""One call of a user's loss: its arguments, its result, and its weights -dLoss/dlogp."""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from testbed.conformance.layouts import call_arguments, in_rows, present
from testbed.conformance.signature import Binding
from testbed.data.batch import Batch
from testbed.errors import UserError
from testbed.user_files import words_of

announce: list[Callable[[str], None]] = []
"""Receives each call's arguments, and "" on return, so that a hanging call can be reported."""


class LossError(UserError):
    """A loss that cannot be judged; `kind`: raises, shape, type, detached, changed, nan."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True)
class Outcome:
    """Result of one call: the loss, its weights [B, T] in float64, its dtype, and the reduction.

    form: "scalar"; "tokens" or "rows" for one number per token or response, which are then summed under the
    mask. changed: the inputs that the call changed.
    """

    value: float
    weight_BT: Tensor
    dtype: torch.dtype
    form: str
    changed: tuple[str, ...] = ()


def passed(arguments: Mapping[str, Any]) -> str:
    """Describe the arguments: "logp float64 [6, 5], advantages float64 [6], clip_eps 0.2"."""
    return ", ".join(f"{name} {_shape(value)}" for name, value in arguments.items())


def _shape(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    if isinstance(value, list) and value and isinstance(value[0], Tensor):
        kind = str(value[0].dtype).removeprefix("torch.")
        return f"list of {len(value)} {kind} tensors of lengths {[len(each) for each in value]}"
    if isinstance(value, Batch):
        return f"Batch of {list(value.mask_BT.shape)}"
    return repr(value)


def call(
    binding: Binding,
    logp_BT: Tensor,
    batch: Batch,
    dtype: torch.dtype = torch.float64,
    totals: tuple[int, int] | None = None,
) -> Outcome:
    """Return the outcome of a call with this batch.

    Raises LossError if the loss raises, returns numpy or another type, a shape other than a scalar, one
    number per token or one per response, or a number that does not depend on the log-probabilities.
    """
    leaf_BT = logp_BT.detach().clone().requires_grad_()
    with torch.enable_grad():
        arguments = call_arguments(binding, leaf_BT, _copy(batch), dtype, totals)
        before = {name: _copy(value) for name, value in _inputs(arguments)}
        words = passed(arguments)
        _announce(words)
        try:
            total, form, kind, gradient_BT = _run(binding, arguments, leaf_BT, batch.mask_BT, words)
        finally:
            _announce("")
    changed = tuple(name for name, value in _inputs(arguments) if not _same(value, before[name]))
    weight_BT = torch.zeros_like(leaf_BT) if gradient_BT is None else -gradient_BT
    return Outcome(float(total.detach()), weight_BT.detach().double(), kind, form, changed)


def reaches_old(binding: Binding, logp_BT: Tensor, batch: Batch) -> bool:
    """Return True if the loss has a gradient in the old log-probabilities; raise what `call` raises."""
    shift_BT = torch.zeros_like(logp_BT, requires_grad=True)
    old = {name: getattr(batch, name) + shift_BT for name in ("logp_mu_BT", "logp_anchor_BT")}
    leaf_BT = logp_BT.detach().clone().requires_grad_()
    arguments = call_arguments(binding, leaf_BT, replace(batch, **old), torch.float64)
    gradient_BT = _run(binding, arguments, shift_BT, batch.mask_BT, passed(arguments))[3]
    return gradient_BT is not None and bool((gradient_BT != 0).any())


def _run(
    binding: Binding, arguments: dict[str, Any], leaf_BT: Tensor, mask_BT: Tensor, words: str
) -> tuple[Tensor, str, torch.dtype, Tensor | None]:
    """Return the loss, its form, its dtype and its gradient; see Outcome."""
    try:
        returned = binding.function(**arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a user's file may raise anything
        more = "Expected a loss that takes these; --input and --set change what is passed."
        text = f"{binding.name} raised {words_of(error)}. It was passed {words}. {more}"
        raise LossError("raises", text) from error
    total, form, kind = _total(_loss_in(returned), mask_BT, binding, words)
    if not total.requires_grad:
        raise LossError(
            "detached",
            f"{binding.name} returned a loss that does not depend on the log-probabilities: no gradient "
            f"leads back to them. It was passed {words}.",
        )
    try:
        (gradient_BT,) = torch.autograd.grad(total, leaf_BT, allow_unused=True)
    except RuntimeError as error:
        text = f"{binding.name} has no gradient: {str(error).splitlines()[0]} It was passed {words}."
        raise LossError("raises", text) from error
    return total, form, kind, gradient_BT


def _announce(words: str) -> None:
    for listener in announce:
        listener(words)


def _loss_in(returned: Any) -> Any:
    if isinstance(returned, tuple) and returned and not all(_is_row(each) for each in returned):
        return returned[0]
    if isinstance(returned, Mapping):
        return returned.get("loss", returned)
    return getattr(returned, "loss", returned)


def _is_row(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 1 and value.requires_grad


def _total(value: Any, mask_BT: Tensor, binding: Binding, words: str) -> tuple[Tensor, str, torch.dtype]:
    rows = isinstance(value, list | tuple) and bool(value) and all(_is_row(each) for each in value)
    if inspect.iscoroutine(value):
        value.close()  # else Python warns later, elsewhere, that nobody awaited it
    if not (isinstance(value, Tensor) or rows):
        module = type(value).__module__.partition(".")[0]
        what = f"{'' if module == 'builtins' else module + '.'}{type(value).__name__}"
        raise LossError(
            "type",
            f"{binding.name} returned {what}; expected a torch tensor with a gradient: a scalar, or a number "
            f"per token or per response. It was passed {words}.",
        )
    first = value[0] if rows else value
    kind = first.dtype
    if first.is_sparse or first.device != mask_BT.device or not first.is_floating_point():
        raise LossError(
            "type",
            f"{binding.name} returned a tensor of {kind}, {first.layout}, on {first.device}; expected dense "
            f"floating numbers on {mask_BT.device}. It was passed {words}.",
        )
    if not rows and (value.dim() == 0 or (value.numel() == 1 and mask_BT.numel() > 1)):
        return value.reshape(()), "scalar", kind
    per_token = in_rows(value, present(mask_BT), binding)
    if per_token is not None:
        return torch.where(mask_BT, per_token, torch.zeros_like(per_token)).sum(), "tokens", kind
    if not rows and value.shape == mask_BT.shape[:1]:
        return value.sum(), "rows", kind
    got = f"list of lengths {[len(each) for each in value]}" if rows else f"shape {list(value.shape)}"
    raise LossError(
        "shape",
        f"{binding.name} returned {got} for a batch of {mask_BT.shape[0]} responses, {mask_BT.shape[1]} "
        f"tokens wide; expected a scalar, a number per token or per response. It was passed {words}.",
    )


def _inputs(arguments: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each argument, and of each field of a batch among them."""
    for name, value in arguments.items():
        if isinstance(value, Batch):
            yield from ((f"{name}.{each.name}", getattr(value, each.name)) for each in fields(value))
        else:
            yield name, value


def _copy(value: Any) -> Any:
    if isinstance(value, list):
        return [_copy(each) for each in value]
    if isinstance(value, Batch):
        return replace(value, **{each.name: _copy(getattr(value, each.name)) for each in fields(value)})
    return value.detach().clone() if isinstance(value, Tensor) else value


def _same(value: Any, before: Any) -> bool:
    if isinstance(before, list):
        return len(value) == len(before) and all(map(_same, value, before))
    if isinstance(before, Tensor):
        return value.shape == before.shape and torch.allclose(value.detach(), before, 0, 0, equal_nan=True)
    return True
