"""Learner: the replicas of a pack that share a recipe, their optimizer, and what the recipe remembers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.anchors import Moment, build_anchor
from testbed.data.batch import EXPERT, REPLAY, Batch
from testbed.data.groups import group_average
from testbed.data.rollout import Rollout
from testbed.data.select import demonstrate, stack, with_origin
from testbed.data.signals import Signals
from testbed.objectives import objective
from testbed.policies.optimizers import OPTIMIZERS
from testbed.recipes.composition import Arguments, Hyper, Recipe
from testbed.training.replay_buffer import ReplayBuffer
from testbed.worlds.base import World


@dataclass(frozen=True)
class Arm:
    """A contiguous block of the replica axis whose cells share a recipe."""

    recipe: Recipe
    rows: slice


class Learner:
    """One arm in training.

    world: what generates and gives log-probabilities. theta_AP: the arm's weights at the start.
    steps: length of the run, which schedules are measured against. seeds: one per replica.
    anchor, anchor_args: as in Run. last_pass: log-probabilities, batch and hyperparameters of the last pass
    of the latest step.
    """

    def __init__(
        self,
        arm: Arm,
        world: World,
        theta_AP: Tensor,
        optimizer: str,
        steps: int,
        seeds: tuple[int, ...],
        anchor: str = "recipe",
        anchor_args: Arguments = (),
    ) -> None:
        self.recipe, self.rows, self.world, self.steps, self.seeds = arm.recipe, arm.rows, world, steps, seeds
        self.optimizer = OPTIMIZERS[optimizer](theta_AP)
        self.reference_AP = theta_AP.detach()
        self.dial = (anchor, anchor_args)
        self.anchor = build_anchor(arm.recipe, *self.dial)
        self.anchor.start(theta_AP)
        self.last_pass: tuple[Tensor, Batch, Hyper] | None = None
        self._start()
        self.baselines_AH = theta_AP.new_full((len(seeds), max(arm.recipe.history, 1)), torch.nan)

    def _start(self) -> None:
        recipe = self.recipe
        self.buffer = ReplayBuffer(recipe.replay, self.seeds) if recipe.replay else None
        self.dual_A: Tensor | None = None

    def enter(self, theta_AP: Tensor, step: int) -> None:
        """Hand over to the recipe that follows, where there is one and its step has come."""
        if self.recipe.then is not None and step == self.recipe.until:
            self.recipe = self.recipe.then
            self.reference_AP = theta_AP.detach()
            if self.dial[0] == "recipe":
                self.anchor = build_anchor(self.recipe)
                self.anchor.start(theta_AP)
            self._start()

    def mix(self, rollout: Rollout, step: int) -> Rollout:
        """Return the arm's rollout with replayed and demonstrated groups in it."""
        if self.recipe.demonstrations:
            shown = self.world.demonstrations(rollout, self.rows, step)
            rollout = demonstrate(rollout, shown, self.recipe.demonstrations)
        return self.buffer.mix(rollout, step) if self.buffer else rollout

    def hyper(self, step: int) -> Hyper:
        """Return the objective's hyperparameters at a step, the dual variable among them."""
        hyper = self.recipe.hyper(step, self.steps)
        if self.dual_A is not None:
            hyper["lam"] = self.dual_A[:, None, None]
        return hyper

    def batch(self, theta_AP: Tensor, rollout: Rollout, logp_ABT: Tensor, step: int) -> Batch:
        """Return the arm's rollout with advantages, anchor and reference.

        theta_AP and logp_ABT: the weights at the start of the step and their log-probabilities.
        """
        logp_ABT = finite_or(logp_ABT, rollout.logp_mu_RBT)
        if "origin" in self.recipe.reads:
            rollout = with_origin(rollout)
        if rollout.origin_RB is not None:
            # A demonstration has no behavior policy: its ratio is set to 1 and never weighs anything.
            expert_AB1 = (rollout.origin_RB == EXPERT)[..., None]
            mu_ABT = torch.where(expert_AB1, logp_ABT, rollout.logp_mu_RBT)
            rollout = replace(rollout, logp_mu_RBT=mu_ABT)
        group_AB = rollout.groups()
        adv_ABT = self._advantage(theta_AP, rollout, logp_ABT, group_AB, step)
        return Batch(
            logp_mu_BT=rollout.logp_mu_RBT,
            adv_BT=adv_ABT,
            mask_BT=rollout.mask_RBT,
            reward_B=rollout.reward_RB,
            group_B=group_AB,
            logp_ref_BT=self._reference(rollout),
            origin_B=rollout.origin_RB,
            logp_anchor_BT=self.anchor.logp(self._moment(theta_AP, rollout, logp_ABT, step)),
        )

    def follow(self, theta_AP: Tensor, batch: Batch, rollout: Rollout, logp_ABT: Tensor, step: int) -> Batch:
        """Return the batch of a later pass: itself, unless the anchor reads the weights of every pass."""
        if not self.anchor.follows:
            return batch
        rollout = replace(rollout, logp_mu_RBT=batch.logp_mu_BT, origin_RB=batch.origin_B)
        logp_ABT = finite_or(logp_ABT, batch.logp_mu_BT)
        return replace(
            batch, logp_anchor_BT=self.anchor.logp(self._moment(theta_AP, rollout, logp_ABT, step))
        )

    def _moment(self, theta_AP: Tensor, rollout: Rollout, logp_ABT: Tensor, step: int) -> Moment:
        return Moment(theta_AP, step, rollout, logp_ABT, lambda other_AP: self._logp(other_AP, rollout))

    def _reference(self, rollout: Rollout) -> Tensor | None:
        return self._logp(self.reference_AP, rollout) if "ref" in self.recipe.reads else None

    @torch.no_grad()
    def _logp(self, theta_AP: Tensor, rollout: Rollout) -> Tensor:
        logp_ABT: Tensor = self.world.logp(theta_AP, rollout)
        return logp_ABT

    def _advantage(
        self, theta_AP: Tensor, rollout: Rollout, logp_ABT: Tensor, group_AB: Tensor, step: int
    ) -> Tensor:
        found: dict[str, Tensor] = {}
        for name in self.recipe.needs:
            if name == "log_rho_BT":
                log_rho_ABT = logp_ABT - rollout.logp_mu_RBT
                found[name] = torch.where(rollout.mask_RBT, log_rho_ABT, torch.zeros_like(log_rho_ABT))
            elif name == "score_norm_BT":
                found[name] = self.world.score_norm(theta_AP, rollout)
            elif name == "score_norm_B":
                found[name] = sequence_score_norm(self.world, theta_AP, rollout)
            elif name == "greedy_reward_B":
                found[name] = self.world.greedy_reward(theta_AP, rollout)
            elif name == "history_H":
                found[name] = self.baselines_AH
            elif name == "reference_reward_BN":
                found[name] = self.world.reference_reward(
                    self.reference_AP, rollout, self.rows, self.recipe.reference_group, step
                )
        signals = Signals(rollout.reward_RB, group_AB, rollout.mask_RBT, **found)
        adv_ABT = assign(self.recipe.advantage, self.recipe.advantage_args, signals)
        if self.recipe.replay_advantage and rollout.origin_RB is not None:
            replayed_AB1 = (rollout.origin_RB == REPLAY)[..., None]
            adv_ABT = torch.where(replayed_AB1, assign(self.recipe.replay_advantage, (), signals), adv_ABT)
        if self.recipe.history:
            self._remember(rollout.reward_RB, group_AB)
        return adv_ABT.to(rollout.logp_mu_RBT.dtype)

    def _remember(self, reward_AB: Tensor, group_AB: Tensor) -> None:
        """Put the mean of this batch's group baselines behind the earlier ones."""
        mean_A1 = group_average(reward_AB, group_AB).mean(-1, keepdim=True)
        self.baselines_AH = torch.cat([self.baselines_AH[:, 1:], mean_A1.to(self.baselines_AH.dtype)], dim=1)

    def average(self, theta_AP: Tensor) -> None:
        """Show the anchor the weights after a step."""
        self.anchor.average(theta_AP)

    def adapt(self, logp_ABT: Tensor, batch: Batch, step: int) -> None:
        """Note the last pass over a batch, and move the dual variable where the recipe has one."""
        self.last_pass = (logp_ABT, batch, self.hyper(step))
        if self.recipe.dual is None:
            return
        from testbed.objectives.smooth.r2vpo import dual_step

        rate, budget = self.recipe.dual
        lam = {**objective[self.recipe.objective].defaults, **self.hyper(step)}["lam"]
        lam_A = lam[:, 0, 0] if isinstance(lam, Tensor) else logp_ABT.new_full(logp_ABT.shape[:1], float(lam))
        self.dual_A = dual_step(lam_A, logp_ABT, batch, rate=rate, budget=budget)


