"""PDPPO on lot sizing: what a critic of the state after the decision and before the demand takes out."""

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
    must_exceed,
    of_keys,
    short_of,
)
from envs import infinite_horizon
from envs.mechanisms import lot_sizing
from envs.offline import collect
from testbed.offline import tabular
from testbed.offline.improvement import pooled_by_post, transition_noise

NAME = "post-decision-baseline"
SEEDS, EPISODES = 120, (1, 4, 16, 64)


def make(key_R: NDArray[np.uint64]) -> Iterator[pd.DataFrame]:
    """Return the value of policies that are greedy in the data, pooled by post-decision state or not.

    Data: 1 to 64 episodes of 20 steps, logged by the uniform policy. Untried pairs are out of reach.
    """
    world, post_SA = lot_sizing()
    best_1SA = tabular.greedy(tabular.optimal_q(world))
    uniform_RWSA = np.full((len(key_R), 1, *post_SA.shape), 1 / post_SA.shape[1])
    for episodes in EPISODES:
        counts = collect(world, uniform_RWSA, episodes, key_R).counts(*post_SA.shape)
        for critic, data in (("state", counts), ("post", pooled_by_post(counts, post_SA, world.reward_SA))):
            q_RSA = tabular.fitted_q(data.moves_RSAS, data.reward_RSA, world.discount, data.seen_RSA)
            greedy_RSA = tabular.greedy(np.where(data.seen_RSA, q_RSA, -np.inf))
            frame, _ = combinations(key_R, episodes=[episodes], critic=[critic])
            frame["value"] = infinite_horizon.value(world, greedy_RSA) / infinite_horizon.value(
                world, best_1SA
            )
            yield frame


EXPERIMENT = Experiment(
    NAME,
    question="What does a critic of post-decision states save where chance follows the decision?",
    source="PDPPO, of which a summary alone was read: post-decision states and dual critics",
    differs="values learned from a log in place of PPO; one item, with a uniform demand of 0 to 4",
    compute=of_keys(NAME, make, SEEDS),
    keys=("run", "episodes", "critic", "seed"),
    metrics=("value",),
    figure=Plot(
        "final by dial", x="episodes: logged episodes", y="value: value, share of the best", arm=("critic",),
    ),
    systems=("PDPPO",),
)  # fmt: skip


@EXPERIMENT.claim(source="PDPPO; the law of total variance")
def a_post_decision_baseline_takes_out_the_demand() -> Evidence:
    """Var[r + discount V(s') - V(s) | s] is that of the post-decision advantage plus the mean transition
    noise, for 20 policies and every state; the noise is over half of it somewhere.
    """
    world, _ = lot_sizing()
    rng = np.random.default_rng(20_261_101)
    gaps, shares = [], []
    for pi_SA in rng.dirichlet(np.ones(world.actions), size=(20, world.states)):
        value_S = infinite_horizon.state_value(world, pi_SA)
        ahead_S = world.tables.bonus_S + world.discount * value_S
        step_SAS = world.reward_SA[..., None] + ahead_S - value_S[:, None, None]
        chance_SAS = pi_SA[..., None] * world.transition_SAS
        total_S = (chance_SAS * step_SAS**2).sum((1, 2)) - (chance_SAS * step_SAS).sum((1, 2)) ** 2
        known_SA = (world.transition_SAS * step_SAS).sum(-1)
        known_S = (pi_SA * known_SA**2).sum(-1) - (pi_SA * known_SA).sum(-1) ** 2
        noise_S = (pi_SA * transition_noise(world, pi_SA[None])[0]).sum(-1)
        gaps.append(float(np.abs(total_S - known_S - noise_S).max()))
        shares.append(float((noise_S / total_S).max()))
    gaps.append(short_of(max(shares), 0.5))
    return exact(gaps, 1e-10, f"largest distance; noise is up to {max(shares):.2f} of the variance")


EXPERIMENT.claim(
    "post-decision-data-go-further",
    """From 1, 4 and 16 logged episodes the policy learned from pooled post-decision data is worth more,
    in the first run and the replication.""",
).compare("value", {"critic": "post"}, {"critic": "state"}, over={"episodes": EPISODES[:3]})


@EXPERIMENT.claim()
def post_decision_data_double_the_value_once(table: pd.DataFrame) -> Evidence:
    """From one logged episode pooled data reach twice the value, in the first run and the replication."""
    doubled = table.assign(value=table["value"].where(table["critic"] == "post", 2.0 * table["value"]))
    found = difference(doubled, "value", {"critic": "post"}, {"critic": "state"}, episodes=1)
    return must_exceed(found, 0.0, "pooled value less twice the other")
