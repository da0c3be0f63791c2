"""DT4IER on a recommender's sessions: clone steps that led to many clicks, long sessions, or both."""

from functools import cache

import numpy as np

from analysis.lab import Bools, Floats, Grid, Ints, Plot, TunedArms, asks, by_world, generator
from testbed.offline.improvement import softmax

NAME = "session-returns"
SEEDS, PILOTS, FRESH, SESSIONS, LONGEST = 512, 48, 690_000, 1500, 40
USERS, MOODS, ITEMS = 4, 5, 6
STATES = USERS * MOODS
"""Kinds of users, moods, items, and the largest length of a session."""
TIRING = 0.5
"""By how much a clicked item lowers the mood: at 1 the best threshold asks nothing of the clicks."""
MARGIN = 0.02
"""Margin of the mean of both rewards, each as a share of its best policy's. Set before the table."""
PARTS = (1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)
TOP = {"parts": PARTS}
ARMS: dict[str, Grid] = {
    "cloned": {},
    "both returns": {**TOP, "long": PARTS},
    "clicks": TOP,
    "length": TOP,
    "sum": TOP,
    "two tasks": {"temperature": tuple(2.0**i for i in range(-13, 3))},
}
"""Clone the steps of each state whose returns to come are in the top 1/parts, with two returns the length in
the top 1/long; or predict both and choose."""


@cache
def world(seed: int) -> tuple[Floats, Floats, Floats]:
    """Return click probabilities [S, A]; probabilities of the next mood, which is the next state [S, A, S];
    and both rewards of every step [2, S, A]: clicks, and 1 for the length. Rows sum to the probability that
    the session goes on.

    Clicked items tend to lower the mood, and low moods end sessions.
    """
    rng = generator(seed, NAME)
    click_UA = rng.beta(1.0, 1.5, size=(USERS, ITEMS))
    lift_UA = np.clip(0.5 + 0.5 * (rng.random((USERS, ITEMS)) - TIRING * click_UA), 0.05, 0.95)
    moves_SAS = np.zeros((STATES, ITEMS, STATES))
    for user, mood, item in np.ndindex(USERS, MOODS, ITEMS):
        stay, at = 0.7 + 0.28 * mood / (MOODS - 1), user * MOODS
        up, lift = min(mood + 1, MOODS - 1), lift_UA[user, item]
        moves_SAS[at + mood, item, at + up] += stay * lift
        moves_SAS[at + mood, item, at + max(mood - 1, 0)] += stay * (1 - lift)
    click_SA = np.repeat(click_UA, MOODS, axis=0)
    return click_SA, moves_SAS, np.stack([click_SA, np.ones_like(click_SA)])


