"""Samples of a group to learn from when the proxy is least reliable at middling scores (PF-PPO)."""

import numpy as np
from scipy import special, stats

from analysis.kernels.imperfect_rewards import KEPT, filtered_dist, reliability
from analysis.lab import Floats, Frame, Grid, Groups, Plot, Seeds, TunedArms, asks, generator

NAME = "reward-filters"
SEEDS, PILOTS, FIRST, DRAWS, STEPS = 192, 48, 680_000, 4, 60
PROMPTS, FRESH, ANSWERS, FEATURES, GROUP = 16, 100, 24, 12, 5
NOISES = ("middling", "even")
"""Errors of the proxy: 1.5 exp(-(gold / 0.6)^2), so at middling gold rewards, or 0.8 everywhere."""
KINDS = ("all", "two", "best", "best and worst", "best and random")
RATES: Grid = {"rate": tuple(2.0**i for i in range(-5, 10))}
OTHERS = ("all", "two", "best", "best and random")


def world(seed: int, noise: str) -> tuple[Floats, Floats, Floats]:
    """Return features of the answers, gold rewards linear in them, and a proxy: 16 prompts and 100 fresh."""
    rng = generator(seed, f"{NAME}/tuned")
    feature_SAF = rng.normal(size=(PROMPTS + FRESH, ANSWERS, FEATURES))
    gold_SA = feature_SAF @ rng.normal(size=FEATURES) / np.sqrt(FEATURES)
    deviation_SA = 1.5 * np.exp(-((gold_SA / 0.6) ** 2)) if noise == "middling" else 0.8
    return feature_SAF, gold_SA, gold_SA + deviation_SA * rng.normal(size=gold_SA.shape)


def kept_shares(proxy_WSG: Floats, keep: str, rng: np.random.Generator) -> Floats:
    """Return the weights of a group's samples, which sum to 1; `keep` is the filter, "two" the first two."""
    group = proxy_WSG.shape[-1]
    if keep == "all":
        return np.full_like(proxy_WSG, 1 / group)
    best_WS = proxy_WSG.argmax(-1)
    first_WS = np.zeros_like(best_WS) if keep == "two" else best_WS
    second_WS = {
        "two": np.ones_like(best_WS),
        "best": best_WS,
        "best and worst": proxy_WSG.argmin(-1),
        "best and random": (best_WS + rng.integers(1, group, size=best_WS.shape)) % group,
    }[keep]
    return (np.eye(group)[first_WS] + np.eye(group)[second_WS]) / 2


def train(feature_WSAF: Floats, proxy_WSA: Floats, keep: str, rate: float, seed: int) -> Floats:
    """Return weights [W, F] of softmax policies after 60 policy-gradient steps, one group of 5 per prompt."""
    rng = generator(seed, f"{NAME} draws")
    weight_WF = np.zeros((len(feature_WSAF), FEATURES))
    for _ in range(STEPS):
        pi_WSA = policy(feature_WSAF, weight_WF)
        draw_WSG1 = rng.random((*pi_WSA.shape[:2], GROUP, 1))
        answer_WSG = np.minimum((draw_WSG1 >= pi_WSA.cumsum(-1)[:, :, None]).sum(-1), ANSWERS - 1)
        score_WSG = np.take_along_axis(proxy_WSA, answer_WSG, -1)
        # With the exact mean as baseline filters differ only in the samples that they keep.
        gain_WSG = score_WSG - (pi_WSA * proxy_WSA).sum(-1, keepdims=True)
        share_WSG = kept_shares(score_WSG, keep, rng) * gain_WSG
        drawn_WSGF = np.take_along_axis(feature_WSAF, answer_WSG[..., None], 2)
        mean_WSF = np.einsum("wsa,wsaf->wsf", pi_WSA, feature_WSAF)
        slope_WF = np.einsum("wsg,wsgf->wf", share_WSG, drawn_WSGF - mean_WSF[:, :, None])
        weight_WF = weight_WF + rate * slope_WF / PROMPTS
    return weight_WF


