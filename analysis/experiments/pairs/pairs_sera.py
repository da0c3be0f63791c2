"""Self-reviewed preference sets (SeRA): pairs selected by margin, and new pairs, against a frozen set."""

import itertools

import numpy as np

from analysis.lab import Floats, Grid, Plot, TunedArms, asks, by_world, generator
from analysis.worlds.preference_worlds import PairWorld
from testbed.offline.preferences import Draw, select_by_margin

NAME = "pairs-sera"
SEEDS, PILOTS, FRESH, PAIRS, MARGIN = 192, 48, 270_000, 300, 0.05
"""Worlds of a run, pilots, offset of seeds past those of earlier tables, judged pairs; of the regret, and of
a share of the weights."""
LEARNS: Grid = {
    "rate": (0.15, 0.3, 0.6, 1.2, 2.4, 4.8, 9.6),
    "beta": (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28),
    "steps": (12, 25, 50, 100, 200, 400),
}
REVIEWS: Grid = {**LEARNS, "share": (0.125, 0.25, 0.5, 0.75, 1.0), "refresh": (5, 10, 20, 40, 80)}
ARMS = {"frozen": LEARNS, "selected": REVIEWS, "bootstrapped": REVIEWS, "reviewed by chance": REVIEWS}
"""Rate over beta^2, beta, last step; share of the pairs that is kept, and steps between reviews."""
FROM = [
    {"rate": rate, "beta": beta, "steps": 50} for rate, beta in itertools.product((0.6, 2.4), (0.01, 0.32))
]
STARTS = {arm: [{"share": 0.5, "refresh": 10, **at} for at in FROM] for arm in ARMS} | {"frozen": FROM}


def world(seed: int) -> PairWorld:
    """12 contexts, 6 actions; three features pay, the fourth is spurious and balanced in the reference."""
    rng = generator(seed, "spurious")
    feature_SAF = rng.normal(size=(12, 6, 4))
    reward_SA = feature_SAF[..., :3] @ np.array([0.8, 0.5, 0.3]) + 0.7 * rng.normal(size=(12, 6))
    return PairWorld(reward_SA, np.full((12, 6), 1 / 6), feature_SAF)


def logged_pairs(found: PairWorld, seed: int) -> tuple[Floats, Floats]:
    """300 judged pairs: good actions are shown with the spurious feature, bad ones without it."""
    better_SA = found.reward_SA - found.reward_SA.mean(-1, keepdims=True)
    lean_SA = np.exp(1.5 * found.feature_SAF[..., 3] * better_SA)
    logger_RSA = (lean_SA / lean_SA.sum(-1, keepdims=True))[None]
    weight_RSAA = found.pairs(logger_RSA, PAIRS, generator(seed, "pairs"))
    return found.judged(weight_RSAA, generator(seed, "labels"))


def sets(found: PairWorld, seed: int, arm: str, beta: float, share: float, refresh: int) -> Draw:
    """Data of each arm: all logged pairs, those with large margins, and self-made pairs besides.

    Reviewed by chance: a coin instead of a margin decides which pairs are kept.
    """
    weight_RSAA, label_RSAA = logged_pairs(found, seed)

    def draw(step: int, history: list[Floats]) -> tuple[Floats, Floats] | None:
        if step == 0 or arm == "frozen" or step % refresh:
            return (weight_RSAA, label_RSAA) if step == 0 else None
        gain_RSA = beta * (history[-1] - np.log(found.ref_SA))
        margin_RSAA = gain_RSA[..., :, None] - gain_RSA[..., None, :]
        keys = [(2 * label_RSAA - 1) * margin_RSAA, np.abs(margin_RSAA)]
        if arm == "reviewed by chance":
            keys = [generator(seed, f"coin {i}", step).random(margin_RSAA.shape) for i in range(2)]
        kept_RSAA = select_by_margin(weight_RSAA, keys[0], share)
        if arm == "selected":
            return kept_RSAA, label_RSAA
        made_RSAA = found.pairs(np.exp(history[-1]), PAIRS, generator(seed, "made", step))
        made_RSAA = select_by_margin(made_RSAA, keys[1], share)
        both_RSAA = kept_RSAA + made_RSAA
        own_RSAA = (margin_RSAA > 0) + 0.5 * (margin_RSAA == 0)
        mixed_RSAA = (kept_RSAA * label_RSAA + made_RSAA * own_RSAA) / np.maximum(both_RSAA, 1e-300)
        return both_RSAA, np.where(both_RSAA > 0, mixed_RSAA, 0.5)

    return draw


@by_world("regret", "spurious")
def learned(
    seed: int, arm: str, rate: float, beta: float, steps: float, share: float = 1.0, refresh: float = 1
) -> tuple[float, float]:
    """Return regret and the spurious feature's share of the weights."""
    seed += FRESH
    found = world(seed)
    draw = sets(found, seed, arm, beta, share, int(refresh))
    theta_RF, history = found.train(draw, steps=int(steps), rate=rate / beta**2, beta=beta)
    size_F = np.abs(theta_RF[0])
    return found.regret(history[-1]), float(size_F[3] / size_F.sum())


EXPERIMENT = TunedArms(ARMS, learned, "-regret", PILOTS, endless={"share": (1.0,)}, starts=STARTS).experiment(
    NAME, SEEDS, ("regret", "spurious"), {"pairs": PAIRS},
    question="Does a set that a policy reviews itself teach less of a spurious feature than a frozen one?",
    source="Ko et al. (2024), SeRA: self-reviewing and alignment of LLMs using implicit reward margins",
    differs="a log-linear policy with four features",
    margins={"regret, and share of the weights": MARGIN},
    figure=Plot(
        "distribution", x="arm: preference set", y="spurious: spurious share of the weights",
        says="Shows the share of a log-linear policy's weights on a feature that pays nothing but goes with "
        "winners in the log, with 12 contexts and 6 actions; frozen learns from all logged pairs; selected "
        "from the share with the largest margins by the policy so far; bootstrapped adds pairs that it makes "
        "and judges itself; reviewed by chance keeps and adds random ones; each has the rate, beta, last "
        "step, share and time between reviews of least regret.",
    ),
    systems=("SeRA",),
)  # fmt: skip
OFF = {"off": {"arm": "reviewed by chance"}}

asks(EXPERIMENT,
    ("self-review-lowers-regret", "Bootstrapped sets end with a regret lower by 0.05 than a frozen one, each "
     "at its best rate, beta and last step, with the best share of pairs and time between reviews.",
     "bootstrapped", "frozen", -MARGIN, "regret", OFF),
    ("self-review-forgets-the-spurious-feature", "At these settings the spurious feature's share of the "
     "weights is lower by 0.05 with bootstrapped sets.", "bootstrapped", "frozen", -MARGIN, "spurious", OFF),
    ("margin-selection-lowers-regret", "Selection by margin alone lowers the regret by 0.05.",
     "selected", "frozen", -MARGIN, "regret"),
    below=True,
)  # fmt: skip
