"""Policies learned from logged bandits with smoothed, clipped and plain propensities, and ad loads per user.

Every estimator that is linear in the policy is a table g: Vhat(pi) = sum_x,a pi(a|x) g(x, a).
"""

import dataclasses
from collections.abc import Iterator
from functools import cache

import numpy as np

from analysis.lab import Experiment, Frame, Groups, Part, Plot, Rows, Seeds, columns, level, merged, of_seeds
from analysis.worlds.pilots import Grid, ask, inside, tuned
from envs.arrays import Floats, Ints
from envs.logged_bandit import LoggedBandit, LoggedData, logged_bandit
from testbed.errors import UserError
from testbed.rng import generator, keys


def score_table(
    data: LoggedData,
    contexts: int,
    actions: int,
    *,
    alpha: float = 1.0,
    model_RSA: Floats | None = None,
    reward_RN: Floats | None = None,
) -> Floats:
    """g(x, a) = 1/N sum_i 1{x_i = x} (qhat(x, a) + 1{a_i = a} (r_i - qhat(x, a)) / mu_i^alpha), [R, S, A].

    alpha 1: IPS, or doubly robust with a model; below 1: exponential smoothing (Aouali et al. 2023).
    reward_RN: another reward of the same rounds. Source: Horvitz & Thompson (1952) for IPS; Dudik, Langford &
    Li (2011) with a model.
    """
    if not 0.0 <= alpha <= 1.0:
        raise UserError(f"alpha is {alpha:g}, expected 0 to 1.")
    cells, n = data.context_RN.shape
    given_RN = data.reward_RN if reward_RN is None else reward_RN
    model_RSA = np.zeros((cells, contexts, actions)) if model_RSA is None else model_RSA
    cell_R1 = np.arange(cells)[:, None]
    error_RN = given_RN - model_RSA[cell_R1, data.context_RN, data.action_RN]
    weight_RN = 1.0 / data.propensity_RN**alpha
    key_RN = (cell_R1 * contexts + data.context_RN) * actions + data.action_RN
    sums = np.bincount(key_RN.ravel(), (weight_RN * error_RN).ravel(), minlength=cells * contexts * actions)
    share_RS = _tally(cell_R1 * contexts + data.context_RN, cells * contexts).reshape(cells, contexts) / n
    return share_RS[..., None] * model_RSA + sums.reshape(cells, contexts, actions) / n


def mean_model(data: LoggedData, contexts: int, actions: int, *, reward_RN: Floats | None = None) -> Floats:
    """qhat(x, a) = (sum of rewards + the mean reward) / (n + 1), [R, S, A].

    Designed here: a mean shrunk towards the mean of all rounds.
    """
    cells = len(data.context_RN)
    given_RN = data.reward_RN if reward_RN is None else reward_RN
    key_RN = (np.arange(cells)[:, None] * contexts + data.context_RN) * actions + data.action_RN
    shape = (cells, contexts, actions)
    count_RSA = _tally(key_RN, cells * contexts * actions).reshape(shape)
    sum_RSA = np.bincount(key_RN.ravel(), given_RN.ravel(), minlength=count_RSA.size).reshape(shape)
    mean_R11 = given_RN.mean(-1)[:, None, None]
    return (sum_RSA + mean_R11) / (count_RSA + 1)


def best_policy(g_RSA: Floats) -> Floats:
    """argmax g, [R, S, A]: the best table for a linear objective, ties to the first action."""
    return np.eye(g_RSA.shape[-1])[g_RSA.argmax(-1)]


def _tally(key: Ints, size: int) -> Floats:
    return np.bincount(key.ravel(), minlength=size).astype(np.float64)


NAME = "logged-policies"
SEEDS, LOGS, CONTEXTS, LOADS, USERS = 32, 8, 10, 5, 40
SIZES, LOGGERS, ARMS = (300, 3000, 10000), {"peaked": 0.15, "mild": 0.4}, {"peaked": 30, "mild": 6}
"""Logged rounds; temperatures of the logging policies, which depend little on rewards; number of actions."""
SAME, FLAT = 0.005, 2e-4
"""Regret that counts as equal; rewards are in [0, 1]. Set before the table was made. Gain from the
second-last to the last setting of a grid that is too small to matter."""
FIRST = 900_000_000
"""Seed of the first pilot bandit."""
WORLDS, PILOTS = 20, 256
"""Peaked bandits averaged in a unit, as smoothing and clipping differ by little; number of pilot bandits."""
UNITS = {"peaked": 128, "mild": SEEDS}
"""Units of a run; a unit with mild logs is one bandit."""
CELLS = (*(("peaked", n) for n in SIZES), ("mild", 300), ("mild", 3000))
PENALTIES = (0.0, 5e-4, 0.001, 0.002, 0.004, 0.008, 0.015, 0.03, 0.06, 0.1, 0.2, 0.4, 0.8, 1.6)
LEARNERS: dict[str, Grid] = {
    "IPS": {"penalty": PENALTIES},
    "clipped": {
        "floor": (0.0, 0.003, 0.006, 0.01, 0.02, 0.03, 0.06, 0.1, 0.2, 0.4, 0.7, 1.0),
        "penalty": PENALTIES,
    },
    "smoothed": {
        "alpha": (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.97, 0.985, 0.995, 1.0),
        "penalty": PENALTIES,
    },
}
"""Floor 0 with exponent 1 is IPS; floor 1 or exponent 0 gives rewards no weights. No wider grid exists."""


