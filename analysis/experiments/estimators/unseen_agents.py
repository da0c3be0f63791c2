"""Values of policies without logs of their own: abstract reward processes (STAR) and simulated users."""

import itertools
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from analysis.lab import Experiment, Frame, Groups, Part, Plot, Rows, Seeds, asks, columns, of_seeds, slopes
from analysis.worlds.trajectory_worlds import of_log
from envs.arrays import Floats
from envs.finite_mdp import FiniteMDP
from envs.logged_data import Log, collect, skilled
from testbed.estimators.abstraction import star
from testbed.estimators.doubly_robust_trajectory import trajectory_dr, wdr
from testbed.estimators.fqe import fitted_q_steps, fqe_finite
from testbed.estimators.trajectory import cwpdis, pdis, trajectory_is, trajectory_wis
from testbed.offline.tabular_offline import greedy, optimal_q
from testbed.rng import generator, keys

NAME = "unseen-agents"
SEEDS, LOGS, DISCOUNT, SIDE = 96, 24, 0.95, 20
SQUARES, RATIOS = (1, 2, 4, 10, 20), (0, 1, 3, None)
"""Sides of the squares of places that a STAR merges, and the number of last ratios in a weight."""
USUAL = {"IS": trajectory_is, "WIS": trajectory_wis, "PDIS": pdis, "CWPDIS": cwpdis, "FQE": fqe_finite}
TURNS, TALKS, MOODS, ACTS, KINDS, LABELS = (2, 4, 8, 16), 1000, 4, 3, 2, 3
TOLD, HOW = ("uncontrolled", "a priori", "post-hoc"), ("", ", reweighted")
"""Information given to simulated users, and weighting of talks."""
GROWTH = 0.05
"""Rise of a log variance per turn that counts as geometric. Set before the table was made."""


def field(rng: np.random.Generator) -> FiniteMDP:
    """A walk of 20 steps on a torus of 400 places; rewards are a smooth random field with noise."""
    row_S, column_S = np.divmod(np.arange(SIDE**2), SIDE)
    moves = ((0, 1), (0, -1), (1, 0), (-1, 0))
    landing_SA = np.stack([(row_S + r) % SIDE * SIDE + (column_S + c) % SIDE for r, c in moves], 1)
    step_SAS, slip = np.eye(SIDE**2)[landing_SA], 0.2
    wave_SW = np.stack(
        [
            f(2 * np.pi * (i * row_S + j * column_S) / SIDE)
            for f in (np.sin, np.cos)
            for i, j in ((0, 1), (1, 0), (1, 1), (2, 1))
        ],
        1,
    )
    pays_S = wave_SW @ rng.normal(size=wave_SW.shape[1]) / np.sqrt(wave_SW.shape[1])
    return FiniteMDP(
        transition_SAS=(1 - slip) * step_SAS + slip * step_SAS.mean(1, keepdims=True),
        reward_SA=np.repeat(pays_S[:, None], 4, 1), start_S=rng.dirichlet(np.ones(SIDE**2)), horizon=20,
        discount=DISCOUNT, noise="normal", noise_std=0.5,
    )  # fmt: skip


def estimates(log: Log, pi_SA: Floats, mu_SA: Floats) -> Groups:
    """Return the estimates of every log by the usual estimators and 20 STARs."""
    data = of_log(log, pi_SA, mu_SA, DISCOUNT)
    found = {name: estimate(data).value for name, estimate in USUAL.items()}
    modeled = data.with_model(fitted_q_steps(data))
    found |= {"DR": trajectory_dr(modeled).value, "WDR": wdr(modeled).value}
    row_S, column_S = np.divmod(np.arange(SIDE**2), SIDE)
    for side in SQUARES:
        label_S = row_S // side * (SIDE // side) + column_S // side
        if side > 1:
            member_ZS = np.eye(int(label_S.max()) + 1)[label_S].T / side**2
            coarse = Log(
                **{**vars(log), "state_RBT": label_S[log.state_RBT], "next_RBT": label_S[log.next_RBT]}
            )
            found[f"FQE {side}"] = fqe_finite(
                of_log(coarse, member_ZS @ pi_SA, member_ZS @ mu_SA, DISCOUNT)
            ).value
        for c in RATIOS:
            found[f"STAR {side}, {c}"] = star(data, abstraction_S=label_S, c=c).value
    return found


