"""Checks of a finite MDP: each error gives the input, the expected one and what to do."""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from envs.arrays import Bools, Floats, Ints, Keys
from envs.tables import NOISE_KINDS

_SUM_TOLERANCE = 1e-6
_FOR_KERNELS: tuple[Literal["C", "W", "A"], ...] = ("C", "W", "A")


def check_shapes(
    transition_SAS: Floats, reward_SA: Floats, start_S: Floats, terminal_S: Bools, bonus_S: Floats
) -> None:
    """Raise ValueError unless all arrays agree on S and A, and both are at least 1."""
    shape = transition_SAS.shape
    if len(shape) != 3 or shape[0] != shape[2] or 0 in shape:
        raise ValueError(
            f"transition_SAS has shape {transition_SAS.shape}, expected (S, A, S): one row over next states "
            "for each state and action."
        )
    states, actions = transition_SAS.shape[:2]
    vectors = dict.fromkeys(("start_S", "terminal_S", "bonus_S"), (states,))
    expected = {"reward_SA": (states, actions)} | vectors
    given = {"reward_SA": reward_SA, "start_S": start_S, "terminal_S": terminal_S, "bonus_S": bonus_S}
    for name, shape in expected.items():
        if np.shape(given[name]) != shape:
            raise ValueError(
                f"{name} has shape {np.shape(given[name])}, but transition_SAS {transition_SAS.shape} "
                f"calls for {shape}."
            )


def check_distributions(name: str, mass_xK: Floats, advice: str) -> None:
    """Raise ValueError naming the first row of `mass_xK` that is not a probability distribution."""
    total_x = mass_xK.sum(axis=-1)
    # Written so that NaN fails: comparisons with NaN are False.
    good_x = (np.abs(total_x - 1.0) <= _SUM_TOLERANCE) & (mass_xK.min(axis=-1) >= 0.0)
    if not good_x.all():
        first = tuple(int(i) for i in np.argwhere(~good_x)[0])
        raise ValueError(
            f"{name}[{', '.join(map(str, first)) or ':'}] = {np.array2string(mass_xK[first], threshold=8)} "
            f"sums to {float(total_x[first]):.6g}; expected entries >= 0 that sum to 1 "
            f"(within {_SUM_TOLERANCE:g}). {advice}"
        )


def check_dynamics(transition_SAS: Floats, start_S: Floats, terminal_S: Bools) -> None:
    """Raise ValueError unless rows are distributions and no episode starts in a terminal state."""
    check_distributions(
        "transition_SAS", transition_SAS, "Give every state-action pair a distribution of next states."
    )
    check_distributions("start_S", start_S, "Give a distribution of start states.")
    ended = np.flatnonzero(terminal_S & (start_S > 0.0))
    if ended.size:
        raise ValueError(
            f"start_S puts mass {start_S[ended[0]]:g} on state {ended[0]}, which is terminal; "
            "start elsewhere."
        )


def check_rewards(reward_SA: Floats, bonus_S: Floats, noise: str, noise_std: float | Floats) -> None:
    """Raise ValueError for a non-finite reward, an unknown noise or a Bernoulli mean outside [0, 1]."""
    if not (np.isfinite(reward_SA).all() and np.isfinite(bonus_S).all()):
        raise ValueError("reward_SA and bonus_S must be finite; replace the NaN or infinite entries.")
    if noise not in NOISE_KINDS:
        raise ValueError(f"noise is {noise!r}, expected one of {', '.join(map(repr, NOISE_KINDS))}.")
    if noise == "bernoulli" and not ((reward_SA >= 0.0) & (reward_SA <= 1.0)).all():
        raise ValueError(
            f"noise 'bernoulli' reads reward_SA as probabilities, but it spans [{reward_SA.min():g}, "
            f"{reward_SA.max():g}]; rescale it into [0, 1] or use noise 'normal'."
        )
    if np.shape(noise_std) not in ((), reward_SA.shape):
        raise ValueError(
            f"noise_std has shape {np.shape(noise_std)}, expected a number or one for each state and action, "
            f"{reward_SA.shape}."
        )
    if noise == "normal" and not (np.isfinite(noise_std) & (np.asarray(noise_std) >= 0.0)).all():
        raise ValueError(f"noise_std is {noise_std!r}, expected a finite number >= 0.")


