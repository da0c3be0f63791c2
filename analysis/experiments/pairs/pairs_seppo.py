"""Losers sampled from the policy's own checkpoints (SePPO), with and without an anchor, against fixed
losers.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Plot, Seeds, columns, exact, of_seeds
from analysis.worlds.preference_worlds import PairWorld, linear_world
from envs.arrays import Floats
from testbed.offline.preferences import log_policy, pair_gradient, pair_law, tilt
from testbed.offline.tabular import kl
from testbed.rng import generator

NAME = "pairs-seppo"
SEEDS, STEPS, BETA, RATE = 16, 160, 0.2, 2.0
LAGS = (1, 4, 16, 64)
MARGIN = 0.05


def winners(found: PairWorld, seed: int) -> Floats:
    """Demonstrated actions, [S, A]: good ones on the whole, a few of them poor."""
    noise_SA = 0.5 * generator(seed, "demonstrations").normal(size=found.reward_SA.shape)
    return tilt(found.ref_SA, found.reward_SA + noise_SA, 0.3)


def slope(
    thetas: list[Floats], found: PairWorld, win_SA: Floats, lag: int | None, anchor: bool = False
) -> Floats:
    """DPO's gradient with the checkpoint `lag` steps back as reference and maker of losers, [1, F].

    None: the reference of the start for ever. anchor: where the policy has come to prefer the sampled
    action to the winner, against that checkpoint, the winner alone is learned from, by likelihood.
    """
    past_RF = thetas[0] if lag is None else thetas[max(0, len(thetas) - 1 - lag)]
    past_RSA, now_RSA = (log_policy(x, found.feature_SAF, found.ref_SA) for x in (past_RF, thetas[-1]))
    pair_RSAA = pair_law(found.context_S, win_SA[None], np.exp(past_RSA))
    gain_RSA = now_RSA - past_RSA
    trusted_RSAA = pair_RSAA * (gain_RSA[..., :, None] >= gain_RSA[..., None, :]) if anchor else pair_RSAA
    alone_RSA = (pair_RSAA - trusted_RSAA).sum(-1)
    label_RSAA = np.where(np.eye(win_SA.shape[1], dtype=bool), 0.5, np.ones_like(pair_RSAA))
    gradient = partial(pair_gradient, beta=BETA, kind="dpo")
    by_pairs = gradient(thetas[-1] - past_RF, found.feature_SAF, trusted_RSAA, label_RSAA)[1]
    if not anchor:
        return by_pairs
    # Likelihood of winners is a pair with an action of the policy, at margin 0.
    likely_RSAA = alone_RSA[..., None] * np.exp(now_RSA)[..., None, :]
    by_winners = gradient(0 * past_RF, found.feature_SAF, likely_RSAA, label_RSAA)[1]
    return trusted_RSAA.sum() * by_pairs + alone_RSA.sum() * by_winners


def trained(
    found: PairWorld, win_SA: Floats, lag: int | None, *, steps: int, rate: float, anchor: bool = False
) -> list[Floats]:
    """The log-policies [1, S, A] before every step and at the end."""
    thetas = [np.zeros((1, found.feature_SAF.shape[-1]))]
    for _ in range(steps):
        thetas.append(thetas[-1] - rate * slope(thetas, found, win_SA, lag, anchor))
    return [log_policy(theta_RF, found.feature_SAF, found.ref_SA) for theta_RF in thetas]


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return the final regret and its rise after the best, by lag and anchor; lag 0: fixed losers."""
    for seed in seeds:
        found = linear_world(seed)
        win_SA = winners(found, seed)
        for lag in (0, *LAGS):
            for anchor in (False, True) if lag else (False,):
                history = trained(found, win_SA, lag or None, steps=STEPS, rate=RATE, anchor=anchor)
                last, best = found.regret(history[-1]), min(found.regret(each) for each in history[::10])
                yield columns(
                    (seed,), lag=lag, anchor="yes" if anchor else "no", regret=last, degraded=last - best
                )


EXPERIMENT = Experiment(
    NAME,
    question="Are losers sampled from older checkpoints better than fixed ones, and does an anchor help?",
    source="Zhang et al. (2024), SePPO: semi-policy preference optimization, arXiv:2410.05255",
    differs=(
        "a log-linear policy on a bandit; against samples that the policy has come to prefer, the anchor "
        "learns from winners alone, by likelihood"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"steps": STEPS, "beta": BETA}),
    keys=("run", "seed", "lag", "anchor"),
    metrics=("regret", "degraded"),
    margins={"regret": MARGIN},
    figure=Plot(
        "final by dial", x="lag: lag of the losers' policy (0: fixed losers)", y="regret", arm=("anchor",)
    ),
    systems=("SePPO",),
)


@EXPERIMENT.claim(
    source="derived here: the gradient of winners against own losers is theirs of likelihood at margin 0",
    kind="enumerated",
)
def self_made_losers_stop_at_the_winners() -> Evidence:
    """With losers and reference of the current policy, and a table, the policy goes to the winners' law:
    KL(winners || pi) falls at every step and ends below 0.01, which that of fixed losers does not.
    """
    gaps = []
    for seed in range(2):
        plain = linear_world(seed, contexts=2, actions=4)
        found = PairWorld(plain.reward_SA, plain.ref_SA, np.eye(8).reshape(2, 4, 8))
        win_SA = tilt(found.ref_SA, found.reward_SA, 1.0)
        ends = []
        for lag in (0, None):
            history = trained(found, win_SA, lag, steps=150, rate=2.0 / BETA)
            away_K = np.array([kl(win_SA[None], np.exp(each)).mean() for each in history[::20]])
            ends.append(float(away_K[-1]))
            if lag == 0:
                gaps.append(float(np.diff(away_K).max()))
        gaps += [max(0.0, ends[0] - 0.01), max(0.0, 0.1 - ends[1])]
    return exact(gaps, 1e-9, "largest rise or excess")


EXPERIMENT.claim(
    "lagged-losers-beat-fixed-ones", "At each lag, losers of checkpoints end with a regret lower by 0.05."
).compare("regret", {"lag": 0, "anchor": "no"}, {"lag": LAGS, "anchor": "yes"}, by=MARGIN)

EXPERIMENT.claim(
    "the-anchor-prevents-degradation", "At lag 1 the anchor lowers the rise of regret after its best by 0.05."
).compare("degraded", {"anchor": "no"}, {"anchor": "yes"}, by=MARGIN, over={"lag": 1})
