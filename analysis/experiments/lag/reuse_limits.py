"""What reuse of a batch is, exactly: SFPO between GRPO and plain reuse, ReMix's gradient on replayed data."""

from dataclasses import replace
from typing import Literal

import numpy as np

from analysis.lab import Evidence, Experiment, Part, exact, short_of
from envs.arrays import Floats
from testbed.config.run import Run

BANDIT = Run(task="bandit", steps=6, prompts=4, group=8, learning_rate=1.0, log_every=1, recipe="sfpo")
ARMS, PAIRS = 6, 100
"""Actions, and random pairs of sampler and policy."""
APART = 1e-3

EXPERIMENT = Experiment(
    "reuse-limits",
    question="What is several updates on a batch between, and what does a replayed batch teach?",
    source="SFPO, arXiv:2510.04072; ReMix, arXiv:2507.06892",
    systems={
        "SFPO (Slow-Fast)": Part(
            "what its pull back is between; no rollouts saved",
            claims=("sfpo-without-its-fast-steps-is-grpo-under-plain-gradient-descent-alone",),
        ),
        "ReMix (Squeeze the Soaked Sponge)": Part(
            "its gradient on replayed data; no rollouts saved",
            claims=("remix-is-unbiased-on-replayed-data-at-its-first-pass",),
        ),
    },
)


def _values(run: Run) -> Floats:
    """Return the exact value of the policy at every step of a run."""
    from testbed.training.loop import train

    return np.asarray(train(run)["exact/value"], dtype=np.float64)


@EXPERIMENT.claim(
    source="SFPO, arXiv:2510.04072, whose fallback is alpha = 0; that Adam remembers is observed here"
)
def sfpo_without_its_fast_steps_is_grpo_under_plain_gradient_descent_alone() -> Evidence:
    """With alpha = 0, which pulls all fast steps back, SFPO is GRPO under plain gradient descent, and under
    Adam it is not, since its moments keep what the fast steps saw; with alpha = 1 it is neither.

    Return distances of values from GRPO's: 0 where it must be GRPO, the shortfall of 1e-3 elsewhere.
    """
    gaps, notes = [], []
    arms: tuple[tuple[Literal["sgd", "adam"], float], ...] = (("sgd", 0.0), ("sgd", 1.0), ("adam", 0.0))
    for optimizer, alpha in arms:
        run = replace(BANDIT, optimizer=optimizer, learning_rate=1.0 if optimizer == "sgd" else 0.1)
        ours = _values(replace(run, recipe_args=(("alpha", alpha), ("fast", 3))))
        apart = float(np.abs(ours - _values(replace(run, recipe="grpo"))).max())
        gaps.append(apart if (optimizer, alpha) == ("sgd", 0.0) else short_of(apart, APART))
        notes.append(f"{optimizer}, alpha {alpha:g}: {apart:.2g}")
    return exact(gaps, 1e-12, f"distance of exact values from GRPO's: {'; '.join(notes)}")


@EXPERIMENT.claim(
    source="ReMix, arXiv:2507.06892, Mix-PPG; that its band is centered where the pass starts is derived"
)
def remix_is_unbiased_on_replayed_data_at_its_first_pass() -> Evidence:
    """While the policy is the anchor, as at the first pass over a batch, ReMix's expected gradient on data of
    any sampler is the policy gradient; that of PPO's clip around the sampler is not.

    Return distances from the policy gradient, and the shortfall of the clip's largest one from 1e-3.
    """
    import torch

    from testbed.data.batch import Batch
    from testbed.inspection.effective_weights import effective_weights

    rng, gaps, clipped = np.random.default_rng(0), [], 0.0
    for _ in range(PAIRS):
        mu_A, pi_A = rng.dirichlet(np.ones(ARMS), 2).clip(1e-6)
        mu_A, pi_A, reward_A = mu_A / mu_A.sum(), pi_A / pi_A.sum(), rng.normal(size=ARMS)
        adv_A = reward_A - pi_A @ reward_A
        log_mu, log_pi, adv = (torch.from_numpy(x_A)[:, None] for x_A in (np.log(mu_A), np.log(pi_A), adv_A))
        mask = torch.ones_like(adv, dtype=torch.bool)
        batch = Batch(log_mu, adv, mask, adv[:, 0], torch.arange(ARMS), logp_anchor_BT=log_pi)
        pull_2A = [effective_weights(n, log_pi, batch)[:, 0].numpy() * mu_A for n in ("remix", "ppo_clip")]
        ours_A, clip_A = (weight_A - pi_A * weight_A.sum() for weight_A in pull_2A)
        gaps.append(float(np.abs(ours_A - pi_A * adv_A).max()))
        clipped = max(clipped, float(np.abs(clip_A - pi_A * adv_A).max()))
    gaps.append(short_of(clipped, APART))
    return exact(gaps, 1e-12, f"distance from the policy gradient; of the clip around mu up to {clipped:.2g}")
