"""Check the promises of an objective: one set of checks for the contract tests and the report cards.

`CHECKS` are properties that every objective must have; each returns "" or the problem. `measure` measures an
objective's promises: the fields it reads, the scope of its weights, its weight on-policy, its bound and its
sign. All use the batch of `testbed.inspection.promise_batches`, in float64.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.inspection.effective_weights import effective_weights
from testbed.inspection.promise_batches import SEQUENCES, Sequence, batch_of, changed
from testbed.objectives import objective

READS = ("mu", "anchor", "ref", "adv", "reward", "group", "turn", "origin")
SCOPES = ("token", "sequence", "group", "batch")
FAR = 20.0
"""Largest log-ratios at which bounds are probed."""
BESIDE = 3.7e-5
"""Added to log-probabilities, because a round ratio may lie on a round bound, between two slopes."""


@dataclass(frozen=True)
class Measured:
    """Measured properties of an objective, named as the promises in testbed.objectives.

    on_policy: a multiple of A, "1/T", or None. largest: of |w/A| for log-ratios within 20. bounded: True if
    it is as large within 10. sign: w never has the sign of -A. derivative: w is the derivative of the loss's
    value, which detached coefficients prevent. penalty: the gradient is not 0 where A is 0.
    """

    reads: tuple[str, ...]
    scope: str
    on_policy: float | str | None
    largest: float
    bounded: bool
    sign: bool
    derivative: bool
    penalty: bool


def measure(name: str) -> Measured:
    """Measure an objective on the small batch; raise what the objective raises."""
    near, far = largest_share(name, FAR / 2), largest_share(name, FAR)
    return Measured(
        reads=tuple(field for field in READS if reads_field(name, field)), scope=scope(name),
        on_policy=on_policy(name), largest=far, bounded=far <= near * (1 + 1e-6), sign=keeps_sign(name),
        derivative=is_derivative(name), penalty=bool((weights_without_advantage(name) != 0).any()),
    )  # fmt: skip


def extreme(sequence: Sequence, power: float = 40) -> tuple[float, ...]:
    """Return the ratios of a sequence to a power."""
    return tuple(x**power for x in sequence.ratios)


def lopsided(sequence: Sequence) -> float:
    """Return a reward with one good answer per group, for objectives that drop or weigh bad ones."""
    return 1.0 if sequence.adv in (1.0, 2.0) else sequence.adv / 10


def capped(name: str) -> dict[str, Any]:
    """Return hyperparameters at which a cap that is infinite by default has an effect."""
    return {"cap": 3.0} if objective[name].defaults.get("cap") == math.inf else {}


def with_other(batch: Batch, field: str, size: float = 1.0) -> Batch:
    """Return the batch with different numbers in one of READS."""
    shift = torch.linspace(-0.31, 0.29, batch.mask_BT.numel(), dtype=torch.float64) * size
    shift = shift.reshape(batch.mask_BT.shape)
    ref_BT, turn_BT, origin_B = batch.logp_ref_BT, batch.turn_BT, batch.origin_B
    assert ref_BT is not None
    assert turn_BT is not None
    assert origin_B is not None
    new: dict[str, Callable[[], dict[str, Any]]] = {
        "mu": lambda: {"logp_mu_BT": batch.logp_mu_BT + shift},
        "anchor": lambda: {"logp_anchor_BT": batch.logp_anchor_BT + shift},
        "ref": lambda: {"logp_ref_BT": ref_BT + shift},
        "adv": lambda: {"adv_BT": -batch.adv_BT * (1 + shift)},
        "reward": lambda: {"reward_B": 1.3 - batch.reward_B * (1 + shift[:, 0])},
        "group": lambda: {"group_B": torch.tensor([0, 1, 0, 1, 2, 2, 2, 2])},
        "turn": lambda: {"turn_BT": torch.zeros_like(turn_BT)},
        "origin": lambda: {"origin_B": origin_B.flip(0)},
    }
    return replace(batch, **new[field]())


def reads_field(name: str, field: str) -> bool:
    """Return True if other numbers in a field of the batch change the weights.

    Also detects fields read only by a gate that needs a large mismatch, or few good rewards.
    """
    for sequences, size in ((SEQUENCES, 1.0), (SEQUENCES, 60.0), (changed(reward=lopsided), 1.0)):
        logp, batch = batch_of(sequences)
        before = effective_weights(name, logp, batch)
        if not torch.equal(before, effective_weights(name, logp, with_other(batch, field, size))):
            return True
    return False


def scope(name: str) -> str:
    """Return the smallest of SCOPES: moving a log-probability outside it changes no weight."""
    logp, batch = batch_of()
    before = effective_weights(name, logp, batch)
    moved = logp.clone()
    moved[1, 0] += 0.4
    changed_BT = before != effective_weights(name, moved, batch)
    token_BT = torch.zeros_like(batch.mask_BT)
    token_BT[1, 0] = True
    inside = {
        "token": token_BT,
        "sequence": (torch.arange(len(SEQUENCES)) == 1)[:, None].expand_as(batch.mask_BT),
        "group": (batch.group_B == batch.group_B[1])[:, None].expand_as(batch.mask_BT),
    }
    return next((each for each in SCOPES[:-1] if not (changed_BT & ~inside[each]).any()), "batch")


def on_policy(name: str) -> float | str | None:
    """Return w / A at pi = mu = anchor = ref if it is one number (or "1/T"), to 1e-9; else None."""
    sequences = changed(ratios=lambda s: (1.0,) * len(s.ratios), anchor=None, reference=None)
    logp, batch = batch_of(sequences)
    share_BT = effective_weights(name, logp, batch) / batch.adv_BT
    share_N = share_BT[batch.mask_BT]
    first = float(share_N[0])
    if bool(((share_N - first).abs() <= 1e-9).all()):
        return first
    length_BT = batch.mask_BT.sum(-1, keepdim=True).expand_as(share_BT)
    spread_N = share_N * length_BT[batch.mask_BT]
    return "1/T" if bool(((spread_N - 1).abs() <= 1e-9).all()) else None


def largest_share(name: str, reach: float, **hyper: Any) -> float:
    """Return the largest |w/A| of one-token answers with log-ratios up to `reach` either way."""
    ratio_X = np.exp(np.linspace(-reach, reach, 121))
    best = 0.0
    for adv in (1.0, -1.0):
        for anchored in (False, True):
            given = [((float(x),), (float(x),) if anchored else None) for x in ratio_X]
            rows = [Sequence(adv, x, anchor=anchor, group=i) for i, (x, anchor) in enumerate(given)]
            logp, batch = batch_of(rows)
            best = max(best, float(effective_weights(name, logp, batch, **hyper).abs().max()))
    return best


def share_at_powers(name: str, powers: tuple[int, ...] = (1, 8, 40, -8), **hyper: Any) -> float:
    """Return the largest |w/A| on the small batch with its ratios to these powers."""
    found = []
    for power in powers:
        logp, batch = batch_of(changed(ratios=lambda s, power=power: extreme(s, power)))
        share_BT = effective_weights(name, logp, batch, **hyper) / batch.adv_BT
        found.append(float(share_BT[batch.mask_BT].abs().max()))
    return max(found)


def promised_bound(name: str, hyper: dict[str, Any]) -> float:
    """Return the promised bound on |w/A| at hyperparameters: a number, or an expression in their names."""
    expression = objective[name].promises["max_weight"]
    if isinstance(expression, int | float):
        return float(expression)
    names = {"exp": math.exp, "max": max, "min": min, **objective[name].defaults, **hyper}
    return float(eval(expression, {"__builtins__": {}}, names))  # the registry's text, not a user's


def keeps_sign(name: str, powers: tuple[int, ...] = (1, 3, -3)) -> bool:
    """Return True if no weight has the sign opposite to its advantage's."""
    for power in powers:
        logp, batch = batch_of(changed(ratios=lambda s, power=power: extreme(s, power)))
        if not bool((effective_weights(name, logp, batch) * batch.adv_BT >= 0).all()):
            return False
    return True