def finite_or(logp_ABT: Tensor, mu_ABT: Tensor) -> Tensor:
    """Return log-probabilities without gradient; those of replicas that have lost theirs are mu's.

    Such a replica is lost, as its loss will show. It must not stop the others.
    """
    finite_A11 = torch.isfinite(logp_ABT.detach()).flatten(1).all(-1)[:, None, None]
    return torch.where(finite_A11, logp_ABT.detach(), mu_ABT)


def assign(name: str, arguments: Arguments, signals: Signals) -> Tensor:
    """Return the named advantage of every token, [A, B, T]."""
    adv: Tensor = advantage[name].bind(**dict(arguments))(signals)
    shape = signals.require("mask_BT", name).shape
    return adv[..., None].expand(shape) if adv.dim() < len(shape) else adv


def sequence_score_norm(world: World, theta_AP: Tensor, rollout: Rollout) -> Tensor:
    """Return the squared norm of grad log pi of every sequence, [A, B]: one backward pass per sequence."""
    leaf_AP = theta_AP.detach().requires_grad_()
    logp_AB = world.logp(leaf_AP, rollout).sum(-1)
    norms = []
    for index in range(logp_AB.shape[1]):
        (grad_AP,) = torch.autograd.grad(logp_AB[:, index].sum(), leaf_AP, retain_graph=True)
        norms.append(grad_AP.square().sum(-1))
    return torch.stack(norms, dim=1)


def mixed(learners: tuple[Learner, ...], rollout: Rollout, step: int) -> Rollout:
    """Return the pack's rollout with what every arm mixes into its part; itself when none does."""
    if not any(learner.buffer or learner.recipe.demonstrations for learner in learners):
        return rollout
    parts = [learner.mix(rollout.rows(learner.rows), step) for learner in learners]
    if any(part.origin_RB is not None for part in parts):
        parts = [with_origin(part) for part in parts]
    return stack(parts)
