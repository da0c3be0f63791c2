"""A ranking loss with expert winners: the policy's own losers (Diffusion-DRO) against logged losers."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Plot, Seeds, columns, exact, of_seeds, short_of
from analysis.worlds.preference_worlds import PairWorld, linear_world
from envs.arrays import Floats
from testbed.offline.preferences import log_policy, pair_gradient, pair_law, tilt
from testbed.rng import generator

NAME = "pairs-dro"
SEEDS, STEPS, BETA = 24, 160, 0.2
SEEN = 6
"""Prompts that are trained on, of 24."""
MARGIN = 0.05


def world(seed: int) -> PairWorld:
    """24 prompts with 8 answers and 6 features that pay."""
    return linear_world(seed, contexts=24, actions=8, width=6)


def draw(
    step: int, history: list[Floats], *, win_SA: Floats, lose_SA: Floats | None
) -> tuple[Floats, Floats] | None:
    """Expert winners on the seen prompts against the given losers, or the policy's when None."""
    if step and lose_SA is not None:
        return None
    losers_RSA = np.exp(history[-1]) if lose_SA is None else lose_SA[None]
    context_S = (np.arange(24) < SEEN) / SEEN
    weight_RSAA = pair_law(context_S, win_SA[None], losers_RSA)
    return weight_RSAA, np.broadcast_to(np.where(np.eye(8, dtype=bool), 0.5, 1.0), weight_RSAA.shape)


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return regrets on seen and unseen prompts, by where the losers come from."""
    for seed in seeds:
        found = world(seed)
        win_SA = tilt(found.ref_SA, found.reward_SA, 0.2)
        logged_SA = generator(seed, "logged losers").dirichlet(np.full(8, 0.5), size=24)
        for name, lose_SA in (("policy", None), ("logged", logged_SA)):
            sets = partial(draw, win_SA=win_SA, lose_SA=lose_SA)
            _, history = found.train(sets, steps=STEPS, rate=2.0, beta=BETA)
            lost_S = found.reward_SA.max(-1) - (np.exp(history[-1][0]) * found.reward_SA).sum(-1)
            yield columns((seed,), losers=name, seen=lost_S[:SEEN].mean(), unseen=lost_S[SEEN:].mean())


EXPERIMENT = Experiment(
    NAME,
    question="Do losers of the policy of the day generalize better to unseen prompts than logged ones?",
    source="Diffusion-DRO (2025), Ranking-based preference optimization for diffusion models, abstract",
    differs="a log-linear policy on a bandit; the ranking loss is DPO's with expert winners",
    compute=of_seeds(NAME, rows, SEEDS, {"steps": STEPS, "beta": BETA, "seen": SEEN}),
    keys=("run", "seed", "losers"),
    metrics=("seen", "unseen"),
    margins={"regret": MARGIN},
    figure=Plot("distribution", x="losers", y="unseen: regret, unseen prompts"),
    systems=("Diffusion-DRO",),
)


@EXPERIMENT.claim(source="derived here from the logistic loss at margin 0")
def ranking_gradient_is_a_difference_of_feature_means() -> Evidence:
    """At the reference the ranking loss pulls features by beta / 2 (mean of winners - mean of losers): with
    own losers it is zero where the policy has the winners' features, with other losers it is not.
    """
    gaps = []
    for seed in range(4):
        found = world(seed)
        theta_RF = np.zeros((1, 6))
        start_RSA = log_policy(theta_RF, found.feature_SAF, found.ref_SA)
        logged_SA = generator(seed, "logged losers").dirichlet(np.full(8, 0.5), size=24)
        for win_SA, lose_SA in (
            (tilt(found.ref_SA, found.reward_SA, 0.2), None),
            (found.ref_SA, None),
            (found.ref_SA, logged_SA),
        ):
            sets = draw(0, [start_RSA], win_SA=win_SA, lose_SA=lose_SA)
            assert sets is not None
            slope_RF = pair_gradient(theta_RF, found.feature_SAF, *sets, beta=BETA, kind="dpo")[1]
            apart_SA = win_SA - (found.ref_SA if lose_SA is None else lose_SA)
            wanted_F = -BETA / 2 * np.einsum("sa,saf->f", apart_SA[:SEEN] / SEEN, found.feature_SAF[:SEEN])
            gaps.append(np.abs(slope_RF[0] - wanted_F).max())
            if lose_SA is not None:
                gaps.append(short_of(float(np.abs(slope_RF).max()), 0.01))
    return exact(gaps, 1e-12, "largest distance from the difference of feature means")


EXPERIMENT.claim(
    "own-losers-generalize-to-unseen-prompts",
    "On unseen prompts their regret is lower by 0.05 than logged losers'.",
).compare("unseen", {"losers": "logged"}, {"losers": "policy"}, by=MARGIN)

EXPERIMENT.claim(
    "own-losers-help-on-seen-prompts", "On seen prompts their regret is lower by 0.05 than logged losers'."
).compare("seen", {"losers": "logged"}, {"losers": "policy"}, by=MARGIN)