def policy(feature_WSAF: Floats, weight_WF: Floats) -> Floats:
    """Return softmax(features . weights), [W, S, A]."""
    return np.asarray(special.softmax(np.einsum("wsaf,wf->wsa", feature_WSAF, weight_WF), -1))


def learn(seeds: Seeds, arm: str, noise: str, rate: float) -> Groups:
    """Return R^2 of the filtered samples at the start, and gold reward on fresh prompts, by world; mean over
    4 trainings in a world.
    """
    seeds = tuple(seed + FIRST for seed in seeds)
    even_SA = np.full((PROMPTS, ANSWERS), 1 / ANSWERS)
    found = (np.stack(x) for x in zip(*(world(seed, noise) for seed in seeds), strict=True))
    feature_WSAF, gold_WSA, proxy_WSA = found
    seen, fresh = np.s_[:, :PROMPTS], np.s_[:, PROMPTS:]
    law = arm if arm in KEPT else "all"
    pairs = zip(proxy_WSA[seen], gold_WSA[seen], strict=True)
    r2_W = [reliability(filtered_dist(even_SA, x_SA, GROUP, law), x_SA, y_SA) for x_SA, y_SA in pairs]
    gold_DW = []
    for draw in range(DRAWS):
        weight_WF = train(feature_WSAF[seen], proxy_WSA[seen], arm, rate, seeds[0] + draw)
        pi_WSA = policy(feature_WSAF[fresh], weight_WF)
        gold_DW.append((pi_WSA * gold_WSA[fresh]).sum(-1).mean(-1))
    return {"r2": np.array(r2_W), "gold": np.mean(gold_DW, axis=0)}


EXPERIMENT = TunedArms(dict.fromkeys(KINDS, RATES), learn, "gold", PILOTS, {"noise": NOISES}).experiment(
    NAME, SEEDS, ("r2", "gold"), {"group": GROUP, "steps": STEPS, "prompts": PROMPTS},
    question="Does learning from the best and the worst of a group end with the most gold reward?",
    source="Shen and Zhang (2024), PF-PPO, arXiv:2409.06957",
    differs="linear softmax policies judged on fresh prompts; a made proxy; each batch used once; "
    "rates by arm",
    margins={"gold reward": 0.0, "rank correlation": 0.0},
    figure=Plot(
        "distribution", x="arm: kept", y="gold: gold reward, fresh prompts", arm=("noise",),
        says="Shows the true reward on fresh prompts after 60 policy-gradient steps of a linear softmax "
        "policy on an artificial proxy, by the samples used of a group of 5: all, any two, the best, the "
        "best and the worst, or the best and a random other; the proxy errs only at middling true rewards, "
        "or evenly.",
    ),
    systems=("PF-PPO",),
)  # fmt: skip


def rank_correlation(table: Frame) -> Groups:
    """Return Spearman's correlation of R^2 and gold reward over all samples and three filters, by run."""
    met = table[(table["noise"] == "middling") & (table["arm"] != "two")]
    return {
        str(run): np.array([stats.spearmanr(x["r2"], x["gold"]).statistic for _, x in part.groupby("seed")])
        for run, part in met.groupby("run")
    }


asks(EXPERIMENT,
    ("r2-ranks-the-filters", "Over all samples and the three filters the rank correlation of R^2 and gold "
     "reward is positive.", None, None, {"outcome": rank_correlation}),
    ("best-and-worst-wins", "Best and worst end with more gold reward than all samples, any two, best, and "
     "best and random.", "best and worst", OTHERS, 0.0, "gold", {"over": {"noise": "middling"}}),
    ("best-and-worst-beats-all-samples-in-even-noise", "Where the proxy errs as much at every score, "
     "learning from the best and the worst of five samples ends with more gold reward than learning from all "
     "five; the R^2 of best and worst is the highest there.", "best and worst",
     "all", 0.0, "gold", {"over": {"noise": "even"}}),
    ("best-and-worst-beats-any-two-in-even-noise", "Where the proxy errs as much at every score, learning "
     "from the best and the worst sample ends with more gold reward than learning from any two.",
     "best and worst", "two", 0.0, "gold", {"over": {"noise": "even"}}),
)  # fmt: skip
