"""Self-reviewed preference sets (SeRA): pairs picked by margin and made anew, against a frozen set."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import Experiment, Plot, Seeds, columns, of_seeds
from analysis.worlds.preference_worlds import PairWorld
from envs.arrays import Floats
from testbed.offline.preferences import Draw, select_by_margin
from testbed.rng import generator

NAME = "pairs-sera"
SEEDS, PAIRS, STEPS, REFRESH, BETA, SHARE = 24, 300, 200, 20, 0.5, 0.5
MARGIN = 0.05


def world(seed: int) -> PairWorld:
    """12 contexts, 6 actions; three features pay, the fourth is spurious and even in the reference."""
    rng = generator(seed, "spurious")
    feature_SAF = rng.normal(size=(12, 6, 4))
    reward_SA = feature_SAF[..., :3] @ np.array([0.8, 0.5, 0.3]) + 0.7 * rng.normal(size=(12, 6))
    return PairWorld(reward_SA, np.full((12, 6), 1 / 6), feature_SAF)


def logged_pairs(found: PairWorld, seed: int) -> tuple[Floats, Floats]:
    """300 judged pairs of a logger that shows good actions when they have the spurious feature, and bad ones
    when they have not.
    """
    better_SA = found.reward_SA - found.reward_SA.mean(-1, keepdims=True)
    lean_SA = np.exp(1.5 * found.feature_SAF[..., 3] * better_SA)
    logger_RSA = (lean_SA / lean_SA.sum(-1, keepdims=True))[None]
    weight_RSAA = found.pairs(logger_RSA, PAIRS, generator(seed, "pairs"))
    return found.judged(weight_RSAA, generator(seed, "labels"))


def sets(found: PairWorld, seed: int, arm: str) -> Draw:
    """What each arm learns from: all logged pairs, those with large margins, and pairs of its own besides."""
    weight_RSAA, label_RSAA = logged_pairs(found, seed)

    def draw(step: int, history: list[Floats]) -> tuple[Floats, Floats] | None:
        if step == 0 or (arm == "frozen" or step % REFRESH):
            return (weight_RSAA, label_RSAA) if step == 0 else None
        gain_RSA = BETA * (history[-1] - np.log(found.ref_SA))
        margin_RSAA = gain_RSA[..., :, None] - gain_RSA[..., None, :]
        kept_RSAA = select_by_margin(weight_RSAA, (2 * label_RSAA - 1) * margin_RSAA, SHARE)
        if arm == "selected":
            return kept_RSAA, label_RSAA
        pi_RSA = np.exp(history[-1])
        made_RSAA = found.pairs(pi_RSA, PAIRS, generator(seed, "made", step))
        made_RSAA = select_by_margin(made_RSAA, np.abs(margin_RSAA), SHARE)
        both_RSAA = kept_RSAA + made_RSAA
        own_RSAA = (margin_RSAA > 0) + 0.5 * (margin_RSAA == 0)
        mixed_RSAA = (kept_RSAA * label_RSAA + made_RSAA * own_RSAA) / np.maximum(both_RSAA, 1e-300)
        return both_RSAA, np.where(both_RSAA > 0, mixed_RSAA, 0.5)

    return draw


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return regret and the spurious feature's share of the weights, by what is learned from."""
    for seed in seeds:
        found = world(seed)
        for arm in ("frozen", "selected", "bootstrapped"):
            theta_RF, history = found.train(sets(found, seed, arm), steps=STEPS, rate=2.0, beta=BETA)
            share = float(np.abs(theta_RF[0, 3]) / np.abs(theta_RF[0]).sum())
            yield columns((seed,), pairs=arm, regret=found.regret(history[-1]), spurious=share)


EXPERIMENT = Experiment(
    NAME,
    question="Does a set that a policy reviews itself teach less of a spurious feature than a frozen one?",
    source="Ko et al. (2024), SeRA: self-reviewing and alignment of LLMs using implicit reward margins",
    differs="a log-linear policy with four features; half of the pairs are kept, reviews are 20 steps apart",
    compute=of_seeds(NAME, rows, SEEDS, {"pairs": PAIRS, "steps": STEPS, "refresh": REFRESH}),
    keys=("run", "seed", "pairs"),
    metrics=("regret", "spurious"),
    margins={"regret, and share of the weights": MARGIN},
    figure=Plot(
        "distribution",
        x="pairs: preference set",
        y="spurious: spurious share of the weights",
        says="Shows the share of a log-linear policy's weights on a feature that pays nothing but goes "
        "with winners in the log, with 12 contexts and 6 actions: frozen learns from all logged pairs; "
        "selected from the half with the largest margins by the policy so far; bootstrapped adds pairs "
        "that it makes and judges itself.",
    ),
    systems=("SeRA",),
)

EXPERIMENT.claim(
    "self-review-lowers-regret", "Bootstrapped sets end with a regret lower by 0.05 than a frozen one."
).compare("regret", {"pairs": "frozen"}, {"pairs": "bootstrapped"}, by=MARGIN)

EXPERIMENT.claim(
    "self-review-forgets-the-spurious-feature",
    "Its share of the weights is lower by 0.05 with bootstrapped sets.",
).compare("spurious", {"pairs": "frozen"}, {"pairs": "bootstrapped"}, by=MARGIN)

EXPERIMENT.claim(
    "margin-selection-lowers-regret", "Selection by margin alone lowers the regret by 0.05."
).compare("regret", {"pairs": "frozen"}, {"pairs": "selected"}, by=MARGIN)