def is_derivative(name: str) -> bool:
    """Return True if the weight is the finite difference of the loss, as without detached coefficients."""
    logp, batch = batch_of()

    def total(values: Tensor) -> Tensor:
        loss: Tensor = objective[name].function(values, batch)
        return loss[batch.mask_BT].sum()

    beside = (logp + BESIDE).requires_grad_()
    return bool(torch.autograd.gradcheck(total, beside, atol=1e-7, raise_exception=False))


def weights_without_advantage(name: str) -> Tensor:
    """Return the weights of the small batch with all advantages 0 and its rewards unchanged, [B, T]."""
    logp, batch = batch_of(changed(adv=0.0, reward=lambda s: s.adv if s.reward is None else s.reward))
    return effective_weights(name, logp, batch)


def loss_per_token(name: str) -> str:
    """One finite loss per token."""
    logp, batch = batch_of()
    loss = objective[name].function(logp, batch)
    if loss.shape != logp.shape:
        return f"shape {tuple(loss.shape)} for log-probabilities of shape {tuple(logp.shape)}"
    return "" if bool(torch.isfinite(loss[batch.mask_BT]).all()) else "a loss under the mask is not finite"


def nothing_leaks(name: str, hole: bool = False) -> str:
    """Tokens outside the mask (padding; with `hole`, tool tokens) change no weight and have none."""
    logp, batch = batch_of()
    other_logp, other = batch_of(width=6, padding=-50.0, hole=hole)
    other_logp[~other.mask_BT] = float("nan")
    other = replace(other, adv_BT=torch.where(other.mask_BT, other.adv_BT, float("nan")))
    plain = effective_weights(name, logp, batch)
    padded = effective_weights(name, other_logp, other)
    if not bool((padded[~other.mask_BT] == 0).all()):
        return "a token outside the mask has a weight; log-ratios of testbed.losses.ratios are 0 there"
    return _differs(padded[other.mask_BT], plain[batch.mask_BT])


