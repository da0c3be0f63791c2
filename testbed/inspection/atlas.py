"""The objective atlas: every objective's effective weight against log-ratio, on one documented probe.

The probe is a group of four one-token answers, two with reward and advantage +1 and two with -1. One of them,
the probed one, has moved; the other three are on-policy. With one token per answer all ratio levels coincide:
the atlas shows the shape of a weight, and `ratio` names its level.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from envs.arrays import Floats
from testbed.data.batch import EXPERT, REPLAY, ROLLOUT, Batch
from testbed.errors import UserError
from testbed.inspection.effective_weights import effective_weights
from testbed.objectives import objective
from testbed.registry import Entry

REACH = 3.0
GRID: Floats = np.linspace(-REACH, REACH, 241)
LOG_MU = -3.0
"""log mu of every token, so that pi = e^(x - 3) stays a probability over the whole grid."""
ADVANTAGES = (1.0, -1.0)
TOLERANCE = 0.004
"""Largest interpolation error at an omitted point, as a share of its weight plus the scale."""
SPLITS, PASSES = 16, 3
"""Number of parts of an interval with a jump, split three times: clip edges are exact to 1e-5."""

AXES = {
    "pi/mu": "The policy has moved since it sampled: x = log pi/mu, anchor = ref = mu.",
    "pi/anchor": "The same for an objective that reads the anchor, not mu: x = log pi/anchor, mu = anchor.",
    "pi/ref": "The same for an objective that reads only the reference: x = log pi/ref.",
    "anchor/mu": "The engines disagree, nothing is learned yet: x = log anchor/mu, pi = anchor = ref.",
    "mu/ref": "Nothing is stale, all have moved from the reference: x = log mu/ref, pi = anchor = mu.",
    "expert": "The probed answer is a demonstration: x = log pi + 3.",
    "replay": "The probed answer comes from an earlier step: x = log pi/mu, anchor = ref = mu.",
}
_ORIGIN = {"expert": EXPERT, "replay": REPLAY}


@dataclass(frozen=True)
class Curve:
    """The effective weight of one objective along one axis, for one sign of the advantage."""

    family: str
    objective: str
    axis: str
    advantage: float
    log_ratio: Floats
    weight: Floats


def axes(entry: Entry) -> tuple[str, ...]:
    """Return the axes along which an objective is drawn, given the fields that it promises to read."""
    reads = set(entry.promises.get("reads", ()))
    first = next((base for base in ("mu", "anchor", "ref") if base in reads), "mu")
    more = ["anchor/mu"] if {"mu", "anchor"} <= reads else []
    more += ["mu/ref"] if "ref" in reads and {"mu", "anchor"} & reads else []
    return (f"pi/{first}", *more, *(_ORIGIN if "origin" in reads else ()))


def probe(log_ratio_X: Floats, axis: str = "pi/mu") -> tuple[Tensor, Batch]:
    """Return logp_BT and the Batch of the probe with leading axes [2, X]: sign of A, point of the axis."""
    shape = (len(ADVANTAGES), len(log_ratio_X), 4, 1)
    start = torch.full(shape, LOG_MU, dtype=torch.float64)
    moved = start.clone()
    moved[:, :, 0, 0] += torch.as_tensor(log_ratio_X)
    sign = torch.tensor([1.0, 1.0, -1.0, -1.0], dtype=torch.float64)
    adv = torch.tensor(ADVANTAGES, dtype=torch.float64)[:, None, None] * sign
    reward_B = adv.expand(shape[:-1]).clone()
    origin_B = torch.full(shape[:-1], ROLLOUT)
    origin_B[..., 0] = _ORIGIN.get(axis, ROLLOUT)
    return moved, Batch(
        logp_mu_BT=moved if axis == "mu/ref" else start,
        adv_BT=reward_B[..., None].clone(),
        mask_BT=torch.ones(shape, dtype=torch.bool),
        reward_B=reward_B,
        group_B=torch.zeros(shape[:-1], dtype=torch.int64),
        logp_anchor_BT=moved if axis in ("anchor/mu", "mu/ref") else start,
        logp_ref_BT=moved if axis == "anchor/mu" else start,
        turn_BT=torch.zeros(shape, dtype=torch.int64),
        origin_B=origin_B,
    )


def weights(name: str, log_ratio_X: Floats, axis: str = "pi/mu") -> Floats:
    """Return the probed token's effective weight at every point; [2, X], A = +1 first."""
    found: Floats = _weights(name, *probe(log_ratio_X, axis))[..., 0, 0].numpy()
    return found + 0.0  # no -0.0