def abstraction_rows(seed: int) -> dict[str, float]:
    """Return log10 mean squared errors in one setting: places, episodes, and distance of the policies.

    The best of each kind is chosen on half of 24 logs and judged on the other half.
    """
    rng = generator(seed, NAME)
    world, episodes, apart = (
        field(rng),
        int(np.exp(rng.uniform(np.log(10), np.log(100)))),
        rng.uniform(0.2, 0.6),
    )
    best_SA = greedy(optimal_q(world))[0]
    mu_SA, pi_SA = skilled(best_SA, 0.2), skilled(best_SA, 0.2 + apart)
    given = np.broadcast_to(mu_SA, (LOGS, 1, *mu_SA.shape))
    log = collect(world, given, episodes, keys(tuple(range(LOGS)), f"{NAME} {seed}"))
    square = {
        name: (x_R - float(world.value(pi_SA))) ** 2 for name, x_R in estimates(log, pi_SA, mu_SA).items()
    }
    chosen, judged = ({name: x_R[i::2].mean() for name, x_R in square.items()} for i in (0, 1))
    stars = [name for name in square if name.startswith("STAR")]
    kinds = {
        "best STAR": stars,
        "best usual": [name for name in square if not name.startswith("STAR") and name[:4] != "FQE "],
        "best FQE on squares": [name for name in square if name.startswith("FQE")],
        "best STAR without abstraction": [name for name in stars if name.startswith("STAR 1,")],
    }
    found = {kind: judged[min(names, key=lambda name: chosen[name])] for kind, names in kinds.items()}
    found["median STAR"] = float(np.median([judged[name] for name in stars]))
    return {kind: float(np.log10(error)) for kind, error in found.items()}


