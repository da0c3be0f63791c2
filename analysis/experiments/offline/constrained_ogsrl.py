"""Guardians of offline planning: none, one on actions, and one on where actions lead (OGSRL)."""

import dataclasses

import numpy as np
import pandas as pd

from analysis.kernels.constrained import action_support, trajectory_support
from analysis.lab import Bools, Experiment, Frame, Plot, Rows, Seeds, ask, asks, columns, of_seeds
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, guessed_rewards, random_worlds, some_actions
from envs.logged_data import covering
from testbed.offline.tabular_offline import fitted_q, greedy

NAME = "constrained-ogsrl"
SEEDS, FRESH, STATES, ACTIONS, LOGGED = 480, 26_000, 12, 5, 4
"""FRESH: offset of the seeds, so that worlds differ from those of earlier tables."""
SIZES = (100, 300, 1000, 3000)
"""Logged steps; at 100 a logged pair was seen about twice, from 1000 on no guardian has a risk to avoid."""
LURE, COST = 1.0, 1000.0
"""Extra reward of an unsafe state, and what a step there costs where the plan is charged for it."""
MARGIN, NEAR = 0.01, 0.1
"""Margins: probability of an unsafe state a discounted step; value, rewards having deviation 1. Pre-set."""


def hazards(seeds: Seeds) -> tuple[Worlds, Bools, Bools]:
    """Random worlds: two unsafe states pay 1 more; the logger; and the states that can stay safe for ever.

    Starts are uniform over the states from which a logged policy can stay safe.
    """
    plain = random_worlds(seeds, states=STATES, actions=ACTIONS, branching=2, noise_std=0.5)
    unsafe_S = np.arange(STATES) < 2
    reward_RSA = plain.reward_RSA + LURE * unsafe_S[:, None]
    logged_RSA = some_actions(seeds, STATES, ACTIONS, LOGGED, "logged")
    safe_RSA = trajectory_support(logged_RSA, plain.moves_RSAS, unsafe_S)
    start_RS = safe_RSA.any(-1) / np.maximum(safe_RSA.any(-1).sum(-1, keepdims=True), 1)
    start_RS = np.where(start_RS.sum(-1, keepdims=True) > 0, start_RS, 1 / STATES)
    worlds = tuple(
        dataclasses.replace(w, reward_SA=r, start_S=s)
        for w, r, s in zip(plain.worlds, reward_RSA, start_RS, strict=True)
    )
    return Worlds(worlds, plain.moves_RSAS, reward_RSA), logged_RSA, safe_RSA


def rows(seeds: Seeds) -> Rows:
    """Return unsafe shares and values of plans under four guardians, by number of logged steps."""
    drawn = tuple(seed + FRESH for seed in seeds)
    worlds, logged_RSA, safe_RSA = hazards(drawn)
    solvable_R = np.flatnonzero(safe_RSA.any((1, 2)))
    unsafe_S = np.arange(STATES) < 2
    mu_RSA = covering(np.full(logged_RSA.shape, 1 / ACTIONS), logged_RSA)
    best_R = worlds.value(
        greedy(fitted_q(worlds.moves_RSAS, worlds.reward_RSA, DISCOUNT, safe_RSA, -1e3), safe_RSA)
    )
    for steps in SIZES:
        counts = worlds.logged(mu_RSA, steps, drawn, f"log of {steps}")
        seen_RSA, guessed_RSA = action_support(counts.visit_RSA), guessed_rewards(counts, drawn)
        inside_RSA = trajectory_support(seen_RSA, counts.moves_RSAS, unsafe_S)
        guards = {
            "none": np.ones_like(seen_RSA), "actions": seen_RSA, "actions, costs": seen_RSA,
            "trajectories": inside_RSA,
        }  # fmt: skip
        for name, allowed_RSA in guards.items():
            cost_S1 = COST * unsafe_S[:, None] * (name == "actions, costs")
            q_RSA = fitted_q(counts.moves_RSAS, guessed_RSA - cost_S1, DISCOUNT, allowed_RSA)
            # Where the guardian allows nothing the plan has to act too: it takes a logged action.
            pi_RSA = greedy(q_RSA, np.where(allowed_RSA.any(-1, keepdims=True), allowed_RSA, seen_RSA))
            found = {"unsafe": worlds.state_law(pi_RSA)[:, :2].sum(-1), "lost": best_R - worlds.value(pi_RSA)}
            yield columns(seeds, steps=steps, guardian=name, **found).iloc[solvable_R]


EXPERIMENT = Experiment(
    question="Which guardian keeps an offline plan safe, and what does it cost?",
    source="Yan et al. (2025), Offline guarded safe reinforcement learning (OGSRL), arXiv:2505.16242",
    differs="random finite worlds, tables, a budget of 0; the guardian is computed from counts; without "
    "one, Q of an unseen pair is a guess; the guardian of trajectories knows which states are unsafe, and so "
    "does a plan on logged actions that pays for them; `lost` is the value below the best policy that can "
    "stay safe within the log",
    compute=of_seeds(NAME, rows, SEEDS, {"lure": LURE}),
    keys=("run", "seed", "steps", "guardian"), metrics=("unsafe", "lost"),
    margins={"share of steps in unsafe states": MARGIN, "value": NEAR},
    figure=Plot(
        "final by setting", x="steps: logged steps", y="unsafe: share of steps in unsafe states",
        arm=("guardian",),
        says="Shows the share of steps in unsafe states, which pay more, against logged steps, for plans in "
        "random worlds of 12 states; the plan may take any action (none), only logged actions "
        "(actions), the same at a cost of 1000 a step in unsafe states (actions, costs), or only those that, "
        "by the log, never lead to an unsafe or unknown state (trajectories).",
    ),
    systems=("OGSRL",),
)  # fmt: skip

asks(EXPERIMENT,
    ("trajectory-guardian-keeps-sampled-plans-safe", "From 3000 logged steps, plans within the trajectory "
     "guardian are unsafe in under 0.01 of their steps.", {"guardian": "trajectories", "steps": SIZES[-1]},
     None, {"below": True}),
    ("action-guardian-with-costs-is-not-enough", "From 100 logged steps, plans within the action guardian "
     "that pay 1000 for a step in an unsafe state are there in 0.01 more of their steps than plans within "
     "the trajectory guardian.", {"guardian": "actions, costs"}, {"guardian": "trajectories"},
     {"over": {"steps": SIZES[0]}}),
    outcome="unsafe", by=MARGIN,
)  # fmt: skip


def short(table: Frame) -> pd.Series:
    """Return the lost value; 0 where a plan earns more than the best safe policy."""
    return table["lost"].clip(lower=0.0)


ask(EXPERIMENT, "trajectory-guardian-comes-near-the-safe-optimum", "From 3000 logged steps, plans within the "
    "trajectory guardian earn less than 0.1 below the best policy that can stay safe, on average over random "
    "finite worlds with a budget of 0; a plan that earns more counts as 0 below.",
    {"guardian": "trajectories", "steps": SIZES[-1]}, by=NEAR, outcome=short, below=True)  # fmt: skip
