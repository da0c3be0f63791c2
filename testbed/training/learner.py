"""Learner: the replicas of a pack that share a recipe, with their optimizer and the recipe's state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import torch
from torch import Tensor

from testbed.advantages import advantage
from testbed.anchors import AnchorInputs, build_anchor
from testbed.config.run import Run
from testbed.critics import build_critic
from testbed.data.batch import EXPERT, REPLAY, Batch
from testbed.data.groups import group_average
from testbed.data.rollout import Rollout
from testbed.data.select import demonstrate, stack, with_origin
from testbed.data.signals import Signals
from testbed.objectives import objective
from testbed.policies.optimizers import build_optimizer
from testbed.recipes.composition import Arguments, Hyper, Recipe
from testbed.teachers import OWN, Teacher, build_teacher
from testbed.training.replay_buffer import ReplayBuffer
from testbed.worlds.world import World


@dataclass(frozen=True)
class SignalInputs:
    """An arm's batch before its advantages are computed.

    theta_CP, logp_CBT: weights at the start of the step, and their log-probabilities of the tokens.
    rows: the arm's replicas in the pack. history_CK: baselines of earlier batches, oldest first.
    """

    world: World
    recipe: Recipe
    teacher: Teacher
    rows: slice
    theta_CP: Tensor
    rollout: Rollout
    logp_CBT: Tensor
    history_CK: Tensor
    step: int


Provider: TypeAlias = Callable[[SignalInputs], "Tensor | None"]


def signals_for(names: tuple[str, ...], inputs: SignalInputs) -> dict[str, Tensor | None]:
    """Return the named fields of Signals; names without a table entry are left out."""
    return {name: PROVIDERS[name](inputs) for name in names if name in PROVIDERS}


def critic_signals(value_CBT: Tensor, logp_CBT: Tensor, rollout: Rollout) -> dict[str, Tensor | None]:
    """Return the batch fields that critics, and advantages with a critic, read."""
    cut_CB = rollout.truncated_RB
    return {
        "value_BT": value_CBT,
        "log_rho_BT": log_ratio(logp_CBT, rollout),
        "truncated_B": torch.zeros_like(rollout.reward_RB, dtype=torch.bool) if cut_CB is None else cut_CB,
    }


def log_ratio(logp_CBT: Tensor, rollout: Rollout) -> Tensor:
    """Return log pi/mu of every token, [C, B, T]; 0 outside the mask."""
    log_rho_CBT = logp_CBT - rollout.logp_mu_RBT
    return torch.where(rollout.mask_RBT, log_rho_CBT, torch.zeros_like(log_rho_CBT))


def sequence_score_norm(world: World, theta_CP: Tensor, rollout: Rollout) -> Tensor:
    """Return the squared norm of grad log pi of every sequence, [C, B]: one backward pass per sequence."""
    leaf_CP = theta_CP.detach().requires_grad_()
    logp_CB = world.logp(leaf_CP, rollout).sum(-1)
    norms = []
    for index in range(logp_CB.shape[1]):
        (grad_CP,) = torch.autograd.grad(logp_CB[:, index].sum(), leaf_CP, retain_graph=True)
        norms.append(grad_CP.square().sum(-1))
    return torch.stack(norms, dim=1)


def _reference_reward(inputs: SignalInputs) -> Tensor:
    teacher, size = inputs.teacher, inputs.recipe.baselines.reference_group
    weights_CP, seen = teacher.weights(inputs.theta_CP), teacher.seen(inputs.rollout)
    return inputs.world.reference_reward(weights_CP, seen, inputs.rows, size, inputs.step)


PROVIDERS: Mapping[str, Provider] = {
    "log_rho_BT": lambda of: log_ratio(of.logp_CBT, of.rollout),
    "score_norm_BT": lambda of: of.world.score_norm(of.theta_CP, of.rollout),
    "score_norm_B": lambda of: sequence_score_norm(of.world, of.theta_CP, of.rollout),
    "greedy_reward_B": lambda of: of.world.greedy_reward(of.theta_CP, of.rollout),
    "reference_reward_BN": _reference_reward,
    "parent_B": lambda of: of.rollout.parents(),
    "history_K": lambda of: of.history_CK,
    "turn_BT": lambda of: of.world.turns(of.rollout),
}


@dataclass(frozen=True)
class RecipeBlock:
    """A contiguous block of the replica axis whose cells share a recipe."""

    recipe: Recipe
    rows: slice


class Learner:
    """A recipe block in training.

    world: generates and gives log-probabilities. theta_CP: the block's starting weights. runs: the block's
    cells, one per replica. last_pass: log-probabilities, batch and hyperparameters of the latest step's last
    pass. teacher: the cells' teacher; made here by default.
    """

    def __init__(
        self,
        block: RecipeBlock,
        world: World,
        theta_CP: Tensor,
        runs: tuple[Run, ...],
        teacher: Teacher | None = None,
    ) -> None:
        self.recipe, self.rows, self.world = block.recipe, block.rows, world
        self.steps, self.seeds = runs[0].steps, tuple(run.seed for run in runs)
        self.optimizer = build_optimizer(runs[0].optimizer, dict(runs[0].optimizer_args), theta_CP)
        self.teacher = teacher or replace(build_teacher(runs, world, theta_CP), first=self.rows.start)
        self.keeps_teacher = runs[0].teacher != OWN
        self.anchor_spec = (runs[0].anchor, runs[0].anchor_args)
        self.anchor = build_anchor(block.recipe, *self.anchor_spec)
        self.anchor.start(theta_CP)
        self.critic = build_critic(runs[0], world, theta_CP, self.seeds)
        self.last_pass: tuple[Tensor, Batch, Hyper] | None = None
        self._start()
        self.baselines_CK = theta_CP.new_full((len(runs), max(block.recipe.baselines.history, 1)), torch.nan)

    def _start(self) -> None:
        recipe = self.recipe
        self.buffer = ReplayBuffer(recipe.replay, self.seeds) if recipe.replay else None
        self.dual_C: Tensor | None = None

    def switch_recipe(self, theta_CP: Tensor, step: int) -> None:
        """Switch to the next recipe if its step has come."""
        later = self.recipe.hand_over
        if later is not None and step == later.step:
            self.recipe = later.recipe
            if not self.keeps_teacher:
                self.teacher = replace(self.teacher, theta_RP=theta_CP.detach())
            if self.anchor_spec[0] == "recipe":
                self.anchor = build_anchor(self.recipe)
                self.anchor.start(theta_CP)
            self._start()

    def mix(self, theta_CP: Tensor, rollout: Rollout, step: int) -> Rollout:
        """Return the arm's rollout with replayed and demonstrated groups mixed in."""
        if self.recipe.demonstrations:
            shown = self.teacher.answers(theta_CP, rollout, step)
            rollout = demonstrate(rollout, shown, self.recipe.demonstrations)
        return self.buffer.mix(rollout, step) if self.buffer else rollout

    def hyper(self, step: int) -> Hyper:
        """Return the objective's hyperparameters at a step, the dual variable among them."""
        hyper = self.recipe.hyper(step, self.steps)
        if self.dual_C is not None:
            hyper[self.recipe.dual_update.name] = self.dual_C[:, None, None]
        return hyper

    def loss(self, logp_CBT: Tensor, batch: Batch, step: int) -> Tensor:
        """Return the recipe's loss at a step, one number per replica [C]."""
        return self.recipe.loss(logp_CBT, batch, self.hyper(step), step, self.steps)

    def batch(self, theta_CP: Tensor, rollout: Rollout, logp_CBT: Tensor, step: int) -> Batch:
        """Return the arm's rollout with advantages, anchor and reference.

        theta_CP and logp_CBT: the weights at the start of the step and their log-probabilities.
        """
        logp_CBT = finite_or(logp_CBT, rollout.logp_mu_RBT)
        if "origin" in self.recipe.reads:
            rollout = with_origin(rollout)
        if rollout.origin_RB is not None:
            # A demonstration has no behavior policy: its ratio is set to 1 and never used as a weight.
            expert_CB1 = (rollout.origin_RB == EXPERT)[..., None]
            mu_CBT = torch.where(expert_CB1, logp_CBT, rollout.logp_mu_RBT)
            rollout = replace(rollout, logp_mu_RBT=mu_CBT)
        group_CB = rollout.groups()
        adv_CBT = self._advantage(theta_CP, rollout, logp_CBT, group_CB, step)
        return Batch(
            logp_mu_BT=rollout.logp_mu_RBT, adv_BT=adv_CBT, mask_BT=rollout.mask_RBT,
            reward_B=rollout.reward_RB, group_B=group_CB, logp_ref_BT=self._reference(theta_CP, rollout),
            origin_B=rollout.origin_RB,
            turn_BT=self.world.turns(rollout) if "turn" in self.recipe.reads else None,
            logp_anchor_BT=self.anchor.logp(self._anchor_inputs(theta_CP, rollout, logp_CBT, step)),
        )  # fmt: skip

    def refresh_anchor(
        self, theta_CP: Tensor, batch: Batch, rollout: Rollout, logp_CBT: Tensor, step: int
    ) -> Batch:
        """Return the batch of a later pass: unchanged, unless the anchor reads the weights of every pass."""
        if not self.anchor.every_pass:
            return batch
        rollout = replace(rollout, logp_mu_RBT=batch.logp_mu_BT, origin_RB=batch.origin_B)
        logp_CBT = finite_or(logp_CBT, batch.logp_mu_BT)
        inputs = self._anchor_inputs(theta_CP, rollout, logp_CBT, step)
        return replace(batch, logp_anchor_BT=self.anchor.logp(inputs))

    def _anchor_inputs(self, theta_CP: Tensor, rollout: Rollout, logp_CBT: Tensor, step: int) -> AnchorInputs:
        return AnchorInputs(theta_CP, step, rollout, logp_CBT, lambda other_CP: self._logp(other_CP, rollout))

    def _reference(self, theta_CP: Tensor, rollout: Rollout) -> Tensor | None:
        if "ref" not in self.recipe.reads:
            return None
        return self._logp(self.teacher.weights(theta_CP), self.teacher.seen(rollout))

    @torch.no_grad()
    def _logp(self, theta_CP: Tensor, rollout: Rollout) -> Tensor:
        logp_CBT: Tensor = self.world.logp(theta_CP, rollout)
        return logp_CBT

    def _advantage(
        self, theta_CP: Tensor, rollout: Rollout, logp_CBT: Tensor, group_CB: Tensor, step: int
    ) -> Tensor:
        inputs = SignalInputs(
            self.world, self.recipe, self.teacher, self.rows, theta_CP, rollout, logp_CBT,
            self.baselines_CK, step,
        )  # fmt: skip
        found = signals_for(self.recipe.needs, inputs)
        if self.critic is not None:
            found |= critic_signals(self.critic.values(theta_CP, rollout), logp_CBT, rollout)
        signals = Signals(rollout.reward_RB, group_CB, rollout.mask_RBT, **found)
        adv_CBT = assign(self.recipe.advantage, self.recipe.advantage_args, signals)
        replay = self.recipe.replay
        if replay and replay.advantage and rollout.origin_RB is not None:
            replayed_CB1 = (rollout.origin_RB == REPLAY)[..., None]
            adv_CBT = torch.where(replayed_CB1, assign(replay.advantage, (), signals), adv_CBT)
        if self.critic is not None:
            self.critic.learn(theta_CP, rollout, signals)
        if self.recipe.baselines.history:
            self._remember(rollout.reward_RB, group_CB)
        return adv_CBT.to(rollout.logp_mu_RBT.dtype)

    def _remember(self, reward_CB: Tensor, group_CB: Tensor) -> None:
        """Append the mean of this batch's group baselines to the history."""
        mean_C1 = group_average(reward_CB, group_CB).mean(-1, keepdim=True)
        self.baselines_CK = torch.cat([self.baselines_CK[:, 1:], mean_C1.to(self.baselines_CK.dtype)], dim=1)

    def observe_weights(self, theta_CP: Tensor) -> None:
        """Show the anchor the weights after a step."""
        self.anchor.observe_weights(theta_CP)

    def end_of_passes(self, logp_CBT: Tensor, batch: Batch, step: int) -> None:
        """Record the last pass over a batch, and update the dual variable if the recipe has one."""
        self.last_pass = (logp_CBT, batch, self.hyper(step))
        self.update_dual(logp_CBT, batch, step)

    def update_dual(self, logp_CBT: Tensor, batch: Batch, step: int) -> None:
        """Update the dual variable from the last pass over a batch, if the recipe has one."""
        if (dual := self.recipe.dual) is None:
            return
        name, update = self.recipe.dual_update
        now = {**objective[self.recipe.objective].defaults, **self.hyper(step)}[name]
        now_C = now[:, 0, 0] if isinstance(now, Tensor) else logp_CBT.new_full(logp_CBT.shape[:1], float(now))
        self.dual_C = update(now_C, logp_CBT, batch, rate=dual.rate, budget=dual.budget)


