"""Find the catalogue entries that a loss equals, or the nearest ones and their differences."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter, itemgetter
from typing import Any

import torch

from testbed.advantages import advantage
from testbed.conformance.batches import tensors
from testbed.conformance.calling import LossError, call, passed
from testbed.conformance.catalogue_entry import Reference, comparable, with_hyper
from testbed.conformance.counterexample import Counterexample, where_they_part
from testbed.conformance.hyperparameter_search import Fit, best_aggregation, fitted, lengths
from testbed.conformance.layouts import call_arguments
from testbed.conformance.loss_evidence import Evidence, gather, parts, unlike, widened
from testbed.conformance.probes import bends, candidates, constants
from testbed.conformance.signature import Binding
from testbed.objectives import objective
from testbed.recipes.composition import Arguments, Term, pairs

PENALTIES: tuple[tuple[str, Arguments], ...] = (
    *(
        ("kl_penalty", pairs(estimator=estimator, direction=direction, gradient=gradient))
        for estimator in ("k3", "k1", "k2", "abs")
        for direction in ("reverse", "forward")
        for gradient in ("pathwise", "score")
    ),
    ("kl_penalty@trl", ()),
    ("kl_penalty@verl", ()),
    ("kl_penalty@nemo-rl", ()),
    ("unbiased_kl", ()),
    ("unbiased_kl@trinity", ()),
)


def without_penalty(evidence: Evidence) -> tuple[Evidence, Evidence] | None:
    """Return the evidence minus the loss's weights at A = 0, and those; None if these weights are 0."""
    silent = replace(
        evidence.batch,
        adv_BT=torch.zeros_like(evidence.batch.adv_BT),
        reward_B=torch.zeros_like(evidence.batch.reward_B),
    )
    found = []
    for r in range(len(evidence.rows)):
        found.append(call(evidence.binding, evidence.logp[r], silent.map(itemgetter(r))).weight_BT)
    alone = replace(evidence, weight=torch.stack(found), batch=silent)
    return (replace(evidence, weight=evidence.weight - alone.weight), alone) if alone.kept.any() else None


def with_term(alone: Evidence, fit: Fit) -> Fit | None:
    """Return the fit plus the known penalty equal to the rest; None if no known penalty is.

    The coefficient is the factor of the penalty in units of the fit's, at the fit's aggregation.
    """
    for name, args in PENALTIES:
        try:
            found = best_aggregation(alone, Reference(name, args), (fit.reference.aggregation,))
        except Exception:  # incompatible text values
            continue
        if found.exact:
            coefficient = float(f"{found.reference.factor / fit.reference.factor:.6g}")
            return replace(fit, reference=replace(fit.reference, terms=(Term(name, coefficient, args),)))
    return None


SEARCHED = 36
"""Number of entries with searched hyperparameters, the nearest first."""
FURTHER = 6
"""Entries still searched after one equals the loss. Not a time limit, so a loss has one answer."""
NEAREST = 5
MOST = 10
"""Number of exact entries tried on further batches, the simplest first."""


@dataclass(frozen=True)
class Near:
    """An entry that differs: share of tokens that agree, cosine of the weights, a differing batch."""

    fit: Fit
    counterexample: Counterexample | None = None


@dataclass(frozen=True)
class Identity:
    """Identity of a loss. equals: the simplest description first; empty for a new loss."""

    binding: Binding
    evidence: Evidence
    equals: tuple[Reference, ...]
    nearest: tuple[Near, ...]
    seconds: float
    notes: tuple[str, ...] = field(default=())

    def as_dict(self) -> dict[str, Any]:
        first = next((near.counterexample for near in self.nearest if near.counterexample), None)
        return {
            "loss": self.binding.name,
            "equals": [reference.as_dict() for reference in self.equals],
            "nearest": [
                near.fit.reference.as_dict() | {"agree": near.fit.agree, "cosine": near.fit.cosine}
                for near in self.nearest
            ],
            "counterexample": first.as_dict() if first else None,
            "layout": self.binding.layout,
            "reads": sorted(self.evidence.reads),
            "scope": self.evidence.scope,
            "seconds": round(self.seconds, 2),
            "notes": list(self.notes),
        }


