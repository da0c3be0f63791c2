"""Proxy and gold rewards: ensembles of reward models, label noise, lenient verifiers, filters, confidence.

Tables are [S, A]: a context's answers. Optimization of a proxy is exact: the distribution of the best of n
(`testbed.offline.tabular_offline.best_of_n`) or the tilt (`testbed.offline.preferences.tilt`).
"""

import numpy as np

from envs.arrays import Floats
from testbed.errors import UserError, unknown
from testbed.offline.preferences import fit_reward
from testbed.offline.tabular_offline import best_of_n

KEPT = ("all", "best", "best and worst", "best and random")


def flipped(chance_SAA: Floats, share: float) -> Floats:
    """P(a labeled better than b), a share of labels flipped, [S, A, A]; UserError outside [0, 1/2]."""
    if not 0 <= share <= 0.5:
        raise UserError(
            f"The share of wrong labels is {share:g}, expected 0 to 0.5: above that, wrong labels inform "
            "again."
        )
    return np.asarray((1 - share) * chance_SAA + share * (1 - chance_SAA))


def reward_ensemble(weight_KSAA: Floats, label_KSAA: Floats, feature_KSAF: Floats, ridge: float) -> Floats:
    """Bradley-Terry models, one per member from its pairs and features, centered by context, [K, S, A].

    Raises UserError for a member without a pair.
    """
    seen_K = weight_KSAA.sum((1, 2, 3))
    if not (seen_K > 0).all():
        raise UserError(
            f"Reward model {int(np.argmin(seen_K))} never saw a pair of answers; give it comparisons."
        )
    members = zip(weight_KSAA, label_KSAA, feature_KSAF, strict=True)
    fitted_KSA = np.stack([fit_reward(w[None], y[None], x, ridge)[0] for w, y, x in members])
    return np.asarray(fitted_KSA - fitted_KSA.mean(-1, keepdims=True))


def filtered_dist(pi_SA: Floats, score_SA: Floats, group: int, keep: str) -> Floats:
    """Distribution of the answer kept from a group of `group` draws of pi by its score, [S, A].

    "best", "best and worst" (half each), "best and random" (half each) or "all". Source: PF-PPO, Shen and
    Zhang (2024), arXiv:2409.06957: BoN, BW and BR.
    """
    if keep not in KEPT:
        raise unknown("filter", keep, KEPT)
    best_SA = best_of_n(pi_SA[None], score_SA[None], group)[0]
    if keep == "best":
        return best_SA
    other_SA = best_of_n(pi_SA[None], -score_SA[None], group)[0] if keep == "best and worst" else pi_SA
    return np.asarray(pi_SA if keep == "all" else (best_SA + other_SA) / 2)


def reliability(law_SA: Floats, proxy_SA: Floats, gold_SA: Floats) -> float:
    """R^2 of proxy and gold reward under a distribution of answers, with equal weight per context."""
    law_X, proxy_X, gold_X = (x.ravel() for x in (law_SA / len(law_SA), proxy_SA, gold_SA))
    proxy_X, gold_X = proxy_X - law_X @ proxy_X, gold_X - law_X @ gold_X
    return float((law_X @ (proxy_X * gold_X)) ** 2 / ((law_X @ proxy_X**2) * (law_X @ gold_X**2)))


# Answers with a stated confidence


def calibration_error(pi_SAK: Floats, right_SA: Floats, confidence_K: Floats) -> float:
    """sum_c P(c) |P(right | c) - c| for P(answer, confidence) [S, A, K], contexts uniform."""
    said_K = pi_SAK.sum((0, 1)) / len(pi_SAK)
    hit_K = (pi_SAK * right_SA[..., None]).sum((0, 1)) / len(pi_SAK)
    return float(np.abs(hit_K - said_K * confidence_K).sum())
