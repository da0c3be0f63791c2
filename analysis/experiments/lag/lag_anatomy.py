"""What schedules of equal mean lag do to the ratios on one and the same path of weights: a table."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Plot, arms, must_exceed
from analysis.tables.committed import Table
from envs.arrays import Floats
from testbed.config.run import Run, grid

NAME = "lag-anatomy"
SCHEDULES: dict[str, tuple[str, dict[str, int]]] = {
    "exact": ("exact", {}),
    "uniform": ("uniform", {}),
    "two-point": ("two-point", {}),
    "geometric": ("geometric", {}),
    "rarely old": ("two-point", {"high": 8}),
}
"""Rows of the figure: registered name and arguments; "high" counts in lags. Periodic is uniform's law."""
LAGS = (2, 4, 8)
SEEDS = range(8, 24)
FRESH = range(1000, 1016)
"""Seeds of a second run; the distribution of the log-ratio is that of the first."""
LEVELS = (0.001, 0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99, 0.999)
STEPS, EVERY = 300, 10
EDGES = np.linspace(-12.0, 12.0, 4801)
"""Bins of the log-ratio, 0.005 nats wide; quantiles are read off them."""


def age_distribution(row: str, lag: int) -> Any:
    """Return the AgeDistribution of a row of the figure at a mean lag."""
    from testbed.staleness import plan_for

    name, arguments = SCHEDULES[row]
    pairs = tuple((key, value * lag) for key, value in arguments.items())
    return plan_for(Run(staleness=name, lag=lag, staleness_args=pairs)).distribution


def trained_path(seeds: Sequence[int] = SEEDS, steps: int = STEPS) -> tuple[Any, Floats]:
    """Return a token tree and the policies of synchronous GRPO before every step, [seeds, steps, S, A]."""
    from testbed.staleness import build_source
    from testbed.training.update import State, Trainer
    from testbed.worlds.build_world import build_world

    base = Run(task="tree", recipe="grpo", prompts=16, group=8, learning_rate=3.0, steps=steps)
    runs = grid(base, seed=seeds)
    world: Any = build_world(runs)
    state, policies = State.start(world.initial()), []
    source = build_source(runs, world, state.theta_RP)
    trainer = Trainer.of(runs, world, state.theta_RP)
    for step in range(steps):
        policies.append(world.policy.probabilities(state.theta_RP))
        rollout = source.batch(state.theta_RP, step).rollout
        update = trainer.first_pass(state.theta_RP, rollout, step)
        state = trainer.learn(state, rollout, update, step)
    return world.task, np.stack(policies, axis=1)


def second_moments(tree: Any, path_RTSA: Floats, step: int, ages: int) -> Floats:
    """Return E_mu W^2 between the policy of a step and those 0 to ages - 1 steps older, [R, ages]."""
    pi_R1SA = path_RTSA[:, step, None]
    mu_RKSA = path_RTSA[:, step - np.arange(ages)]
    moment_RK: Floats = tree.divergence(pi_R1SA, mu_RKSA).second_moment
    return moment_RK


def log_ratio_shares(tree: Any, path_RTSA: Floats, steps: list[int], share_K: Floats) -> Floats:
    """Return the law of log W under mu by bin, replicas, steps, ages pooled; share_K[k] is age k's share."""
    from testbed.mismatch.ratio_distribution import tree_responses

    state_LT, token_LT, mask_LT = tree_responses(tree)
    total_E = np.zeros(len(EDGES) - 1)
    log_RTL = np.where(mask_LT, np.log(path_RTSA)[..., state_LT, token_LT], 0.0).sum(-1)
    for age, share in enumerate(share_K):
        if share == 0:
            continue
        for step in steps:
            log_mu_RL = log_RTL[:, step - age]
            log_w_RL = np.clip(log_RTL[:, step] - log_mu_RL, EDGES[0], EDGES[-1])
            total_E += share * np.histogram(log_w_RL, EDGES, weights=np.exp(log_mu_RL))[0]
    shares_E: Floats = total_E / total_E.sum()
    return shares_E