def earned(seed: int, pi_SA: Floats) -> Floats:
    """Return the expected clicks and length of a session from a middle mood, [2]."""
    _, moves_SAS, reward_2SA = world(seed)
    step_SS = np.einsum("sa,sat->st", pi_SA, moves_SAS)
    value_S2 = np.linalg.solve(np.eye(STATES) - step_SS, (pi_SA * reward_2SA).sum(-1).T)
    return np.asarray(value_S2[MOODS // 2 :: MOODS].mean(0))


@cache
def best(seed: int) -> Floats:
    """Return the most clicks and the greatest length that any policy earns, [2]."""
    _, moves_SAS, reward_2SA = world(seed)
    found = []
    for i, reward_SA in enumerate(reward_2SA):
        q_SA = reward_SA
        for _ in range(600):
            q_SA = reward_SA + moves_SAS @ q_SA.max(-1)
        found.append(earned(seed, np.eye(ITEMS)[q_SA.argmax(-1)])[i])
    return np.array(found)


@cache
def logged(seed: int) -> tuple[Ints, Ints, Floats]:
    """Return state, item and both returns to come, [N], [N], [N, 2], for the steps of 8 loggers.

    The loggers differ in skill and in goal.
    """
    click_SA, moves_SAS, _ = world(seed)
    rng = generator(seed, f"{NAME} log")
    taste_B11, skill_B11 = rng.random((8, 1, 1)), rng.uniform(0.0, 8.0, (8, 1, 1))
    lift_SA = moves_SAS @ (np.arange(STATES) % MOODS)
    logit_BSA = skill_B11 * (taste_B11 * click_SA + (1 - taste_B11) * lift_SA)
    logger_BSA = softmax(logit_BSA).cumsum(-1)
    who_B, state_B = rng.integers(8, size=SESSIONS), rng.integers(USERS, size=SESSIONS) * MOODS + MOODS // 2
    live_B, steps = np.ones(SESSIONS, dtype=bool), []
    for _ in range(LONGEST):
        item_B = (rng.random((SESSIONS, 1)) >= logger_BSA[who_B, state_B][:, :-1]).sum(-1)
        click_B = (rng.random(SESSIONS) < click_SA[state_B, item_B]) & live_B
        steps.append((state_B, item_B, np.stack([click_B, live_B], -1).astype(np.float64), live_B))
        sums_BS = moves_SAS[state_B, item_B].cumsum(-1)
        next_B = (rng.random((SESSIONS, 1)) >= sums_BS).sum(-1)
        live_B = live_B & (next_B < STATES)
        state_B = np.where(live_B, next_B, 0)
    state_TB, item_TB, paid_TB2, live_TB = (np.stack(x) for x in zip(*steps, strict=True))
    ahead_TB2 = paid_TB2[::-1].cumsum(0)[::-1]
    return state_TB[live_TB], item_TB[live_TB], ahead_TB2[live_TB]


def kept(arm: str, state_N: Ints, ahead_N2: Floats, scale_2: Floats, parts_2: Floats) -> Bools:
    """Return the steps with returns to come in the top 1/parts of their state."""
    returns_NK = {"clicks": ahead_N2[:, :1], "length": ahead_N2[:, 1:], "both returns": ahead_N2}.get(
        arm, (ahead_N2 / scale_2).sum(-1, keepdims=True)
    )
    good_N = np.ones(len(state_N), dtype=bool)
    for state in np.unique(state_N):
        here_N = state_N == state
        # One return has the first threshold alone, hence strict=False.
        for return_N, parts in zip(returns_NK[here_N].T, parts_2, strict=False):
            good_N[here_N] &= return_N >= np.quantile(return_N, 1 - 1 / parts)
    return good_N


def table_of(state_N: Ints, item_N: Ints, weight_N: Floats) -> Floats:
    """Return the sum of weights of each pair, [S, A]."""
    sum_X = np.bincount(state_N * ITEMS + item_N, weight_N, STATES * ITEMS)
    return sum_X.reshape(STATES, ITEMS).astype(np.float64)


def learned(seed: int, arm: str, parts: float, long: float, temperature: float) -> Floats:
    state_N, item_N, ahead_N2 = logged(seed)
    count_SA = table_of(state_N, item_N, np.ones(len(state_N)))
    clone_SA = (count_SA + 0.1) / (count_SA + 0.1).sum(-1, keepdims=True)
    if arm == "cloned":
        return clone_SA
    if arm == "two tasks":
        total_N = (ahead_N2 / ahead_N2.mean(0)).sum(-1)
        mean_SA = (table_of(state_N, item_N, total_N) + total_N.mean()) / (count_SA + 1)
        return softmax(mean_SA / temperature)
    good_N = kept(arm, state_N, ahead_N2, ahead_N2.mean(0), np.array([parts, long]))
    chosen_SA = table_of(state_N, item_N, good_N.astype(np.float64)) + clone_SA
    return np.asarray(chosen_SA / chosen_SA.sum(-1, keepdims=True))


@by_world("clicks", "length", "both")
def learn(
    seed: int, arm: str, parts: float = 1.0, long: float = 1.0, temperature: float = 1.0
) -> tuple[float, float, float]:
    """Return a session's clicks and length as shares of the best policy for each, and their mean."""
    seed += FRESH
    clicks, length = earned(seed, learned(seed, arm, parts, long, temperature)) / best(seed)
    return clicks, length, (clicks + length) / 2


EXPERIMENT = TunedArms(ARMS, learn, "both", PILOTS, endless={"parts": (1.0,), "long": (1.0,)}).experiment(
    NAME, SEEDS, ("clicks", "length", "both"), {"sessions": SESSIONS},
    question="Does cloning on clicks and session length beat a plain clone, one return, two separate tasks?",
    source="Liu et al. (2024), Sequential recommendation … (DT4IER), arXiv:2404.03637",
    differs="random users and items; tables in place of a transformer, whose prompt is the top returns of a "
    "state, in place of sequence models (cloned) and of multi-task networks (two tasks)",
    margins={"mean share of the best": MARGIN},
    figure=Plot(
        "distribution", x="arm", y="both: mean share of the best clicks and length",
        says="Shows the mean of clicks and session length, each as a share of the best policy's, for random "
        "users and items; cloned copies the loggers; clicks, length, sum and both returns clone the steps "
        "of a state that were followed by the most of one, of their sum, or of each; two tasks predicts "
        "clicks and remaining steps and chooses items by their sum.",
    ),
    systems={"DT4IER": "each return alone, and two tables in place of a multi-task network, as rivals"},
)  # fmt: skip
asks(EXPERIMENT,
    ("two-returns-beat-cloning", "In tables, cloning conditioned on high clicks and high length to come has "
     "a mean share of both rewards 0.02 above that of cloning the log.", "both returns", "cloned",
     {"off": {"arm": "length"}}),
    ("two-returns-beat-one-return", "Cloning conditioned on high clicks and high length to come has a mean "
     "share of both rewards 0.02 above that of cloning conditioned on one of them, each at its best "
     "thresholds.", "both returns", ("clicks", "length"), {"off": {"arm": "cloned"}}),
    ("two-returns-beat-their-sum", "Cloning conditioned on high clicks and high length to come has a mean "
     "share of both rewards 0.02 above that of cloning conditioned on their sum, at its best threshold.",
     "both returns", "sum"),
    ("two-returns-beat-two-tasks", "Cloning conditioned on high clicks and high length to come has a mean "
     "share of both rewards 0.02 above that of choosing by two tables, one of the clicks and one of the "
     "length to come, at their best temperature.", "both returns", "two tasks"),
    outcome="both", by=MARGIN,
)  # fmt: skip
