"""Recipe: turn a rollout into a loss per replica and a step size.

Step-size rules scale the learning rate because Adam's normalization would undo a scaled loss.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.data.batch import Batch
from testbed.data.groups import group_max
from testbed.diagnostics.ratio_metrics import ess, kl_estimates
from testbed.errors import UserError, unknown
from testbed.losses.aggregate import AGGREGATIONS, aggregate
from testbed.losses.dual_update import DualUpdate
from testbed.losses.ratios import log_token
from testbed.objectives import objective

RULES = ("sqrt", "linear")


def ess_factor(
    log_w_B: Tensor, *, reference: float = 1.0, rule: Literal["sqrt", "linear"] = "sqrt"
) -> Tensor:
    """Return min(1, ESS share / reference), or its square root; [...].

    VCPO (arXiv:2602.17616): ESS is Kish's, of unclipped sequence ratios, over all sequences of the
    optimizer step; "sqrt" is for Adam, "linear" for plain gradient descent.

    Args:
        log_w_B: log pi/mu of whole sequences at the weights before the step [..., B].
        reference: ESS share that counts as on-policy. The authors use 1, and 0.55 for many turns.
        rule: sqrt or linear.

    Raises UserError for an unknown rule or a reference that is not positive.
    """
    if rule not in RULES:
        raise unknown("step-size rule", rule, RULES)
    if not reference > 0:
        raise UserError(f"reference={reference} was given; expected an ESS share above 0.")
    factor = (ess(log_w_B) / reference).clamp(max=1)
    return factor.sqrt() if rule == "sqrt" else factor


def trust_region_factor(
    log_rho_BT: Tensor, mask_BT: Tensor, *, limit: float, estimator: str = "mu_pi_k3"
) -> Tensor:
    """Return 1 while a KL estimate is at most `limit`, else 0, which skips the step; [...].

    Schulman et al. (2017), arXiv:1707.06347, in the common form of early stopping. A NaN estimate also stops.

    Args:
        log_rho_BT: log pi/mu of tokens (or pi/anchor, to bound one update), 0 outside the mask.
        mask_BT: bool [..., B, T].
        limit: nats per token.
        estimator: one of diagnostics.kl_estimates, such as mu_pi_k1, mu_pi_k3 or pi_mu_k3.

    Raises UserError for an unknown estimator.
    """
    estimates = {name.rpartition("kl_")[2]: kl for name, kl in kl_estimates(log_rho_BT, mask_BT).items()}
    if estimator not in estimates:
        raise unknown("KL estimator", estimator, estimates)
    return torch.where(estimates[estimator] <= limit, 1.0, 0.0).to(log_rho_BT.dtype)


Arguments: TypeAlias = tuple[tuple[str, Any], ...]
Hyper: TypeAlias = dict[str, Any]
Schedule: TypeAlias = Callable[[int, int], float]
"""(step, steps of the run) -> value."""


def pairs(**arguments: Any) -> Arguments:
    """Return keyword arguments as pairs, which a frozen recipe can hold."""
    return tuple(arguments.items())


@dataclass(frozen=True)
class Term:
    """An objective added to the loss with a constant or scheduled coefficient."""

    objective: str
    coefficient: float | Schedule
    args: Arguments = ()

    def at(self, step: int, steps: int) -> float:
        return self.coefficient(step, steps) if callable(self.coefficient) else self.coefficient


@dataclass(frozen=True)
class Replay:
    """Take part of every batch from earlier batches.

    window: number of earlier batches kept. share: share of the groups that is replayed; the age of a replayed
    batch is uniform over the window. advantage: that of replayed sequences, if it differs from that of fresh
    ones.
    """

    window: int
    share: float
    advantage: str = ""


@dataclass(frozen=True)
class StepRule:
    """Scale the step size by the ratios of a batch.

    ess_reference, ess_rule: step size times min(1, ESS share / reference) or its square root (VCPO); 0
    switches it off.
    kl_limit: skip steps with a k3 estimate of KL(mu, pi) above it; 0 skips none.
    """

    ess_reference: float = 0.0
    ess_rule: Literal["sqrt", "linear"] = "sqrt"
    kl_limit: float = 0.0

    def factor(self, logp_RBT: Tensor, batch: Batch) -> Tensor:
        """Return the factor of the learning rate [R]; ratios are those before the step."""
        log_rho_RBT = log_token(logp_RBT.detach(), batch)
        factor_R = torch.ones_like(log_rho_RBT[..., 0, 0])
        if self.ess_reference > 0:
            factor_R = ess_factor(log_rho_RBT.sum(-1), reference=self.ess_reference, rule=self.ess_rule)
        if self.kl_limit > 0:
            factor_R = factor_R * trust_region_factor(log_rho_RBT, batch.mask_BT, limit=self.kl_limit)
        return factor_R


@dataclass(frozen=True)
class Dual:
    """Step size and budget of the objective's dual variable, which starts at its default."""

    rate: float
    budget: float


@dataclass(frozen=True)
class Baselines:
    """Inputs of an advantage besides its batch.

    history: number of batches with remembered group baselines. reference_group: responses per prompt from the
    reference policy; their rewards are read.
    """

    history: int = 0
    reference_group: int = 0


@dataclass(frozen=True)
class HandOver:
    """Switch to another recipe at `step`; the reference becomes the weights of that step."""

    step: int
    recipe: "Recipe"


