"""One learning step: batches with advantages, one gradient per pass over them, new weights."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from testbed.config.run import Arguments, Run
from testbed.data.batch import Batch
from testbed.data.rollout import Rollout
from testbed.losses.ratios import log_token
from testbed.recipes import recipe
from testbed.teachers import Teacher, build_teacher
from testbed.training.learner import Learner, RecipeBlock, mix_rollouts
from testbed.worlds.world import World


@dataclass(frozen=True)
class State:
    """Training state: weights [R, P], and finite replicas, bool [R]."""

    theta_RP: Tensor
    alive_R: Tensor

    @classmethod
    def start(cls, theta_RP: Tensor) -> "State":
        """Return the state before the first step."""
        return cls(theta_RP, torch.ones(len(theta_RP), dtype=torch.bool, device=theta_RP.device))


@dataclass(frozen=True)
class Update:
    """One gradient and the intermediate results.

    logp_RBT: log-probabilities used by the loss. batches: one per learner. log_w_RB: log-ratios of whole
    sequences. grad_RP: gradient of the loss. finite_R: True if loss and gradient are finite. rate_R: step
    size, after the recipe's scaling by the ratios. entropy_RBT: entropy of every token's distribution, if
    requested and available with the log-probabilities.
    """

    logp_RBT: Tensor
    batches: tuple[Batch, ...]
    log_w_RB: Tensor
    grad_RP: Tensor
    finite_R: Tensor
    rate_R: Tensor
    entropy_RBT: Tensor | None = None


@dataclass(frozen=True)
class Trainer:
    """Train a pack's learners in its world: from a rollout to the weights after the step.

    learning_rate_R: per replica. max_grad_norm: limit of a replica's gradient norm, 0 for none.
    """

    world: World
    learners: tuple[Learner, ...]
    learning_rate_R: Tensor
    max_grad_norm: float = 0.0

    @classmethod
    def of(
        cls,
        runs: tuple[Run, ...],
        world: World,
        theta_RP: Tensor,
        teacher: Teacher | None = None,
        learner: type[Learner] = Learner,
    ) -> "Trainer":
        """Return the trainer of cells in stacked order; cells with equal recipes are adjacent.

        theta_RP: weights at the start. teacher: the cells' teacher, made here by default. learner: makes
        losses of rollouts.
        """
        taught = teacher or build_teacher(runs, world, theta_RP)
        learners = tuple(
            learner(block, world, theta_RP[block.rows], runs[block.rows], taught.rows(block.rows))
            for block in recipe_blocks(runs)
        )
        rate_R = theta_RP.new_tensor([run.learning_rate for run in runs])
        return cls(world, learners, rate_R, runs[0].max_grad_norm)

    def switch_recipes(self, state: State, step: int) -> None:
        """Switch to the recipes that start at this step."""
        for learner in self.learners:
            learner.switch_recipe(state.theta_RP[learner.rows], step)

    def mix(self, theta_RP: Tensor, rollout: Rollout, step: int) -> Rollout:
        """Return the rollout with the groups that recipes replay or demonstrate mixed in."""
        return mix_rollouts(self.learners, theta_RP, rollout, step)

    def first_pass(self, theta_RP: Tensor, rollout: Rollout, step: int, entropy: bool = False) -> Update:
        """Return the first gradient on a rollout; computes advantages, anchor and reference.

        entropy: True to compute entropies too.
        """
        leaf_RP, entropy_RBT = theta_RP.detach().requires_grad_(), None
        if entropy:
            logp_RBT, entropy_RBT = self.world.loss_logp_entropy(leaf_RP, rollout, step, pass_index=0)
        else:
            logp_RBT = self.world.loss_logp(leaf_RP, rollout, step, pass_index=0)
        rows = [(learner, learner.rows) for learner in self.learners]
        batches = tuple(one.batch(theta_RP[r], rollout.rows(r), logp_RBT[r], step) for one, r in rows)
        return replace(self.gradient(leaf_RP, logp_RBT, batches, step), entropy_RBT=entropy_RBT)

    def later_pass(
        self, theta_RP: Tensor, rollout: Rollout, batches: tuple[Batch, ...], step: int, pass_index: int
    ) -> Update:
        """Return the gradient on the first pass's batches; only anchors that track every pass are updated."""
        leaf_RP = theta_RP.detach().requires_grad_()
        logp_RBT = self.world.loss_logp(leaf_RP, rollout, step, pass_index=pass_index)
        batches = tuple(
            learner.refresh_anchor(
                theta_RP[learner.rows], batch, rollout.rows(learner.rows), logp_RBT[learner.rows], step
            )
            for learner, batch in zip(self.learners, batches, strict=True)
        )
        return self.gradient(leaf_RP, logp_RBT, batches, step)

    def gradient(self, leaf_RP: Tensor, logp_RBT: Tensor, batches: tuple[Batch, ...], step: int) -> Update:
        """Return the gradient of every replica's loss; replicas are independent."""
        pairs = zip(self.learners, batches, strict=True)
        blocks = [(learner, logp_RBT[learner.rows], batch) for learner, batch in pairs]
        loss_R = torch.cat([learner.loss(logp_CBT, batch, step) for learner, logp_CBT, batch in blocks])
        penalty_R = self.world.penalty(leaf_RP)
        loss_R = loss_R if penalty_R is None else loss_R + penalty_R
        (grad_RP,) = torch.autograd.grad(loss_R.sum(), leaf_RP)
        blocks = [(learner, logp_CBT.detach(), batch) for learner, logp_CBT, batch in blocks]
        factors = [learner.recipe.step_rule.factor(logp, batch) for learner, logp, batch in blocks]
        factor_R = torch.cat(factors)
        return Update(
            logp_RBT=logp_RBT.detach(),
            batches=batches,
            log_w_RB=torch.cat([log_token(logp, batch).sum(-1) for _, logp, batch in blocks]),
            grad_RP=grad_RP,
            finite_R=torch.isfinite(loss_R.detach()) & finite_rows(grad_RP),
            rate_R=self.learning_rate_R * factor_R.to(leaf_RP.dtype),
        )

    def learn(self, state: State, rollout: Rollout, update: Update, step: int) -> State:
        """Return the state after every pass over one batch; `update` is that of the first."""
        start_RP = state.theta_RP
        for pass_index in range(max(learner.recipe.passes for learner in self.learners)):
            if pass_index:
                theta_RP = self.pulled_back(start_RP, state.theta_RP, pass_index)
                update = self.later_pass(theta_RP, rollout, update.batches, step, pass_index)
                state = replace(state, theta_RP=theta_RP)
            state = self.take_step(state, update, pass_index)
            for learner, batch in zip(self.learners, update.batches, strict=True):
                # At the block's last pass, which does not depend on its neighbors in the pack.
                if pass_index == learner.recipe.passes - 1:
                    learner.end_of_passes(update.logp_RBT[learner.rows], batch, step)
        for learner in self.learners:
            learner.observe_weights(state.theta_RP[learner.rows])
        return state

    def take_step(self, state: State, update: Update, pass_index: int) -> State:
        """Return the state after one optimizer step of the learners with passes left.

        A replica with a non-finite loss, gradient or weights keeps its last weights permanently.
        """
        alive_R = state.alive_R & update.finite_R
        for learner in self.learners:
            # A loss that it no longer learns from must not end it: alone it would have had no such pass.
            if pass_index >= learner.recipe.passes:
                alive_R[learner.rows] = state.alive_R[learner.rows]
        grad_RP = select_rows(alive_R, update.grad_RP, torch.zeros_like)
        grad_RP = clip_norm(grad_RP, self.max_grad_norm)
        moving = [learner for learner in self.learners if pass_index < learner.recipe.passes]
        parts = [
            learner.optimizer.step(
                state.theta_RP[learner.rows], grad_RP[learner.rows], update.rate_R[learner.rows]
            )
            for learner in moving
        ]
        if len(self.learners) == len(moving) == 1:
            moved_RP = parts[0]
        else:
            moved_RP = state.theta_RP.clone()
            for learner, part_CP in zip(moving, parts, strict=True):
                moved_RP[learner.rows] = part_CP
        alive_R = alive_R & finite_rows(moved_RP)
        return State(select_rows(alive_R, moved_RP, lambda _: state.theta_RP), alive_R)

    def pulled_back(self, start_RP: Tensor, theta_RP: Tensor, pass_index: int) -> Tensor:
        """Pull the weights of learners before their last pass back towards the step's start."""
        for learner in self.learners:
            if pass_index == learner.recipe.passes - 1 and learner.recipe.reposition != 1.0:
                rows = learner.rows
                theta_RP = theta_RP.clone()
                theta_RP[rows] = torch.lerp(start_RP[rows], theta_RP[rows], learner.recipe.reposition)
        return theta_RP


