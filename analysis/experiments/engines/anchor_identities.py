"""Claims about proximal policies: what anchors make of staleness and mismatch, by identities per token."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.lab import Evidence, Experiment, Part, exact
from testbed.config.run import Run

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.anchors import Anchor
    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout

EXPERIMENT = Experiment(
    "anchor-identities",
    question="What does each anchor make of staleness and of engine mismatch, token by token?",
    source="identities per token; sources with each claim",
    systems={
        "Missing Old Logits": Part(
            "clip and engine weight without old log-probabilities, token by token; no training",
            claims=("missing-old-logits-clip-never-binds", "snapshot-anchor-separates-engine-from-staleness"),
        ),
        "Batch-size invariance (PPO-EWMA)": Part(
            "that a rescaled decay keeps the anchor's age in samples; no training",
            claims=("ewma-anchor-keeps-its-age-in-samples",),
        ),
    },
)

AGES = (0, 1, 4, 16)
CLEARLY = 0.01
"""What must move has to move by more than 0.01 nats."""
LOST = "Missing Old Logits (2026), arXiv:2605.12070"


class Straight:
    """A world whose weights move on a straight line, `stride` per step, and an arm that learns in it."""

    def __init__(self, anchor: str, *, seed: int = 0, mismatch: float = 1.5, **arguments: Any) -> None:
        import torch

        from testbed.recipes import Recipe
        from testbed.training.update import Trainer
        from testbed.worlds.build import build_world
        from testbed.worlds.tasks import tabular_task

        hot = (("temperature", mismatch),)
        self.run: Run = Run(
            task="chain", recipe="decoupled", prompts=8, group=4, seed=seed, mismatch="temperature",
            mismatch_args=hot, anchor=anchor, anchor_args=tuple(arguments.items()),
        )  # fmt: skip
        self.world = build_world((self.run,))
        generator = torch.Generator().manual_seed(seed)
        self.actions = tabular_task(self.run).actions
        shape, dtype = self.world.initial().shape, self.world.initial().dtype
        self.start_RP = torch.randn(shape, generator=generator, dtype=dtype)
        self.stride_RP = 0.05 * torch.randn(shape, generator=generator, dtype=dtype)
        self.trainer = Trainer.of((self.run,), self.world, self.start_RP)
        (self.learner,) = self.trainer.learners
        self.recipe: Recipe = self.learner.recipe

    def weights(self, step: float) -> Tensor:
        """Return the weights at a step."""
        return self.start_RP + step * self.stride_RP

    def rollout(self, version: int) -> Rollout:
        """Return a batch of the weights of a version; its random numbers are the same for every version."""
        import torch

        rollout = self.world.generate(self.weights(version), 0)
        return replace(rollout, version_RBT=torch.full_like(rollout.token_RBT, version))

    def batch(self, rollout: Rollout, step: int) -> Batch:
        """Return the batch as the arm sees it after it has lived through every step before."""
        for earlier in range(1, step + 1):
            self.learner.observe_weights(self.weights(earlier))
        for earlier in range(step + 1):
            theta_RP = self.weights(earlier)
            batch = self.learner.batch(theta_RP, rollout, self.world.logp(theta_RP, rollout), earlier)
        return batch


def _no_growth(by_age: list[np.ndarray]) -> list[float]:
    """Return by how much each standard deviation fails to exceed the one before by CLEARLY."""
    return [CLEARLY + float(before.std() - after.std()) for before, after in pairwise(by_age)]


def _under_mask(value_BT: Tensor, batch: Batch) -> np.ndarray:
    found: np.ndarray = value_BT[batch.mask_BT].numpy()
    return found


def _split(batch: Batch, logp_BT: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return log d = log anchor - log mu and log u = log pi - log anchor of every token."""
    d_BT, u_BT = batch.logp_anchor_BT - batch.logp_mu_BT, logp_BT - batch.logp_anchor_BT
    return _under_mask(d_BT, batch), _under_mask(u_BT, batch)


