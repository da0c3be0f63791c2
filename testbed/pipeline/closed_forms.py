"""Closed forms of a pipeline: periods, mean lags, speed-ups, from exact moments of the length distribution.

Symbols: C slots, B batch, S group, L length, M_S longest of a group, u = T_tr / t_gen the load,
t_gen = B E[L] tau(C) / C the time to generate a batch without a straggler.
"""

import functools
import math
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from envs.arrays import Floats
from testbed.pipeline.design import Design
from testbed.pipeline.records import log_mean

NODES = 60
"""Gauss-Hermite nodes for the score that a group shares."""


@dataclass(frozen=True)
class Moments:
    """E[L], E[L^2], longest = E[M_S], cross = E[L M_S] with L a member, batch = E[max of B]."""

    mean: float
    square: float
    longest: float
    cross: float
    batch: float

    @property
    def tail(self) -> float:
        """Tail factor M_tail = E[M_S] / E[L]."""
        return self.longest / self.mean


OF_LENGTHS = ("length", "length_mean", "sigma", "max_length", "lengths", "correlation", "group", "batch")


def moments(design: Design) -> Moments:
    """Return the exact moments of the rounded, truncated and group-correlated length distribution."""
    return _moments(Design(**{name: getattr(design, name) for name in OF_LENGTHS}))


@functools.lru_cache(256)
def _moments(design: Design) -> Moments:
    x_K, cdf_ZK, weight_Z = _cdf(design)
    s, groups = design.group, design.batch // design.group
    pmf_ZK = np.diff(cdf_ZK, axis=1, prepend=0.0)
    longest_ZK = np.diff(cdf_ZK**s, axis=1, prepend=0.0)
    others_ZK = np.diff(cdf_ZK ** (s - 1), axis=1, prepend=0.0) if s > 1 else np.zeros_like(pmf_ZK)
    below_ZK = cdf_ZK ** (s - 1) if s > 1 else np.ones_like(cdf_ZK)
    above_ZK = (others_ZK * x_K)[:, ::-1].cumsum(axis=1)[:, ::-1] - others_ZK * x_K
    cross_ZK = pmf_ZK * x_K * (x_K * below_ZK + above_ZK)
    batch_K = np.diff((weight_Z @ cdf_ZK**s) ** groups, prepend=0.0)
    return Moments(
        mean=float(weight_Z @ (pmf_ZK @ x_K)),
        square=float(weight_Z @ (pmf_ZK @ x_K**2)),
        longest=float(weight_Z @ (longest_ZK @ x_K)),
        cross=float(weight_Z @ cross_ZK.sum(axis=1)),
        batch=float(batch_K @ x_K),
    )


