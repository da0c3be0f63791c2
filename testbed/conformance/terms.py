"""A KL term inside a loss: the remaining weights when every advantage is 0."""

from dataclasses import replace

import torch

from testbed.conformance.calling import call
from testbed.conformance.catalogue_entry import Reference
from testbed.conformance.hyperparameter_search import Fit, best_aggregation
from testbed.conformance.loss_evidence import Evidence
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
    """Return the evidence minus the loss's weights at zero advantages, and those weights alone.

    None if these weights are 0.
    """
    silent = replace(
        evidence.batch,
        adv_BT=torch.zeros_like(evidence.batch.adv_BT),
        reward_B=torch.zeros_like(evidence.batch.reward_B),
    )
    found = []
    for r in range(len(evidence.rows)):
        one = silent.map(lambda value, r=r: value[r])  # type: ignore[misc]
        found.append(call(evidence.binding, evidence.logp[r], one).weight_BT)
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
