"""Search the hyperparameters and aggregation with which a catalogue entry comes nearest to a loss."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from envs.arrays import Floats
from testbed.conformance.catalogue_entry import Reference, with_hyper
from testbed.conformance.loss_evidence import Evidence, likeness
from testbed.losses.aggregate import AGGREGATIONS, aggregate
from testbed.objectives import objective

WORDS: dict[str, tuple[Any, ...]] = {
    "level": ("token", "sequence", "geometric", "min_prefix", "prefix"),
    "estimator": ("k1", "k2", "k3", "abs"),
    "direction": ("reverse", "forward"),
    "gradient": ("pathwise", "score"),
    "base": ("ref", "anchor", "mu"),
    "anchor": ("old", "rollout"),
    "weight": ("none", "ratio", "importance"),
    "clip": ("sequence", "token", "separate", "joint"),
    "loss": ("dpo", "ipo"),
}
"""Values of text-valued hyperparameters; those that an objective refuses are skipped."""
EXACT = 1.0 - 1e-9
ROUNDS = 3


@dataclass(frozen=True)
class Fit:
    """A reference and its similarity: share of tokens that agree, and cosine of the weights."""

    reference: Reference
    agree: float
    cosine: float

    @property
    def rank(self) -> tuple[float, float]:
        """What a search maximizes: agreement, rounded to a thousandth, then the cosine."""
        return (round(self.agree, 3), round(self.cosine, 9))

    @property
    def exact(self) -> bool:
        """True if every token agrees."""
        return self.agree >= EXACT


def best_aggregation(evidence: Evidence, reference: Reference, modes: Iterable[str] = ()) -> Fit:
    """Return the reference with the aggregation that fits best; raise what the objective raises."""
    leaf = evidence.logp.detach().requires_grad_()
    seen = reference.seen(evidence.batch)
    with torch.enable_grad():
        loss = reference.losses(leaf, seen)
        fits = []
        for mode in modes or AGGREGATIONS:
            total = aggregate(loss, seen.mask_BT, mode).sum()
            (gradient,) = torch.autograd.grad(total, leaf, retain_graph=True)
            theirs: Floats = (-gradient)[seen.mask_BT].numpy()
            agree, cosine, factor = likeness(evidence.kept, theirs, evidence.tolerance)
            fits.append(Fit(replace(reference, aggregation=mode, factor=factor), agree, cosine))
    return max(fits, key=lambda fit: (fit.rank, math.isclose(fit.reference.factor, 1.0, rel_tol=1e-5)))


def counting(evidence: Evidence, reference: Reference) -> tuple[str, ...]:
    """Return the aggregations that fit if every ratio is 1; all of them if none does."""
    fits = []
    if evidence.calm is not None:
        for mode in AGGREGATIONS:
            fits.append(best_aggregation(evidence.calm, reference, (mode,)))
    return tuple(fit.reference.aggregation for fit in fits if fit.exact) or tuple(AGGREGATIONS)


def fitted(
    evidence: Evidence,
    start: Reference,
    values: Sequence[float],
    fixed: Mapping[str, Any],
    modes: Iterable[str] = (),
) -> Fit:
    """Return an objective's best fit: text values, then candidate numbers one by one, then least squares.

    values: candidate numbers. fixed: hyperparameters that are known. modes: aggregations to try.
    Raises what the objective raises at its first hyperparameters.
    """
    name = start.objective
    hyper = dict(objective[name].defaults) | {k: v for k, v in fixed.items() if k in objective[name].defaults}
    modes = tuple(modes) or counting(evidence, with_hyper(start, hyper))
    best = best_aggregation(evidence, with_hyper(start, hyper), modes)
    free = [each for each in hyper if each not in fixed and each != "seed"]
    tried = {each: _values(each, hyper[each], values) for each in free}
    for _ in range(ROUNDS):
        before = best.rank
        for each in free:
            if best.exact:
                return best
            for value in tried[each]:
                now = _try(evidence, best, hyper | {each: value}, modes)
                if now is not None and now.rank > best.rank:
                    best, hyper = now, hyper | {each: value}
        if best.rank == before:
            break
    return best if best.exact else _polished(evidence, best, hyper, free, modes)


def _values(name: str, default: Any, numbers: Sequence[float]) -> list[Any]:
    if isinstance(default, str):
        return [word for word in WORDS.get(name, ()) if word != default]
    if isinstance(default, bool):
        return [not default]
    if isinstance(default, int):
        return [v for v in (1, 2, 3, 4, 8) if v != default]
    if default is None:
        return list(numbers)
    others = [e.defaults[name] for e in objective.values() if isinstance(e.defaults.get(name), float)]
    signed = [v for v in numbers if v >= 0 or default < 0]
    return [v for v in dict.fromkeys([*others, *signed]) if v != default]


def _try(evidence: Evidence, best: Fit, hyper: dict[str, Any], modes: Iterable[str]) -> Fit | None:
    reference = with_hyper(best.reference, hyper)
    try:
        return best_aggregation(evidence, reference, modes)
    except Exception:  # the objective refuses the hyperparameter, or gives no number
        return None


def _polished(
    evidence: Evidence, best: Fit, hyper: dict[str, Any], free: Sequence[str], modes: Iterable[str]
) -> Fit:
    """Return the fit after a search along the smooth hyperparameters, if that makes it exact."""
    from scipy.optimize import least_squares

    smooth = [n for n in free if isinstance(hyper[n], float) and 0 < hyper[n] < math.inf]
    if not smooth or best.cosine < 0.9:
        return best
    # Ordinary tokens count equally, for any size of their weights.
    mine = evidence.kept
    size = np.maximum(np.abs(mine), 1e-6 * np.abs(mine).max())

    def residual(log_values: Floats) -> Floats:
        now = hyper | dict(zip(smooth, np.exp(np.clip(log_values, -20, 20)).tolist(), strict=True))
        try:
            theirs = evidence.of(replace(with_hyper(best.reference, now), factor=1.0))
        except Exception:
            return np.full(mine.shape, 1e3)
        both = (mine != 0) & (theirs != 0) & np.isfinite(theirs)
        factor = float(np.median(mine[both] / theirs[both])) if both.any() else 1.0
        found: Floats = np.clip(np.nan_to_num((factor * theirs - mine) / size), -10, 10)
        return found

    start = np.log([hyper[n] for n in smooth])
    found = least_squares(residual, start, method="trf", max_nfev=60, xtol=1e-12, ftol=1e-12, gtol=1e-12)
    rounded = {n: float(f"{v:.7g}") for n, v in zip(smooth, np.exp(found.x).tolist(), strict=True)}
    now = _try(evidence, best, hyper | rounded, modes)
    return now if now is not None and now.rank > best.rank else best


def lengths(fit: Fit, rows: int, width: int) -> list[Reference]:
    """Return the aggregations that a factor may stand for: divisors that all batches of the stack share.

    A token sum times f is divided by B, by B T, by T, or by B L with a constant L.
    """
    reference = fit.reference
    if reference.aggregation in ("token_sum", "constant", "sum_over_length"):
        scale = {"token_sum": 1.0, "constant": rows * width, "sum_over_length": width}[reference.aggregation]
        f = reference.factor / scale
        found = [replace(reference, aggregation="token_sum", factor=f, length=0.0)]
        for mode, divisor in (("constant", rows), ("sum_over_length", 1)):
            exact = 1 / (f * divisor)
            choices: tuple[float, ...] = (0.0,) if math.isclose(exact, width, rel_tol=1e-6) else ()
            if exact > 0:
                choices += (float(f"{exact:.7g}"),)
            found += [replace(reference, aggregation=mode, factor=1.0, length=length) for length in choices]
        return sorted(found, key=lambda r: not math.isclose(r.factor, 1.0, rel_tol=1e-6))
    rounded = 1.0 if math.isclose(reference.factor, 1.0, rel_tol=1e-4) else reference.factor
    return [replace(reference, factor=rounded)]
