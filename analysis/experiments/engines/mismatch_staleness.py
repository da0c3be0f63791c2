"""Engine mismatch and lag together: what each costs, and that neither is left where nothing learns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from analysis.kernels.on_use import torch
from analysis.lab import Evidence, Experiment, Plot, exact, short_of
from testbed.config.run import Run, grid

SIGMA = "mismatch_args.sigma"

TREE = Run(task="tree", prompts=16, group=8, steps=200, learning_rate=3.0, mismatch="logit-noise")
"""Four prompts of three digits modulo 3, a softmax per prompt and prefix: everything is known exactly."""
SIGMAS = (0.0, 0.4, 0.8, 1.2, 1.6)
LAGS = (0, 2, 4, 8, 16, 32)
SEEDS = range(10, 18)


def cells() -> tuple[Run, ...]:
    """Logit noise by lag, with and without sequence weights; beside each noise, a run that never learns."""
    found: list[Run] = []
    for sigma in SIGMAS:
        noisy = replace(TREE, mismatch_args=(("sigma", sigma),))
        found += grid(noisy, recipe=["reinforce", "importance"], lag=LAGS, seed=SEEDS)
        found += grid(noisy, recipe=["reinforce"], learning_rate=[0.0], lag=[0, LAGS[-1]], seed=SEEDS)
    return tuple(found)


EXPERIMENT = Experiment(
    question="Do engine mismatch and staleness add up, in the log-ratio and in what they cost?",
    source="landscape of rollout-trainer mismatch reports; lag and mismatch as two factors of pi/mu",
    differs="logit noise of known size in place of an engine, on a token tree that is known exactly",
    cells=cells, fresh=range(1000, 1016),
    keys=("recipe", "learning_rate", "mismatch_args.sigma", "lag", "seed"),
    metrics=(
        *("exact/value", "mean exact/value", "mean exact/ess_kish_sequence", "min exact/ess_kish_sequence"),
        *("first exact/kl_pi_mu", "exact/kl_pi_mu"),
    ),
    figure=Plot(
        "heat map", x="lag: lag (updates)", y=f"{SIGMA}: sigma of the logits",
        value="mean exact/ess_kish_sequence: ESS / N, no weights",
        where={"recipe": "reinforce", "learning_rate": 3.0},
        also=(
            {"value": "exact/value: final value, no weights"},
            {
                "value": "exact/value: final value, weights",
                "where": {"recipe": "importance", "learning_rate": 3.0},
            },
        ),
    ),
)  # fmt: skip


@EXPERIMENT.claim(
    "at-learning-rate-zero-all-drift-is-mismatch",
    source="control arm against drift at learning rate 0, allenai/open-instruct issue 1473; derived",
)
def at_learning_rate_zero_all_drift_is_mismatch() -> Evidence:
    """With learning rate 0 lag changes no logged bit but the ages, which are the lag, whatever the engine; at
    rate 1 it changes a quarter of the columns or more. At rate 0 without an engine the ratio is 1, and with
    one that draws nothing its exact distribution is the same in every batch.
    """
    from testbed.worlds.build_world import build_world
    from testbed.worlds.world import BehaviorWeights

    arguments: tuple[tuple[str, Any], ...]
    still = Run(task="tree", prompts=4, group=4, steps=6, learning_rate=0.0, log_every=1)
    gaps, least = [], np.inf
    for name, arguments in (("off", ()), ("logit-noise", (("sigma", 0.5),)), ("temperature", ())):
        gaps += _bits_that_lag_changes(replace(still, mismatch=name, mismatch_args=arguments))
    moved = _bits_that_lag_changes(replace(still, learning_rate=1.0))
    gaps.append(short_of(float(np.mean(moved)), 0.25))
    for name in ("off", "fp8-tensor", "temperature", "bf16"):
        arguments = (("matrices", "all"),) if name == "fp8-tensor" else ()
        world: Any = build_world((replace(still, mismatch=name, mismatch_args=arguments),))
        draws_RP = np.random.default_rng(3).standard_normal(world.initial().shape)
        theta_RP = world.initial() + 2.0 * torch.from_numpy(draws_RP)
        laws = [world.truth(theta_RP, theta_RP, step, BehaviorWeights(theta_RP)) for step in range(4)]
        kl = np.array([law["exact/kl_mu_pi"][0] for law in laws])
        gaps.append(float(np.ptp(kl)))
        if name == "off":
            gaps.append(float(abs(kl[0])))
        else:
            least = min(least, float(kl[0]))
    gaps.append(short_of(least, 1e-6))
    return exact(gaps, 1e-12, f"columns changed by lag, or movement of KL; the least KL is {least:.2g} nats")


def _bits_that_lag_changes(run: Any) -> list[float]:
    """Return 0 for each logged column equal at lag 4, else 1; and the distance of the last age from 4."""
    from testbed.training.loop import train

    fresh, stale = train(run), train(replace(run, lag=4))
    own = ("cell", "lag", "staleness/age_mean_token", "staleness/age_max_token")
    pairs = [(np.asarray(fresh[key]), np.asarray(stale[key])) for key in fresh if key not in own]
    same = [np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating)) for a, b in pairs]
    age = float(np.asarray(stale["staleness/age_mean_token"])[-1])
    return [*(float(not each) for each in same), abs(age - 4.0)]
