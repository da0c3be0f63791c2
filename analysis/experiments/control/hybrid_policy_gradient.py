"""HNPG on combination locks: natural policy gradient with a critic that also reads offline data."""

import numpy as np

from analysis.lab import Grid, Groups, Plot, Seeds, TunedArms, ask, keys
from envs.logged_data import collect, ratio, skilled
from envs.mdps import combination_lock
from testbed.offline import tabular_offline
from testbed.offline.improvement import hybrid_critic, natural_step, softmax

NAME = "hybrid-policy-gradient"
SEEDS, WORLDS, PILOTS, ITERATIONS, EPISODES, LOGGED = 64, 6, 24, 30, 20, 100
"""Units of a run, and the draws of features of which each is the mean; pilot draws; iterations, fresh
episodes of each, offline episodes."""
STEPS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
ARMS: dict[str, Grid] = {
    "on-policy": {"step": STEPS},
    "hybrid": {"step": STEPS, "trust": (0.0, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)},
    "off-policy hybrid": {"step": STEPS},
}
"""Of the policy; and the weight of Bellman targets against returns, the knob of the source. The last
regresses on targets alone, over all data there are."""
ALONE = 1e6
"""A weight at which returns count for nothing."""
SHORT = 0.05
"""Share of the best value."""


def learn(seeds: Seeds, arm: str, length: int, step: float, trust: float = 0.0) -> Groups:
    """Return the mean share of the best value in the last ten of 30 iterations on a lock, [R].

    Offline data: 100 episodes of a logger that knows 80 % of the code. Features: half as many random
    directions as pairs, per seed.
    """
    world = combination_lock(length=length, actions=2, horizon=3 * length, discount=0.95)
    key_R = keys(seeds, f"{NAME}/tuned")
    drawn = [np.random.default_rng(key).normal(size=(2 * length + 2, length + 1)) for key in key_R]
    feature_RSAF = np.stack(drawn).reshape(len(key_R), world.states, world.actions, -1)
    alone, shape = arm == "off-policy hybrid", (world.states, world.actions)
    best_1SA = tabular_offline.greedy(tabular_offline.optimal_q(world))
    logger_RWSA = np.broadcast_to(skilled(best_1SA[0], 0.8), (len(key_R), 1, *shape))
    # Offline episodes draw from a step of the stream that no iteration reaches.
    known = collect(world, logger_RWSA, LOGGED, key_R, step=ITERATIONS).counts(*shape)
    logits_RSA, values = np.zeros((len(key_R), *shape)), []
    for iteration in range(ITERATIONS):
        pi_RSA = softmax(logits_RSA)
        values += [world.value(pi_RSA)] if iteration >= ITERATIONS - 10 else []
        log = collect(world, pi_RSA[:, None], EPISODES, key_R, step=iteration)
        fresh, sums = log.counts(*shape), log.counts(*shape, log.returns_to_go(world.discount))
        known = known + fresh if alone else known
        q_RSA = hybrid_critic(
            feature_RSAF, pi_RSA, world.discount, offline=known, visit_RSA=fresh.visit_RSA,
            return_RSA=ratio(sums.visit_RSA, fresh.visit_RSA), trust=ALONE if alone else trust, rounds=30,
        )  # fmt: skip
        # Returns are within [0, 1]; a regression on wrong features is not.
        logits_RSA = natural_step(logits_RSA, np.clip(q_RSA, -5.0, 5.0), step)
    return {"value": np.mean(values, axis=0) / world.value(best_1SA)}


EXPERIMENT = TunedArms(
    ARMS, learn, "value", PILOTS, {"length": (4, 8)}, starts={"hybrid": {"step": 4.0, "trust": 1.0}},
    fine=True,
).experiment(
    NAME, SEEDS, ("value",), {"iterations": ITERATIONS, "episodes": EPISODES}, worlds=WORLDS,
    question="Does a critic that mixes returns and offline targets learn better than a critic of either?",
    source="Zhou et al. (2023), Offline data enhanced on-policy policy gradient with provable guarantees",
    differs="locks of 4 and 8 digits with two actions; features are half as many random directions as pairs; "
    "each arm at its best step, the hybrid at its best weight of targets",
    margins={"share that counts as short": SHORT},
    figure=Plot(
        "distribution", x="length: digits of the lock", y="value: value, share of best", arm=("arm: critic",),
        says="Shows the value late in natural policy gradient, as a share of the best, by the digits of a "
        "combination lock, with half of the features missing: on-policy fits returns of fresh episodes; "
        "hybrid fits these and Bellman targets of offline data; off-policy hybrid fits such targets alone, "
        "of offline and fresh data; each at its best settings.",
    ),
    systems={"HNPG (hybrid RL)": "wrong features alone; at 4 digits the best weight of targets is 0, where "
             "the hybrid is the on-policy critic"},
)  # fmt: skip


RATE, TARGETS = (
    "With half of the features missing the hybrid ends at most 0.05 below the on-policy critic at",
    "With half of the features missing the hybrid ends 0.05 above regression on Bellman targets alone at",
)
for _name, _says, _length, _first, _second, _below in (
    ("a-hybrid-critic-keeps-the-on-policy-rate-with-wrong-features-at-4-digits", RATE, 4, "on-policy",
     "hybrid", True),
    ("a-hybrid-critic-beats-an-off-policy-hybrid-with-wrong-features-at-4-digits", TARGETS, 4, "hybrid",
     "off-policy hybrid", False),
    ("a-hybrid-critic-keeps-the-on-policy-rate-with-wrong-features-at-8-digits", RATE, 8, "on-policy",
     "hybrid", True),
    ("a-hybrid-critic-beats-an-off-policy-hybrid-with-wrong-features-at-8-digits", TARGETS, 8, "hybrid",
     "off-policy hybrid", False),
):  # fmt: skip
    ask(EXPERIMENT, _name, f"{_says} {_length} digits, each at its best.", _first, _second, SHORT, "value",
        below=_below, over={"length": _length})  # fmt: skip
