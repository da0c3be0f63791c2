"""Logged episodes, their prefix weights w_{0:t} = rho_0 … rho_t, and weights normalized over episodes.

An ended episode keeps its last weight (rho = 1) and earns 0: it stays in every normalizer.
"""

import copy
import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.arrays import Bools, Floats, Ints
from testbed.errors import UserError
from testbed.estimators import logged_rounds
from testbed.estimators.trajectory_sums import StepSums, step_sums


@dataclass(frozen=True)
class _LogOf:
    """Stand-in for log_rho_NT that holds the ratio and takes its logarithm on first access."""

    rho_NT: Floats


class _LogRatio:
    def __get__(self, episodes: Any, owner: type | None = None) -> Any:
        if episodes is None:
            return None
        with np.errstate(divide="ignore"):  # -inf is intended
            found_NT = episodes.__dict__["log_rho_NT"] = np.log(episodes.rho_NT)
        return found_NT


@dataclass(frozen=True, kw_only=True, eq=False)
class LoggedEpisodes:
    """N episodes of at most T steps; every array is [..., N, T]; leading axes are independent data sets.

    reward_NT: rewards; log_rho_NT: log pi/mu of the logged actions, -inf where only mu takes the action.
    mask_NT: True while the episode lasts, from its first step on; None for full length everywhere.
    gamma: discount per step, 0 to 1.
    q_NT, v_NT: a model's Qhat_t(s_t, a_t) and Vhat_t(s_t) = sum_a pi(a|s_t) Qhat_t(s_t, a).
    state_marginal_importance_weight_NT: d_pi,t(s_t) / d_mu,t(s_t), of the undiscounted step-t distributions.
    state_NT, action_NT, next_state_NT: indices, for tabular estimators. next_state_NT None: the next logged
        state; the last step then has no successor.
    done_NT: True where the step entered a terminal state; None: the last step of episodes shorter than T.
    pi_SA: the target policy's table; mu_SA: the behavior policy's.

    Values outside the mask are never read. Raises UserError for shapes that disagree, values that are not
    finite, masks with holes, and a gamma outside [0, 1].
    """

    reward_NT: Floats
    log_rho_NT: Floats = cast(Floats, _LogRatio())  # noqa: RUF009 -- the class attribute stays a descriptor
    mask_NT: Bools | None = None
    gamma: float = 1.0
    q_NT: Floats | None = None
    v_NT: Floats | None = None
    state_marginal_importance_weight_NT: Floats | None = None
    state_NT: Ints | None = None
    action_NT: Ints | None = None
    next_state_NT: Ints | None = None
    done_NT: Bools | None = None
    pi_SA: Floats | None = None
    mu_SA: Floats | None = None

    def __post_init__(self) -> None:
        shape = np.shape(self.reward_NT)
        if len(shape) < 2 or 0 in shape[-2:]:
            raise UserError(f"reward_NT has shape {shape}, expected [..., N, T] with at least one step.")
        if not 0.0 <= self.gamma <= 1.0:
            raise UserError(f"gamma is {self.gamma:g}, expected 0 to 1.")
        if vars(self)["log_rho_NT"] is None:
            raise UserError("log_rho_NT is missing: give log pi/mu of the logged actions.")
        self._take_ratio()
        for field in dataclasses.fields(self):
            given = vars(self).get(field.name)
            if field.name.endswith("_NT") and given is not None and np.shape(given) != shape:
                raise UserError(f"{field.name} has shape {np.shape(given)}, but reward_NT has {shape}.")
        self._check_mask()
        for name in ("reward_NT", "log_rho_NT", "q_NT", "v_NT", "state_marginal_importance_weight_NT"):
            self._numbers(name)
        for name in ("state_NT", "action_NT", "next_state_NT"):
            self._indices(name)
        for name in ("pi_SA", "mu_SA"):
            self._laws(name)

    def _set(self, name: str, values: ArrayLike) -> None:
        object.__setattr__(self, name, values)

    def _take_ratio(self) -> None:
        given = vars(self)["log_rho_NT"]
        if isinstance(given, _LogOf):
            del self.__dict__["log_rho_NT"]
            rho_NT = given.rho_NT if self.mask_NT is None else np.where(self.mask_NT, given.rho_NT, 1.0)
            self._set("rho_NT", rho_NT)

    def _check_mask(self) -> None:
        if self.mask_NT is None:
            return
        mask_NT = np.asarray(self.mask_NT, dtype=bool)
        if not mask_NT[..., 0].all() or (mask_NT[..., 1:] & ~mask_NT[..., :-1]).any():
            raise UserError(
                "mask_NT has an episode without a first step or with a gap; mask only steps after the end."
            )
        self._set("mask_NT", mask_NT)

    def _numbers(self, name: str) -> None:
        given = vars(self).get(name)
        if given is None:
            return
        values_NT = np.asarray(given, dtype=np.float64)
        if self.mask_NT is not None:
            values_NT = np.where(self.mask_NT, values_NT, 0.0)
        fine_NT = values_NT < np.inf if name == "log_rho_NT" else np.isfinite(values_NT)
        if not fine_NT.all():
            place = tuple(int(i) for i in np.argwhere(~fine_NT)[0])
            hint = " mu must be able to take every action that was logged." if name == "log_rho_NT" else ""
            raise UserError(f"{name} is {values_NT[place]} at index {place}, expected a number.{hint}")
        self._set(name, values_NT)

    def _indices(self, name: str) -> None:
        given, table_SA = getattr(self, name), self.pi_SA if self.pi_SA is not None else self.mu_SA
        if given is None:
            return
        given_NT = np.asarray(given) if self.mask_NT is None else np.where(self.mask_NT, given, 0)
        values_NT = given_NT.astype(np.int64)
        if not (values_NT == given_NT).all():
            raise UserError(f"{name} holds a number that is not whole; expected indices.")
        limit = np.inf if table_SA is None else np.shape(table_SA)[name == "action_NT"]
        if values_NT.min() < 0 or values_NT.max() >= limit:
            raise UserError(
                f"{name} runs from {values_NT.min()} to {values_NT.max()}, expected 0 to {limit - 1}."
            )
        self._set(name, values_NT)

    def _laws(self, name: str) -> None:
        given = getattr(self, name)
        if given is None:
            return
        table_SA = np.asarray(given, dtype=np.float64)
        if table_SA.ndim != 2 or (table_SA < 0).any() or not np.allclose(table_SA.sum(-1), 1.0, atol=1e-9):
            raise UserError(
                f"{name} of shape {table_SA.shape} is not a table of action probabilities per state."
            )
        self._set(name, table_SA)

    @classmethod
    def tabular(
        cls, *, state_NT: ArrayLike, action_NT: ArrayLike, pi_SA: ArrayLike, mu_SA: ArrayLike, **fields: Any
    ) -> "LoggedEpisodes":
        """Build the episodes of known tables: log_rho = log pi(a|s) - log mu(a|s).

        Raises UserError naming the first logged action that mu never takes.
        """
        target_SA, logging_SA = np.asarray(pi_SA, dtype=np.float64), np.asarray(mu_SA, dtype=np.float64)
        state_xNT, action_xNT = np.asarray(state_NT, dtype=np.int64), np.asarray(action_NT, dtype=np.int64)
        inside = fields.get("mask_NT")
        if inside is not None:
            state_xNT, action_xNT = (np.where(inside, each, 0) for each in (state_xNT, action_xNT))
        bad = logging_SA[state_xNT, action_xNT] <= 0
        bad = bad & (True if inside is None else np.asarray(inside, bool))
        if bad.any():
            place = tuple(np.argwhere(bad)[0])
            raise UserError(
                f"Action {action_xNT[place]} was logged in state {state_xNT[place]}, but mu never takes it. "
                "Give the policy that produced the data."
            )
        with np.errstate(divide="ignore", invalid="ignore"):  # pairs with mu = 0 are never read
            log_rho_SA = np.log(target_SA) - np.log(logging_SA)
        return cls(
            log_rho_NT=log_rho_SA[state_xNT, action_xNT],
            state_NT=np.asarray(state_NT),
            action_NT=np.asarray(action_NT),
            pi_SA=target_SA,
            mu_SA=logging_SA,
            **fields,
        )

    @classmethod
    def from_policies(
        cls,
        *,
        action_NT: ArrayLike,
        reward_NT: Floats,
        pscore_NT: ArrayLike,
        evaluation_policy_action_dist_NTA: ArrayLike,
        state_action_value_prediction_NTA: ArrayLike | None = None,
        **fields: Any,
    ) -> "LoggedEpisodes":
        """Read episodes as scope-rl stores them, reshaped to [..., N, T(, A)]; pscore = mu(a_t | s_t).

        Raises UserError for propensities outside (0, 1], for action distributions with negative entries or a
        sum other than 1, and for actions outside them.
        """
        mask = fields.get("mask_NT")
        if mask is not None and np.shape(mask) != np.shape(reward_NT):
            raise UserError(f"mask_NT has shape {np.shape(mask)}, but reward_NT has {np.shape(reward_NT)}.")
        given = (action_NT, pscore_NT, evaluation_policy_action_dist_NTA, state_action_value_prediction_NTA)
        if np.size(reward_NT) >= logged_rounds.COMPILED_FROM:
            read = logged_rounds.read_at_once(np.asarray(reward_NT), *given, mask)
            if read is not None:
                return cls(reward_NT=reward_NT, **_episode_fields(read), **fields)
        target_NTA = np.asarray(evaluation_policy_action_dist_NTA, dtype=np.float64)
        pscore_xNT = np.asarray(pscore_NT, dtype=np.float64)
        inside = np.ones(pscore_xNT.shape, dtype=bool) if mask is None else np.asarray(mask, dtype=bool)
        if (inside & ~((pscore_xNT > 0) & (pscore_xNT <= 1))).any():
            raise UserError(
                "pscore_NT has values outside (0, 1]; give the chance mu had of the logged action."
            )
        total_NT = target_NTA @ np.ones(target_NTA.shape[-1])
        law_NT = (np.abs(total_NT - 1.0) <= logged_rounds.SUM_TOLERANCE) & (target_NTA.min(-1) >= 0.0)
        if (inside & ~law_NT).any():
            raise UserError(
                "evaluation_policy_action_dist_NTA has negative entries or rows that do not sum to 1."
            )
        chosen_NT1 = np.where(inside, np.asarray(action_NT, dtype=np.int64), 0)[..., None]
        if chosen_NT1.min() < 0 or chosen_NT1.max() >= target_NTA.shape[-1]:
            raise UserError(
                f"action_NT runs from {chosen_NT1.min()} to {chosen_NT1.max()}, but "
                f"evaluation_policy_action_dist_NTA has {target_NTA.shape[-1]} actions."
            )
        target_NT = np.take_along_axis(target_NTA, chosen_NT1, -1)[..., 0]
        with np.errstate(divide="ignore", invalid="ignore"):  # -inf is intended; padding is dropped later
            fields["log_rho_NT"] = np.log(target_NT / pscore_xNT)
        if state_action_value_prediction_NTA is not None:
            q_NTA = np.asarray(state_action_value_prediction_NTA, dtype=np.float64)
            fields["q_NT"] = np.take_along_axis(q_NTA, chosen_NT1, -1)[..., 0]
            fields["v_NT"] = np.einsum("...a,...a->...", target_NTA, q_NTA)
        return cls(reward_NT=reward_NT, action_NT=np.asarray(action_NT), **fields)

    def with_model(self, q_TSA: Floats) -> "LoggedEpisodes":
        """Return the episodes with q_NT and v_NT read from Qhat [..., T, S, A]; V is under pi, not mu.

        The leading axes of q_TSA are those of the data, or absent. DR is unbiased only if Qhat was not fitted
        on these episodes.
        """
        state_NT, action_NT = self.demand("state_NT"), self.demand("action_NT")
        v_TS = (q_TSA * self.demand("pi_SA")).sum(-1)
        lead, time_T = q_TSA.shape[:-3], np.arange(self.steps)
        at = tuple(axis[..., None, None] for axis in np.ogrid[tuple(slice(n) for n in lead)]) if lead else ()
        found = copy.copy(self)  # keeps weights already computed: they do not depend on the model
        found.__dict__.pop("model_sums", None)
        found._set("q_NT", q_TSA[(*at, time_T, state_NT, action_NT)])
        found._set("v_NT", v_TS[(*at, time_T, state_NT)])
        found._numbers("q_NT")
        found._numbers("v_NT")
        return found

    def demand(self, name: str) -> NDArray[Any]:
        """Return a field; raise UserError if it was not given."""
        found = getattr(self, name)
        if found is None:
            raise UserError(f"This estimator needs {name}; give it to LoggedEpisodes.")
        return np.asarray(found)

    @property
    def steps(self) -> int:
        """T."""
        return int(self.reward_NT.shape[-1])

    @property
    def live_NT(self) -> Bools:
        """The mask, all True when none was given."""
        return np.ones(self.reward_NT.shape, dtype=bool) if self.mask_NT is None else self.mask_NT

    @cached_property
    def discount_T(self) -> Floats:
        """gamma^t, [T]."""
        return self.gamma ** np.arange(self.steps, dtype=np.float64)

    @cached_property
    def return_N(self) -> Floats:
        """sum_t gamma^t r_t, [..., N]."""
        return self.reward_NT @ self.discount_T

    @cached_property
    def rho_NT(self) -> Floats:
        """pi/mu of the logged actions, [..., N, T]; inf beyond double precision, 0 only where pi is 0."""
        with np.errstate(over="ignore"):
            rho_NT = np.exp(self.log_rho_NT)
        # A ratio that underflows to 0 would look like an action that pi never takes.
        rho_NT[(rho_NT == 0.0) & (self.log_rho_NT > -np.inf)] = np.nextafter(0.0, 1.0)
        return rho_NT

    @property
    def large(self) -> bool:
        """True if a compiled pass takes the sums over steps."""
        return self.reward_NT.size >= logged_rounds.COMPILED_FROM

    @cached_property
    def sums(self) -> StepSums | None:
        """Sums of large data without a model; None for small data, or if they need logarithms."""
        return step_sums(self.rho_NT, self.reward_NT, self.discount_T, None, None) if self.large else None

    @cached_property
    def model_sums(self) -> StepSums | None:
        """The same sums with q_NT and v_NT."""
        if not self.large:
            return None
        model_NT = self.demand("q_NT"), self.demand("v_NT")
        return step_sums(self.rho_NT, self.reward_NT, self.discount_T, *model_NT)

    @cached_property
    def log_weight_NT(self) -> Floats:
        """log w_{0:t}, [..., N, T]; constant once the episode is over."""
        return np.cumsum(self.log_rho_NT, axis=-1)

    @cached_property
    def weight_NT(self) -> Floats:
        """w_{0:t}, [..., N, T]; UserError on overflow, because sums of weights would be meaningless."""
        return _weights(self.log_weight_NT)

    @cached_property
    def share_NT(self) -> Floats:
        """Each episode's w_{0:t} over the sum over episodes, [..., N, T]; columns sum to 1.

        Raises UserError where every weight of a step is 0.
        """
        return _shares(self.log_weight_NT, axis=-2)

    @cached_property
    def whole_weight_N(self) -> Floats:
        """w_{0:T-1}, [..., N], without the weights of shorter prefixes; errors as in weight_NT."""
        return _weights(self.log_rho_NT.sum(-1)) if self.sums is None else self.sums.weight_N

    @cached_property
    def whole_share_N(self) -> Floats:
        """w_{0:T-1} / sum over episodes, [..., N]; errors as in weight_NT."""
        if self.sums is not None and self.sums.divisible:
            return self.sums.share_N
        return _shares(self.log_rho_NT.sum(-1), axis=-1)