def recipe_blocks(runs: tuple[Run, ...]) -> tuple[RecipeBlock, ...]:
    """Return contiguous blocks of equal recipes."""
    blocks: dict[tuple[str, Arguments], list[int]] = {}
    for index, run in enumerate(runs):
        blocks.setdefault((run.recipe, run.recipe_args), []).append(index)
    return tuple(
        RecipeBlock(recipe[name].bind(**dict(arguments))(), slice(rows[0], rows[-1] + 1))
        for (name, arguments), rows in blocks.items()
    )


def finite_rows(value_RP: Tensor) -> Tensor:
    """Return True for rows of finite numbers only, [R]; one pass, without memory of their size."""
    if bool((finite_R := torch.isfinite(value_RP.sum(-1))).all()):  # NaN and inf reach the sum
        return finite_R
    low_R, high_R = value_RP.aminmax(dim=-1)  # four times slower; NaN is both
    return torch.isfinite(low_R) & torch.isfinite(high_R)


def select_rows(keep_R: Tensor, value_RP: Tensor, other: Callable[[Tensor], Tensor]) -> Tensor:
    """Return value, with rows outside `keep` from other(value); value itself if all are kept."""
    if bool(keep_R.all()):
        return value_RP
    return torch.where(keep_R[:, None], value_RP, other(value_RP))


def clip_norm(grad_RP: Tensor, limit: float) -> Tensor:
    """Scale each replica's gradient down to a norm of at most limit; 0 switches it off."""
    if limit <= 0:
        return grad_RP
    norm_R1 = grad_RP.norm(dim=-1, keepdim=True)
    factor_R1 = limit / norm_R1.clamp(min=limit)
    return grad_RP if bool((factor_R1 == 1).all()) else grad_RP * factor_R1
