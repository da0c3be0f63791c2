"""Base models for the toy LLM: supervised training on a noisy teacher, so RL starts with some success."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from testbed import rng
from testbed.errors import UserError
from testbed.policies.optimizers import Adam
from testbed.policies.policy import Policy

WIDE = 32
"""Width above which the learning rate falls."""


class Teacher(Protocol):
    """The part of a token task that supervised training needs."""

    def lessons(self, rng: np.random.Generator, n: int) -> np.ndarray: ...

    def teacher(
        self, prompt_NQ: np.ndarray, rng: np.random.Generator, noise: float
    ) -> tuple[np.ndarray, np.ndarray]: ...


def warm_start(
    policy: Policy,
    task: Teacher,
    seeds: Sequence[int],
    steps: int = 600,
    noise: float = 0.2,
    learning_rate: float = 1e-2,
    batch: int = 16,
    group: int = 4,
) -> Tensor:
    """Return one base model per seed, theta_RP: `steps` of Adam on the cross entropy of teacher(prompt).

    The learning rate rises over the first tenth of the steps and falls to 0 over the last third; above the
    width WIDE it falls with the width, as Adam's best rate does. Every step sees `batch` fresh prompts with
    `group` responses each. Up to rounding a row depends only on its seed: train each seed once, and start all
    cells with this seed from its model.

    Raises UserError for counts below 1 and for a noise outside [0, 1].
    """
    for name, value in {"steps": steps, "batch": batch, "group": group}.items():
        if value < 1:
            raise UserError(f"{name} of a warm start must be at least 1, got {value}.")
    if not 0 <= noise <= 1:
        raise UserError(f"noise must lie between 0 and 1, got {noise}: the teacher errs with that chance.")
    learning_rate *= min(1.0, WIDE / policy.width)
    theta_RP = policy.initial(seeds)
    optimizer = Adam(theta_RP)
    for step in range(steps):
        prompt_RNQ, token_RBT, mask_RBT = _lesson(policy, task, seeds, step, noise, batch, group)
        leaf_RP = theta_RP.requires_grad_()
        logp_RBT = policy.logp(leaf_RP, prompt_RNQ, token_RBT, mask_RBT)
        loss = -(logp_RBT.sum((1, 2)) / mask_RBT.sum((1, 2))).sum()
        (grad_RP,) = torch.autograd.grad(loss, leaf_RP)
        rate = learning_rate * min(1.0, 10 * (step + 1) / steps, 3 * (steps - step) / steps)
        theta_RP = optimizer.step(leaf_RP.detach(), grad_RP, grad_RP.new_full((len(seeds),), rate))
    return theta_RP


def _lesson(
    policy: Policy, task: Teacher, seeds: Sequence[int], step: int, noise: float, batch: int, group: int
) -> tuple[Tensor, ...]:
    """Return one step's prompts [R, N, Q], the teacher's responses [R, B, T] and their masks."""
    rows = []
    for seed in seeds:
        stream = rng.generator(seed, "warm-start", step)
        prompt_NQ = task.lessons(stream, batch)
        rows.append((prompt_NQ, *task.teacher(prompt_NQ.repeat(group, 0), stream, noise)))
    parts = (np.stack(part) for part in zip(*rows, strict=True))
    return tuple(torch.from_numpy(part).to(policy.device) for part in parts)
