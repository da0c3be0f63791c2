"""One reward model against ensembles: gold reward of best of n and of RL as the proxy is optimized
further.
"""

import numpy as np
import pandas as pd

from analysis.kernels.imperfect_rewards import flipped, reward_ensemble
from analysis.lab import Experiment, Frame, Groups, Part, Plot, Seeds, difference, level, merged, of_seeds
from analysis.worlds.pilots import asks
from analysis.worlds.preference_worlds import linear_world
from envs.arrays import Floats
from testbed.offline.preferences import bradley_terry, draw_pairs, pair_dist, tilt, vote_labels
from testbed.offline.tabular_offline import best_of_n, kl
from testbed.rng import generator
from testbed.worlds.verifier_rewards import COMBINED, combine

NAME = "reward-ensembles"
SEEDS, MEMBERS, PAIRS, CONTEXTS, ANSWERS, WIDTH, SHOWN = 24, 5, 150, 4, 64, 12, 8
"""Replications; models; comparisons of each; prompts; answers; features that pay; features a model is
given.
"""
ODD, RARE, FAR = 12, 0.02, 3.0
"""Odd answers of a prompt, their probability in the reference, and the size of their features."""
NOISE = (0.0, 0.25)
DRAWS = (1, 4, 16, 64, 256)
BETAS = (4.0, 2.0, 1.0, 0.5, 0.25, 0.125, 0.0625)
PENALTY = 0.5
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


def models(seed: int, noise: float) -> Floats:
    """Return the rewards of 5 models [K, S, A], each from its own pairs and 8 of 12 features."""
    (gold_SA, ref_SA, feature_SAF), rng = world(seed), generator(seed, NAME)
    drawn_KSA = np.broadcast_to(ref_SA, (MEMBERS, CONTEXTS, ANSWERS))
    even_S = np.full(CONTEXTS, 1 / CONTEXTS)
    weight = draw_pairs(pair_dist(even_S, drawn_KSA, drawn_KSA), PAIRS, rng)
    label = vote_labels(weight, flipped(bradley_terry(gold_SA), noise), 1, "hard", rng)
    feature = np.stack([feature_SAF[..., rng.permutation(WIDTH)[:SHOWN]] for _ in range(MEMBERS)])
    return reward_ensemble(weight, label, feature, 1.0)


def rows(seeds: Seeds) -> Frame:
    """Return gold and proxy reward and KL to the reference, by noise, combination, method and strength."""
    rows_ = []
    for seed in seeds:
        gold_SA, ref_SA, _ = world(seed)
        for noise in NOISE:
            model_KSA = models(seed, noise)
            for how in COMBINED:
                proxy_SA = combine(model_KSA, how, PENALTY)
                laws: dict[tuple[str, float], Floats] = {
                    ("best of n", n): best_of_n(ref_SA[None], proxy_SA[None], n)[0] for n in DRAWS
                }
                laws |= {("RL", beta): tilt(ref_SA, proxy_SA, beta) for beta in BETAS}
                for (method, strength), pi_SA in laws.items():
                    gold, proxy = (float((pi_SA * x_SA).sum(-1).mean()) for x_SA in (gold_SA, proxy_SA))
                    far = max(0.0, float(kl(pi_SA[None], ref_SA[None]).mean()))
                    rows_.append((seed, noise, how, method, strength, far, gold, proxy))
    columns = ["seed", "noise", "model", "method", "strength", "kl", "gold", "proxy"]
    return pd.DataFrame(rows_, columns=columns)


def by_distance(table: Frame) -> Frame:
    """Return rows with the root of the mean KL at their strength, and the panel that draws them."""
    far_N = table.groupby(["noise", "model", "method", "strength"])["kl"].transform("mean") ** 0.5
    flips = (100 * table["noise"]).map("{:g} % flipped".format)
    return table.assign(distance=far_N, panel=table["method"] + ", " + flips)


EXPERIMENT = Experiment(
    question="Do ensembles of reward models keep the gold reward from falling as their proxy is optimized?",
    source="Coste et al. (2023), Reward model ensembles, arXiv:2310.02743",
    differs="linear models of a bandit of 64 answers, each blind to a third of the features, and odd "
    "answers that pairs seldom show, so that they mislead all models alike; exact distributions",
    compute=of_seeds(NAME, rows, SEEDS, ABOUT),
    keys=("run", "seed", "noise", "model", "method", "strength"), metrics=("kl", "gold", "proxy"),
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
    systems={
        "Reward-model ensembles": Part(
            "best of n, and RL's optimum down to a penalty of 1/16, on a bandit whose odd answers mislead "
            "all models alike; no language model"
        )
    },
)  # fmt: skip


def _drop(table: Frame) -> Groups:
    """Best gold reward of best of n by the worst of five models, minus that with the most draws, by noise."""
    rows_ = table[(table["method"] == "best of n") & (table["model"] == "worst")]
    best = rows_.groupby(["run", "seed", "noise"])["gold"].transform("max")
    return level(rows_.assign(drop=best - rows_["gold"]), "drop", {"strength": DRAWS[-1], "noise": NOISE})


def _gain(table: Frame) -> Groups:
    """Gold reward at the strongest optimization of each method, worst of five minus one model."""
    worst, single = {"model": "worst"}, {"model": "single"}
    ends = {"best of n": DRAWS[-1], "RL": BETAS[-1]}
    found = {
        method: difference(table, "gold", worst, single, noise=NOISE, method=method, strength=last)
        for method, last in ends.items()
    }
    return merged(**found)


asks(EXPERIMENT,
    ("ensembles-remove-over-optimization-of-best-of-n", "With the worst case of five models, which odd "
     "answers mislead alike, the gold reward of the best of n falls by less than 0.1 from its best to 256 "
     "draws.", None, None, {"outcome": _drop, "below": True}),
    ("ensembles-earn-more-gold-than-one-model", "At the strongest optimization the worst case of five earns "
     "0.1 more gold than one model.", None, None, {"outcome": _gain}),
    by=MARGIN,
)  # fmt: skip
