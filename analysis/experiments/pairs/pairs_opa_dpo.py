"""Pairs whose winners lie outside the reference's support, against pairs made on policy first (OPA-DPO)."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import (
    Evidence,
    Experiment,
    Plot,
    Seeds,
    all_exceed,
    columns,
    exact,
    of_seeds,
    slopes,
)
from analysis.worlds.preference_worlds import PairWorld, tabular_world
from envs.arrays import Floats
from testbed.offline.preferences import log_policy, pair_gradient, train_on_pairs
from testbed.offline.tabular import clone
from testbed.rng import generator

NAME = "pairs-opa-dpo"
SEEDS, PAIRS, STEPS, BETA = 24, 300, 60, 0.5
NATS = (1.0, 2.0, 4.0, 8.0)
"""- log of the reference's mass on the best action: how far outside its support the winners are."""
RISE, MARGIN = 0.02, 0.05


def world(seed: int, nats: float) -> PairWorld:
    """Rewards in [0, 1], the best action 1 above the next; the reference takes it with mass exp(-nats)."""
    plain = tabular_world(seed)
    rng = generator(seed, "support")
    reward_SA = rng.random((6, 6))
    reward_SA[:, 0] = 2.0
    ref_SA = plain.ref_SA[:, 1:] / plain.ref_SA[:, 1:].sum(-1, keepdims=True) * (1 - np.exp(-nats))
    ref_SA = np.concatenate([np.full((6, 1), np.exp(-nats)), ref_SA], axis=1)
    return PairWorld(reward_SA, ref_SA, plain.feature_SAF)


def expert_pairs(found: PairWorld, seed: int) -> tuple[Floats, Floats]:
    """300 pairs of the best action and one of the reference's, the best one always preferred."""
    expert_RSA, rng = np.eye(6)[[0] * 6][None], generator(seed, "expert pairs")
    weight_RSAA = found.pairs(expert_RSA, PAIRS, rng, found.ref_SA[None])
    return found.judged(weight_RSAA, generator(seed, "expert labels"))


def aligned(found: PairWorld, seed: int, pairs: int) -> tuple[Floats, tuple[Floats, Floats]]:
    """The reference cloned half on expert actions, and pairs that it makes itself, judged anew."""
    data = generator(seed, "cloning").multinomial(pairs, np.full(6, 1 / 6))
    ref_SA = clone(0.5 * data[:, None] * np.eye(6)[[0] * 6] + (0.5 * data + 1e-9)[:, None] * found.ref_SA)
    weight_RSAA = found.pairs(ref_SA[None], pairs, generator(seed, "own pairs"))
    return ref_SA, found.judged(weight_RSAA, generator(seed, "own labels"))


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return regrets after 60 steps, by how far winners are from the reference and which pairs are used."""
    for seed in seeds:
        for nats in NATS:
            found = world(seed, nats)
            refs = {"expert": (found.ref_SA, expert_pairs(found, seed))}
            refs |= {"aligned": aligned(found, seed, PAIRS)}
            refs |= {"aligned, a third": aligned(found, seed, PAIRS // 3)}
            for name, (ref_SA, given) in refs.items():
                _, history = train_on_pairs(
                    found.feature_SAF, ref_SA, given, steps=STEPS, rate=10.0, beta=BETA
                )
                yield columns((seed,), nats=nats, pairs=name, regret=found.regret(history[-1]))


EXPERIMENT = Experiment(
    NAME,
    question=(
        "Does DPO gain less the farther its winners lie from the reference, and does alignment help first?"
    ),
    source="Yang et al. (2025), On-policy data hold the key (OPA-DPO)",
    differs="a table over 36 pairs of context and action; alignment is cloning, half on expert actions",
    compute=of_seeds(NAME, rows, SEEDS, {"pairs": PAIRS, "steps": STEPS, "beta": BETA}),
    keys=("run", "seed", "nats", "pairs"),
    metrics=("regret",),
    margins={"rise of regret per nat": RISE, "regret": MARGIN},
    figure=Plot("final by dial", x="nats: nats from the reference to winners", y="regret", arm=("pairs",)),
    systems=("OPA-DPO",),
)


@EXPERIMENT.claim(source="softmax policy; the chain rule")
def dpo_gradient_vanishes_with_its_winner() -> Evidence:
    """A DPO step moves margins alike at every reference, but the winner's probability in proportion to the
    mass it has: that of a winner 8 nats away rises 100 times less than that of one a nat away.
    """
    rises, slopes_F = [], []
    for nats in (1.0, 8.0):
        found = world(0, nats)
        weight_RSAA, label_RSAA = np.zeros((1, 6, 6, 6)), np.ones((1, 6, 6, 6))
        weight_RSAA[..., 0, 1] = 1.0
        theta_RF = np.zeros((1, 36))
        slope_RF = pair_gradient(theta_RF, found.feature_SAF, weight_RSAA, label_RSAA, beta=BETA, kind="dpo")[
            1
        ]
        moved = np.exp(log_policy(-slope_RF, found.feature_SAF, found.ref_SA))[0, :, 0]
        rises.append(float((moved - found.ref_SA[:, 0]).mean()))
        slopes_F.append(slope_RF)
    apart = np.abs(slopes_F[0] - slopes_F[1]).max()
    # The gradient at margin 0 is beta / 2 per pair, over six contexts.
    apart = max(apart, abs(np.abs(slopes_F[0]).max() - BETA / 12))
    return exact(
        [apart, max(0.0, rises[1] / rises[0] - 0.01)], 1e-12, "largest distance, or excess over 1/100"
    )


EXPERIMENT.claim("dpo-regret-rises-with-the-distance-of-winners", statement="By 0.02 per nat or more.")(
    all_exceed(RISE, "rise per nat", slopes, "nats", "regret", {"pairs": "expert"})
)


EXPERIMENT.claim(
    "on-policy-alignment-lowers-regret",
    """With winners 8 nats away the regret is lower by 0.05 when the reference is aligned and makes the
    pairs.""",
).compare("regret", {"pairs": "expert"}, {"pairs": "aligned"}, by=MARGIN, over={"nats": NATS[-1]})


EXPERIMENT.claim(
    "a-third-of-aligned-pairs-is-enough",
    "With winners 8 nats away a third of the aligned pairs has less regret than all expert pairs.",
).compare("regret", {"pairs": "aligned, a third"}, {"pairs": "expert"}, below=True, over={"nats": NATS[-1]})
