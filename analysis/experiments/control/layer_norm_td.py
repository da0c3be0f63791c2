"""PQN: what LayerNorm and an l2 coefficient do to off-policy TD, and parallel Q-learning without replay."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.lab import (
    Evidence,
    Experiment,
    Plot,
    combinations,
    difference,
    exact,
    level,
    merged,
    must_exceed,
    of_keys,
    short_of,
    stays_below,
)
from envs.arrays import Floats
from envs.mdps import BAIRD_FEATURES, garnet
from testbed.exact.value_learning import baird_star, linear_td
from testbed.offline.tabular import optimal_q

NAME = "layer-norm-td"
SEEDS, STEPS, DISCOUNT, FEATURES = 30, 2000, 0.99, 4
PLAYERS = (1, 4, 16, 64)
NEAR, LESS = 0.5, 0.5
"""Root mean square error of Q in units of reward; log of a factor of it."""


def make(key_R: NDArray[np.uint64]) -> Iterator[pd.DataFrame]:
    """Return the error of Q after 2000 updates, by number of parallel copies and step size."""
    from testbed.offline.linear import parallel_q

    world = garnet(states=8, actions=3, discount=0.9, seed=0, horizon=16)
    best_1SA = optimal_q(world)
    table_SAF = np.eye(24).reshape(8, 3, 24)
    for players in PLAYERS:
        frame, key_N = combinations(key_R, players=[players], step=[0.1, 0.5])
        weight_1NF = parallel_q(
            world, table_SAF, key_N, players=players, steps=STEPS, every=STEPS,
            step_size=frame["step"].to_numpy(), epsilon=0.3,
        )  # fmt: skip
        error_NSA = weight_1NF[0].reshape(-1, 8, 3) - best_1SA
        yield frame.assign(error=np.sqrt((error_NSA**2).mean((-1, -2))))


EXPERIMENT = Experiment(
    NAME,
    question="Does LayerNorm with l2 stabilize TD, and do parallel copies replace replay and target network?",
    source="Gallici et al. (2025), Simplifying deep temporal difference learning",
    differs="linear TD on normalized features, and a table",
    compute=of_keys(NAME, make, SEEDS, {"updates": STEPS}),
    keys=("run", "players", "step", "seed"),
    metrics=("error",),
    margins={"error of Q that counts as near": NEAR, "log of the factor of error that counts as less": LESS},
    figure=Plot(
        "final by setting", x="players: parallel copies", y="error: root mean square error of Q",
        arm=("step: step size",),
    ),
    systems=("PQN (Simplifying deep TD)",),
)  # fmt: skip


def _problems() -> Iterator[tuple[Floats, Floats, Floats]]:
    """Yield features, weights and moves of 200 off-policy problems of 8 states; rows differ in size."""
    rng = np.random.default_rng(20_261_102)
    for _ in range(200):
        raw_SF = rng.normal(size=(8, FEATURES)) * np.exp(rng.normal(size=(8, 1)))
        yield raw_SF, rng.dirichlet(np.full(8, 0.3)), rng.dirichlet(np.full(8, 0.3), size=8)


@EXPERIMENT.claim(
    source="Gallici et al. (2025), section 4, for the half discount; the bound for linear TD derived here"
)
def layer_norm_bounds_the_l2_that_stabilizes_td() -> Evidence:
    """With LayerNorm features of width F an l2 coefficient of F (discount/2)^2 makes expected TD stable on
    Baird's star and 200 random problems; raw features need more than that somewhere.
    """
    from testbed.offline.linear import layer_norm, ridge_threshold

    star_SF = np.hstack([np.diag([2.0] * 6 + [1.0]), np.array([[1.0]] * 6 + [[2.0]])])
    problems = [(star_SF, np.full(7, 1 / 7), np.eye(7)[[6] * 7]), *_problems()]
    gaps, raw = [], 0.0
    for raw_SF, weight_S, step_SS in problems:
        enough = raw_SF.shape[1] * (DISCOUNT / 2) ** 2
        normal = linear_td(layer_norm(raw_SF), weight_S, step_SS, DISCOUNT)
        gaps.append(max(0.0, ridge_threshold(normal) / enough - 1.0))
        raw = max(raw, ridge_threshold(linear_td(raw_SF, weight_S, step_SS, DISCOUNT)) / enough)
        # Beyond its threshold the ridge leaves no growing direction, and short of it one is left.
        shift_FF = normal.bootstrap_FF - normal.covariance_FF
        for factor, sign in ((0.9, 1.0), (1.1, -1.0)):
            ridge_FF = factor * ridge_threshold(normal) * np.eye(len(shift_FF))
            abscissa = np.linalg.eigvals(shift_FF - ridge_FF).real.max()
            gaps.append(float(ridge_threshold(normal) > 1e-6 and np.sign(abscissa) != sign))
    gaps.append(short_of(raw, 1.0))
    return exact(gaps, 0.0, f"excess of the bound, or a wrong sign; raw features need {raw:.2f} of it")


@EXPERIMENT.claim(source="this project", kind="enumerated")
def layer_norm_alone_does_not_remove_divergence() -> Evidence:
    """On Baird's star TD with LayerNorm features and no l2 diverges faster than with the raw ones; on random
    problems it diverges in fewer.
    """
    from testbed.offline.linear import layer_norm

    law, moves_SS = np.full(7, 1 / 7), np.eye(7)[[6] * 7]
    normal = linear_td(layer_norm(BAIRD_FEATURES), law, moves_SS, DISCOUNT).td_abscissa()
    diverge_2 = np.zeros(2)
    for raw_SF, weight_S, step_SS in _problems():
        for i, feature_SF in enumerate((raw_SF, layer_norm(raw_SF))):
            diverge_2[i] += linear_td(feature_SF, weight_S, step_SS, DISCOUNT).td_abscissa() > 0
    gaps = [short_of(normal, baird_star(DISCOUNT).td_abscissa()), short_of(diverge_2[0], diverge_2[1] + 1)]
    counted = f"{diverge_2[0]:.0f} raw problems of 200 diverge, {diverge_2[1]:.0f} normalized"
    return exact(gaps, 0.0, f"abscissa {normal:.3f} on the star; {counted}")


@EXPERIMENT.claim()
def parallel_copies_replace_replay(table: pd.DataFrame) -> Evidence:
    """At step size 0.5 and 2000 updates 64 parallel copies end within 0.5 of the optimal Q without replay or
    target network, and a factor 1.65 nearer than one copy.
    """
    left = level(table, "error", {"players": 64, "step": 0.5})
    gained = difference(table, "error", {"players": 1}, {"players": 64}, step=0.5, log=True)
    groups = merged(
        error={run: NEAR - x_N for run, x_N in left.items()},
        factor={run: x_N - LESS for run, x_N in gained.items()},
    )
    return must_exceed(groups, 0.0, "0.5 less the error, or log of the factor less 0.5")


@EXPERIMENT.claim(source="this project")
def parallel_copies_do_not_replace_updates(table: pd.DataFrame) -> Evidence:
    """At step size 0.1 and 2000 updates the error of 64 copies is below that of one by less than a factor
    1.65, though they saw 64 times the steps.
    """
    return stays_below(LESS, "error", {"players": 1}, {"players": 64}, step=0.1, log=True)(table)
