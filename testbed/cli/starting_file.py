"""My objective, my task and my schedule of lags, with their tests."""

import numpy as np
import torch
from torch import Tensor

from envs.arrays import Bools, Ints
from envs.tokens.digits import DigitTask
from envs.tokens.token_task import corruption
from testbed.data.batch import Batch
from testbed.losses.ratios import log_token
from testbed.losses.score_loss import score_loss
from testbed.staleness.age_distribution import AgeDistribution
from testbed.staleness.by_age import ByAge, by_distribution


def my_objective(logp_BT: Tensor, batch: Batch, *, cap: float = 2.0) -> Tensor:
    """L = -sg[min(rho, cap)] A log pi, one loss per token, rho = pi/mu."""
    rho_BT = log_token(logp_BT, batch).exp()
    weight_BT = rho_BT.clamp(max=cap)
    return score_loss(weight_BT, logp_BT, batch)


class MyTask(DigitTask):
    """Write the digits of the prompt in reverse order; the reward is 1 if all are right."""

    def __init__(self, *, digits: int = 4, modulus: int = 8) -> None:
        super().__init__(digits, modulus)

    def answer(self, digit_NT: Ints) -> Ints:
        """The right response to each row of digits, [N, T]."""
        return digit_NT[:, ::-1]

    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """Return the answer with each digit wrong with probability `noise`, to train a base model on."""
        answer_NT = self.answer(prompt_NQ[:, :-1])
        wrong_NT = corruption(answer_NT.shape, rng, noise, self.modulus)
        return (answer_NT + wrong_NT) % self.modulus, np.ones(answer_NT.shape, dtype=bool)


def my_schedule(lag: int, *, spread: int = 1) -> ByAge:
    """Half of the batches are lag - spread steps old, half lag + spread; no age is below 0."""
    ages = [max(lag - spread, 0), lag + spread]
    half_each = AgeDistribution.of(ages, [0.5, 0.5])
    return by_distribution("mine", half_each, slices=1)


def test_the_weight_of_a_token_is_its_ratio_up_to_the_cap() -> None:
    logp_BT = torch.tensor([[-0.1, -2.0]], requires_grad=True)
    batch = Batch(
        logp_mu_BT=torch.tensor([[-3.0, -2.0]]),  # ratios e^2.9 and 1
        adv_BT=torch.ones(1, 2),
        mask_BT=torch.ones(1, 2, dtype=torch.bool),
        reward_B=torch.ones(1),
        group_B=torch.zeros(1, dtype=torch.int64),
    )
    my_objective(logp_BT, batch, cap=2.0).sum().backward()
    assert logp_BT.grad is not None
    assert (-logp_BT.grad).tolist() == [[2.0, 1.0]]


def test_the_teacher_solves_the_task_and_the_schedule_keeps_its_lag() -> None:
    task, rng = MyTask(digits=3), np.random.default_rng(0)
    prompt_NQ = task.prompts(rng, 5)
    response_NT, mask_NT = task.teacher(prompt_NQ, rng, 0.0)
    assert task.score(prompt_NQ, response_NT, mask_NT).tolist() == [1.0] * 5
    ages = {int(age) for step in range(50) for age in my_schedule(4).ages(0, step)}
    assert ages == {3, 5}
