"""One reward model against ensembles: gold reward of best of n and of RL as the proxy is optimized."""

import itertools
from functools import cache

import numpy as np
import pandas as pd

from analysis.kernels.imperfect_rewards import flipped, reward_ensemble
from analysis.lab import Experiment, Frame, Groups, Plot, Seeds, difference, level, merged, of_seeds
from analysis.worlds.pilots import PILOT, asks, inside, tuned
from analysis.worlds.preference_worlds import linear_world
from envs.arrays import Floats
from testbed.offline.preferences import bradley_terry, draw_pairs, pair_dist, tilt, vote_labels
from testbed.offline.tabular_offline import best_of_n, kl
from testbed.rng import generator
from testbed.worlds.verifier_rewards import COMBINED, combine

NAME = "reward-ensembles"
SEEDS, PILOTS, FRESH = 64, 48, 680_000
"""Replications; pilots; what is added to a seed, so that no world of an earlier table is met again."""
MEMBERS, PAIRS, CONTEXTS, ANSWERS, WIDTH, SHOWN = 5, 150, 4, 64, 12, 8
"""Models, comparisons of each, prompts, answers, features that pay, features a model is given."""
ODD, RARE, FAR = 12, 0.02, 3.0
"""Odd answers of a prompt, their probability in the reference, and the size of their features."""
NOISE = (0.0, 0.25)
DRAWS = (1, 4, 16, 64, 256)
BETAS = (4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0625)
PENALTY = 0.5
RIDGES = {"ridge": tuple(2.0**i for i in range(-7, 18))}
ENDS = {"best of n": DRAWS[-1], "RL": BETAS[-1]}
"""Each way to combine models has the ridge that earns most gold at the strongest optimization of a method."""
ABOUT = {"members": MEMBERS, "pairs": PAIRS, "answers": ANSWERS, "odd": ODD, "penalty": PENALTY}
MARGIN = 0.1
"""Margin of gold reward, which has a standard deviation of 1.5. Set before the table was made."""


def world(seed: int) -> tuple[Floats, Floats, Floats]:
    """Return gold rewards and the reference [S, A], and features [S, A, F].

    The gold reward is linear in the features except for odd answers. The reference seldom gives these, their
    features are three times as large, and they are worth -1.
    """
    found = linear_world(seed, contexts=CONTEXTS, actions=ANSWERS, width=WIDTH)
    odd_A = np.arange(ANSWERS) < ODD
    gold_SA = np.where(odd_A, -1.0, found.reward_SA)
    ref_A = np.where(odd_A, RARE / ODD, (1 - RARE) / (ANSWERS - ODD))
    feature_SAF = found.feature_SAF * np.where(odd_A, FAR, 1.0)[:, None]
    return gold_SA, np.broadcast_to(ref_A, gold_SA.shape), feature_SAF


@cache
def models(seed: int, noise: float, ridge: float) -> Floats:
    """Return the rewards of 5 models [K, S, A], each of its own pairs and 8 of 12 features."""
    (gold_SA, ref_SA, feature_SAF), rng = world(seed), generator(seed, NAME)
    drawn_KSA = np.broadcast_to(ref_SA, (MEMBERS, CONTEXTS, ANSWERS))
    even_S = np.full(CONTEXTS, 1 / CONTEXTS)
    weight = draw_pairs(pair_dist(even_S, drawn_KSA, drawn_KSA), PAIRS, rng)
    label = vote_labels(weight, flipped(bradley_terry(gold_SA), noise), 1, "hard", rng)
    feature = np.stack([feature_SAF[..., rng.permutation(WIDTH)[:SHOWN]] for _ in range(MEMBERS)])
    return reward_ensemble(weight, label, feature, ridge)


def law(seed: int, noise: float, how: str, method: str, strength: float, ridge: float) -> tuple[float, ...]:
    """Return KL to the reference, gold and proxy reward of where a method ends on a combined model."""
    gold_SA, ref_SA, _ = world(seed)
    proxy_SA = combine(models(seed, noise, ridge), how, PENALTY)
    if method == "RL":
        pi_SA = tilt(ref_SA, proxy_SA, strength)
    else:
        pi_SA = best_of_n(ref_SA[None], proxy_SA[None], int(strength))[0]
    gold, proxy = (float((pi_SA * x_SA).sum(-1).mean()) for x_SA in (gold_SA, proxy_SA))
    return max(0.0, float(kl(pi_SA[None], ref_SA[None]).mean())), gold, proxy