def check_time(horizon: int, discount: float) -> None:
    """Raise ValueError unless horizon >= 1 and 0 <= discount <= 1."""
    if not (isinstance(horizon, int | np.integer) and horizon >= 1):
        raise ValueError(
            f"horizon is {horizon!r}, expected a whole number >= 1; for discounted values without an end "
            "see envs.infinite_horizon."
        )
    if not 0.0 <= discount <= 1.0:
        raise ValueError(f"discount is {discount!r}, expected a number in [0, 1].")


def as_policies(name: str, pi_xSA: ArrayLike, states: int, actions: int) -> Floats:
    """Return the policies as one float64 array [R, S, A] for kernels; ValueError for other shapes or rows."""
    # Writable, because for read-only arrays every kernel is compiled again, which takes seconds.
    pi = np.require(pi_xSA, np.float64, _FOR_KERNELS)
    if pi.ndim < 2 or pi.shape[-2:] != (states, actions):
        raise ValueError(
            f"{name} has shape {pi.shape}, but this world has {states} states and {actions} actions: "
            f"expected (..., {states}, {actions})."
        )
    check_distributions(name, pi, "Pass probabilities, not logits, and drop diverged replicas.")
    return pi.reshape(-1, states, actions)


def check_pairs(pi_shape: tuple[int, ...], mu_shape: tuple[int, ...]) -> None:
    """Raise ValueError unless there is one mu for each pi."""
    if pi_shape != mu_shape:
        raise ValueError(f"pi has shape {pi_shape}, but mu has {mu_shape}: give one mu for each pi.")


def as_starts_and_keys(
    start_RN: ArrayLike, key_R: ArrayLike, replicas: int, terminal_S: Bools
) -> tuple[Ints, Keys]:
    """Return starts [R, N] and keys [R] for kernels; ValueError unless R agrees and every start is alive."""
    start = np.require(start_RN, np.int64, _FOR_KERNELS)
    key = np.require(key_R, np.uint64, _FOR_KERNELS)
    if start.ndim != 2 or start.shape[0] != replicas or key.shape != (replicas,):
        raise ValueError(
            f"there are {replicas} policies, start_RN has shape {start.shape} and key_R {key.shape}: "
            f"expected ({replicas}, N) and ({replicas},)."
        )
    if start.size and (start.min() < 0 or start.max() >= len(terminal_S) or terminal_S[start].any()):
        raise ValueError(
            f"start_RN holds states from {start.min()} to {start.max()}, expected 0 to {len(terminal_S) - 1} "
            "without terminal states; use start()."
        )
    return start, key


def as_versions(version_RBT: ArrayLike, shape: tuple[int, int, int], versions: int) -> Ints:
    """Return versions as int64 of shape [R, B, T]; ValueError for other shapes, types and numbers."""
    given = np.asarray(version_RBT)
    if given.ndim != 3 or any(n not in (1, wanted) for n, wanted in zip(given.shape, shape, strict=True)):
        raise ValueError(
            f"version_RBT has shape {given.shape}, expected {shape} = [R, B, T], or 1 along axes that agree."
        )
    if given.dtype.kind not in "iu" or not (given.min() >= 0 and given.max() < versions):
        raise ValueError(
            f"version_RBT holds {given.dtype} from {given.min()} to {given.max()}, expected whole numbers "
            f"from 0 to {versions - 1}: there are {versions} policies for each replica."
        )
    return np.broadcast_to(given.astype(np.int64, copy=False), shape)


def raise_unsupported(pi_RSA: Floats, mu_RSA: Floats, visits_RS: Floats) -> None:
    """Raise ValueError naming the first state that pi visits and its action there with mu = 0."""
    missing_RSA = (pi_RSA > 0.0) & (mu_RSA == 0.0) & (visits_RS > 0.0)[..., None]
    replica, state, action = (int(i) for i in np.argwhere(missing_RSA)[0])
    raise ValueError(
        f"mu never takes action {action} in state {state}, but pi does with probability "
        f"{pi_RSA[replica, state, action]:g} (policy {replica}): the ratio is infinite. "
        'Give mu mass there, or ask for unsupported="infinite".'
    )