def users(seed: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return mood transitions by user, mood and act; the agents mu and pi; and satisfaction by mood."""
    rng = generator(seed, f"{NAME} users")
    moves_KSAS = rng.dirichlet(np.full(MOODS, 0.5), size=(KINDS, MOODS, ACTS))
    mu_SA, pi_SA = rng.dirichlet(np.full(ACTS, 2.0), size=(2, MOODS))
    return moves_KSAS, mu_SA, pi_SA, np.linspace(0, 1, MOODS)


def talked(
    moves_KSAS: Floats, mu_SA: Floats, turns: int, rng: np.random.Generator
) -> tuple[NDArray[np.int64], ...]:
    """Return kinds [R, N], moods [R, N, T + 1] and acts [R, N, T] of logged talks."""
    kind_RN = rng.integers(KINDS, size=(LOGS, TALKS))
    moods, acts = [rng.integers(MOODS, size=(LOGS, TALKS))], []
    for _ in range(turns):
        act_RN = (rng.random((LOGS, TALKS, 1)) >= mu_SA.cumsum(-1)[moods[-1]][..., :-1]).sum(-1)
        sums_RNS = moves_KSAS.cumsum(-1)[kind_RN, moods[-1], act_RN]
        moods.append((rng.random((LOGS, TALKS, 1)) >= sums_RNS[..., :-1]).sum(-1))
        acts.append(act_RN)
    return kind_RN, np.stack(moods, -1), np.stack(acts, -1)


def simulated(
    given_RN: NDArray[np.int64],
    size: int,
    mood_RNT: NDArray[np.int64],
    act_RNT: NDArray[np.int64],
    pi_SA: Floats,
    pays_S: Floats,
    weight_RN: Floats,
) -> Floats:
    """Return the mean satisfaction with agent pi of users that are a table fitted to logs, [R].

    Users answer by P(mood' | given, mood, act), counted with weights; what is given is drawn from the logs.
    """
    logs, turns = len(given_RN), act_RNT.shape[-1]
    place = np.broadcast_to(np.arange(logs)[:, None, None], act_RNT.shape)
    key = (place * size + given_RN[..., None]) * MOODS + mood_RNT[..., :-1]
    key = (key * ACTS + act_RNT) * MOODS + mood_RNT[..., 1:]
    weight = np.broadcast_to(weight_RN[..., None], act_RNT.shape)
    shape = (logs, size, MOODS, ACTS, MOODS)
    # A small prior makes answers to what was never logged uniform, in place of 0 / 0.
    count = np.bincount(key.ravel(), weight.ravel(), minlength=int(np.prod(shape))).reshape(shape) + 1e-3
    moves = count / count.sum(-1, keepdims=True)
    first = (np.arange(logs)[:, None] * size + given_RN) * MOODS + mood_RNT[..., 0]
    law = np.bincount(first.ravel(), weight_RN.ravel(), minlength=logs * size * MOODS).reshape(
        logs, size, MOODS
    )
    law = law / law.sum((1, 2), keepdims=True)
    total_R = np.zeros(logs)
    for _ in range(turns):
        law = np.einsum("rgs,sa,rgsat->rgt", law, pi_SA, moves)
        total_R += (law * pays_S).sum((1, 2)) / turns
    return total_R


def simulator_rows(seed: int) -> Iterator[dict[str, object]]:
    """Yield error and log variance of a metric over 24 logs, by simulator and number of turns."""
    moves_KSAS, mu_SA, pi_SA, pays_S = users(seed)
    for turns in TURNS:
        kind_RN, mood_RNT, act_RNT = talked(moves_KSAS, mu_SA, turns, generator(seed, f"{NAME} {turns}"))
        law_KS, truth = np.full((KINDS, MOODS), 1 / (KINDS * MOODS)), 0.0
        for _ in range(turns):
            law_KS = np.einsum("ks,sa,ksat->kt", law_KS, pi_SA, moves_KSAS)
            truth += float((law_KS * pays_S).sum()) / turns
        heard_RN = pays_S[mood_RNT[..., 1:]].mean(-1)
        label_RN = (heard_RN[..., None] > np.quantile(heard_RN, (1 / 3, 2 / 3))).sum(-1)
        ratio_RN = (pi_SA / mu_SA)[mood_RNT[..., :-1], act_RNT].prod(-1)
        given = ((np.zeros_like(kind_RN), 1), (kind_RN, KINDS), (label_RN, LABELS))
        weights = zip(HOW, (np.ones_like(heard_RN), ratio_RN), strict=True)
        for (told, (given_RN, size)), (how, weight_RN) in itertools.product(
            zip(TOLD, given, strict=True), weights
        ):
            name = f"{told}{how}"
            found_R = simulated(given_RN, size, mood_RNT, act_RNT, pi_SA, pays_S, weight_RN)
            error = float(np.sqrt(((found_R - truth) ** 2).mean()))
            gap = abs(float(found_R.mean()) - truth)
            spread = float(np.log(found_R.var(ddof=1)))
            yield {"estimator": name, "turns": turns, "error": error, "bias": gap, "log_variance": spread}


def rows(seeds: Seeds) -> Rows:
    """Yield the errors of both families; a seed is a setting or a population of users."""
    for seed in seeds:
        for kind, error in abstraction_rows(seed).items():
            yield columns((seed,), estimator=kind, turns=20, error=error, bias=np.nan, log_variance=np.nan)
        for row in simulator_rows(seed):
            yield columns((seed,), **row)


EXPERIMENT = Experiment(
    question="What do abstract processes and simulated users say of an agent that was not logged?",
    source="STAR (2024); Tennenholtz et al. (2026), as each claim says",
    differs="random walks on 400 places with squares for abstractions; weights of no, one, three and all "
    "ratios, in the source's code of one to five; users are tables fitted to 1000 talks",
    compute=of_seeds(NAME, rows, SEEDS, {"logs": LOGS}), keys=("run", "seed", "estimator", "turns"),
    metrics=("error", "bias", "log_variance"), margins={"rise of a log variance by turn": GROWTH},
    figure=Plot(
        "final by setting", x="turns", y="log_variance: log variance of the metric", arm=("estimator",),
        where={"estimator": tuple(f"{name}{how}" for how in HOW for name in TOLD)},
        says="Shows the log variance, over 24 logs, of the satisfaction that simulated users report with an "
        "agent that was not logged, against the turns of a talk; users are tables fitted to 1000 talks and "
        "know nothing (uncontrolled), a trait known before (a priori), or the talk's outcome (post-hoc), "
        "also with talks reweighted to the agent.",
    ),
    systems={
        "STAR (abstract reward processes)": Part(claims=("*-star-*",)),
        "Controllable User Simulation": Part(claims=("*post-hoc-*",)),
    },
)  # fmt: skip


def rise_beyond_a_priori(table: Frame) -> Groups:
    """Return how much faster, by turn, the log variance of reweighted post-hoc users rises."""
    post, prior = (
        slopes(table, "turns", "log_variance", {"estimator": f"{name}, reweighted"})
        for name in ("post-hoc", "a priori")
    )
    return {run: post[run] - prior[run] for run in post}


STAR = "Chaudhari et al. (2024), Abstract reward processes"
TALK = "Tennenholtz et al. (2026), Controllable user simulation, arXiv:2605.11519"
asks(EXPERIMENT,
    ("best-star-errs-less-than-the-best-usual", "In most random settings the best of 20 STARs errs less than "
     "the best of seven usual estimators; the source: in 12 of 12 cases.",
     {"estimator": "best usual"}, {"estimator": "best STAR"}, {"source": STAR}),
    ("median-star-errs-less-than-the-best-usual", "In most random settings the median of 20 STARs errs less "
     "than the best of seven usual estimators; the source: in 7 of 12 cases.",
     {"estimator": "best usual"}, {"estimator": "median STAR"}, {"source": STAR}),
    ("best-star-errs-less-than-fqe-on-its-squares", "In most random settings the best STAR errs less than "
     "the best fitted Q evaluation on places or the same squares.", {"estimator": "best FQE on squares"},
     {"estimator": "best STAR"}, {"source": "this project: the abstraction without STAR"}),
    ("post-hoc-users-err-more-than-a-priori-ones", "At 4, 8 and 16 turns users trained on labels of the "
     "outcome err more about an agent that was not logged than users trained on a trait known before.",
     {"estimator": "post-hoc"}, {"estimator": "a priori"}, {"source": TALK, "over": {"turns": TURNS[1:]}}),
    ("reweighted-post-hoc-users-vary-faster-than-a-priori-ones", "The log variance of reweighted users "
     "trained on labels of the outcome rises by 0.05 a turn more than that of users trained on a trait known "
     "before, reweighted alike.", None, None, GROWTH,
     {"outcome": rise_beyond_a_priori, "source": TALK, "typical": "mean"}),
    outcome="error", typical="median",
)  # fmt: skip
