"""Test a loss against the entry that it is named after: many properties, with shrunk counterexamples."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from testbed.conformance.battery import BATTERY
from testbed.conformance.catalogue_entry import Reference, with_hyper
from testbed.conformance.counterexample import Counterexample, failing, told
from testbed.conformance.hyperparameter_search import fitted
from testbed.conformance.loss_evidence import Evidence
from testbed.conformance.nearest_entries import identify, observed
from testbed.conformance.probes import bends, candidates, constants
from testbed.conformance.properties import Judged, Property
from testbed.conformance.signature import Binding
from testbed.conformance.strategies import smallest
from testbed.errors import UserError
from testbed.objectives import objective
from testbed.recipes import recipe
from testbed.recipes.composition import Recipe, Term

Verdict = Literal["holds", "fails", "warning", "does not apply"]


@dataclass(frozen=True)
class Line:
    """A property and its outcome; note: why it does not apply."""

    name: str
    says: str
    verdict: Verdict
    counterexample: Counterexample | None = None
    note: str = ""


@dataclass(frozen=True)
class Conformance:
    """Findings of the battery. reference: the entry with all values, given or found by search."""

    binding: Binding
    reference: Reference
    searched: tuple[str, ...]
    lines: tuple[Line, ...]
    seconds: float

    @property
    def holds(self) -> bool:
        """True if every property holds; warnings do not count."""
        return all(line.verdict != "fails" for line in self.lines)

    @property
    def first(self) -> Line | None:
        """The first property that fails."""
        return next((line for line in self.lines if line.verdict == "fails"), None)

    def as_dict(self) -> dict[str, Any]:
        return {
            "loss": self.binding.name,
            "as": self.reference.as_dict(),
            "searched": list(self.searched),
            "holds": self.holds,
            "layout": self.binding.layout,
            "properties": [
                {**vars(line), "counterexample": line.counterexample and line.counterexample.as_dict()}
                for line in self.lines
            ],
            "seconds": round(self.seconds, 2),
        }


def conform(
    binding: Binding,
    as_: str,
    aggregation: str = "",
    length: float = 0.0,
    hyper: Mapping[str, Any] | None = None,
    strict: bool = False,
    quick: bool = False,
) -> Conformance:
    """Test a loss against the objective or recipe `as_`, property by property.

    Hyperparameters come from `hyper`, else the recipe, else the defaults of the signature. The others, and an
    aggregation that is not given, are found by search and so not checked. Text-valued hyperparameters, such
    as the estimator of a KL, are never searched.

    Only the first failure's counterexample is shrunk.

    Args:
        binding: the loss and how it is called.
        as_: a name of an objective or a recipe.
        aggregation: a name in testbed.losses.aggregate; "" finds it by search.
        length: the constant of aggregation "constant".
        hyper: hyperparameters of the objective.
        strict: warnings count as failures.
        quick: stop at the first failure, and do not shrink it.

    Raises UserError for an unknown name, LossError for a loss that cannot be judged.
    """
    begun = time.monotonic()
    start, known = _start(as_, aggregation, length, dict(hyper or {}), binding)
    evidence = observed(binding)
    reference, searched = settled(evidence, start, known, bool(aggregation or start.aggregation))
    judged = Judged(evidence.binding, reference, evidence.tolerance)
    lines: list[Line] = []
    for each in BATTERY:
        lines.append(tried(judged, each, strict, quick or any(line.verdict == "fails" for line in lines)))
        if quick and lines[-1].verdict == "fails":
            break
    return Conformance(evidence.binding, reference, searched, tuple(lines), time.monotonic() - begun)


def _start(
    as_: str, aggregation: str, length: float, hyper: dict[str, Any], binding: Binding
) -> tuple[Reference, dict[str, Any]]:
    """Return the reference with the given values, and the known hyperparameters; aggregation "" is open."""
    if as_ in objective:
        objective[as_].bind(**hyper)
        known = {k: v for k, v in binding.told.items() if k in objective[as_].defaults} | hyper
        start = Reference(as_, aggregation=aggregation, length=length)
    else:
        made: Recipe = recipe[as_].bind()()
        objective[made.objective].bind(**hyper)
        known = dict(objective[made.objective].defaults) | dict(made.objective_args)
        known |= {k: v for k, v in binding.told.items() if k in known} | hyper
        terms = tuple(Term(term.objective, term.at(0, 1), term.args) for term in made.terms)
        mode, length = aggregation or made.aggregation, length or made.length
        start = Reference(made.objective, (), mode, length, terms=terms)
        if "reward" in binding.roles and "adv" not in binding.roles:
            start = replace(start, advantage=made.advantage, advantage_args=made.advantage_args)
    return start, known


def settled(
    evidence: Evidence, start: Reference, known: Mapping[str, Any], told_aggregation: bool
) -> tuple[Reference, tuple[str, ...]]:
    """Return the reference with all values set, and the names of the searched ones."""
    defaults = objective[start.objective].defaults
    known = {name: value for name, value in defaults.items() if isinstance(value, str)} | dict(known)
    free = tuple(name for name in defaults if name not in known and name != "seed")
    exact = with_hyper(start, known)
    needs_advantage = "reward" in evidence.binding.roles and "adv" not in evidence.binding.roles
    if told_aggregation and not (needs_advantage and not start.advantage):
        if not free:
            return exact, ()
        bound = Reference(start.objective, exact.hyper, start.aggregation, start.length, terms=start.terms)
        numbers = candidates(constants(evidence.binding.function), bends(evidence.binding))
        fit = fitted(evidence, replace(bound, hyper=()), numbers, known, (bound.aggregation,))
        return replace(bound, hyper=fit.reference.hyper), free
    found = identify(replace(evidence.binding, told=known), among=(start.objective,))
    fits = found.equals or tuple(near.fit.reference for near in found.nearest)
    if not fits:
        raise UserError(
            f"'{start.objective}' cannot be compared with {evidence.binding.name}: no common batch can be "
            "made for both."
        )
    best = replace(fits[0], hyper=with_hyper(start, dict(fits[0].hyper) | dict(known)).hyper)
    if told_aggregation:
        best = replace(best, aggregation=start.aggregation, length=start.length, factor=1.0)
    searched = (*free, *(() if told_aggregation else ("aggregation",)))
    return best, (*searched, *(("advantage",) if needs_advantage and not start.advantage else ()))


def tried(judged: Judged, each: Property, strict: bool = False, quick: bool = False) -> Line:
    """Return the outcome of one property."""
    why = each.absent(judged)
    if why:
        return Line(each.name, each.says, "does not apply", note=why)
    condition = failing(lambda rows: each.broken(judged, rows))
    rows = smallest(each.strategy(judged), condition, each.examples, shrink=not quick)
    if rows is None:
        return Line(each.name, each.says, "holds")
    found = told(judged.binding, judged.reference, rows)
    if each.when:
        found = Counterexample(found.rows, problem=found.problem or each.when)
    return Line(each.name, each.says, "warning" if each.robust and not strict else "fails", found)
