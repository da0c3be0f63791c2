"""HNPG on combination locks: natural policy gradient with a critic that also reads offline data."""

from collections.abc import Mapping

import numpy as np

from analysis.lab import Experiment, Floats, Keys, Plot, Rows, combinations, keys, of_keys
from envs.finite_mdp import FiniteMDP
from envs.logged_data import collect, ratio, skilled
from envs.mdps import combination_lock
from testbed.offline import tabular_offline
from testbed.offline.improvement import hybrid_critic, natural_step, softmax

NAME = "hybrid-policy-gradient"
SEEDS, ITERATIONS, EPISODES, LOGGED, STEP = 500, 30, 20, 100, 4.0
WORLDS: Mapping[int, int] = {4: 12, 8: 48}
"""Draws of wrong features that a unit averages over, by digits of the lock."""
TRUST: Mapping[str, float] = {"on-policy": 0.0, "hybrid": 1.0, "off-policy hybrid": 1e6}
"""Weight of Bellman targets against returns; the last critic regresses on targets alone, over all data."""
SOLVED, GAINED, SHORT = 0.9, 0.2, 0.05


def make(key_R: Keys) -> Rows:
    """Return the share of the best value, averaged over the last ten of 30 iterations, by lock, features and
    critic.

    Offline data: 100 episodes of a logger that knows 80% of the code. Misspecified features: half as many
    random directions as pairs, drawn per seed; otherwise a table.
    """
    for length, exact_features in ((4, True), (8, True), (16, True), (4, False), (8, False)):
        world = combination_lock(length=length, actions=2, horizon=3 * length, discount=0.95)
        features = "table" if exact_features else "half"
        frame, _ = combinations(key_R, length=[length], features=[features], critic=TRUST)
        shape = (world.states, world.actions, -1)
        feature_RSAF: Floats = np.eye(2 * length + 2).reshape(shape)
        drawn_R = key_R
        if not exact_features:
            inner = tuple(range(WORLDS[length]))
            drawn_R = np.concatenate([keys(inner, f"{NAME} {key}") for key in key_R])
            drawn = [np.random.default_rng(key).normal(size=(2 * length + 2, length + 1)) for key in drawn_R]
            feature_RSAF = np.stack(drawn).reshape(len(drawn_R), *shape)
        found = [_train(world, feature_RSAF, e, drawn_R).reshape(len(key_R), -1).mean(1) for e in TRUST]
        yield frame.assign(value=np.concatenate(found))


def _train(world: FiniteMDP, feature_RSAF: Floats, critic: str, key_R: Keys) -> Floats:
    shape = (world.states, world.actions)
    best_1SA = tabular_offline.greedy(tabular_offline.optimal_q(world))
    logger_RWSA = np.broadcast_to(skilled(best_1SA[0], 0.8), (len(key_R), 1, *shape))
    known = collect(world, logger_RWSA, LOGGED, key_R, step=ITERATIONS).counts(*shape)
    logits_RSA, values = np.zeros((len(key_R), *shape)), []
    for iteration in range(ITERATIONS):
        pi_RSA = softmax(logits_RSA)
        values += [world.value(pi_RSA)] if iteration >= ITERATIONS - 10 else []
        log = collect(world, pi_RSA[:, None], EPISODES, key_R, step=iteration)
        fresh, sums = log.counts(*shape), log.counts(*shape, log.returns_to_go(world.discount))
        if critic == "off-policy hybrid":
            known = known + fresh
        q_RSA = hybrid_critic(
            feature_RSAF, pi_RSA, world.discount, offline=known, visit_RSA=fresh.visit_RSA,
            return_RSA=ratio(sums.visit_RSA, fresh.visit_RSA), trust=TRUST[critic], rounds=30,
        )  # fmt: skip
        # Returns are within [0, 1], but a regression on wrong features can leave it.
        logits_RSA = natural_step(logits_RSA, np.clip(q_RSA, -5.0, 5.0), STEP)
    return np.mean(values, axis=0) / world.value(best_1SA)


EXPERIMENT = Experiment(
    question="Does a critic of returns and of offline targets have the best of both?",
    source="Zhou et al. (2023), Offline data enhanced on-policy policy gradient with provable guarantees",
    differs="locks of 4 to 16 digits with two actions; wrong features are random directions",
    compute=of_keys(NAME, make, SEEDS, {"iterations": ITERATIONS, "episodes": EPISODES}),
    keys=("run", "length", "features", "critic", "seed"), metrics=("value",),
    margins={
        "share of the best value that counts as solved": SOLVED,
        "share that counts as gained": GAINED,
        "share that counts as short": SHORT,
    },
    figure=Plot(
        "final by setting", x="length: digits of the lock", y="value: value, share of best", arm=("critic",),
        where={"features": "table"},
        says="Shows the value late in natural policy gradient, as a share of the best, against the digits "
        "of a combination lock, with a table for a critic; on-policy fits returns of fresh episodes; hybrid "
        "fits these and Bellman targets of offline data; off-policy hybrid fits only such targets, of "
        "offline and fresh data.",
    ),
    systems=("HNPG (hybrid RL)",),
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
    EXPERIMENT.claim(_name, f"{_says} {_length} digits.").compare(
        "value", {"critic": _first}, {"critic": _second}, by=SHORT, below=_below,
        over={"length": _length, "features": "half"},
    )  # fmt: skip
