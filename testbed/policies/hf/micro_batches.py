"""Micro-batches: process a batch in parts, so that memory does not grow with the batch.

A loss reads the weights only through log-probabilities. So the whole batch's log-probabilities are computed
part by part without keeping anything for a backward pass, the loss is taken over all of them at once, and
each part is recomputed for its share of the gradient. Every denominator and batch statistic is therefore the
whole batch's, for any objective; the cost is a second forward pass. Gradients of parts add up in the
precision of theta.
"""

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from testbed.errors import UserError

Values: TypeAlias = Callable[[Tensor], Tensor]
"""theta_P -> numbers of a part's sequences [M, T]."""
Refused: TypeAlias = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class Part:
    """A few prompts and the sequences that answer them, `group` to each."""

    prompts: slice
    rows: slice
    group: int


def lengths(mask_BT: Tensor) -> Tensor:
    """Return the position after the last counted token, [B]."""
    place_T = torch.arange(1, mask_BT.shape[1] + 1, device=mask_BT.device)
    return (mask_BT * place_T).amax(1)


def parts(prompt_N: Sequence[int], response_B: Sequence[int], most: int) -> list[Part]:
    """Return parts, in order, of at most `most` tokens each, padding included; 0 makes a single part.

    A part holds whole groups, or equal pieces of one group that is too large, and at least one sequence of
    any length.

    prompt_N, response_B: lengths in tokens; b = n * group + g.
    """
    prompts, sequences = len(prompt_N), len(response_B)
    group = sequences // prompts
    if not most:
        return [Part(slice(0, prompts), slice(0, sequences), group)]
    found: list[Part] = []
    start = 0
    while start < prompts:
        stop = start + 1
        while stop < prompts and _tokens(prompt_N, response_B, group, start, stop + 1) <= most:
            stop += 1
        if stop > start + 1 or _tokens(prompt_N, response_B, group, start, stop) <= most:
            found.append(Part(slice(start, stop), slice(start * group, stop * group), group))
        else:
            longest = max(response_B[start * group : (start + 1) * group])
            size = max(1, (most - prompt_N[start]) // max(longest, 1))
            ends = [*range(start * group, (start + 1) * group, size), (start + 1) * group]
            found += [Part(slice(start, start + 1), slice(a, b), b - a) for a, b in pairwise(ends)]
        start = stop
    return found


def _tokens(prompt_N: Sequence[int], response_B: Sequence[int], group: int, start: int, stop: int) -> int:
    longest = max(response_B[start * group : stop * group])
    return (stop - start) * (max(prompt_N[start:stop]) + group * longest)


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, theta_P: Tensor, values: Values, refused: Refused) -> Tensor:
        ctx.save_for_backward(theta_P)
        ctx.values, ctx.refused = values, refused
        return values(theta_P)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_MT: Tensor) -> tuple[Tensor, None, None]:
        (theta_P,) = ctx.saved_tensors
        if not grad_MT.any():  # groups of equal rewards, for example
            return torch.zeros_like(theta_P), None, None
        with ctx.refused(), torch.enable_grad():
            leaf_P = theta_P.detach().requires_grad_()
            (grad_P,) = torch.autograd.grad(ctx.values(leaf_P), leaf_P, grad_MT)
        return grad_P, None, None


def recomputed(theta_P: Tensor, values: Values, refused: Refused = nullcontext) -> Tensor:
    """Return values(theta_P), differentiable once, without keeping anything for the backward pass.

    refused: a context for the backward pass that may explain its errors.
    """
    result: Tensor = _Recomputed.apply(theta_P, values, refused)
    return result


MICRO = "TESTBED_MICRO_TOKENS"
"""Environment variable: most tokens of a micro-batch on this machine; overrides the cell's value. The cell
keeps its name, so a run that ran out of memory resumes from its checkpoint; last bits may differ."""


def checked_micro_tokens(micro_tokens: int) -> int:
    """Return the most tokens of a micro-batch, 0 for no limit; UserError unless it is a whole number."""
    if here := os.environ.get(MICRO, ""):
        if not here.isdigit() or not int(here):
            raise UserError(f"{MICRO} is '{here}', expected a number of tokens, as 8192.")
        return int(here)
    if isinstance(micro_tokens, bool) or not isinstance(micro_tokens, int) or micro_tokens < 0:
        raise UserError(
            f"micro_tokens is {micro_tokens!r}, expected the most tokens that one forward and backward pass "
            "may hold, as 8192; 0 takes the whole batch at once."
        )
    return micro_tokens


def out_of_memory(error: BaseException) -> bool:
    """Return True if an error says that memory ran out, on a GPU or in the machine."""
    # Torch's allocator for the CPU raises a plain RuntimeError.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error)


@contextmanager
def refusing(tokens: int, attempt: Callable[[int], None]) -> Iterator[None]:
    """Context that turns running out of memory into a UserError with the largest micro-batch that fits.

    tokens: in one pass. attempt: a forward and backward pass with so many tokens per micro-batch.
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        # The failed pass would keep its activations through its frames, and every smaller one would fail.
        traceback.clear_frames(error.__traceback__)
        fits = _largest_that_fits(attempt, tokens)
        advice = (
            f"{fits} fit just now: set policy_args.micro_tokens={fits} or less, or {MICRO}={fits} and give "
            "the same command again to go on from a checkpoint"
            if fits
            else "not even one sequence fits: take shorter responses, LoRA, or a smaller model"
        )
        raise UserError(f"Memory ran out at {tokens} tokens in one pass; {advice}.") from error


def _largest_that_fits(attempt: Callable[[int], None], tokens: int) -> int:
    """Return the largest of tokens / 2, tokens / 4, … that fits into memory; 0 if none does."""
    while tokens > 1:
        tokens //= 2
        try:
            attempt(tokens)
        except (MemoryError, RuntimeError) as error:
            if not out_of_memory(error):
                raise
            continue
        return tokens
    return 0
