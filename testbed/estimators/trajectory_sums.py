"""Per-decision sums of many episodes in one compiled pass, without arrays of prefix weights or terms."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from envs.arrays import Floats

_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class StepSums:
    """Result of one pass over the steps, e_t = r_t - Qhat_t, with Qhat = Vhat = 0 without a model.

    weight_N: w_{0:T-1}. terms_N: sum_t gamma^t [w_{0:t} e_t + w_{0:t-1} Vhat_t].
    mass_T, error_T, model_T: sums over episodes of w_{0:t}, w_{0:t} e_t and w_{0:t-1} Vhat_t.
    steps_RNT: ratios, rewards, Qhat and Vhat, for a second pass; leading axes merged into R.
    """

    discount_T: Floats
    steps_RNT: tuple[Floats, ...]
    weight_N: Floats
    terms_N: Floats
    mass_T: Floats
    error_T: Floats
    model_T: Floats

    @cached_property
    def divisible(self) -> bool:
        """True if in every data set, at every step, some episode has weight above 0."""
        return bool((self.mass_T > 0.0).all())

    @property
    def share_N(self) -> Floats:
        """w_{0:T-1} / sum over episodes, [..., N]; requires `divisible`."""
        return self.weight_N / self.mass_T[..., -1:]

    @property
    def value(self) -> Floats:
        """sum_t gamma^t [sum_i u_t e_t + sum_i u_{t-1} Vhat_t], u = w / sum_i w; requires `divisible`."""
        plan_KT = self._plan_KT()
        return np.asarray((plan_KT[..., 1, :] + plan_KT[..., 3, :]) @ self.discount_T)

    def pull_N(self) -> Floats:
        """Contribution of each episode to `value`, centered at every step: a second pass over the steps."""
        unit_KRN, _, _ = _weigh(self.steps_RNT, self._plan_KT().reshape(-1, 4, len(self.discount_T)))
        return unit_KRN[1].reshape(self.weight_N.shape)

    def _plan_KT(self) -> Floats:
        """gamma^t / sum_i w_t, mean of e_t, gamma^t / sum_i w_{t-1}, mean of Vhat_t, [..., 4, T]."""
        n = self.weight_N.shape[-1]
        earlier_T = np.concatenate([np.full_like(self.mass_T[..., :1], n), self.mass_T[..., :-1]], axis=-1)
        rows = (
            self.discount_T / self.mass_T,
            self.error_T / self.mass_T,
            self.discount_T / earlier_T,
            self.model_T / earlier_T,
        )
        return np.stack(rows, axis=-2)


def step_sums(
    rho_NT: Floats, reward_NT: Floats, discount_T: Floats, q_NT: Floats | None, v_NT: Floats | None
) -> StepSums | None:
    """Return the sums; None if a product of ratios nears the limits of doubles and needs logarithms."""
    lead, (n, steps) = reward_NT.shape[:-2], reward_NT.shape[-2:]
    none_RNT = np.empty((0, 0, 0))
    given = (rho_NT, reward_NT, q_NT, v_NT)
    filled = (none_RNT if each is None else np.ascontiguousarray(each) for each in given)
    steps_RNT = tuple(each.reshape(-1, n, steps) for each in filled)
    plan_RKT = np.zeros((len(steps_RNT[0]), 4, steps))
    plan_RKT[:, ::2] = discount_T
    unit_KRN, part_RKT, fine = _weigh(steps_RNT, plan_RKT)
    if not fine:
        return None
    unit_N = (unit_R.reshape(*lead, n) for unit_R in unit_KRN)
    part_T = (part_RKT[:, k].reshape(*lead, steps) for k in range(3))
    return StepSums(discount_T, steps_RNT, *unit_N, *part_T)


def _weigh(steps_RNT: tuple[Floats, ...], plan_RKT: Floats) -> tuple[Floats, Floats, bool]:
    from testbed.estimators.compiled_passes import weigh_steps

    replicates, n, steps = steps_RNT[0].shape
    unit_KRN = np.empty((2, replicates, n))
    part_RBKT = np.zeros((replicates, (n + _BLOCK - 1) // _BLOCK, 3, steps))
    # Each block has sums of its own, added in order: the result does not depend on the threads.
    fine = weigh_steps(*steps_RNT, plan_RKT, unit_KRN, part_RBKT)
    return unit_KRN, part_RBKT.sum(axis=1), bool(fine)