def no_tool_token_leaks(name: str) -> str:
    """Tool tokens between an answer's tokens change no weight and have none."""
    return nothing_leaks(name, hole=True)


def order_is_free(name: str) -> str:
    """The order of sequences does not matter."""
    logp, batch = batch_of()
    order = torch.tensor([3, 0, 6, 1, 5, 2, 7, 4])
    moved = effective_weights(name, logp[order], batch.map(lambda x: x[order]))
    return _differs(moved, effective_weights(name, logp, batch)[order], relative=0.0, absolute=1e-12)


def replicas_are_separate(name: str) -> str:
    """Stacked batches, with one more leading axis, give the same as separate calls."""
    logp, batch = batch_of()
    inverse = changed(adv=lambda s: -s.adv, ratios=lambda s: tuple(1 / x for x in s.ratios), group=0)
    other_logp, other = batch_of(inverse)
    stacked = effective_weights(name, torch.stack([logp, other_logp]), _stack(batch, other))
    alone = [effective_weights(name, *each) for each in ((logp, batch), (other_logp, other))]
    return _differs(stacked[0], alone[0]) or _differs(stacked[1], alone[1])


def _stack(*batches: Batch) -> Batch:
    both: dict[str, Any] = {}
    for item in fields(Batch):
        values = [getattr(batch, item.name) for batch in batches]
        both[item.name] = None if values[0] is None else torch.stack(values)
    return Batch(**both)


