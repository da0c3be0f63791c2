"""Logged bandit rounds, checked once; all bandit estimators share the weights computed here."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.arrays import Floats, Ints
from testbed.errors import UserError
from testbed.estimators import Estimate, mean_of_terms

SUM_TOLERANCE = 1e-6
"""Tolerance on the sum of a row of action probabilities."""
COMPILED_FROM = 100_000
"""Rounds from which one compiled pass reads the arrays; below, numpy ends before Numba has loaded."""

_BLOCK = 8192


class _LogRatio:
    """log pi/mu, computed on first access unless it was given."""

    def __get__(self, data: Any, owner: type | None = None) -> Any:
        if data is not None:
            data.__dict__["log_w_N"] = _log_ratio(data.target_N, data.pscore_N)
        return None if data is None else data.__dict__["log_w_N"]


@dataclass(frozen=True, eq=False)
class Logged:
    """N independent logged rounds [..., N]; leading axes are separate data sets. Make it with `logged`.

    reward_N, log_w_N: rewards and log pi(a|x)/mu(a|x), -inf where pi = 0. Without log_w_N it is computed from
    target_N and pscore_N on first access.
    pscore_N, target_N: mu(a|x) and pi(a|x).
    q_N, q_pi_N: model q(x, a) of the logged action and sum_a pi(a|x) q(x, a).
    embedding_log_w_N: log p(e|x, pi)/p(e|x, mu).
    feature_ND, feature_pi_ND: [..., N, D] features of the logged action, and their mean under pi.
    instrument_N, action_N, context_N: integers. action_dist_NA: pi [..., N, A].
    """

    reward_N: Floats
    log_w_N: Floats = cast(Floats, _LogRatio())  # noqa: RUF009 -- the class attribute stays a descriptor
    pscore_N: Floats | None = None
    target_N: Floats | None = None
    q_N: Floats | None = None
    q_pi_N: Floats | None = None
    embedding_log_w_N: Floats | None = None
    feature_ND: Floats | None = None
    feature_pi_ND: Floats | None = None
    instrument_N: Ints | None = None
    action_N: Ints | None = None
    context_N: Ints | None = None
    action_dist_NA: Floats | None = None

    def __post_init__(self) -> None:
        shape = self.reward_N.shape
        _check_reward(self.reward_N)
        if self.log_w_N is None:
            self.need("logged", "target_N", "pscore_N")
            # An entry in the instance would hide the descriptor, which computes it on first access.
            del self.__dict__["log_w_N"]
        for name, value in self.given.items():
            _check_shape(name, value, shape)
        for name in ("log_w_N", "embedding_log_w_N"):
            if name in self.given and not (self.given[name] < np.inf).all():
                raise UserError(
                    f"{name} is +inf or NaN: mu gives a logged action no probability, or 0/0 was taken. "
                    "A logged action has mu > 0; correct the propensities."
                )

    @property
    def given(self) -> dict[str, NDArray[Any]]:
        """Fields that are present; log_w_N counts only once it was computed."""
        return {f.name: vars(self)[f.name] for f in fields(self) if vars(self).get(f.name) is not None}

    def need(self, name: str, *wanted: str) -> tuple[NDArray[Any], ...]:
        """Return the fields; raise UserError naming the estimator and the first missing field."""
        for field in wanted:
            if getattr(self, field) is None:
                raise UserError(f"'{name}' needs {field}, {NEEDS[field]}. Give it to logged().")
        return tuple(getattr(self, field) for field in wanted)

    @cached_property
    def weight_N(self) -> Floats:
        """w = pi/mu; infinite where only a log-weight above 709 is known."""
        if self.target_N is not None and self.pscore_N is not None:
            return self.target_N / self.pscore_N
        with np.errstate(over="ignore"):
            return np.exp(self.log_w_N)

    @property
    def large(self) -> bool:
        """True if values are computed without arrays of terms."""
        return self.reward_N.size >= COMPILED_FROM

    @cached_property
    def residual_N(self) -> Floats:
        """r - q(x, a)."""
        (q_N,) = self.need("residual_N", "q_N")
        return self.reward_N - q_N

    @cached_property
    def direct(self) -> Floats:
        """(1/N) sum q(x, pi) [...]."""
        (q_pi_N,) = self.need("direct", "q_pi_N")
        return np.asarray(q_pi_N.mean(-1))

    @cached_property
    def mean_weight(self) -> Floats | None:
        """(1/N) sum w [...]; None unless probabilities are known and the mean can be divided by."""
        if "log_w_N" in vars(self):
            return None
        mean = np.asarray(self.weight_N.mean(-1))
        return mean if (np.isfinite(mean) & (mean > np.finfo(np.float64).tiny)).all() else None

    @cached_property
    def share_N(self) -> Floats:
        """N w / sum w."""
        mean = self.mean_weight
        return normalized(self.log_w_N) if mean is None else self.weight_N / mean[..., None]

    def normalized_mean(self, x_N: Floats) -> Floats:
        """sum w x / sum w [...]."""
        mean = self.mean_weight
        value = None if mean is None else mean_product(self.weight_N, x_N)
        return np.asarray((self.share_N * x_N).mean(-1) if mean is None or value is None else value / mean)

    def take(self, index_M: Ints) -> "Logged":
        """Return rounds index [M] of the last axis, in all fields alike, to resample a bootstrap."""
        axis = self.reward_N.ndim - 1
        taken: dict[str, Any] = {name: np.take(value, index_M, axis) for name, value in self.given.items()}
        # Without the None, replace() would read log-weights that may never be needed, and compute them.
        return replace(self, **{"log_w_N": None, **taken})


def normalized(log_w_N: Floats) -> Floats:
    """N w / sum w [..., N], from log-weights of any size; UserError where all weights of a data set are 0."""
    peak = log_w_N.max(-1, keepdims=True)
    if not (peak > -np.inf).all():
        raise UserError(
            "The weights of a data set sum to 0: the target takes none of its logged actions. Log more "
            "rounds, or use an estimator that is not self-normalized."
        )
    shifted_N: Floats = np.exp(log_w_N - peak)
    return shifted_N / shifted_N.mean(-1, keepdims=True)


NEEDS = {
    "target_N": "the target's chance of the logged actions, or log_w_N",
    "pscore_N": "the propensities mu(a|x) of the logged actions (pscore=)",
    "q_N": "a reward model (estimated_rewards_by_reg_model=)",
    "q_pi_N": "a reward model (estimated_rewards_by_reg_model=)",
    "embedding_log_w_N": "the marginal weights of the embedding (see estimators.embedding)",
    "feature_ND": "features of the logged action (feature=)",
    "feature_pi_ND": "the features' mean under pi (feature_pi=)",
    "instrument_N": "an instrument in {0, 1} (instrument=)",
    "action_N": "the logged actions (action=)",
    "action_dist_NA": "the target policy (action_dist=)",
}
_MORE = {
    "log_embedding_weight": "embedding_log_w_N",
    "feature": "feature_ND",
    "feature_pi": "feature_pi_ND",
    "instrument": "instrument_N",
    "context": "context_N",
}
_LABELS = {"instrument", "context"}


def logged(
    *,
    reward: ArrayLike,
    action: ArrayLike | None = None,
    pscore: ArrayLike | None = None,
    action_dist: ArrayLike | None = None,
    log_weight: ArrayLike | None = None,
    estimated_rewards_by_reg_model: ArrayLike | None = None,
    behavior_dist: ArrayLike | None = None,
    **more: ArrayLike,
) -> Logged:
    """Return checked data. Names are obp's; leading axes are replicates, and there are no positions.

    Args:
        reward: [..., N].
        action: the logged actions, integers [..., N].
        pscore: mu of the logged action [..., N]; taken from behavior_dist by default.
        action_dist: the target policy pi [..., N, A]; rows sum to 1.
        log_weight: log pi/mu [..., N] instead of action, pscore and action_dist.
        estimated_rewards_by_reg_model: reward model q [..., N, A].
        behavior_dist: the logging policy mu [..., N, A]; checked to cover pi.
        more: log_embedding_weight, feature, feature_pi, instrument, context: the other fields of Logged.

    Raises UserError for input that does not fit; it names the first offender.
    """
    if unknown := set(more) - set(_MORE):
        raise UserError(f"logged() has no argument {sorted(unknown)}; see its docstring.")
    for name in _LABELS & set(more):
        if not (np.asarray(more[name]) == np.rint(more[name])).all():
            raise UserError(f"{name} holds a number that is not whole; expected integer labels.")
    extra: dict[str, Any] = {
        _MORE[name]: np.asarray(value, dtype=np.int64 if name in _LABELS else np.float64)
        for name, value in more.items()
    }
    if not (log_weight is None or action is None or action_dist is None):
        raise UserError("log_weight and action with action_dist both give the weights; leave one out.")
    reward_N = np.asarray(reward, dtype=np.float64)
    if behavior_dist is None and reward_N.size >= COMPILED_FROM:
        given = (action, pscore, action_dist, estimated_rewards_by_reg_model)
        found = read_at_once(reward_N, *given)
        if found is not None:
            return Logged(reward_N, **found, **extra)
    _check_reward(reward_N)
    pscore_N = None if pscore is None else np.asarray(pscore, dtype=np.float64)
    if action is None or action_dist is None:
        if log_weight is None:
            raise UserError("Give log_weight, or action and action_dist with pscore or behavior_dist.")
        if estimated_rewards_by_reg_model is not None:
            raise UserError("estimated_rewards_by_reg_model needs action and action_dist, not log_weight.")
        return Logged(reward_N, np.asarray(log_weight, dtype=np.float64), _propensity(pscore_N), **extra)
    action_N = np.asarray(action)
    pi_NA = _distribution("action_dist", action_dist, reward_N.shape)
    _check_actions(action_N, reward_N.shape, pi_NA.shape[-1])
    if behavior_dist is not None:
        mu_NA = _distribution("behavior_dist", behavior_dist, reward_N.shape)
        check_support(pi_NA, mu_NA)
        pscore_N = _of_action(mu_NA, action_N) if pscore_N is None else pscore_N
    if pscore_N is None:
        raise UserError("The weights need the propensities mu(a|x): give pscore or behavior_dist.")
    pscore_N = _propensity(pscore_N)
    assert pscore_N is not None
    target_N = _of_action(pi_NA, action_N)
    log_w_N = _log_ratio(target_N, pscore_N)
    if estimated_rewards_by_reg_model is not None:
        q_NA = np.asarray(estimated_rewards_by_reg_model, dtype=np.float64)
        if q_NA.shape != pi_NA.shape:
            raise UserError(
                f"estimated_rewards_by_reg_model has shape {q_NA.shape}, action_dist {pi_NA.shape}; "
                "they must agree."
            )
        extra |= {"q_N": _of_action(q_NA, action_N), "q_pi_N": np.einsum("...a,...a->...", pi_NA, q_NA)}
    return Logged(reward_N, log_w_N, pscore_N, target_N, action_N=action_N, action_dist_NA=pi_NA, **extra)


def read_at_once(
    reward_N: Floats,
    action: ArrayLike | None,
    pscore: ArrayLike | None,
    action_dist: ArrayLike | None,
    model: ArrayLike | None,
    live: ArrayLike | None = None,
) -> dict[str, Any] | None:
    """Read the fields in one compiled pass; return None if any needs the full checks of `logged`.

    Rounds that are not live, a mask of the rewards' shape, are not checked. The caller checks rewards.
    """
    action_N, pscore_N, pi_NA = (np.asarray(each) for each in (action, pscore, action_dist))
    live_N = np.empty(0, dtype=bool) if live is None else np.asarray(live, dtype=bool).ravel()
    q_NA = np.empty((0, 1)) if model is None else np.asarray(model)
    shapes = action_N.shape == pscore_N.shape == reward_N.shape == pi_NA.shape[:-1] and pi_NA.shape[-1] > 0
    if not shapes or (model is not None and q_NA.shape != pi_NA.shape):
        return None
    plain = all(each.flags.c_contiguous and each.dtype == np.float64 for each in (pscore_N, pi_NA, q_NA))
    if not (plain and action_N.flags.c_contiguous and action_N.dtype == np.int64):
        return None
    try:
        from testbed.estimators.compiled_passes import read_rounds
    except ImportError:
        return None
    rows, actions = reward_N.size, pi_NA.shape[-1]
    flat_q_NA = q_NA if model is None else q_NA.reshape(rows, actions)
    names = ("target_N", "q_N", "q_pi_N")[: 1 if model is None else 3]
    read_KN = np.empty((len(names), rows))
    flat_pi_NA = pi_NA.reshape(rows, actions)
    flat = (flat_pi_NA, action_N.ravel(), pscore_N.ravel(), flat_q_NA, live_N)
    if not read_rounds(*flat, SUM_TOLERANCE, read_KN):
        return None
    found = {name: each.reshape(reward_N.shape) for name, each in zip(names, read_KN, strict=True)}
    return {"pscore_N": pscore_N, "action_N": action_N, "action_dist_NA": pi_NA, **found}


def _log_ratio(target_N: Floats, pscore_N: Floats) -> Floats:
    with np.errstate(divide="ignore"):
        log_w_N: Floats = np.log(target_N / pscore_N)
    return log_w_N


def weighted(data: Logged, weight_N: Floats) -> Estimate:
    """(1/N) sum what_i r_i; UserError if a weight overflowed."""
    value = mean_product(weight_N, data.reward_N) if data.large else None
    if value is None:
        check_weights(weight_N)
    return mean_of_terms(lambda: weight_N * data.reward_N, weight_N, value)


def mean_product(
    weight_N: Floats, x_N: Floats, change: Callable[[Floats], Floats] | None = None
) -> Floats | None:
    """Return (1/N) sum what x, what = change(w), without an array of N; None if it is not finite.

    An infinite weight always makes it infinite or NaN.
    """
    n, total = x_N.shape[-1], np.zeros(x_N.shape[:-1])
    step = n if change is None else _BLOCK
    with np.errstate(invalid="ignore", over="ignore"):
        for start in range(0, n, step):
            part_N = weight_N[..., start : start + step]
            part_N = part_N if change is None else change(part_N)
            total = total + np.vecdot(part_N, x_N[..., start : start + step])
    return np.asarray(total / n) if np.isfinite(total).all() else None


def check_weights(weight_N: Floats) -> None:
    """Raise UserError when a weight overflowed."""
    if not weight_N.max() < np.inf:
        raise UserError(
            "A log-weight exceeds 709: its exponential overflows. Clip weights (clipped_ips, dr_ps) or "
            "normalize them (snips)."
        )


def check_unit(name: str, value: float) -> None:
    """Raise UserError unless a hyperparameter is in [0, 1]."""
    if not 0.0 <= value <= 1.0:
        raise UserError(f"{name} is {value:g}, expected 0 to 1.")


def check_not_negative(name: str, value: float) -> None:
    """Raise UserError unless a hyperparameter is at least 0."""
    if not value >= 0.0:
        raise UserError(f"{name} is {value:g}, expected at least 0.")


def check_support(pi_NA: Floats, mu_NA: Floats) -> None:
    """Raise UserError naming the first round and action with mu = 0 where pi > 0."""
    if pi_NA.shape != mu_NA.shape:
        raise UserError(f"action_dist has shape {pi_NA.shape}, behavior_dist {mu_NA.shape}: unequal.")
    missing_NA = (mu_NA <= 0) & (pi_NA > 0)
    if missing_NA.any():
        *row, action = (int(i) for i in np.argwhere(missing_NA)[0])
        raise UserError(
            f"behavior_dist gives action {action} probability 0 in round {row}, where action_dist gives it "
            f"{pi_NA[(*row, action)]:g}: no weight can make up for what is never logged. Log with a policy "
            "that covers the target, or restrict the target."
        )


def _check_reward(reward_N: Floats) -> None:
    if reward_N.ndim < 1 or reward_N.shape[-1] < 1:
        raise UserError(f"reward has shape {reward_N.shape}; expected [..., N] with a round at least.")
    if not np.isfinite(reward_N).all():
        raise UserError("reward is not finite everywhere; drop or correct those rounds.")


def _check_shape(name: str, value: NDArray[Any], shape: tuple[int, ...]) -> None:
    last = ", D" if name.startswith("feature") else ", A" if name == "action_dist_NA" else ""
    if value.shape[: len(shape)] != shape or value.ndim != len(shape) + bool(last):
        raise UserError(f"{name} has shape {value.shape}; expected {[*shape]}{last} as reward has.")


def _check_actions(action_N: NDArray[Any], shape: tuple[int, ...], actions: int) -> None:
    if action_N.shape != shape or not np.issubdtype(action_N.dtype, np.integer):
        raise UserError(
            f"action has shape {action_N.shape}, type {action_N.dtype}; expected integers {shape}."
        )
    if action_N.min() < 0 or action_N.max() >= actions:
        raise UserError(f"action is {action_N.min()} to {action_N.max()}; action_dist has {actions} actions.")


def _propensity(pscore_N: Floats | None) -> Floats | None:
    if pscore_N is not None and not ((pscore_N > 0) & (pscore_N <= 1)).all():
        index = tuple(int(i) for i in np.argwhere(~((pscore_N > 0) & (pscore_N <= 1)))[0])
        raise UserError(
            f"pscore is {pscore_N[index]:g} in round {list(index)}; expected above 0 and at most 1, as "
            "the action was logged. Record mu(a|x) when logging."
        )
    return pscore_N


def _distribution(name: str, given: ArrayLike, shape: tuple[int, ...]) -> Floats:
    dist_NA = np.asarray(given, dtype=np.float64)
    if dist_NA.ndim != len(shape) + 1 or dist_NA.shape[:-1] != shape:
        raise UserError(f"{name} has shape {dist_NA.shape}; expected {[*shape]}, A.")
    total_N = dist_NA @ np.ones(dist_NA.shape[-1])  # four times faster than sum(-1) of a short axis
    if not (dist_NA.min() >= 0 and np.abs(total_N - 1.0).max() <= SUM_TOLERANCE):
        raise UserError(f"{name} has rows that are not probabilities: expected entries >= 0 that sum to 1.")
    return dist_NA


def _of_action(value_NA: Floats, action_N: Ints) -> Floats:
    row_N = np.arange(action_N.size).reshape(action_N.shape)
    return value_NA.reshape(-1)[row_N * value_NA.shape[-1] + action_N]
