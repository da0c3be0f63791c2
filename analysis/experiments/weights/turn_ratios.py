"""Ratios of tokens, turns and responses in a game of several turns: bias, variance, clipped shares."""

from functools import cache

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, exact, short_of
from analysis.tables.committed import Table
from envs.tokens.tree import tree
from testbed.exact.tree import random_policies

NAME = "turn-ratios"
SOURCE = "Li et al. (2025), ST-PPO, arXiv:2511.20718"
DRIFTS, SEEDS = (0.125, 0.25, 0.5, 1.0), tuple(range(6))
ARMS = {
    "token": ("importance_reinforce", (("level", "token"),)),
    "sequence": ("importance_reinforce", (("level", "sequence"),)),
    "PPO": ("ppo_clip", ()),
    "Turn-PPO": ("turn_ppo", ()),
    "S-PPO": ("s_ppo", ()),
    "ST-PPO": ("st_ppo", ()),
}
LESS = 0.5
"""Share of PPO's cut tokens that counts as a lower clip ratio. Chosen after a look at the exact numbers."""


def rows() -> pd.DataFrame:
    """Return a row per pair of policies and arm; advantages are exact."""
    from testbed.exact.turns import distance, estimate, responses

    world = tree(task="guess", prompts=2)
    every, found = responses(world), []
    state_LT, action_LT = every.leaves.state_LT, every.leaves.action_LT
    for drift in DRIFTS:
        for seed in SEEDS:
            mu_SA, pi_SA = random_policies(world, drift, seed)
            q_SA, reach_S = world.action_values(pi_SA), world.gradient(pi_SA)
            adv_LT = (q_SA - (pi_SA * q_SA).sum(-1, keepdims=True))[state_LT, action_LT]
            adv_LT = np.where(every.leaves.mask_LT, adv_LT, 0.0)
            for arm, (objective, hyper) in ARMS.items():
                made = estimate(every, objective, pi_SA, mu_SA, adv_LT, **dict(hyper))
                found.append(
                    {
                        "drift": drift,
                        "seed": seed,
                        "arm": arm,
                        "bias": distance(made.mean_SA, reach_S),
                        "deviation": float(np.sqrt(made.variance) / np.linalg.norm(reach_S)),
                        "cut_share": made.cut_share,
                    }
                )
    return pd.DataFrame(found)


def table() -> Table:
    """Return the rows, with what they were made of."""
    return Table.of(NAME, rows(), {"task": "guess base=2 digits=2 turns=3", "prompts": 2})


EXPERIMENT = Experiment(
    NAME,
    question="What do ratios of whole turns change against those of tokens, where a tool answers in between?",
    source=SOURCE,
    differs="all 158 responses of a game of three guesses, random policies, exact advantages",
    compute=table,
    keys=("drift", "seed", "arm"),
    metrics=("bias", "deviation", "cut_share"),
    margins={"share of PPO's cut tokens": LESS},
    figure="turns",
    systems={
        "ST-PPO": Part(
            "clip share, bias and variance of one gradient, exactly; accuracy: see sparse-arms",
        )
    },
)


@cache
def _wide(column: str) -> pd.DataFrame:
    return rows().pivot(index=["drift", "seed"], columns="arm", values=column)


def _by_drift(column: str) -> pd.DataFrame:
    return _wide(column).groupby("drift").mean()


@EXPERIMENT.claim(kind="enumerated")
def turn_ratios_are_clipped_less() -> Evidence:
    """With equal clip ranges the geometric ratio of a turn is cut on fewer tokens than that of a token in the
    mean over policies at every drift, on less than half as many up to a drift of 0.5.
    """
    cut = _by_drift("cut_share")
    gaps = cut["Turn-PPO"] - cut["PPO"] * np.where(cut.index < 1.0, LESS, 1.0)
    shown = ", ".join(f"{row['Turn-PPO']:.3f} for {row['PPO']:.3f} at {d:g}" for d, row in cut.iterrows())
    return exact(np.maximum(0.0, gaps), 1e-12, f"largest excess of a mean; cut shares {shown}")


@EXPERIMENT.claim(kind="enumerated")
def turn_ratios_vary_less() -> Evidence:
    """In the mean over policies the gradient of Turn-PPO deviates less than that of PPO at every drift,
    though not at every pair of policies.
    """
    spread, every = _by_drift("deviation"), _wide("deviation")
    against = int((every["Turn-PPO"] > every["PPO"]).sum())
    return exact(
        [*np.maximum(0.0, spread["Turn-PPO"] - spread["PPO"]), short_of(against, 1)],
        1e-12,
        f"largest excess of a mean deviation; {against} of {len(every)} pairs are the other way round",
    )


@EXPERIMENT.claim(kind="enumerated")
def no_turn_ratio_is_unbiased() -> Evidence:
    """The ratio of the whole response is unbiased, tool tokens or not; the gradients of PPO, Turn-PPO, S-PPO
    and ST-PPO are off by more than 1 % at every pair of policies.
    """
    bias = _wide("bias")
    others = bias[["PPO", "Turn-PPO", "S-PPO", "ST-PPO"]].to_numpy().ravel()
    return exact(
        [bias["sequence"].max(), *(short_of(b, 0.01) for b in others)],
        1e-9,
        f"bias of the sequence ratio, or what the least other bias lacks to 0.01; it is {others.min():.3f}",
    )


@EXPERIMENT.claim(kind="enumerated")
def the_clip_bias_correction_is_small() -> Evidence:
    """Dividing by the norm of the clipped part moves the bias by less than 1 % of the gradient, for token and
    for turn ratios, at every pair of policies.
    """
    bias = _wide("bias")
    moved = np.concatenate([bias["S-PPO"] - bias["PPO"], bias["ST-PPO"] - bias["Turn-PPO"]])
    return exact(np.abs(moved), 0.01, "largest change of the relative bias by the correction")