def _episode_fields(read: dict[str, Any]) -> dict[str, Any]:
    """Compute the fields of LoggedEpisodes from the data of all steps, in one pass."""
    with np.errstate(divide="ignore", invalid="ignore"):  # padding is dropped later
        rho_NT = np.divide(read["target_N"], read["pscore_N"], out=read["target_N"])
    found = {"action_NT": read["action_N"], "log_rho_NT": _LogOf(rho_NT)}
    return found | ({"q_NT": read["q_N"], "v_NT": read["q_pi_N"]} if "q_N" in read else {})


def _weights(log_weight_x: Floats) -> Floats:
    # exp overflows at 709.8; the room below is for sums over episodes, and products with rewards.
    if log_weight_x.max() > 700.0:
        raise UserError(
            f"A prefix weight is exp({log_weight_x.max():.0f}), beyond double precision; "
            "take a self-normalized estimator, or a closer behavior policy."
        )
    return np.exp(log_weight_x)


def _shares(log_weight_x: Floats, axis: int) -> Floats:
    top_x = log_weight_x.max(axis=axis, keepdims=True)
    if np.isneginf(top_x).any():
        raise UserError(
            f"All {log_weight_x.shape[axis]} weights of a step are 0: pi takes none of these actions. "
            "Log more episodes, or use an estimator without normalization."
        )
    scaled_x = np.exp(log_weight_x - top_x)
    scaled_x /= scaled_x.sum(axis=axis, keepdims=True)
    return scaled_x


def before(weight_NT: Floats, first: float) -> Floats:
    """Return the previous step's weight, [..., N, T]; `first` at t = 0."""
    start_N1 = np.full_like(weight_NT[..., :1], first)
    return np.concatenate([start_N1, weight_NT[..., :-1]], axis=-1)


def after(value_NT: Floats) -> Floats:
    """Return the next step's value, [..., N, T]; 0 after the last step."""
    return np.concatenate([value_NT[..., 1:], np.zeros_like(value_NT[..., :1])], axis=-1)
