"""An entry of the catalogue applied to a batch, with terms, aggregation and advantage."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.data.batch import Batch
from testbed.data.signals import Signals
from testbed.losses.aggregate import WITH_LENGTH, aggregate
from testbed.objectives import objective
from testbed.recipes.composition import Arguments, Term, pairs

UNREAD = ("turn", "origin")
"""Fields that no batch here has: objectives that read them are not compared."""


@dataclass(frozen=True)
class Reference:
    """An objective with the settings that turn it into a number.

    aggregation: a name in testbed.losses.aggregate; length: its constant, 0 for the width. factor: multiplies
    the total. advantage, advantage_args: computed from rewards, if the loss takes rewards.
    """

    objective: str
    hyper: Arguments = ()
    aggregation: str = "token_sum"
    length: float = 0.0
    factor: float = 1.0
    terms: tuple[Term, ...] = ()
    advantage: str = ""
    advantage_args: Arguments = ()

    def seen(self, batch: Batch) -> Batch:
        """Return the batch with the advantages that this composition computes from its rewards."""
        if not self.advantage:
            return batch
        signals = Signals(batch.reward_B, batch.group_B, batch.mask_BT)
        adv = advantage[self.advantage].bind(**dict(self.advantage_args))(signals)
        adv_BT = adv[..., None].expand(batch.mask_BT.shape) if adv.shape != batch.mask_BT.shape else adv
        return replace(batch, adv_BT=adv_BT.contiguous())

    def losses(self, logp_BT: Tensor, batch: Batch) -> Tensor:
        """Return the losses per token [..., B, T], terms included."""
        loss_BT: Tensor = objective[self.objective].bind(**dict(self.hyper))(logp_BT, batch)
        for term in self.terms:
            added_BT = objective[term.objective].bind(**dict(term.args))(logp_BT, batch)
            loss_BT = loss_BT + term.at(0, 1) * added_BT
        return loss_BT

    def loss(self, logp_BT: Tensor, batch: Batch) -> Tensor:
        """Return the loss of a batch, one number per leading axis."""
        loss_BT = self.losses(logp_BT, self.seen(batch))
        return self.factor * aggregate(loss_BT, batch.mask_BT, self.aggregation, self.length)

    def weights(self, logp_BT: Tensor, batch: Batch) -> Tensor:
        """Return -dLoss/dlogp [..., B, T]; raise what the objective raises."""
        leaf_BT = logp_BT.detach().requires_grad_()
        with torch.enable_grad():
            (gradient_BT,) = torch.autograd.grad(self.loss(leaf_BT, batch).sum(), leaf_BT)
        return -gradient_BT

    def value(self, logp_BT: Tensor, batch: Batch) -> float:
        """Return the loss of one batch as a number."""
        return float(self.loss(logp_BT.detach(), batch).detach())

    def words(self) -> str:
        """Return "gspo@verl with eps_low 0.0003, eps_high 0.0004, aggregation token_mean"."""
        hyper = dict(objective[self.objective].defaults) | dict(self.hyper)
        told = ", ".join(f"{name} {_number(value)}" for name, value in hyper.items())
        parts = [self.objective + (f" with {told}" if told else "")]
        parts += [f"+ {_number(t.at(0, 1))} {t.objective}{_arguments(t.args)}" for t in self.terms]
        parts.append(f"aggregation {self.aggregation}")
        if self.aggregation in WITH_LENGTH:
            parts.append(f"length {_number(self.length)}" if self.length else "length = width of the batch")
        if not math.isclose(self.factor, 1.0, rel_tol=1e-6):
            parts.append(f"times {_number(self.factor)}")
        if self.advantage:
            parts.append(f"advantage {self.advantage}{_arguments(self.advantage_args)}")
        return ", ".join(parts).replace(", +", " +")

    def as_dict(self) -> dict[str, Any]:
        return {
            "words": self.words(),
            "objective": self.objective,
            "hyperparameters": dict(objective[self.objective].defaults) | dict(self.hyper),
            "aggregation": self.aggregation,
            "length": self.length,
            "factor": self.factor,
            "terms": [[term.objective, term.at(0, 1), dict(term.args)] for term in self.terms],
            "advantage": self.advantage,
            "advantage_hyperparameters": dict(self.advantage_args),
        }


def _number(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _arguments(arguments: Arguments) -> str:
    return f" ({', '.join(f'{k} {_number(v)}' for k, v in arguments)})" if arguments else ""


def comparable() -> list[str]:
    """Return the objectives that can be compared on batches without turns and origins."""
    return [name for name in objective if not set(UNREAD) & set(objective[name].promises.get("reads", ()))]


def with_hyper(reference: Reference, hyper: Mapping[str, Any]) -> Reference:
    """Return the reference with hyperparameters, leaving out those equal to the objective's defaults."""
    defaults = objective[reference.objective].defaults
    changed = {name: hyper[name] for name in defaults if name in hyper and hyper[name] != defaults[name]}
    return replace(reference, hyper=pairs(**changed))