def identify(binding: Binding, among: Iterable[str] = ()) -> Identity:
    """Find the catalogue entries that a loss equals, or else the nearest ones.

    Args:
        binding: the loss, from `bind`.
        among: names of objectives to compare with; by default all that can be compared.

    Returns:
        An Identity: equal entries, or the nearest with the smallest batch on which they differ.

    Raises LossError for a loss that cannot be judged.
    """
    begun = time.monotonic()
    evidence = observed(binding)
    refuse_changes(evidence)
    names = list(among) or comparable()
    starts = [Reference(name) for name in names]
    notes = []
    if "reward" in evidence.binding.roles and "adv" not in evidence.binding.roles:
        starts = with_advantages(evidence, names)
    if not {"adv", "reward"} & evidence.reads:
        starts += [with_hyper(Reference(name), dict(args)) for name, args in PENALTIES if name in names]
    fits, equals = ranked(evidence, starts, search=False)
    if not equals and "ref" in evidence.reads and {"adv", "reward"} & evidence.reads:
        split = without_penalty(evidence)
        if split is not None:
            rest, _ = ranked(split[0], starts, verify=False)
            joined = [with_term(split[1], fit) for fit in rest if fit.exact]
            fits = sorted([fit for fit in joined if fit] + fits, key=attrgetter("rank"), reverse=True)
            equals = _equals(evidence, fits)
    if not equals:
        whole, equals = ranked(evidence, starts)
        fits = sorted(
            [*whole, *(fit for fit in fits if fit.reference.terms)], key=attrgetter("rank"), reverse=True
        )
    if evidence.binding.one_old and {"mu", "anchor"} & evidence.reads:
        notes.append("It takes one old log-probability: sampler and anchor cannot be told apart.")
    if evidence.leaks:
        notes.append("It gives weight to tokens outside the mask.")
    if equals:
        notes.append(_values(evidence, equals[0]))
    nearest = () if equals else _nearest(evidence, fits)
    return Identity(evidence.binding, evidence, equals, nearest, time.monotonic() - begun, tuple(notes))


def _values(evidence: Evidence, reference: Reference) -> str:
    """Say whether the loss returns the entry's values on the stack."""
    batches = [evidence.batch.map(itemgetter(r)) for r in range(len(evidence.rows))]
    theirs = [reference.value(logp, batch) for logp, batch in zip(evidence.logp, batches, strict=True)]
    size = max(map(abs, (*theirs, *evidence.values)), default=0.0)
    gaps = [abs(a - b) for a, b in zip(evidence.values, theirs, strict=True)]
    worst = gaps.index(max(gaps))
    if gaps[worst] <= evidence.tolerance * size:
        return "Its values are those of the entry."
    return (
        f"Its weights are those of the entry, its values are not: {evidence.values[worst]:.6g} for the "
        f"entry's {theirs[worst]:.6g}."
    )


def observed(binding: Binding) -> Evidence:
    """Return the loss's evidence, called in the way that matches an entry best; else the first LossError."""
    found: list[Evidence] = []
    first: LossError | None = None
    for variant in binding.variants():
        # A mask of truth values is tried only where no other call succeeds.
        if found and variant.mask_as == "bool":
            break
        try:
            evidence = gather(variant)
        except LossError as error:
            first = first or error
            continue
        if not any(torch.equal(known.weight, evidence.weight) for known in found):
            found.append(evidence)
    if not found:
        raise first or LossError("raises", f"{binding.name} cannot be called.")
    if len(found) == 1:
        return found[0]
    common = ("reinforce", "ppo_clip", "gspo", "cispo@verl", "kl_penalty", "gmpo", "tis", "vespo@trl")
    quick = [Reference(name) for name in common]
    return max(found, key=lambda e: (not e.leaks, *max(_plainness(fit) for fit in _scored(e, quick))))


def _plainness(fit: Fit) -> tuple[float, bool, float]:
    """Return the agreement, True if the factor is 1, and the cosine."""
    return (fit.rank[0], _plain(fit.reference), fit.cosine)


def refuse_changes(evidence: Evidence) -> None:
    """Raise LossError if a call changes its inputs, because the comparison then uses another batch."""
    logp, batch = tensors(evidence.rows[0])
    changed = call(evidence.binding, logp, batch).changed
    if changed:
        words = passed(call_arguments(evidence.binding, logp, batch, torch.float64))
        raise LossError(
            "changed",
            f"{evidence.binding.name} changes its inputs in place: {', '.join(changed)}. It was passed "
            f"{words}. Expected a loss that leaves them as they are; clone them first.",
        )


def with_advantages(evidence: Evidence, names: Sequence[str]) -> list[Reference]:
    """Return starts with the advantages that fit best, and without any for objectives that read rewards."""
    ways: list[tuple[str, dict[str, Any]]] = []
    for name in advantage:
        if advantage[name].promises.get("needs"):
            continue
        ways.append((name, {}))
        defaults = advantage[name].defaults
        std = {"std": "population"} if "std" in defaults else {}
        ways += [(name, std | ({"eps": e} if "eps" in defaults else {})) for e in (1e-4, 1e-8, 1e-6)]
    quick = ("reinforce", "ppo_clip", "gspo", "cispo")
    made = [(q, name, pairs(**args)) for name, args in ways for q in quick]
    starts = [Reference(q, advantage=name, advantage_args=args) for q, name, args in made]
    best = _scored(evidence, starts)[:3]
    plain = [Reference(name) for name in names if "adv" not in objective[name].promises.get("reads", ())]
    uses = dict.fromkeys((fit.reference.advantage, fit.reference.advantage_args) for fit in best)
    rest = [name for name in names if "adv" in objective[name].promises.get("reads", ())]
    return plain + [Reference(name, advantage=a, advantage_args=args) for a, args in uses for name in rest]