@cache
def setting(noise: float, how: str, method: str) -> tuple[float, bool]:
    """Return the best ridge on pilots, and whether it is at an end of its grid."""
    pilots = range(PILOT, PILOT + PILOTS)

    def score(ridge: float) -> float:
        return float(np.mean([law(seed, noise, how, method, ENDS[method], ridge)[1] for seed in pilots]))

    found, ends = tuned(score, RIDGES)
    return found["ridge"], ends


def rows(seeds: Seeds) -> Frame:
    """Return gold and proxy reward and KL to the reference, by noise, combination, method and strength."""
    rows_ = []
    strengths = [("best of n", n) for n in DRAWS] + [("RL", beta) for beta in BETAS]
    for seed, noise, how, (method, strength) in itertools.product(seeds, NOISE, COMBINED, strengths):
        ridge, ends = setting(noise, how, method)
        found = law(seed + FRESH, noise, how, method, strength, ridge)
        rows_.append((seed, noise, how, method, strength, *found, int(ends)))
    columns = ["seed", "noise", "model", "method", "strength", "kl", "gold", "proxy", "at end"]
    return pd.DataFrame(rows_, columns=columns)


def by_distance(table: Frame) -> Frame:
    """Return rows with the root of the mean KL at their strength, and the panel that draws them."""
    far_N = table.groupby(["noise", "model", "method", "strength"])["kl"].transform("mean") ** 0.5
    flips = (100 * table["noise"]).map("{:g} % flipped".format)
    return table.assign(distance=far_N, panel=table["method"] + ", " + flips)


EXPERIMENT = Experiment(
    question="Do ensembles of reward models keep the gold reward from falling as their proxy is optimized?",
    source="Coste et al. (2023), Reward model ensembles, arXiv:2310.02743",
    differs="linear models of a bandit of 64 answers, each blind to a third of the features, and odd answers "
    "that pairs seldom show, so that they mislead all models alike; exact laws; ridges by "
    "arm",
    compute=of_seeds(NAME, rows, SEEDS, ABOUT),
    keys=("run", "seed", "noise", "model", "method", "strength"), metrics=("kl", "gold", "proxy", "at end"),
    margins={"gold reward": MARGIN},
    figure=Plot(
        "curves by arm", x="distance: √KL to the reference", y="gold: gold reward", arm=("model: ",),
        panel="panel",
        names={"single": "one model", "mean": "mean of five", "uncertainty": "mean less variance / 2",
               "worst": "worst of five"},
        of=by_distance,
        says="Shows gold reward against the root of the KL to the reference as a proxy is optimized, by the "
        "best of 1 to 256 draws and by RL with a KL penalty from 4 to 1/16 (the exact optimum); proxies are "
        "Bradley-Terry models of 150 comparisons each, none or a quarter of them flipped, and blind to a "
        "third of the features; a fifth of the answers is odd: rare in the reference, and worth -1.",
    ),
    systems={"Reward-model ensembles": "best of n, and RL's optimum down to a penalty of 1/16, on a bandit "
             "whose odd answers mislead all models alike; no language model"},
)  # fmt: skip


def _drop(table: Frame) -> Groups:
    """Best gold reward of best of n by the worst of five models, minus that with the most draws, by noise."""
    rows_ = table[(table["method"] == "best of n") & (table["model"] == "worst")]
    best = rows_.groupby(["run", "seed", "noise"])["gold"].transform("max")
    return level(rows_.assign(drop=best - rows_["gold"]), "drop", {"strength": DRAWS[-1], "noise": NOISE})


def _gain(table: Frame) -> Groups:
    """Gold reward at the strongest optimization of each method, worst of five minus one model."""
    worst, single = {"model": "worst"}, {"model": "single"}
    found = {
        method: difference(table, "gold", worst, single, noise=NOISE, method=method, strength=last)
        for method, last in ENDS.items()
    }
    return merged(**found)


asks(EXPERIMENT,
    ("ensembles-remove-over-optimization-of-best-of-n", "With the worst case of five models, which odd "
     "answers mislead alike, the gold reward of the best of n falls by less than 0.1 from its best to 256 "
     "draws.", None, None, {"outcome": _drop, "below": True,
     "gates": {"tuned": inside(model="worst", method="best of n")}}),
    ("ensembles-earn-more-gold-than-one-model", "At the strongest optimization the worst case of five earns "
     "0.1 more gold than one model.", None, None, {"outcome": _gain,
     "gates": {"tuned": inside(model=("worst", "single"))}}),
    by=MARGIN,
)  # fmt: skip
