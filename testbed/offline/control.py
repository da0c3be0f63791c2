"""TD3 for linear-quadratic control: replay, twin quadratic critics, delayed actors.

Q(x, u) is a quadratic form in z = (x, u) and a constant. It contains the true Q of every linear policy, which
isolates the effects of replay, batch size, update ratio and exploration.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from envs.arrays import Floats
from envs.continuous import LQR, normals
from testbed.errors import UserError


def quadratic_features(x_xD: Floats, u_xU: Floats) -> Floats:
    """z_i z_j for i <= j, and 1, of z = (x, u): [x, (D + U)(D + U + 1)/2 + 1].

    Source: Bradtke (1993), the quadratic Q of a linear policy.
    """
    z_xZ = np.concatenate([x_xD, u_xU], axis=-1)
    row, column = np.triu_indices(z_xZ.shape[-1])
    return np.concatenate([z_xZ[..., row] * z_xZ[..., column], np.ones_like(z_xZ[..., :1])], axis=-1)


def quadratic_form(weight_xF: Floats, size: int) -> tuple[Floats, Floats]:
    """Symmetric H [x, Z, Z] and constant [x]: Q = z.H z + constant, from `quadratic_features` weights."""
    row, column = np.triu_indices(size)
    upper_xZZ = np.zeros((*weight_xF.shape[:-1], size, size))
    upper_xZZ[..., row, column] = weight_xF[..., :-1]
    return (upper_xZZ + np.swapaxes(upper_xZZ, -1, -2)) / 2, weight_xF[..., -1]


@dataclass
class Adam:
    """Adam (Kingma & Ba 2015) with decays 0.9 and 0.99, for arrays that are updated together."""

    rate: Floats
    mean: list[Floats]
    square: list[Floats]
    count: int = 0

    @classmethod
    def of(cls, rate: ArrayLike, arrays: list[Floats]) -> "Adam":
        """Start the moments at 0; rate: a number or [R], the first axis of every array."""
        mean, square = ([np.zeros_like(x) for x in arrays] for _ in range(2))
        return cls(np.asarray(rate, np.float64), mean, square)

    def __call__(self, slopes: list[Floats]) -> list[Floats]:
        """Return the gradient step to subtract from the arrays."""
        self.count += 1
        moves = []
        for i, slope in enumerate(slopes):
            self.mean[i] = 0.9 * self.mean[i] + 0.1 * slope
            self.square[i] = 0.99 * self.square[i] + 0.01 * slope**2
            rate = self.rate.reshape(self.rate.shape + (1,) * (slope.ndim - self.rate.ndim))
            root = np.sqrt(self.square[i] / (1 - 0.99**self.count)) + 1e-8
            moves.append(rate * self.mean[i] / (1 - 0.9**self.count) / root)
        return moves


@dataclass(frozen=True)
class Settings:
    """Settings of a run; `updates` per step may be a fraction.

    players: copies of the world that step together; batch: drawn steps per update; delay: critic updates per
    actor update; polyak: share of the new weights in the targets; smoothing, smoothing_clip: noise on the
    target's action; exploration: standard deviation of the behavior's noise; horizon: steps to a new start.
    """

    steps: int = 200
    every: int = 20
    players: int = 8
    batch: int = 64
    updates: float = 1.0
    delay: int = 2
    polyak: float = 0.02
    smoothing: float = 0.1
    smoothing_clip: float = 0.2
    exploration: float = 1.0
    horizon: int = 25
    limit: float = 10.0
    capacity: int = 20_000
    critic_rate: float = 0.1
    actor_rate: float = 0.02


def td3(world: LQR, key_R: NDArray[np.uint64], settings: Settings) -> Floats:
    """Gains [E, R, U, D] of the learned policy, recorded every `every` steps.

    u = -K x + noise, K from 0. Twin critics regress on y = r + discount min_i Q_i'(x', u'), u' the target
    actor's action with clipped noise; the actor ascends Q_1 at its actions. Source: Fujimoto, van Hoof &
    Meger (2018), algorithm 1.
    """
    run = _Run(world, np.asarray(key_R, np.uint64), settings)
    credit, gains = 0.0, []
    for step in range(settings.steps):
        run.play(step)
        credit += settings.updates
        while credit >= 1.0:
            credit -= 1.0
            run.learn()
        if (step + 1) % settings.every == 0:
            gains.append(run.gain_RUD)
    return np.stack(gains)


class _Run:
    """The state of `td3`."""

    def __init__(self, world: LQR, key_R: NDArray[np.uint64], settings: Settings) -> None:
        if settings.batch < 1 or settings.updates < 0:
            raise UserError("Expected batch >= 1 and updates >= 0.")
        self.world, self.key_R, self.set = world, key_R, settings
        cells, (d, u) = len(key_R), world.b_DU.shape
        self.gain_RUD = np.zeros((cells, u, d))
        features = (d + u) * (d + u + 1) // 2 + 1
        self.critic_R2F = np.zeros((cells, 2, features))
        self.target_R2F, self.slow_RUD = self.critic_R2F.copy(), self.gain_RUD.copy()
        self.critic_step = Adam.of(settings.critic_rate, [self.critic_R2F])
        self.actor_step = Adam.of(settings.actor_rate, [self.gain_RUD])
        size = settings.capacity
        self.memory = [np.zeros((cells, size, n)) for n in (d, u, 1, d)]
        self.filled = self.updates_done = self.drawn = 0
        self.x_RND = world.starts(self._normals(settings.players, d))

    def _normals(self, rows: int, columns: int) -> Floats:
        self.drawn += 1
        return normals(self.key_R, self.drawn, rows, columns)

    def play(self, step: int) -> None:
        d, u = self.world.b_DU.shape
        noise_RNX = self._normals(self.set.players, 2 * d + u)
        u_RNU = _acted(self.gain_RUD, self.x_RND) + self.set.exploration * noise_RNX[..., :u]
        next_RND, reward_RN = self.world.step(self.x_RND, u_RNU, noise_RNX[..., u : u + d])
        place = (self.filled + np.arange(self.set.players)) % self.set.capacity
        for stored, new in zip(self.memory, (self.x_RND, u_RNU, reward_RN[..., None], next_RND), strict=True):
            stored[:, place] = new
        self.filled += self.set.players
        # An unstable policy's cost is unbounded: restart the episode far from the origin.
        over = (step + 1) % self.set.horizon == 0
        far_RN1 = (np.abs(next_RND) > self.set.limit).any(-1, keepdims=True) | over
        self.x_RND = np.where(far_RN1, self.world.starts(noise_RNX[..., u + d :]), next_RND)

    def _batch(self) -> list[Floats]:
        from envs import kernels

        self.drawn += 1
        uniform_RN = kernels.uniforms(self.key_R, self.drawn, self.set.batch, 1)[..., 0]
        row_R1, size = np.arange(len(self.key_R))[:, None], min(self.filled, self.set.capacity)
        return [stored[row_R1, (uniform_RN * size).astype(np.int64)] for stored in self.memory]

    def aims(self, reward_RN: Floats, next_RND: Floats, noise_RNU: Floats) -> Floats:
        """y = r + discount min_i Q_i'(x', u'), [R, N]; noise_RNU makes u'."""
        clip = self.set.smoothing_clip
        then_RNU = _acted(self.slow_RUD, next_RND) + np.clip(self.set.smoothing * noise_RNU, -clip, clip)
        ahead_RN2 = quadratic_features(next_RND, then_RNU) @ np.swapaxes(self.target_R2F, -1, -2)
        return np.asarray(reward_RN + self.world.discount * ahead_RN2.min(-1))

    def learn(self) -> None:
        x_RND, u_RNU, reward_RN1, next_RND = self._batch()
        noise_RNU = self._normals(self.set.batch, u_RNU.shape[-1])
        aim_RN = self.aims(reward_RN1[..., 0], next_RND, noise_RNU)
        phi_RNF = quadratic_features(x_RND, u_RNU)
        error_RN2 = phi_RNF @ np.swapaxes(self.critic_R2F, -1, -2) - aim_RN[..., None]
        slope_R2F = np.swapaxes(error_RN2, -1, -2) @ phi_RNF / self.set.batch
        self.critic_R2F = self.critic_R2F - self.critic_step([slope_R2F])[0]
        self.updates_done += 1
        if self.updates_done % self.set.delay == 0:
            self._improve(x_RND)
        self.target_R2F = self.target_R2F + self.set.polyak * (self.critic_R2F - self.target_R2F)
        self.slow_RUD = self.slow_RUD + self.set.polyak * (self.gain_RUD - self.slow_RUD)

    def _improve(self, x_RND: Floats) -> None:
        """Ascend Q_1 at u = -K x: dQ/dK = -E[dQ/du x.]."""
        d, u = self.world.b_DU.shape
        h_RZZ, _ = quadratic_form(self.critic_R2F[:, 0], d + u)
        self.drawn += 1  # no noise is drawn here any more; committed tables were made when one was
        u_RNU = _acted(self.gain_RUD, x_RND)
        by_u_RNU = 2 * np.concatenate([x_RND, u_RNU], axis=-1) @ h_RZZ[..., d:]
        by_gain_RUD = np.einsum("rnu,rnd->rud", by_u_RNU, x_RND) / x_RND.shape[1]
        self.gain_RUD = self.gain_RUD - self.actor_step([by_gain_RUD])[0]


def _acted(gain_RUD: Floats, x_RND: Floats) -> Floats:
    return -np.einsum("rud,rnd->rnu", gain_RUD, x_RND)