def finite_or(logp_CBT: Tensor, mu_CBT: Tensor) -> Tensor:
    """Return detached log-probabilities; replicas with non-finite ones get those of mu.

    Such a replica has diverged, as its loss will show. It must not stop the others.
    """
    finite_C11 = torch.isfinite(logp_CBT.detach()).flatten(1).all(-1)[:, None, None]
    return torch.where(finite_C11, logp_CBT.detach(), mu_CBT)


def assign(name: str, arguments: Arguments, signals: Signals) -> Tensor:
    """Return the named advantage of every token, [C, B, T]."""
    adv: Tensor = advantage[name].bind(**dict(arguments))(signals)
    shape = signals.require("mask_BT", name).shape
    return adv[..., None].expand(shape) if adv.dim() < len(shape) else adv


def mix_rollouts(learners: tuple[Learner, ...], theta_RP: Tensor, rollout: Rollout, step: int) -> Rollout:
    """Return the pack's rollout with every arm's replayed and demonstrated groups; unchanged without any."""
    if not any(learner.buffer or learner.recipe.demonstrations for learner in learners):
        return rollout
    parts = [learner.mix(theta_RP[learner.rows], rollout.rows(learner.rows), step) for learner in learners]
    if any(part.origin_RB is not None for part in parts):
        parts = [with_origin(part) for part in parts]
    return stack(parts)
