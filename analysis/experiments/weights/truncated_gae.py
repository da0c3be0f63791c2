"""T-PPO: what a window's end does to the gradient under EGAE and GAE, and what waiting costs."""

from functools import cache

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, exact, short_of
from analysis.tables.committed import Table
from testbed.advantages import advantage
from testbed.exact.tree import random_policies, random_tree
from testbed.pipeline.closed_forms import moments
from testbed.pipeline.design import Design

NAME = "truncated-gae"
SOURCE = "T-PPO (2025), arXiv:2506.15050; from secondary notes"
LENGTH, SEEDS, NOISES = 6, tuple(range(6)), (0.0, 0.2)
SIGMAS, CLAIMED = (0.25, 0.5, 0.75, 1.0), 2.5


def rows() -> pd.DataFrame:
    """Return, per window, policy, noise of the critic and advantage, the error of the expected gradient.

    A response of 6 tokens is trained on in windows of 1 to 6 tokens; all windows together have every token
    once. "waiting" is a window of 6. inner: the error where each window's last token is left out.
    """
    import torch

    from testbed.data.signals import Signals
    from testbed.exact.turns import distance, responses

    found = []
    for seed in SEEDS:
        world = random_tree(2, LENGTH, seed)
        pi_SA, _ = random_policies(world, 0.0, seed)
        every, true_SA = responses(world), world.gradient(pi_SA)
        leaves, law_L = every.leaves, every.law(pi_SA)
        exact_S = (pi_SA * world.action_values(pi_SA)).sum(-1)
        error_S = np.random.default_rng([seed, 3]).standard_normal(world.states)
        for window in range(1, LENGTH + 1):
            for noise in NOISES:
                value_LT = torch.from_numpy((exact_S + noise * error_S)[leaves.state_LT])
                for name in ("egae", "gae"):
                    adv_LT = np.zeros(leaves.mask_LT.shape)
                    for first in range(0, LENGTH, window):
                        part = slice(first, first + window)
                        cut = first + window < LENGTH
                        reward_L = torch.from_numpy(leaves.reward_L * (not cut))
                        signals = Signals(
                            reward_L,
                            torch.arange(len(reward_L)),
                            torch.from_numpy(leaves.mask_LT[:, part].copy()),
                            value_BT=value_LT[:, part],
                            truncated_B=torch.full(reward_L.shape, cut),
                        )
                        adv_LT[:, part] = advantage[name].bind(lam=1.0)(signals).numpy()
                    mean_SA = every.score_sum(pi_SA, law_L[:, None] * adv_LT)
                    inner_S = np.ones(world.states, dtype=bool)
                    for t in range(window - 1, LENGTH - 1, window):
                        inner_S[world.level[t] : world.level[t + 1]] = False
                    whole = distance(mean_SA, true_SA)
                    inner = distance(mean_SA[inner_S], true_SA[inner_S]) if inner_S.any() else np.nan
                    found.append((window, seed, noise, name, whole, inner))
    return pd.DataFrame(found, columns=["window", "seed", "noise", "advantage", "error", "inner"])


def table() -> Table:
    """Return the rows."""
    return Table.of(NAME, rows(), {"tokens": 2, "length": LENGTH})


EXPERIMENT = Experiment(
    NAME,
    question="What does training on truncated responses do to the gradient, and what does it save?",
    source=SOURCE,
    differs=(
        "all responses of six binary tokens, exact critics or such with errors of deviation 0.2; times "
        "are those of the "
        "pipeline's length law; the paper's window and lam could not be verified"
    ),
    compute=table,
    keys=("window", "seed", "noise", "advantage"),
    metrics=("error", "inner"),
    margins={"factor of the source": CLAIMED},
    figure="critics",
    systems={
        "T-PPO (Truncated PPO)": Part(
            "bias at windows' ends, and the time that waiting takes; accuracy at equal time in the "
            "loop stays open"
        )
    },
)


@cache
def _errors(column: str, noise: float) -> pd.DataFrame:
    table = rows()
    return table[table["noise"] == noise].pivot(index=["window", "seed"], columns="advantage", values=column)


@EXPERIMENT.claim()
def egae_is_unbiased_but_at_the_last_token() -> Evidence:
    """With an exact critic, EGAE's expected gradient at all tokens but the last of a truncated window is the
    true one, and at the last it is 0: windows of one token learn from the end of the response alone.
    """
    inner = _errors("inner", 0.0)["egae"].dropna()
    return exact(inner, 1e-9, "largest relative error inside windows")


@EXPERIMENT.claim(kind="enumerated")
def egae_cuts_less_than_gae() -> Evidence:
    """With an exact critic and windows of 2 to 5 of 6 tokens EGAE's expected gradient is nearer to the true
    one than that of GAE, which takes the reward of an unfinished response for 0, at every policy.
    """
    error, between = _errors("error", 0.0), _between(0.0)
    gaps = [*np.maximum(0.0, between["egae"] - between["gae"]), *error.xs(LENGTH, level="window")["egae"]]
    means = between.mean()
    return exact(
        gaps, 1e-9, f"largest excess; mean errors {means['egae']:.2f} (EGAE), {means['gae']:.2f} (GAE)"
    )


@EXPERIMENT.claim(kind="enumerated")
def errors_of_the_critic_eat_what_egae_gains() -> Evidence:
    """With critics whose errors deviate by 0.2 EGAE's lead over GAE falls to less than a third of what it is
    with exact ones, in the mean over windows of 2 to 5 tokens and policies.
    """
    exact_lead, lead = ((b["gae"] - b["egae"]).mean() for b in map(_between, NOISES))
    return exact(
        [max(0.0, lead - exact_lead / 3), short_of(exact_lead, 0.1)],
        1e-9,
        f"excess over a third; mean leads {exact_lead:.2f} with exact critics, {lead:.2f} with wrong ones",
    )


def _between(noise: float) -> pd.DataFrame:
    error = _errors("error", noise)
    window = error.index.get_level_values("window")
    return error[(window > 1) & (window < LENGTH)]


@EXPERIMENT.claim(source=f"{SOURCE}: up to 2.5 times the efficiency", kind="enumerated")
def waiting_costs_up_to_two_and_a_half_times_from_sigma_one_half() -> Evidence:
    """A batch of 256 lognormal responses that waits for its longest keeps its slots busy for E[longest] /
    E[L] as long as its tokens need: less than 2.5 times as long at sigma 0.25, more at 0.5 and beyond.
    """
    factor = tail_factors()
    gaps = [max(0.0, factor[0.25] - CLAIMED), *(short_of(factor[s], CLAIMED) for s in SIGMAS[1:])]
    return exact(gaps, 1e-9, "; ".join(f"{f:.2f} at sigma {s:g}" for s, f in factor.items()))


@cache
def tail_factors() -> dict[float, float]:
    """Return E[longest of 256] / E[length] by sigma, from exact moments of the length law."""
    found = {s: moments(Design(sigma=s, batch=256, slots=256)) for s in SIGMAS}
    return {s: each.batch / each.mean for s, each in found.items()}