def _plain(reference: Reference) -> bool:
    return math.isclose(reference.factor, 1.0, rel_tol=1e-4)


def _scored(evidence: Evidence, starts: Iterable[Reference]) -> list[Fit]:
    fits = []
    for start in starts:
        try:
            fits.append(best_aggregation(evidence, start))
        except Exception:  # the batch lacks an input of this objective
            continue
    return sorted(fits, key=attrgetter("rank"), reverse=True)


def ranked(
    evidence: Evidence, starts: Sequence[Reference], verify: bool = True, search: bool = True
) -> tuple[list[Fit], tuple[Reference, ...]]:
    """Return fits of all references, the best first, and those that also hold on further batches.

    First uses hyperparameters of the signature and defaults. If nothing fits, searches them for the nearest
    entries, until one fits. verify: try the exact ones on further batches.
    """
    told = evidence.binding.told
    possible = _possible(evidence, starts)
    fits = _scored(evidence, [with_hyper(each, told) for each in possible] if told else possible)
    equals = _equals(evidence, fits) if verify else ()
    # A multiple of an entry may be another entry at other hyperparameters, times 1.
    if any(_plain(each) for each in equals) or (not verify and any(fit.exact for fit in fits)):
        return fits, equals
    if not search:
        return fits, ()
    ratios = bends(evidence.binding)
    numbers = candidates(constants(evidence.binding.function), ratios)
    evidence = widened(evidence, ratios) if verify else evidence
    left = SEARCHED
    found: list[Fit] = []
    done: set[str] = set()
    for fit in fits:
        base = objective[fit.reference.objective].base
        left -= 1
        if left >= 0 or base in done:
            fit = _searched(evidence, fit, numbers)
            if fit.exact and (not verify or _equals(evidence, [fit])):
                done.add(base)
                left = min(left, FURTHER)
        found.append(fit)
    found.sort(key=lambda fit: (fit.rank, -_effort(fit.reference, evidence)), reverse=True)
    return found, _equals(evidence, found) if verify else ()


def _searched(evidence: Evidence, fit: Fit, numbers: Sequence[float]) -> Fit:
    """Return the fit after a search, first with the signature's values, then with all free."""
    told = evidence.binding.told
    best = fit
    for known in (told, {}) if told else ({},):
        try:
            now = fitted(evidence, replace(fit.reference, hyper=()), numbers, known)
        except Exception:  # the batch lacks an input of this objective
            continue
        best = max(best, now, key=attrgetter("rank"))
        if best.exact:
            break
    return best


def _possible(evidence: Evidence, starts: Sequence[Reference]) -> list[Reference]:
    """Return the references that read all inputs that the weights depend on."""
    one = evidence.binding.one_old
    needed = {"old" if one and r in ("mu", "anchor") else r for r in evidence.reads}
    found = []
    for start in starts:
        reads = set(objective[start.objective].promises.get("reads", ()))
        if one and reads & {"mu", "anchor"}:
            reads |= {"old"}
        if start.advantage:
            reads |= {"reward"}
        if needed <= reads:
            found.append(start)
    return found or list(starts)


def _effort(reference: Reference, evidence: Evidence) -> float:
    """Return a description's complexity: changed hyperparameters, and inputs read without effect."""
    reads = set(objective[reference.objective].promises.get("reads", ()))
    both = {"mu", "anchor"} <= reads and evidence.binding.one_old
    told = evidence.binding.told
    changed = [name for name, value in reference.hyper if told.get(name) != value]
    return 10 * both + 3 * (not _plain(reference)) + 2 * len(changed) + 0.5 * ("@" in reference.objective)


def _equals(evidence: Evidence, fits: Iterable[Fit]) -> tuple[Reference, ...]:
    rows, width = evidence.logp.shape[-2:]
    found = []
    exact = sorted((f for f in fits if f.exact), key=lambda f: _effort(f.reference, evidence))
    for fit in exact[:MOST]:
        for reference in lengths(fit, rows, width):
            if not any(unlike(reference, *each, evidence.tolerance) for each in evidence.further):
                found.append(reference)
                break
    return tuple(sorted(found, key=lambda r: (_effort(r, evidence), r.objective)))


def _nearest(evidence: Evidence, fits: Sequence[Fit]) -> tuple[Near, ...]:
    found = []
    rows, width = evidence.logp.shape[-2:]
    for place, fit in enumerate(fits[:NEAREST]):
        reference = lengths(fit, rows, width)[0]
        near = Near(replace(fit, reference=reference))
        if place < 2:
            first = parts(evidence.binding, reference, evidence.rows, evidence.tolerance)
            found_at = where_they_part(evidence.binding, reference, evidence.tolerance, first)
            near = replace(near, counterexample=found_at)
        found.append(near)
    return tuple(found)