@dataclass(frozen=True)
class Recipe:
    """An advantage, an objective, an aggregation, and further changes that its paper makes to the loop.

    advantage, objective, aggregation, length: names, and the constant of aggregation "constant".
    terms: losses added with a coefficient.
    schedules: hyperparameters of the objective that change with the step.
    denominator: "all" tokens divide the loss, or the "kept" ones of an objective that drops some.
    dynamic_sampling: groups whose rewards are all equal leave the denominators (DAPO, Section 3.2).
    anchor: policy of the anchor log-probabilities: "behavior", "current" (the weights at the start of the
        step) or "ewma" (their moving average with `decay` in anchor_args, debiased). `Run.anchor` can replace
        it: testbed.anchors.
    passes: updates per batch.
    reposition: before the last pass theta <- start + reposition (theta - start).
    replay, demonstrations: share of the groups from earlier batches, from the task's teacher.
    step_rule, dual, baselines, hand_over: see StepRule, Dual, Baselines, HandOver.
    taught: True if a teacher with the starting weights makes no sense for it.
    """

    advantage: str
    objective: str
    aggregation: str
    length: float = 0.0
    advantage_args: Arguments = ()
    objective_args: Arguments = ()
    terms: tuple[Term, ...] = ()
    schedules: tuple[tuple[str, Schedule], ...] = ()
    denominator: Literal["all", "kept"] = "all"
    dynamic_sampling: bool = False
    anchor: Literal["behavior", "current", "ewma"] = "behavior"
    anchor_args: Arguments = ()
    passes: int = 1
    reposition: float = 1.0
    replay: Replay | None = None
    demonstrations: float = 0.0
    step_rule: StepRule = StepRule()
    dual: Dual | None = None
    baselines: Baselines = Baselines()
    hand_over: HandOver | None = None
    taught: bool = False

    def __post_init__(self) -> None:
        """Look up every name once, so that a wrong name fails before training."""
        advantage[self.advantage].bind(**dict(self.advantage_args))
        objective[self.objective].bind(**dict(self.objective_args))
        for term in self.terms:
            objective[term.objective].bind(**dict(term.args))
        if self.aggregation not in AGGREGATIONS:
            raise unknown("aggregation", self.aggregation, AGGREGATIONS)
        if self.dual is not None and "dual" not in objective[self.objective].promises:
            raise UserError(
                f"objective '{self.objective}' has no dual variable, but the recipe gives one a step size; "
                "leave `dual` out, or register the objective with `dual=DualUpdate(name, step)`."
            )

    @property
    def dual_update(self) -> DualUpdate:
        """Update of the objective's dual variable, for recipes with `dual`."""
        found: DualUpdate = objective[self.objective].promises["dual"]
        return found

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """Optional fields of Signals that the advantage reads."""
        names = tuple(advantage[self.advantage].promises.get("needs", ()))
        if self.replay and self.replay.advantage:
            names += tuple(advantage[self.replay.advantage].promises.get("needs", ()))
        of = dict(self.advantage_args).get("of")
        if of:
            names += tuple(name for name in advantage[of].promises["needs"] if name not in names)
        if dict(self.advantage_args).get("norm") == "proxy":
            # The proxy is computed token by token, without the true norm's backward passes.
            names = tuple("score_norm_BT" if name == "score_norm_B" else name for name in names)
        return names

    @cached_property
    def reads(self) -> frozenset[str]:
        """Fields of the batch that the loss reads, terms included."""
        names = [self.objective, *(term.objective for term in self.terms)]
        return frozenset().union(*(objective[name].promises.get("reads", ()) for name in names))

    def hyper(self, step: int, steps: int) -> Hyper:
        """Return the objective's hyperparameters at a step."""
        scheduled = {name: value(step, steps) for name, value in self.schedules}
        return {**dict(self.objective_args), **scheduled}

    def losses(self, logp_RBT: Tensor, batch: Batch, hyper: Hyper) -> Tensor:
        """Return the objective's per-token losses [R, B, T], without terms."""
        loss: Tensor = objective[self.objective].bind(**hyper)(logp_RBT, batch)
        return loss

    def loss(self, logp_RBT: Tensor, batch: Batch, hyper: Hyper, step: int = 0, steps: int = 1) -> Tensor:
        """Return one loss per replica [R], terms included."""
        loss_RBT = self.losses(logp_RBT, batch, hyper)
        for term in self.terms:
            added = objective[term.objective].bind(**dict(term.args))(logp_RBT, batch)
            loss_RBT = loss_RBT + term.at(step, steps) * added
        return aggregate(loss_RBT, self.counted(logp_RBT, batch, hyper), self.aggregation, self.length)

    def counted(self, logp_RBT: Tensor, batch: Batch, hyper: Hyper) -> Tensor:
        """Return the tokens that the denominators count; bool [R, B, T]."""
        mask_RBT = batch.mask_BT
        if self.denominator == "kept":
            from testbed.inspection.kept_mask import kept_mask

            mask_RBT = kept_mask(self.objective, logp_RBT.detach(), batch, **hyper)
        if self.dynamic_sampling:
            reward, group = batch.reward_B, batch.group_B
            varied_RB = group_max(reward, group) > -group_max(-reward, group)
            mask_RBT = mask_RBT & varied_RB[..., None]
        return mask_RBT
