"""POAD: how a discount sees actions of several tokens, by a backup over tokens, over actions, and by BAD."""

from functools import cache

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Plot, exact, short_of
from analysis.tables.committed import Table
from envs.tokens.tree import tree
from testbed.advantages import advantage
from testbed.exact.tree import random_policies

NAME = "action-decomposition"
SOURCE = "Wen et al. (2024), POAD, arXiv:2405.15821"
GAMMAS, SEEDS = (1.0, 0.95, 0.9, 0.8), tuple(range(4))
BACKUPS = ("token", "action", "BAD")


def rows() -> pd.DataFrame:
    """Return, per discount, policy and backup, the error of its gradient, its variance, and its sums.

    The truth gives every token of an action the action's advantage. Critics are exact, lam is 0.
    error: relative distance from that expected gradient. gap: largest distance between an action's advantage
    and the sum over its tokens.
    """
    from testbed.exact.turns import distance, estimate, responses

    world = tree(task="guess", prompts=2)
    every, found = responses(world), []
    leaves, mask_LT = every.leaves, every.leaves.mask_LT
    last_L1 = np.where(mask_LT, every.turn_LT, 0).max(-1, keepdims=True)
    later_LT = mask_LT.sum(-1, keepdims=True) - mask_LT.cumsum(-1)
    for gamma in GAMMAS:
        for seed in SEEDS:
            pi_SA, _ = random_policies(world, 0.0, seed)
            by_action_S, by_token_S = (
                every.state_values(pi_SA, leaves.reward_L[:, None] * gamma**left_LT)
                for left_LT in (last_L1 - every.turn_LT, later_LT)
            )
            of = {
                "action": ("turn_gae", by_action_S),
                "BAD": ("bad", by_action_S),
                "token": ("gae", by_token_S),
            }
            adv = {
                name: every.advantages(advantage[which].bind(gamma=gamma, lam=0.0), value_S)
                for name, (which, value_S) in of.items()
            }
            made = {name: estimate(every, "reinforce", pi_SA, pi_SA, adv_LT) for name, adv_LT in adv.items()}
            for name in BACKUPS:
                found.append(
                    {
                        "gamma": gamma,
                        "seed": seed,
                        "backup": name,
                        "error": distance(made[name].mean_SA, made["action"].mean_SA),
                        "deviation": float(
                            np.sqrt(made[name].variance) / np.linalg.norm(made["action"].mean_SA)
                        ),
                        "gap": 0.0 if name == "action" else _gap(every, adv[name], adv["action"]),
                    }
                )
    return pd.DataFrame(found)


def _gap(every: object, adv_LT: np.ndarray, action_LT: np.ndarray) -> float:
    """Return the largest distance of sums over an action's tokens from its advantage."""
    gaps, mask_LT, turn_LT = [], every.leaves.mask_LT, every.turn_LT  # type: ignore[attr-defined]
    for turn in range(int(turn_LT.max()) + 1):
        in_LT = mask_LT & (turn_LT == turn)
        there_L = in_LT.any(-1)
        own_L = np.where(in_LT, action_LT, -np.inf).max(-1)
        gaps.append(np.abs(np.where(in_LT, adv_LT, 0.0).sum(-1) - own_L)[there_L].max())
    return float(max(gaps))


def table() -> Table:
    """Return the rows."""
    return Table.of(NAME, rows(), {"task": "guess base=2 digits=2 turns=3", "prompts": 2})


EXPERIMENT = Experiment(
    NAME,
    question="Does a backup with action decomposition give tokens what their actions are worth?",
    source=SOURCE,
    differs="exact critics on a game of three guesses of two tokens each; no language model is trained",
    compute=table,
    keys=("gamma", "seed", "backup"),
    metrics=("error", "deviation", "gap"),
    figure=Plot(
        "final by dial", x="gamma: discount per action or token",
        y="error: error of the gradient (share of its length)", arm=("backup",),
    ),
    systems=("POAD",),
)  # fmt: skip


@cache
def _wide(column: str) -> pd.DataFrame:
    return rows().pivot(index=["gamma", "seed"], columns="backup", values=column)


@EXPERIMENT.claim()
def bad_gives_tokens_what_their_action_is_worth() -> Evidence:
    """With exact critics the advantages that BAD gives to the tokens of an action add up to the action's own,
    whatever the discount, and its expected gradient is that of the actions.
    """
    return exact(
        [*_wide("gap")["BAD"], *_wide("error")["BAD"]], 1e-9, "largest gap of a sum, or error of a gradient"
    )


@EXPERIMENT.claim(kind="enumerated")
def discounted_tokens_miss_their_action() -> Evidence:
    """A backup that discounts every token is wrong by more than 2 % of the gradient at a discount of 0.95, by
    more than 5 % at 0.8, and right without discount.
    """
    error = _wide("error")["token"]
    lacks = [short_of(error[0.95].min(), 0.02), short_of(error[0.8].min(), 0.05), error[1.0].max()]
    shown = ", ".join(f"{error[g].min():.3f} at {g:g}" for g in GAMMAS)
    return exact(lacks, 1e-9, f"what an error lacks to its bound; least errors {shown}")


@EXPERIMENT.claim(kind="enumerated")
def bad_varies_less_than_whole_actions() -> Evidence:
    """At every discount BAD's gradient has a lower variance than that of whole actions."""
    spread = _wide("deviation")
    note = f"largest excess; mean ratio of deviations {(spread['BAD'] / spread['action']).mean():.3f}"
    return exact(np.maximum(0.0, spread["BAD"] - spread["action"]), 1e-12, note)