@EXPERIMENT.claim(source=LOST)
def missing_old_logits_clip_never_binds() -> Evidence:
    """With the present weights' log-probabilities in place of lost ones, u = pi/anchor is 1 at every pass and
    age, so no token is clipped; d = anchor/mu is then all of pi/mu, and what lag adds spreads. With an anchor
    recomputed once per step, u moves and tokens are clipped at later passes.

    Return |log u|, clip shares and |log d - log(pi/mu)| over 4 ages and 3 passes, and lacking growth.
    """
    from testbed.diagnostics.ratios import clip_share
    from testbed.inspection.effective_weights import effective_weights

    gaps: list[float] = []
    by_age: list[np.ndarray] = []
    for age in AGES:
        case = Straight("missing")
        rollout = case.rollout(0)
        batch, theta_RP = case.batch(rollout, age), case.weights(age)
        for pass_index in range(3):
            update = case.trainer.later_pass(theta_RP, rollout, (batch,), age, pass_index)
            (batch,) = update.batches
            log_d, log_u = _split(batch, update.logp_RBT)
            whole = _under_mask(update.logp_RBT - rollout.logp_mu_RBT, batch)
            weights_BT = effective_weights(partial(case.recipe.losses, hyper={}), update.logp_RBT, batch)
            gaps += [np.abs(log_u).max(), float(clip_share(weights_BT, batch).max())]
            gaps.append(np.abs(log_d - whole).max())
            if pass_index == 0:
                by_age.append(log_d)
            theta_RP = theta_RP - 20.0 * update.grad_RP
    gaps += _no_growth([log_d - by_age[0] for log_d in by_age])
    moved, clipped = _after_passes("recompute")
    gaps += [CLEARLY - moved, CLEARLY - clipped]
    note = (
        "largest |log u|, clip share or |log d - log(pi/mu)|, lacking growth of the spread of log d, or lack "
        "of moved and clipped tokens with a recomputed anchor"
    )
    return exact(gaps, 0.0, note)


def _after_passes(anchor: str) -> tuple[float, float]:
    """Return the largest change of log u over three passes at age 4, and the last pass's clip share."""
    from testbed.diagnostics.ratios import clip_share
    from testbed.inspection.effective_weights import effective_weights

    case, age = Straight(anchor), 4
    rollout = case.rollout(0)
    batch, theta_RP = case.batch(rollout, age), case.weights(age)
    log_us = []
    for pass_index in range(3):
        update = case.trainer.later_pass(theta_RP, rollout, (batch,), age, pass_index)
        (batch,) = update.batches
        log_us.append(_split(batch, update.logp_RBT)[1])
        theta_RP = theta_RP - 20.0 * update.grad_RP
    weights_BT = effective_weights(partial(case.recipe.losses, hyper={}), update.logp_RBT, batch)
    return float(np.abs(log_us[-1] - log_us[0]).max()), float(clip_share(weights_BT, batch).max())


@EXPERIMENT.claim(source=LOST)
def snapshot_anchor_separates_engine_from_staleness() -> Evidence:
    """With the trainer's log-probabilities at each token's version as anchor, d = anchor/mu is the same for
    every token whatever the lag and at every pass, and u carries all of it; a recomputed anchor's d is their
    product.
    """
    gaps: list[float] = []
    by_age: list[np.ndarray] = []
    for age in AGES:
        right, recomputed = Straight("snapshot"), Straight("recompute")
        rollout = right.rollout(0)
        logp_BT = right.world.logp(right.weights(age), rollout)
        log_d, log_u = _split(right.batch(rollout, age), logp_BT)
        whole_d, _ = _split(recomputed.batch(rollout, age), logp_BT)
        if age == 0:
            first_d = log_d
        gaps += [np.abs(log_d - first_d).max(), np.abs(whole_d - log_d - log_u).max()]
        by_age.append(log_u)
    gaps.append(CLEARLY - _after_passes("snapshot")[0])
    gaps.append(CLEARLY - float(first_d.std()))
    gaps += _no_growth(by_age)
    return exact(
        gaps, 1e-12, "largest change of log d, gap to the product, or lacking spread of d and u, nats"
    )