def _cdf(design: Design) -> tuple[Floats, Floats, Floats]:
    """Return lengths [K], their distribution functions given the shared score [Z, K], and its weights [Z]."""
    d = design
    if d.length == "fixed":
        x = float(max(1, min(math.floor(d.length_mean + 0.5), d.max_length)))
        return np.array([x]), np.ones((1, 1)), np.ones(1)
    if d.length == "empirical":
        value_K, count_K = np.unique(np.minimum(d.lengths, d.max_length), return_counts=True)
        x_K, score_K = value_K.astype(np.float64), special.ndtri(np.cumsum(count_K) / len(d.lengths))
    else:
        x_K = np.arange(1.0, d.max_length + 1)
        far_K = np.where(x_K + 0.5 > d.length_mean, np.inf, -np.inf)
        score_K = (np.log(x_K + 0.5) - log_mean(d)) / d.sigma if d.sigma else far_K
    score_K[-1] = np.inf  # longer responses are truncated there
    node_Z, weight_Z = (
        special.roots_hermitenorm(NODES) if 0 < d.correlation < 1 else (np.zeros(1), np.ones(1))
    )
    if d.correlation == 1:
        # Lengths jump with a score that all share; Gauss-Hermite nodes need smooth ones, so take quantiles.
        node_Z = special.ndtri((np.arange(20_000 // len(x_K) + 400) + 0.5) / (20_000 // len(x_K) + 400))
        weight_Z = np.ones(len(node_Z))
        cdf_ZK = (score_K[None] >= node_Z[:, None]).astype(np.float64)
    else:
        shift_Z1 = math.sqrt(d.correlation) * node_Z[:, None]
        cdf_ZK = special.ndtr((score_K[None] - shift_Z1) / math.sqrt(1 - d.correlation))
    return x_K, cdf_ZK, weight_Z / weight_Z.sum()


def train_time(design: Design) -> float:
    """Return T_tr, the mean time to train one batch."""
    return design.train_time + design.train_token_time * design.batch * moments(design).mean


def generation_time(design: Design) -> float:
    """Return t_gen = B (E[L] tau(C) + tool time) / C, the streaming time to generate a batch.

    With tool waits fewer than C slots decode, and tau is that of the decoding number.
    """
    d, length = design, moments(design).mean
    decoding = float(d.slots)
    for _ in range(200):
        span = length * (d.tau_0 + d.tau_1 * decoding / d.engines)
        decoding = d.slots * span / (span + d.tool_time)
    return d.batch * (length * (d.tau_0 + d.tau_1 * decoding / d.engines) + d.tool_time) / d.slots


def load(design: Design) -> float:
    """Return u = T_tr / t_gen; above 1 the trainer is the bottleneck."""
    return train_time(design) / generation_time(design)


def barrier_generation_time(design: Design) -> float:
    """Return tau_0 E[max of B] + tau_1 B E[L] / engines: a batch from an empty start, C >= B, no tools.

    A token takes tau_0 + tau_1 c / engines, and c summed over token times is the sum of lengths.
    """
    found = moments(design)
    return design.tau_0 * found.batch + design.tau_1 * design.batch * found.mean / design.engines


def synchronous_period(design: Design) -> float:
    """Return T_gen + T_tr + T_sync with the straggler's T_gen (C >= B, no tools)."""
    return barrier_generation_time(design) + train_time(design) + design.sync_time


def one_step_off_period(design: Design) -> float:
    """Return max(T_gen, T_tr) + T_sync with the straggler's T_gen: train one batch while generating the next.

    Exact only if one of both is always larger: otherwise the mean of the maximum exceeds it.
    """
    return max(barrier_generation_time(design), train_time(design)) + design.sync_time


def streaming_period(design: Design) -> float:
    """Return max(t_gen, T_tr): no straggler term."""
    return max(generation_time(design), train_time(design))


def sample_lag(design: Design) -> float:
    """Return C M_tail / B + u, or with drop-oldest and u > 1 C M_tail / (u B) + (2 q + u - 1) / (2 u).

    Mean lag from a sample's start to its training, in batches. Source: Applied Compute (2026). Valid for C
    much larger than S; for u > 1 also if ages spread over whole periods of the trainer.
    """
    d, u = design, load(design)
    before = d.slots * moments(d).tail / d.batch
    return before + u if u <= 1 else before / u + (2 * d.queue + u - 1) / (2 * u)


def token_lag(design: Design) -> float:
    """Return (C / B) E[L M_S] / E[L]^2 + u, and in flight (C / B) E[L^2] / (2 E[L]^2) less.

    Mean lag of trained tokens, which carry the version that made them; NaN for u > 1. Derived here.
    """
    d, found, u = design, moments(design), load(design)
    if u > 1:
        return math.nan
    saved = found.square / (2 * found.mean**2) if d.in_flight else 0.0
    return d.slots / d.batch * (found.cross / found.mean**2 - saved) + u


def rapid_saving(design: Design, updates: int) -> float:
    """Seconds per update saved by one generation of N batches for N updates instead of N generations of one.

    Decoding N B sequences together costs tau_0 E[max of N B] + tau_1 N B E[L]: the tau_0 part is shared.
    """
    together = replace(design, batch=design.batch * updates)
    return barrier_generation_time(design) - barrier_generation_time(together) / updates
