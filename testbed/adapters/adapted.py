"""The loss that both adapters share: an objective, its hyperparameters and added terms, by name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.diagnostics.ratio_metrics import clip_share
from testbed.errors import UserError, unknown
from testbed.inspection.effective_weights import effective_weights
from testbed.losses.aggregate import AGGREGATIONS, aggregate
from testbed.objectives import objective
from testbed.recipes.composition import Term

PER_TOKEN = ("token_mean", "length_weighted")
"""Aggregations with a divisor that counts tokens; those of the batch, not of the micro-batch."""
PER_SEQUENCE = ("sequence_mean", "constant")
"""Aggregations with a divisor that counts sequences."""


@dataclass(frozen=True)
class Adapted:
    """An objective (registered, or file.py:function) with hyperparameters and terms.

    Raises UserError for an unknown name or hyperparameter, and for a scheduled coefficient: a foreign trainer
    does not report its step.
    """

    objective: str
    hyper: Mapping[str, Any] = field(default_factory=dict)
    terms: Sequence[Term] = ()

    def __post_init__(self) -> None:
        objective[self.objective].bind(**self.hyper)
        for term in self.terms:
            objective[term.objective].bind(**dict(term.args))
            if callable(term.coefficient):
                raise UserError(
                    f"the coefficient of '{term.objective}' is a schedule. Give a constant number."
                )

    @property
    def names(self) -> tuple[str, ...]:
        """The objective and its terms."""
        return (self.objective, *(term.objective for term in self.terms))

    def readers(self, field_name: str) -> list[str]:
        """Return the parts that promise to read a field."""
        return [name for name in self.names if field_name in objective[name].promises.get("reads", ())]

    def may_read(self, field_name: str) -> list[str]:
        """Return the parts that may read a field: by promise, or without promises, in a user's file."""
        silent = [name for name in self.names if not objective[name].promises]
        return self.readers(field_name) + silent

    @property
    def corrects(self) -> bool:
        """True if the objective, without its terms, may read mu and so needs no other correction."""
        return bool(Adapted(self.objective, self.hyper).may_read("mu"))

    def scopes(self) -> dict[str, str]:
        """Return the promised scopes of the parts."""
        return {name: s for name in self.names if (s := objective[name].promises.get("scope"))}

    def losses(self, logp_BT: Tensor, batch: Batch, weight_BT: Tensor | None = None) -> Tensor:
        """Return the per-token losses [..., B, T]: the objective's, times a weight if given, plus terms."""
        loss_BT: Tensor = objective[self.objective].bind(**self.hyper)(logp_BT, batch)
        if weight_BT is not None:
            loss_BT = loss_BT * weight_BT
        for term in self.terms:
            added_BT = objective[term.objective].bind(**dict(term.args))(logp_BT, batch)
            loss_BT = loss_BT + term.at(0, 1) * added_BT
        return loss_BT

    def silent_share(self, logp_BT: Tensor, batch: Batch) -> float:
        """Return the share of tokens with an advantage but weight 0."""
        weight_BT = effective_weights(self.objective, logp_BT, batch, **self.hyper)
        return float(clip_share(weight_BT, batch))


def check_aggregation(mode: str) -> None:
    """Raise UserError for an unknown aggregation."""
    if mode not in AGGREGATIONS:
        raise unknown("aggregation", mode, AGGREGATIONS)


def rescaled(loss_BT: Tensor, mask_BT: Tensor, mode: str, length: float, counted: float) -> Tensor:
    """Return the aggregate with another divisor: `counted` tokens or sequences instead of the batch's.

    Sums have no divisor; they ignore `counted`.
    """
    check_aggregation(mode)
    value: Tensor = aggregate(loss_BT, mask_BT, mode, length)
    if mode in PER_TOKEN:
        return value * (mask_BT.sum().double() / counted).to(value.dtype)
    if mode in PER_SEQUENCE:
        return value * (mask_BT.shape[-2] / counted)
    return value


def dense(label_B: Tensor) -> Tensor:
    """Return labels as a Batch's group ids: counted from 0, without gaps."""
    dense_B: Tensor = torch.unique(label_B, return_inverse=True)[1]
    return dense_B
