"""A finite MDP that simulates episodes and computes value, gradient, occupancy and divergence exactly."""

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs import checks
from envs.arrays import Bools, Floats, Ints, Keys
from envs.divergence import Divergence, episode_divergence, log_moment
from envs.tables import Tables, build_tables, running_sums

# Methods import the compiled modules, so that building and listing worlds does not load the compiler.


@dataclass(frozen=True)
class Episodes:
    """Sampled episodes; sequence b = n * group + g starts in start_RN[:, n]; 0 where mask is False."""

    state_RBT: Ints
    action_RBT: Ints
    reward_RBT: Floats
    mask_RBT: Bools


@dataclass(frozen=True, kw_only=True, eq=False)
class FiniteMDP:
    """S states, A actions, at most `horizon` steps; an episode also ends on entering a terminal state.

    The reward of a step is reward_SA[s, a], plus noise, plus bonus_S[s'] of the next state. Noise "bernoulli"
    reads reward_SA as the probability of reward 1; "normal" adds `noise_std` standard normals, a number or a
    table [S, A].
    Policies are stationary tables of probabilities pi[..., S, A]; leading axes are independent policies.
    Raises ValueError for wrong shapes, for rows that are not distributions and for starts in terminal states.
    """

    transition_SAS: Floats
    reward_SA: Floats
    start_S: Floats
    horizon: int
    discount: float = 1.0
    terminal_S: Bools | None = None
    bonus_S: Floats | None = None
    noise: str = "none"
    noise_std: float | Floats = 1.0

    def __post_init__(self) -> None:
        states = np.size(self.start_S)
        self._freeze("transition_SAS", self.transition_SAS, np.float64)
        self._freeze("reward_SA", self.reward_SA, np.float64)
        self._freeze("start_S", self.start_S, np.float64)
        none_S = np.zeros(states)
        terminal_S = self._freeze("terminal_S", none_S if self.terminal_S is None else self.terminal_S, bool)
        bonus_S = self._freeze("bonus_S", none_S if self.bonus_S is None else self.bonus_S, np.float64)
        checks.check_shapes(self.transition_SAS, self.reward_SA, self.start_S, terminal_S, bonus_S)
        checks.check_dynamics(self.transition_SAS, self.start_S, terminal_S)
        checks.check_rewards(self.reward_SA, bonus_S, self.noise, self.noise_std)
        if np.ndim(self.noise_std):
            self._freeze("noise_std", self.noise_std, np.float64)
        checks.check_time(self.horizon, self.discount)

    def _freeze(self, name: str, values: ArrayLike, dtype: Any) -> NDArray[Any]:
        """Store a private, read-only copy under `name`."""
        array = np.array(values, dtype=dtype, order="C")
        array.setflags(write=False)
        object.__setattr__(self, name, array)
        return array

    @property
    def states(self) -> int:
        """S."""
        return int(self.transition_SAS.shape[0])

    @property
    def actions(self) -> int:
        """A."""
        return int(self.transition_SAS.shape[1])

    @property
    def mean_reward_SA(self) -> Floats:
        """E[reward | s, a], the bonus of the next state included."""
        return self.tables.mean_reward_X.reshape(self.states, self.actions)

    @cached_property
    def tables(self) -> Tables:
        """The compiled loops' view of this world."""
        assert self.terminal_S is not None, "__post_init__ fills it"
        assert self.bonus_S is not None, "__post_init__ fills it"
        return build_tables(
            self.transition_SAS,
            self.reward_SA,
            self.start_S,
            self.terminal_S,
            self.bonus_S,
            horizon=self.horizon,
            discount=self.discount,
            noise=self.noise,
            noise_std=self.noise_std,
        )

    def start(self, uniform_RN: Floats) -> Ints:
        """Start states [R, N] by inverse CDF."""
        return np.searchsorted(running_sums(self.start_S), uniform_RN, side="right").astype(np.int64)

    def simulate(self, pi_RSA: Floats, start_RN: Ints, group: int, key_R: Keys, step: int) -> Episodes:
        """Simulate `group` episodes per start and replica, [R, N * group, T], purely from the arguments."""
        pi_RSA = self._policies("pi", pi_RSA)
        return self._episodes(pi_RSA, np.zeros((1, 1, 1), np.int64), start_RN, group, key_R, step)

    def simulate_versions(
        self, pi_RWSA: Floats, version_RBT: Ints, start_RN: Ints, group: int, key_R: Keys, step: int
    ) -> Episodes:
        """Simulate episodes; the action at step t is drawn from pi_RWSA[r, version_RBT[r, b, t]].

        version_RBT broadcasts to [R, B, T], B = N * group: [R, B, 1] gives each sequence one policy, [R, 1,
        T] changes it for all at the same steps. Each action uses the same uniform as in `simulate`. Raises
        ValueError for versions outside 0 to W - 1.
        """
        if np.ndim(pi_RWSA) != 4:
            raise ValueError(
                f"pi_RWSA has shape {np.shape(pi_RWSA)}, expected (R, W, S, A): W policies a replica."
            )
        pi_XSA = self._policies("pi_RWSA", pi_RWSA)
        versions = np.shape(pi_RWSA)[1]
        return self._episodes(pi_XSA, version_RBT, start_RN, group, key_R, step, versions)

    def value(self, pi_xSA: Floats) -> Floats:
        """J = E[sum_t discount^t r_t], [x]."""
        value_RTS = self._action_values(self._policies("pi", pi_xSA))[1]
        return (value_RTS[:, 0] * self.start_S).sum(axis=-1).reshape(np.shape(pi_xSA)[:-2])

    def state_value(self, pi_xSA: Floats) -> Floats:
        """V_t(s) = E[sum_{k >= t} discount^(k - t) r_k | s_t = s], [x, T + 1, S]; V_T = 0.

        0 in terminal states. J = start . V_0, and V_t = sum_a pi Q_t.
        """
        value_RTS = self._action_values(self._policies("pi", pi_xSA))[1]
        return value_RTS.reshape(np.shape(pi_xSA)[:-2] + value_RTS.shape[1:])

    def q_value(self, pi_xSA: Floats) -> Floats:
        """Q_t(s, a), [x, T, S, A]; 0 in terminal states."""
        q_RTSA = self._action_values(self._policies("pi", pi_xSA))[0]
        return q_RTSA.reshape(np.shape(pi_xSA)[:-2] + q_RTSA.shape[1:])

    def occupancy(self, pi_xSA: Floats) -> Floats:
        """d_t(s) = P(s_t = s, episode not over), [x, T, S]; a row sums to P(step t is reached)."""
        occupancy_RTS = self._occupancy(self._policies("pi", pi_xSA))
        return occupancy_RTS.reshape(np.shape(pi_xSA)[:-2] + occupancy_RTS.shape[1:])

    def gradient(self, pi_xSA: Floats) -> Floats:
        """dJ/dlogits[s, a] = sum_t discount^t d_t(s) pi(a|s) (Q_t(s, a) - V_t(s)), [x, S, A].

        The logits are those of a tabular softmax policy, the same at every step. Source: Sutton et al.
        (2000), "Policy gradient methods for reinforcement learning with function approximation", theorem 1.
        """
        pi_RSA = self._policies("pi", pi_xSA)
        advantage_RTSA, value_RTS = self._action_values(pi_RSA)
        advantage_RTSA -= value_RTS[:, :-1, :, None]
        advantage_RTSA *= (self._occupancy(pi_RSA) * self._discount_T1())[..., None]
        return (pi_RSA * advantage_RTSA.sum(axis=1)).reshape(np.shape(pi_xSA))

    def variance(self, pi_xSA: Floats) -> Floats:
        """Variance of an episode's discounted return, reward noise included, [x]."""
        pi_RSA = self._policies("pi", pi_xSA)
        value_RTS = self._action_values(pi_RSA)[1]
        bonus_S, square_RS = self.tables.bonus_S, np.zeros((len(pi_RSA), self.states))
        for t in reversed(range(self.horizon)):
            # The return is reward + tail, tail = bonus of s' + discount * return from s'.
            later_RS = self.discount * value_RTS[:, t + 1]
            tail_square_RS = bonus_S**2 + 2.0 * bonus_S * later_RS + self.discount**2 * square_RS
            square_RSA = self.noise_variance_SA() + self.reward_SA**2 + self._expect(tail_square_RS)
            square_RSA += 2.0 * self.reward_SA * self._expect(bonus_S + later_RS)
            square_RS = np.where(self.tables.terminal_S, 0.0, (pi_RSA * square_RSA).sum(axis=-1))
        mean_R = (value_RTS[:, 0] * self.start_S).sum(axis=-1)
        variance_R: Floats = (square_RS * self.start_S).sum(axis=-1) - mean_R**2
        return variance_R.reshape(np.shape(pi_xSA)[:-2])

    def divergence(
        self, pi_xSA: Floats, mu_xSA: Floats, *, unsupported: Literal["raise", "infinite"] = "raise"
    ) -> Divergence:
        """Exact divergence of pi's episodes from mu's, every field [x]; pi and mu have the same leading axes.

        If pi takes an action with mu = 0: ValueError naming the state and the action, or inf with
        unsupported="infinite".
        """
        checks.check_pairs(np.shape(pi_xSA), np.shape(mu_xSA))
        pi_RSA, mu_RSA = self._policies("pi", pi_xSA), self._policies("mu", mu_xSA)
        result = episode_divergence(self.tables, pi_RSA, mu_RSA)
        if unsupported == "raise" and np.isinf(result.kl_pi_mu).any():
            checks.raise_unsupported(pi_RSA, mu_RSA, self._occupancy(pi_RSA).sum(axis=1))
        fields = {field.name: getattr(result, field.name) for field in dataclasses.fields(result)}
        shape = np.shape(pi_xSA)[:-2]
        return Divergence(**{name: array.reshape(shape + array.shape[1:]) for name, array in fields.items()})

    def renyi(
        self,
        pi_xSA: Floats,
        mu_xSA: Floats,
        order: float,
        *,
        unsupported: Literal["raise", "infinite"] = "raise",
    ) -> Floats:
        """Renyi divergence of pi's episodes from mu's, ln(E_mu w^order) / (order - 1), nats, [x].

        order > 0: 1 is KL(pi, mu), 2 is ln(1 + chi2), infinity the largest log w. It never falls in order. If
        pi takes an action with mu = 0: as `divergence`, but finite for an order below 1.
        Source: van Erven & Harremoes (2014), Renyi divergence and Kullback-Leibler divergence, eqs. 2 to 10.
        """
        if not order > 0.0:
            raise ValueError(f"order is {order!r}, expected a number above 0, infinity included.")
        if order >= 1.0:
            # Between 1 and infinity this only checks the support: E_mu w^2 overflows, its logarithm does not.
            whole = self.divergence(pi_xSA, mu_xSA, unsupported=unsupported)
            if order in (1.0, np.inf):
                return whole.kl_pi_mu if order == 1.0 else whole.max_log_rho
        checks.check_pairs(np.shape(pi_xSA), np.shape(mu_xSA))
        pi_RSA, mu_RSA = self._policies("pi", pi_xSA), self._policies("mu", mu_xSA)
        found_R = log_moment(self.transition_SAS, self.tables, pi_RSA, mu_RSA, order) / (order - 1.0)
        return found_R.reshape(np.shape(pi_xSA)[:-2])

    def _episodes(
        self,
        pi_XSA: Floats,
        version_RBT: Ints,
        start_RN: Ints,
        group: int,
        key_R: Keys,
        step: int,
        versions: int = 1,
    ) -> Episodes:
        from envs import kernels

        replicas = len(pi_XSA) // versions
        start_RN, key_R = checks.as_starts_and_keys(start_RN, key_R, replicas, self.tables.terminal_S)
        shape = (replicas, start_RN.shape[1] * group, self.horizon)
        version_RBT = checks.as_versions(version_RBT, shape, versions)
        cumulative_XA = running_sums(pi_XSA).reshape(-1, self.actions)
        sampled = kernels.simulate(self.tables, cumulative_XA, start_RN, group, key_R, step, version_RBT)
        return Episodes(*sampled)

    def _policies(self, name: str, pi_xSA: Floats) -> Floats:
        return checks.as_policies(name, pi_xSA, self.states, self.actions)

    def _action_values(self, pi_RSA: Floats) -> tuple[Floats, Floats]:
        from envs import dynamic_programs

        return dynamic_programs.action_values(self.tables, pi_RSA)

    def _occupancy(self, pi_RSA: Floats) -> Floats:
        from envs import dynamic_programs

        return dynamic_programs.state_occupancy(self.tables, pi_RSA)

    def _discount_T1(self) -> Floats:
        return np.power(self.discount, np.arange(self.horizon), dtype=np.float64)[:, None]

    def _expect(self, next_RS: Floats) -> Floats:
        """E[x(s') | s, a], [R, S, A]."""
        return np.einsum("sat,rt->rsa", self.transition_SAS, next_RS)

    def noise_variance_SA(self) -> Floats:
        """Variance that reward noise adds to a step's reward, [S, A]."""
        match self.noise:
            case "bernoulli":
                return self.reward_SA * (1.0 - self.reward_SA)
            case "normal":
                return np.full((self.states, self.actions), np.square(self.noise_std))
            case _:
                return np.zeros((self.states, self.actions))