def logs(seeds: Seeds, logger: str, n: int) -> Iterator[tuple[LoggedBandit, Floats]]:
    """Yield bandits, each with mean_i 1{x, a} r_i of 8 logs, [R, S, A]."""
    for seed in seeds:
        bandit = logged_bandit(
            contexts=CONTEXTS, arms=ARMS[logger], temperature=LOGGERS[logger], skill=0.2, seed=seed
        )
        data = bandit.log(keys(tuple(range(LOGS)), f"{NAME} {seed}"), n)
        # Exponent 0 leaves rewards unweighted: `regret` weights the sums, so that a log serves all settings.
        yield bandit, score_table(data, CONTEXTS, ARMS[logger], alpha=0.0)


def regret(
    bandit: LoggedBandit, mean_RSA: Floats, penalty: float, alpha: float = 1.0, floor: float = 0.0
) -> float:
    """Return the mean regret over the logs of the policy that is best by score(x, a) - penalty / 2 mean_i
    1{x, a} (r w)^2.

    mean_RSA: mean_i 1{x, a} r_i; rewards are 0 or 1. w = 1 / max(mu, floor)^alpha.
    """
    weight_SA = 1.0 / np.maximum(bandit.logging_SA, floor) ** alpha
    pi_RSA = best_policy(mean_RSA * weight_SA * (1 - penalty / 2 * weight_SA))
    best = float(bandit.value(best_policy(bandit.reward_SA[None]))[0])
    return best - float((pi_RSA * bandit.reward_SA).sum(-1).mean())


@cache
def chosen(logger: str, n: int, learner: str) -> tuple[dict[str, float], bool]:
    """Return the setting with the least regret on pilot bandits, and whether it is at an end of its grid."""
    known = pilot_logs(logger, n)
    return tuned(
        lambda **knobs: -float(np.mean([regret(bandit, x_RSA, **knobs) for bandit, x_RSA in known])),
        LEARNERS[learner],
        flat=FLAT,
        endless={"alpha": (1.0,), "floor": (1.0,)},
    )


@cache
def pilot_logs(logger: str, n: int) -> list[tuple[LoggedBandit, Floats]]:
    """Return pilot bandits with their logs."""
    return list(logs(tuple(range(FIRST, FIRST + PILOTS)), logger, n))


def regrets(seeds: Seeds, logger: str, n: int) -> Rows:
    """Yield the regret of each tuned learner, averaged over 8 logs and, for peaked logs, over 20 bandits."""
    each = WORLDS if logger == "peaked" else 1
    found: dict[str, list[float]] = {name: [] for name in LEARNERS}
    for seed in seeds:
        drawn = list(logs(tuple(range(seed * each, (seed + 1) * each)), logger, n))
        for name, values in found.items():
            knobs = chosen(logger, n, name)[0]
            values.append(float(np.mean([regret(bandit, x_RSA, **knobs) for bandit, x_RSA in drawn])))
    for name, values in found.items():
        at_end = int(chosen(logger, n, name)[1])
        yield columns(seeds, world=logger, n=n, learner=name, regret=values, **{"at end": at_end})


def users(seed: int, alike: bool) -> tuple[LoggedBandit, Floats, Floats]:
    """Return users logged at random loads, and the means [S, A] of both metrics. Satisfaction falls with the
    load and revenue rises; the slopes differ among users unless `alike`.
    """
    rng = generator(seed, NAME)
    load_A, share_2S1 = np.linspace(0, 1, LOADS), rng.uniform(0.05, 0.95, size=(2, USERS, 1))
    patience_S1, worth_S1 = np.full_like(share_2S1, 0.5) if alike else share_2S1
    happy_SA, revenue_SA = 0.9 - 0.8 * load_A * (1 - patience_S1), 0.1 + 0.8 * load_A * worth_S1
    plain = logged_bandit(contexts=USERS, arms=LOADS, temperature=0.3, seed=seed)
    return dataclasses.replace(plain, reward_SA=happy_SA), happy_SA, revenue_SA


