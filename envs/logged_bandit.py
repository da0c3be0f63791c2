"""A contextual bandit with a logging policy: data as a production system would store them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Floats, Ints, Keys
from envs.catalog import world
from envs.checks import check_distributions
from envs.finite_mdp import FiniteMDP


def mean_rewards(contexts: int, arms: int, means: ArrayLike | None, seed: int) -> Floats:
    """Mean rewards [S, A]: `means` ([A] or [S, A]), or uniform on [0, 1] from the seed."""
    if arms < 1 or contexts < 1:
        raise ValueError(f"arms is {arms} and contexts is {contexts}, expected at least 1 of each.")
    if means is None:
        return np.random.default_rng(seed).random((contexts, arms))
    given = np.asarray(means, dtype=np.float64)
    if given.shape not in ((arms,), (contexts, arms)):
        raise ValueError(f"means has shape {given.shape}, expected ({arms},) or ({contexts}, {arms}).")
    return np.broadcast_to(given, (contexts, arms))


def stay(contexts: int, arms: int) -> Floats:
    """transition_SAS of a bandit: episodes end after one step, so its successors are arbitrary."""
    return np.repeat(np.eye(contexts)[:, None, :], arms, axis=1)


@world("bandit")
def bandit(
    *,
    arms: int = 10,
    contexts: int = 1,
    means: Sequence[float] | Sequence[Sequence[float]] | None = None,
    noise: str = "bernoulli",
    noise_std: float = 1.0,
    seed: int = 0,
) -> FiniteMDP:
    """Arms that pay Bernoulli, normal or fixed rewards with given or random means, in uniform contexts."""
    return FiniteMDP(
        transition_SAS=stay(contexts, arms), reward_SA=mean_rewards(contexts, arms, means, seed),
        start_S=np.full(contexts, 1.0 / contexts), horizon=1, noise=noise, noise_std=noise_std,
    )  # fmt: skip


@world("two-arm-bandit")
def two_arm_bandit() -> FiniteMDP:
    """Two arms that pay 0 and 1 surely: the smallest world with closed forms for all diagnostics."""
    return bandit(arms=2, means=(0.0, 1.0), noise="none")


# Contexts use these steps of the stream, so that they share no numbers with the actions.
_CONTEXT_STEPS = 2**31


@dataclass(frozen=True)
class LoggedData:
    """Independent data sets [R, N]: context, action, reward and the propensity mu(action | context)."""

    context_RN: Ints
    action_RN: Ints
    reward_RN: Floats
    propensity_RN: Floats


@dataclass(frozen=True, kw_only=True, eq=False)
class LoggedBandit(FiniteMDP):
    """A bandit (horizon 1, contexts are states) logged under `logging_SA`.

    `value(pi)` is exact for any policy, and `divergence(pi, logging_SA)` is its exact distance from the log.
    """

    logging_SA: Floats

    def __post_init__(self) -> None:
        super().__post_init__()
        logging_SA = self._freeze("logging_SA", self.logging_SA, np.float64)
        if logging_SA.shape != self.reward_SA.shape:
            raise ValueError(
                f"logging_SA has shape {logging_SA.shape}, but reward_SA has {self.reward_SA.shape}; "
                "give a row of action probabilities per context."
            )
        check_distributions("logging_SA", logging_SA, "Give a distribution of actions per context.")
        if self.horizon != 1:
            raise ValueError(f"horizon is {self.horizon}, expected 1: a logged bandit has one step.")

    def log(self, key_R: Keys, n: int, *, step: int = 0) -> LoggedData:
        """`n` logged rows for each key, a pure function of (key, step); row i is the same for every n > i.

        Raises ValueError unless 0 <= step < 2**31; contexts use the steps above.
        """
        if not 0 <= step < _CONTEXT_STEPS:
            raise ValueError(f"step is {step}, expected 0 to {_CONTEXT_STEPS - 1}.")
        from envs import kernels

        uniform_RN = kernels.uniforms(key_R, step + _CONTEXT_STEPS, n, 1)[..., 0]
        logging_RSA = np.repeat(self.logging_SA[None], len(key_R), axis=0)
        episodes = self.simulate(logging_RSA, self.start(uniform_RN), 1, key_R, step)
        context_RN, action_RN = episodes.state_RBT[..., 0], episodes.action_RBT[..., 0]
        return LoggedData(
            context_RN=context_RN,
            action_RN=action_RN,
            reward_RN=episodes.reward_RBT[..., 0],
            propensity_RN=self.logging_SA[context_RN, action_RN],
        )


@world("logged-bandit")
def logged_bandit(
    *,
    contexts: int = 5,
    arms: int = 4,
    temperature: float = 0.3,
    skill: float = 0.5,
    noise: str = "bernoulli",
    noise_std: float = 1.0,
    seed: int = 0,
) -> LoggedBandit:
    """A contextual bandit with data from a softmax logging policy that knows the mean rewards roughly.

    The logging policy is softmax(score / temperature), score = skill * mean reward + (1 - skill) * uniform.
    Designed here.
    """
    if temperature <= 0:
        raise ValueError(
            f"temperature is {temperature:g}, expected more than 0; raise it for a more even log."
        )
    if not 0.0 <= skill <= 1.0:
        raise ValueError(f"skill is {skill:g}, expected 0 (blind) to 1 (knows the mean rewards).")
    mean_SA = mean_rewards(contexts, arms, None, seed)
    # A child stream: the mean rewards used the first words of default_rng(seed).
    rng = np.random.default_rng(np.random.SeedSequence(seed).spawn(1)[0])
    score_SA = skill * mean_SA + (1.0 - skill) * rng.random((contexts, arms))
    weight_SA = np.exp((score_SA - score_SA.max(axis=1, keepdims=True)) / temperature)
    logging_SA = weight_SA / weight_SA.sum(axis=1, keepdims=True)
    return LoggedBandit(
        transition_SAS=stay(contexts, arms),
        reward_SA=mean_SA,
        start_S=np.full(contexts, 1.0 / contexts),
        logging_SA=logging_SA,
        horizon=1,
        noise=noise,
        noise_std=noise_std,
    )
