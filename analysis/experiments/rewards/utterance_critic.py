"""ArCHer: a critic of utterances against the reward alone, in variance and in samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Plot,
    Seeds,
    all_exceed,
    all_stay_below,
    difference,
    exact,
    of_seeds,
)
from testbed.config.run import Run

NAME = "utterance-critic"
SOURCE = "Zhou et al. (2024), ArCHer, arXiv:2402.19446"
THRESHOLD, CLAIMED, FEWER, SEEDS = 0.8, 100.0, 1.25, 6
"""Exact success that counts as learned; the source's factor of samples; the factor asked for here."""
GAME = Run(
    task="tree", task_args=(("task", "guess"),), prompts=4, group=4, steps=160, learning_rate=8.0, log_every=4
)
CRITIC = (("off_policy", True), ("rate", 0.05), ("replay", 4))
RAW = (("advantage", "raw"), ("aggregation", "token_mean"), ("level", "token"))
ARMS = {
    "REINFORCE": replace(GAME, recipe="importance_reinforce", recipe_args=RAW),
    "token critic": replace(GAME, recipe="ppo", critic="table", critic_args=CRITIC),
    "utterance critic": replace(
        GAME, recipe="ppo", recipe_args=(("advantage", "turn_gae"),), critic="table", critic_args=CRITIC
    ),
}


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return the sequences each arm takes to the threshold, all of them where it is not reached."""
    from testbed.training.loop import train_pack

    for arm, run in ARMS.items():
        found = train_pack(tuple(replace(run, seed=seed) for seed in seeds))
        curve = pd.DataFrame({name: found[name] for name in ("seed", "exact/value", "rollouts")})
        there = curve[curve["exact/value"] >= THRESHOLD].groupby("seed")["rollouts"].min()
        most = curve.groupby("seed")["rollouts"].max()
        samples = there.reindex(most.index).fillna(most)
        yield pd.DataFrame(
            {"arm": arm, "seed": samples.index, "samples": samples, "log_samples": np.log(samples)}
        )


EXPERIMENT = Experiment(
    NAME,
    question="Does an off-policy critic of utterances save a hundred times the samples of REINFORCE?",
    source=SOURCE,
    differs=(
        "tables on a game of three guesses of two tokens, one learning rate for all arms; a replay of "
        "four batches "
        "with V-trace in place of a large store"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"steps": GAME.steps, "threshold": THRESHOLD}),
    keys=("run", "arm", "seed"),
    metrics=("samples", "log_samples"),
    margins={"factor of samples": FEWER, "factor of the source": CLAIMED},
    figure=Plot("distribution", x="arm", y="samples", x_label="", y_label="sequences to a success of 0.8"),
    systems=("ArCHer",),
)


def _fewer(table: pd.DataFrame, than: str = "REINFORCE") -> dict[str, np.ndarray]:
    return difference(table, "log_samples", {"arm": than}, {"arm": "utterance critic"})


def _fewer_in_both(table: pd.DataFrame) -> dict[str, np.ndarray]:
    # One group: in a single run all seeds may take equally many batches, which leaves nothing to estimate.
    return {"both runs": np.concatenate([*_fewer(table, "token critic").values()])}


EXPERIMENT.claim(
    "an-utterance-critic-saves-samples",
    statement="The utterance critic takes fewer samples to a success of 0.8 than REINFORCE, by a "
    "factor of 1.25.",
)(all_exceed(float(np.log(FEWER)), "mean log factor of samples", _fewer))

EXPERIMENT.claim(
    "an-utterance-critic-saves-samples-of-a-token-critic",
    statement="It takes fewer samples to a success of 0.8 than PPO with a critic of tokens, by 1.25.",
)(all_exceed(float(np.log(FEWER)), "mean log factor of samples", _fewer_in_both))

EXPERIMENT.claim(
    "an-utterance-critic-saves-less-than-a-hundredfold",
    statement="It saves less than a factor of 100 of them.",
)(all_stay_below(float(np.log(CLAIMED)), "log 100 less the mean log factor of samples", _fewer))


@cache
def factors() -> dict[str, list[float]]:
    """Return, policy by policy, REINFORCE's variance over that of exact critics, and both their biases."""
    from envs.tokens.tree import tree
    from testbed.advantages import advantage
    from testbed.exact.tree import random_policies
    from testbed.exact.turns import distance, estimate, responses

    world = tree(task="guess", prompts=2)
    every = responses(world)
    found: dict[str, list[float]] = {"utterance": [], "token": [], "bias": []}
    for seed in range(8):
        pi_SA, _ = random_policies(world, 0.0, seed)
        value_S = (pi_SA * world.action_values(pi_SA)).sum(-1)
        reward_LT = np.broadcast_to(every.leaves.reward_L[:, None], every.leaves.mask_LT.shape)
        plain = estimate(every, "reinforce", pi_SA, pi_SA, reward_LT)
        for name, which in (("utterance", "turn_gae"), ("token", "gae")):
            adv_LT = every.advantages(advantage[which].bind(lam=0.0), value_S)
            critic = estimate(every, "reinforce", pi_SA, pi_SA, adv_LT)
            found[name].append(plain.variance / critic.variance)
            found["bias"].append(distance(critic.mean_SA, world.gradient(pi_SA)))
    return found


@EXPERIMENT.claim(
    "exact-critics-divide-the-variance-by-less-than-ten",
    statement=(
        "With exact critics of utterances or tokens the gradient stays unbiased, and its variance is that of "
        "REINFORCE divided by a factor between 1 and 10; the token critic's factor is the larger one."
    ),
    kind="enumerated",
)
def variance_factors() -> Evidence:
    """Return biases, and how far factors are outside 1 to 10 or in the other order."""
    found = factors()
    gaps = [max(0.0, 1.0 - f, f - 10.0) for f in found["utterance"] + found["token"]]
    gaps += [max(0.0, u - t) for u, t in zip(found["utterance"], found["token"], strict=True)]
    means = ", ".join(f"{np.mean(found[name]):.2f} ({name})" for name in ("utterance", "token"))
    return exact([*found["bias"], *gaps], 1e-9, f"largest bias or excess; mean factors {means}")