def micro_batches_agree(name: str) -> str:
    """Parts with whole groups give the weights of the whole; a batch statistic is pooled over them."""
    logp, batch = batch_of()
    rows = [torch.tensor([0, 1, 2, 3]), torch.tensor([4, 5, 6, 7])]
    parts = [(logp[r], batch.map(itemgetter(r))) for r in rows]
    parts[1] = (parts[1][0], replace(parts[1][1], group_B=parts[1][1].group_B - 1))
    if statistic := objective[name].promises.get("statistic"):
        shared = statistic.of_parts(parts, **objective[name].defaults)
        parts = [(one, replace(part, statistic=shared)) for one, part in parts]
    split = torch.cat([effective_weights(name, one, part) for one, part in parts])
    return _differs(split, effective_weights(name, logp, batch))


def low_precision_is_raised(name: str) -> str:
    """Log-probabilities in bfloat16 and float32 are computed in float32 at least."""
    return _low_precision(name, torch.bfloat16) or _low_precision(name, torch.float32)


def _low_precision(name: str, dtype: torch.dtype) -> str:
    # Keep ratios away from bounds after rounding, so that both precisions take the same branch.
    logp, batch = batch_of(SEQUENCES[:4], dtype=torch.float32)
    rounded = batch.map(lambda x: x.to(dtype) if x.is_floating_point() else x)
    low, low_batch = (logp + BESIDE).to(dtype), rounded
    weight = effective_weights(name, low, low_batch)
    double = low_batch.map(lambda x: x.double() if x.is_floating_point() else x)
    exact = effective_weights(name, low.double(), double)
    tolerance = 1e-2 if dtype is torch.bfloat16 else 1e-5  # weights are returned in bfloat16
    scale = float(exact.abs().max()) + 1
    return _differs(weight.double(), exact, relative=tolerance, absolute=tolerance * scale / 100)


def extremes_are_numbers(name: str) -> str:
    """Log-ratios of +-10,000 never give NaN, and a promised bound keeps weights finite."""
    logp, batch = batch_of([*SEQUENCES, *SEQUENCES])
    adv = torch.where(torch.arange(16)[:, None] < 12, batch.adv_BT, torch.zeros_like(batch.adv_BT))
    for jump in (1e4, -1e4):
        weight = effective_weights(name, logp + jump, replace(batch, adv_BT=adv), **capped(name))
        if bool(torch.isnan(weight).any()):
            return f"NaN at a log-ratio of about {jump:g}"
        if objective[name].promises.get("max_weight") is not None and not torch.isfinite(weight).all():
            return f"an infinite weight at a log-ratio of about {jump:g} in spite of its bound"
    return ""


def degenerate_groups_are_defined(name: str) -> str:
    """Groups of one, and groups with equal rewards, give finite weights."""
    logp, batch = batch_of()
    for what, group in (("groups of one", torch.arange(8)), ("equal rewards", batch.group_B)):
        same = replace(batch, group_B=group, reward_B=torch.full_like(batch.reward_B, 0.5))
        if not torch.isfinite(effective_weights(name, logp, same)).all():
            return f"a weight is not finite with {what}"
    return ""


CHECKS: dict[str, Callable[[str], str]] = {
    "one finite loss per token": loss_per_token,
    "padding does not leak": nothing_leaks,
    "tool tokens do not leak": no_tool_token_leaks,
    "order of sequences does not matter": order_is_free,
    "stacked replicas equal separate calls": replicas_are_separate,
    "micro-batches give the whole batch's weights": micro_batches_agree,
    "bfloat16 is computed in float32": low_precision_is_raised,
    "extreme ratios give no NaN": extremes_are_numbers,
    "groups of one and equal rewards are defined": degenerate_groups_are_defined,
}
"""Properties of every objective, by sentence; each returns "" or the problem."""


def _differs(found: Tensor, wanted: Tensor, relative: float = 1e-12, absolute: float = 1e-14) -> str:
    if found.shape != wanted.shape:
        return f"weights of shape {tuple(found.shape)} where {tuple(wanted.shape)} were expected"
    if torch.allclose(found, wanted, rtol=relative, atol=absolute):
        return ""
    return f"weights differ by up to {float((found - wanted).abs().max()):.3g}"
