"""Two roles, one policy or two: whose gradient is it, and where does it lead? A bandit, solved exactly."""

from functools import cache

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, exact
from analysis.tables.committed import Table
from testbed.exact.tree import enumerate_leaves, reward_tree

NAME = "role-gradients"
SOURCE = "Multi-agent RL for LLM workflows, as in the table of systems; from secondary notes"
COPIES, STEPS, RATE = (1, 2, 4), 600, 8.0
WANTED = {"alike": (0, 0), "opposite": (0, 1)}
"""What solver and checker must write for a reward of 1."""


@cache
def paths() -> pd.DataFrame:
    """Return where exact gradient ascent ends, by weights, wants and tokens of the checker.

    The solver writes one token, the checker c, of two kinds each; reward 1 where all are wanted. Shared: one
    softmax for all tokens. Separate: one per role. mass: the checker's share of the sampled gradient's mass,
    sum of |weight| x |score|, at the start. own: chance of its wanted token at the end, role by role.
    """
    from testbed.exact.turns import Responses
    from testbed.inspection.effective_weights import effective_weights

    found = []
    for copies in COPIES:
        for wants, (solver, checker) in WANTED.items():
            wanted_T = [solver, *[checker] * copies]
            reward_L = np.zeros(2 ** len(wanted_T))
            reward_L[int("".join(map(str, wanted_T)), 2)] = 1.0
            tree = reward_tree(reward_L, 2, len(wanted_T))
            leaves = enumerate_leaves(tree)
            every = Responses(tree, leaves, np.zeros_like(leaves.state_LT))
            role_S = (np.arange(tree.states) > 0).astype(np.int64)
            adv_LT = np.broadcast_to(leaves.reward_L[:, None], leaves.mask_LT.shape)
            for weights in ("shared", "separate"):
                table_S = role_S if weights == "separate" else np.zeros_like(role_S)
                logits_KA = np.zeros((2, 2))
                mass = np.nan
                for step in range(STEPS):
                    pi_SA = _softmax(logits_KA)[table_S]
                    gradient_SA = every.score_sum(pi_SA, every.law(pi_SA)[:, None] * adv_LT)
                    if not step:
                        logp, batch = every.batch(pi_SA, pi_SA, adv_LT)
                        size_LT = np.abs(effective_weights("reinforce", logp, batch).numpy())
                        size_LT *= np.sqrt(every.score_norm(pi_SA)) * every.law(pi_SA)[:, None]
                        mass = float(size_LT[:, 1:].sum() / size_LT.sum())
                    np.add.at(logits_KA, table_S, RATE * gradient_SA)
                pi_KA = _softmax(logits_KA)
                own = pi_KA[0, solver], pi_KA[table_S.max(), checker]
                found.append(
                    (copies, wants, weights, float(tree.value(pi_KA[table_S])), mass, *map(float, own))
                )
    return pd.DataFrame(
        found, columns=["copies", "wants", "weights", "success", "mass", "own_solver", "own_checker"]
    )


def _softmax(logits_KA: np.ndarray) -> np.ndarray:
    power_KA = np.exp(logits_KA - logits_KA.max(-1, keepdims=True))
    return power_KA / power_KA.sum(-1, keepdims=True)


def table() -> Table:
    """Return the ends of the paths."""
    return Table.of(NAME, paths(), {"steps": STEPS, "learning_rate": RATE})


EXPERIMENT = Experiment(
    NAME,
    question="Is a policy that two roles share captured by the heavier one?",
    source=SOURCE,
    differs="a bandit of two roles under exact gradients; terminal cliffs of training stay open",
    compute=table,
    keys=("copies", "wants", "weights"),
    metrics=("success", "mass", "own_solver", "own_checker"),
    figure=Plot(
        "final by setting", x="copies: tokens of the checker for one of the solver",
        y="success: success at the end", arm=("weights", "wants"),
    ),
    systems={
        "Multi-agent RL for LLM workflows": Part(
            "gradient mass per role, and the peak that one softmax for both allows; not terminal "
            "cliffs of training"
        )
    },
)  # fmt: skip


@EXPERIMENT.claim()
def gradient_mass_of_a_role_is_its_share_of_tokens() -> Evidence:
    """At a uniform start a role's share of the sampled gradient's mass is its share of the tokens."""
    table = paths()
    return exact(np.abs(table["mass"] - table["copies"] / (table["copies"] + 1)), 1e-12, "largest distance")


@EXPERIMENT.claim()
def a_shared_policy_is_captured_by_the_heavier_role() -> Evidence:
    """Where the roles want opposite tokens, one softmax for both ends at c / (c + 1) for the checker's token,
    and succeeds with the chance that this leaves, (c/(c+1))^c / (c+1), at most 1/4.
    """
    table = paths()
    rows = table[(table["wants"] == "opposite") & (table["weights"] == "shared")]
    share = rows["copies"] / (rows["copies"] + 1)
    gaps = [
        *np.abs(rows["own_checker"] - share),
        *np.abs(rows["success"] - share ** rows["copies"] * (1 - share)),
    ]
    return exact(gaps, 1e-6, "largest distance from a closed form")


@EXPERIMENT.claim()
def separate_weights_succeed_whatever_the_roles_want() -> Evidence:
    """With weights of their own both roles succeed with more than 0.99, opposite wants or not; with shared
    ones only where they want the same, and then as well.
    """
    table = paths().set_index(["weights", "wants"])["success"]
    good = [*table["separate"], *table["shared"]["alike"]]
    poor = table["shared"]["opposite"]
    gaps = [*(max(0.0, 0.99 - s) for s in good), *(max(0.0, s - 0.25) for s in poor)]
    return exact(gaps, 1e-6, f"what a success lacks; least success {min(good):.4f}")