@EXPERIMENT.claim(source="A-3PO (2025), arXiv:2512.06547; derived for softmax policies")
def loglinear_anchor_is_off_by_a_log_normalizer() -> Evidence:
    """On a straight path of logits and without mismatch, A-3PO's anchor is the exact older policy times sum_a
    mu^(1-alpha) pi^alpha <= 1: the same factor for all tokens of a state, whose log is at most alpha (1 -
    alpha) / 8 times the squared range of log(pi/mu). So it is never exact, and inflates u.
    """
    gaps = []
    for seed in range(4):
        for step, age in ((1, 1), (2, 1), (5, 1), (16, 1), (16, 8)):
            near = Straight("loglinear", seed=seed, mismatch=1.0, age=age)
            right = Straight("version", seed=seed, mismatch=1.0, age=age)
            rollout = near.rollout(0)
            found = near.batch(rollout, step)
            exact_BT = right.batch(rollout, step).logp_anchor_BT
            alpha = (step - age) / step
            log_z_BT, bound_BT = _normalizer(near, rollout, step, alpha)
            gaps.append(np.abs(_under_mask(found.logp_anchor_BT - exact_BT - log_z_BT, found)).max())
            gaps.append(_under_mask(-log_z_BT - bound_BT, found).max())
            gaps.append(_under_mask(log_z_BT, found).max())
            if 0 < alpha < 1:
                gaps.append(1e-6 + float(_under_mask(log_z_BT, found).min()))
    return exact(
        gaps, 1e-12, "largest distance in nats, or excess over the bounds 0 and alpha (1 - alpha) / 8"
    )


def _normalizer(case: Straight, rollout: Rollout, step: int, alpha: float) -> tuple[Tensor, Tensor]:
    """Return log sum_a mu^(1-alpha) pi^alpha and its bound in the state of every token."""
    shape = (-1, case.actions)
    log_mu_RSA, log_pi_RSA = (case.weights(v).unflatten(-1, shape).log_softmax(-1) for v in (0, step))
    log_z_RS = ((1 - alpha) * log_mu_RSA + alpha * log_pi_RSA).logsumexp(-1)
    ratio_RSA = log_pi_RSA - log_mu_RSA
    bound_RS = alpha * (1 - alpha) / 8 * (ratio_RSA.amax(-1) - ratio_RSA.amin(-1)).square()
    if rollout.state_RBT is None:
        raise ValueError("a tabular rollout has states")
    state_RX = rollout.state_RBT.flatten(1)
    log_z_RX, bound_RX = log_z_RS.gather(1, state_RX), bound_RS.gather(1, state_RX)
    return log_z_RX.view_as(rollout.state_RBT), bound_RX.view_as(rollout.state_RBT)


@EXPERIMENT.claim(source="Hilton, Cobbe & Schulman (2021), arXiv:2110.00641")
def ewma_anchor_keeps_its_age_in_samples() -> Evidence:
    """On a straight path the debiased average of the weights is the version decay / (1 - decay) steps ago,
    and after few steps that of the mean age of what it has seen. In steps a c-th as long, the rescaled decay
    gives the same anchor; the same one gives another.
    """
    from testbed.anchors.rescale import rescaled_decay
    from testbed.anchors.weight_anchors import Average

    decay, samples, gaps = 0.8, 160, []
    case = Straight("recompute")
    for parts in (1, 4, 16):
        rollout = case.rollout(samples)
        for rescaled, used in ((True, rescaled_decay(decay, parts)), (parts == 1, decay)):
            made = Average(used)
            made.start(case.weights(0))
            for step in range(1, samples * parts + 1):
                made.observe_weights(case.weights(step / parts))
            found_BT = _logp_of(case, made, rollout)
            older_BT = case.world.logp(case.weights(samples - decay / (1 - decay)), rollout)
            gap = float((found_BT - older_BT).abs().max())
            gaps.append(gap if rescaled else CLEARLY - gap)
    # Early on, ages 0 .. t have weights decay^age: debiased, they sum to 1.
    made, steps = Average(decay), 3
    made.start(case.weights(0))
    for step in range(1, steps + 1):
        made.observe_weights(case.weights(step))
    share_K = decay ** np.arange(steps + 1)
    mean_age = float(share_K @ np.arange(steps + 1) / share_K.sum())
    older_BT = case.world.logp(case.weights(steps - mean_age), rollout)
    gaps.append(float((_logp_of(case, made, rollout) - older_BT).abs().max()))
    return exact(
        gaps, 1e-9, "largest |log ratio| to the older weights, or 0.01 less it at a fixed decay, nats"
    )


def _logp_of(case: Straight, made: Anchor, rollout: Rollout) -> Tensor:
    """Return what an anchor says of a batch."""
    from testbed.anchors import AnchorInputs

    now_RP = case.weights(0)
    logp_RBT = case.world.logp(now_RP, rollout)
    return made.logp(
        AnchorInputs(now_RP, 0, rollout, logp_RBT, lambda theta_RP: case.world.logp(theta_RP, rollout))
    )