def lag_anatomy() -> Table:
    """Return the figure's table; columns what, schedule, lag, seed, x, y.

    what: "age" (x: age, y: its share), "log_ratio" (x: level, y: quantile of log W under mu, seeds and steps
    pooled), "chi2" (y: mean over steps of E_mu W^2 - 1, per seed) and "coherent" (y: 1 + Var(age) / lag^2,
    how much larger than at exact lag chi2 would be if the weights moved along a line). Ages and quantiles are
    those of the largest lag.
    """
    tree, path_RTSA = trained_path([*SEEDS, *FRESH])
    rows: list[dict[str, Any]] = []
    longest = max(age_distribution(row, max(LAGS)).longest for row in SCHEDULES)
    steps = list(range(longest, STEPS, EVERY))
    chi2_RK = np.mean([second_moments(tree, path_RTSA, step, longest + 1) for step in steps], axis=0) - 1
    for row in SCHEDULES:
        for lag in LAGS:
            law = age_distribution(row, lag)
            key = {"schedule": row, "lag": lag, "seed": -1}
            rows.append({"what": "coherent", **key, "x": lag, "y": 1 + law.variance / lag**2})
            for seed, value in zip([*SEEDS, *FRESH], chi2_RK[:, law.age_K] @ law.share_K, strict=True):
                rows.append({"what": "chi2", **key, "seed": seed, "x": lag, "y": value})
        for age, share in zip(law.age_K, law.share_K, strict=True):
            rows.append({"what": "age", **key, "x": int(age), "y": share})
        share_K = np.zeros(law.longest + 1)
        share_K[law.age_K] = law.share_K
        below_E = log_ratio_shares(tree, path_RTSA[: len(SEEDS)], steps, share_K).cumsum()
        for level in LEVELS:
            place = min(int(np.searchsorted(below_E, level)), len(EDGES) - 2)
            rows.append({"what": "log_ratio", **key, "x": level, "y": (EDGES[place] + EDGES[place + 1]) / 2})
    about = {
        "path": "synchronous grpo on task tree, learning rate 3, 16 prompts x 8, sgd",
        "seeds": f"{SEEDS[0]} to {SEEDS[-1]}, fresh {FRESH[0]} to {FRESH[-1]}",
        "steps": f"{steps[0]} to {steps[-1]} by {EVERY}",
        "exact": "all responses are enumerated",
    }
    return Table.of(NAME, pd.DataFrame(rows), about)


EXPERIMENT = Experiment(
    "lag-anatomy",
    question="What do schedules of equal mean lag do to the ratios on one and the same path of weights?",
    source="this project",
    compute=lag_anatomy,
    fresh=FRESH,
    keys=("what", "schedule", "lag", "seed", "x"),
    metrics=("y",),
    figure=Plot(
        "final by setting",
        x="lag: mean lag (optimizer steps)",
        y="y: chi-square of the sequence ratio",
        arm=("schedule",),
        where={"what": "chi2"},
        log="y",
        also=(
            {
                "kind": "curves by arm",
                "x": "x: level",
                "y": "y: log-ratio at mean lag 8 (nats)",
                "where": {"what": "log_ratio"},
                "log": "",
            },
        ),
        says="Drawn: chi-square by mean lag, and quantiles of the log-ratio at mean lag 8.",
    ),
    see=(
        "spread-of-ages-raises-the-second-moment",
        "age-variance-adds-to-chi2-when-drift-keeps-its-direction",
    ),
)


@EXPERIMENT.claim(
    "grpo-drifts-along-a-line", source="this project, after a look at seeds 0 to 7; judged on seeds 8 to 23"
)
def grpo_drifts_along_a_line(table: pd.DataFrame) -> Evidence:
    """On the path of synchronous GRPO on a token tree, geometric ages of mean 4 raise chi^2 above that of lag
    4 by more than half of what drift along a line predicts.
    """
    # A check of its own: the margin is read from the table.
    rows = table[table["lag"] == 4]
    chi2 = arms(rows, "y", {name: {"what": "chi2", "schedule": name} for name in ("geometric", "exact")})
    line = rows[(rows["what"] == "coherent") & (rows["schedule"] == "geometric")]["y"]
    ratio = chi2["geometric"] / chi2["exact"]
    predicted = float(line.iloc[0])
    note = (
        f"mean ratio {ratio.mean():.3f}; a line gives {predicted:.3f}, steps "
        "in directions of their own give 1"
    )
    return must_exceed(ratio, (1 + predicted) / 2, note, null=(1 + predicted) / 2)