def gains(seeds: Seeds, alike: bool, n: int) -> Iterator[tuple[str, Floats]]:
    """Yield each learner's gains in satisfaction and revenue over the middle load for everyone, [R, 2]."""
    found: dict[str, list[Floats]] = {"IPS": [], "DR": [], "best load for all": []}
    for seed in seeds:
        bandit, *metrics = users(seed, alike)
        data = bandit.log(keys(tuple(range(LOGS)), f"{NAME} load {seed}"), n)
        chance_RN = metrics[1][data.context_RN, data.action_RN]
        paid_RN = generator(seed, f"{NAME} revenue").random(chance_RN.shape) < chance_RN
        both_RN = (data.reward_RN + paid_RN) / 2
        model_RSA = mean_model(data, USERS, LOADS, reward_RN=both_RN)
        score = {
            "IPS": score_table(data, USERS, LOADS, reward_RN=both_RN),
            "DR": score_table(data, USERS, LOADS, model_RSA=model_RSA, reward_RN=both_RN),
        }
        score["best load for all"] = np.broadcast_to(score["DR"].sum(1, keepdims=True), score["DR"].shape)
        for name, g_RSA in score.items():
            change_RSA = best_policy(g_RSA) - np.eye(LOADS)[LOADS // 2]
            found[name].append(np.array([(change_RSA * x_SA).sum(-1).mean() for x_SA in metrics]))
    for name, gain in found.items():
        yield name, np.stack(gain)


def rows(seeds: Seeds) -> Rows:
    """Yield regrets by logger and learner, and gains by kind of user and learner, by logged rounds."""
    for logger, n in CELLS:
        yield from regrets(seeds[: UNITS[logger]], logger, n)
    seeds = seeds[:SEEDS]
    for n in SIZES:
        for alike in (False, True):
            for name, gain_R2 in gains(seeds, alike, n):
                given = {"world": "users alike" if alike else "users", "n": n, "learner": name}
                yield columns(seeds, **given, satisfaction=gain_R2[:, 0], revenue=gain_R2[:, 1])


EXPERIMENT = Experiment(
    question="What do clipping, smoothing and doubly robust scores add to policies learned from logs?",
    source="Aouali et al. (2023), exponential smoothing; ad-load balancing via off-policy learning (2023)",
    differs="tables over 10 contexts or 40 users; exact regrets; exponents, floors, penalties tuned",
    compute=of_seeds(NAME, rows, UNITS["peaked"], {"logs": LOGS, "pilots": PILOTS}),
    keys=("run", "seed", "world", "n", "learner"), metrics=("regret", "satisfaction", "revenue", "at end"),
    margins={"regret that counts as equal": SAME, "gain of a metric": 0.0},
    figure=Plot(
        "final by setting", x="n: logged rounds", y="regret", arm=("world", "learner"),
        where={"world": ("mild", "peaked")},
        says="Shows regret against logged rounds in random bandits of 10 contexts, logged by a policy of "
        "high temperature over 6 arms (mild) or of low temperature over 30 (peaked); IPS divides rewards by "
        "the logged probabilities; clipped raises small probabilities to a floor; smoothed takes them to a "
        "power below 1; all have a variance penalty.",
    ),
    systems={
        "Exponential smoothing for OPL": Part(
            "smoothing lowers the regret of clipping by 0.4 to 3 %; no bound chooses the exponent",
            claims=("clipping-gains-nothing-from-mild-logs", "smoothing-learns-better-than-clipping")
        ),
        "Ad-load balancing via OPL": Part(claims=("learned-load-improves-both-metrics",)),
    },
)  # fmt: skip

AOUALI = "Aouali et al. (2023), Exponential smoothing for off-policy learning"
PEAKED = {"world": "peaked", "n": SIZES}
EXPERIMENT.claim(
    "clipping-gains-nothing-from-mild-logs",
    "From logs of temperature 0.4 plain and clipped IPS at its best floor have the same regret within .005.",
    source=AOUALI,
    gates={"tuned": inside(learner=("IPS", "clipped"), world="mild")},
).equal(
    "regret", {"learner": "IPS"}, {"learner": "clipped"}, within=SAME, over={"world": "mild", "n": SIZES[:2]}
)

ask(EXPERIMENT, "smoothing-learns-better-than-clipping", "From peaked logs smoothed IPS has less regret than "
    "clipped IPS, both with a variance penalty and at their best exponent and floor.",
    {"learner": "smoothed"}, {"learner": "clipped"}, outcome="regret", source=AOUALI, below=True, over=PEAKED,
    off={"learner": "IPS"})  # fmt: skip


ADS = "Ad-load balancing via off-policy learning in a content marketplace (2023)"
BOTH = {"learner": ("IPS", "DR"), "n": SIZES[1:]}


def gain_of_either_metric(table: Frame) -> Groups:
    """Return the gain in satisfaction and the gain in revenue."""
    found = {name: level(table, name, {**BOTH, "world": "users"}) for name in ("satisfaction", "revenue")}
    return merged(**found)


ask(EXPERIMENT, "learned-load-improves-both-metrics", "From 3000 and 10000 rounds loads learned by IPS and "
    "by DR raise satisfaction and revenue over the middle load for all.", outcome=gain_of_either_metric,
    source=ADS, gates={})  # fmt: skip