def example_weights(name: str) -> tuple[list[float], list[float]]:
    """Return the weights of the worked example: two for A = +1, three for A = -1."""
    ratio_BT = torch.tensor([[1.5, 0.5, 1.0], [0.5, 1.25, 4.0]], dtype=torch.float64)
    mask_BT = torch.tensor([[True, True, False], [True, True, True]])
    start = torch.full_like(ratio_BT, LOG_MU)
    reward_B = torch.tensor(ADVANTAGES, dtype=torch.float64)
    adv_BT = reward_B[:, None] * mask_BT
    zeros = torch.zeros(2, 3, dtype=torch.int64)
    batch = Batch(start, adv_BT, mask_BT, reward_B, zeros[:, 0], start, start, zeros, None, zeros[:, 0])
    first, second = (_weights(name, *(start + ratio_BT.log(), batch)) + 0.0).tolist()  # no -0.0
    return first[:2], second


def _weights(name: str, logp_BT: Tensor, batch: Batch) -> Tensor:
    found = effective_weights(name, logp_BT, batch)
    if not bool(torch.isfinite(found).any()):
        raise UserError(f"{name} has no finite weight on any token of a small batch; expected finite losses.")
    return found


def curves(name: str) -> list[Curve]:
    """Return an objective's curves, one per axis and sign, with as few points as an accurate plot needs."""
    entry = objective[name]
    found = []
    for axis in axes(entry):
        x, both = _resolved(name, axis)
        for adv, weight in zip(ADVANTAGES, both, strict=True):
            kept = _needed(x, weight)
            found.append(Curve(entry.family, name, axis, adv, x[kept], weight[kept]))
    return found


def atlas(names: Iterable[str] | None = None) -> list[Curve]:
    """Return the curves of the named objectives, by default all registered ones, by family."""
    chosen = list(objective) if names is None else list(names)
    ordered = sorted(chosen, key=lambda name: (objective[name].family, objective[name].base, name))
    return [curve for name in ordered for curve in curves(name)]


def _resolved(name: str, axis: str) -> tuple[Floats, Floats]:
    """Return the grid with added points where a weight jumps, and the weights there."""
    x, both = GRID, weights(name, GRID, axis)
    for _ in range(PASSES):
        jumps = np.unique(np.concatenate([_jumps(x, weight) for weight in both]))
        if not len(jumps):
            break
        inner = [np.linspace(x[i], x[i + 1], SPLITS + 1)[1:-1] for i in jumps]
        x = np.sort(np.concatenate([x, *inner]))
        both = weights(name, x, axis)
    return x, both


def _jumps(x: Floats, weight: Floats) -> NDArray[np.intp]:
    """Return the intervals where the slope changes by more than on a smooth curve."""
    step = np.abs(np.diff(weight))
    slope = np.pad(step / np.diff(x), 1, mode="edge")
    beside = np.minimum(slope[:-2], slope[2:])
    return np.flatnonzero((step > 0.01 * _scale(weight)) & (slope[1:-1] > 4 * beside))


def _scale(weight: Floats) -> float:
    return max(min(1.0, float(np.abs(weight).max())), 1e-12)


def _needed(x: Floats, weight: Floats) -> list[int]:
    """Return the points that straight lines need to stay within TOLERANCE, x = 0 among them."""
    allowed = TOLERANCE * (np.abs(weight) + _scale(weight))
    kept = {0, int(np.argmin(np.abs(x))), len(x) - 1}
    ends = sorted(kept)
    open_spans = list(pairwise(ends))
    while open_spans:
        left, right = open_spans.pop()
        if right - left < 2:
            continue
        inside = slice(left + 1, right)
        line = np.interp(x[inside], x[[left, right]], weight[[left, right]])
        off = np.abs(line - weight[inside]) / allowed[inside]
        worst = int(np.argmax(off))
        if off[worst] > 1:
            middle = left + 1 + worst
            kept.add(middle)
            open_spans += [(left, middle), (middle, right)]
    return sorted(kept)
