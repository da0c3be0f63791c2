"""Losers sampled from the policy's own checkpoints (SePPO), with and without an anchor, against fixed
losers.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd

from analysis.claims import Evidence, exact
from analysis.comparisons import must_exceed
from analysis.experiment import Experiment
from analysis.load import Table
from analysis.plot import Plot
from analysis.preference_worlds import PairWorld, linear_world
from analysis.replication import Seeds, difference, repeated
from envs.arrays import Floats
from testbed.offline.preferences import pair_law, tilt, train_on_pairs
from testbed.offline.tabular import kl
from testbed.rng import generator

NAME = "pairs-seppo"
SEEDS, STEPS, BETA, RATE = 16, 160, 0.2, 2.0
LAGS = (1, 4, 16, 64)
MARGIN = 0.05
"""Regret. Set before the table was made."""


def winners(found: PairWorld, seed: int) -> Floats:
    """Demonstrated actions, [S, A]: good ones on the whole, a few of them poor."""
    noise_SA = 0.5 * generator(seed, "demonstrations").normal(size=found.reward_SA.shape)
    return tilt(found.ref_SA, found.reward_SA + noise_SA, 0.3)


def draw(
    step: int, history: list[Floats], *, found: PairWorld, win_SA: Floats, lag: int, anchor: bool
) -> tuple[Floats, Floats] | None:
    """Demonstrated winners against losers of the policy `lag` steps back; lag 0 is the reference for ever.

    anchor: a sampled action that the policy has come to prefer to the winner, against that checkpoint, is
    kept out.
    """
    if lag == 0 and step:
        return None
    past_RSA = history[0] if lag == 0 else history[max(0, len(history) - 1 - lag)]
    weight_RSAA = pair_law(found.context_S, win_SA[None], np.exp(past_RSA))
    if anchor:
        gain_RSA = history[-1] - past_RSA
        weight_RSAA = np.where(gain_RSA[..., :, None] >= gain_RSA[..., None, :], weight_RSAA, 0.0)
    same = np.eye(found.reward_SA.shape[1], dtype=bool)
    return weight_RSAA, np.broadcast_to(np.where(same, 0.5, 1.0), weight_RSAA.shape)


def rows(seeds: Seeds) -> pd.DataFrame:
    """Return final and worst regrets, by lag and anchor; lag 0 are fixed losers of the reference."""
    rows_ = []
    for seed in seeds:
        found = linear_world(seed)
        win_SA = winners(found, seed)
        for lag in (0, *LAGS):
            for anchor in (False, True) if lag else (False,):
                sets = partial(draw, found=found, win_SA=win_SA, lag=lag, anchor=anchor)
                _, history = train_on_pairs(
                    found.feature_SAF, found.ref_SA, sets, cells=1, steps=STEPS, rate=RATE, beta=BETA
                )
                last, best = found.regret(history[-1]), min(found.regret(each) for each in history[::10])
                rows_.append((seed, lag, "yes" if anchor else "no", last, last - best))
    return pd.DataFrame(rows_, columns=["seed", "lag", "anchor", "regret", "degraded"])


def table() -> Table:
    """Return a row per run, seed, lag and anchor."""
    return Table.of(NAME, repeated(rows, SEEDS), {"steps": STEPS, "beta": BETA})


EXPERIMENT = Experiment(
    NAME,
    question="Are losers sampled from older checkpoints better than fixed ones, and does an anchor help?",
    source="SePPO (2024), Semi-policy preference optimization for diffusion alignment",
    differs="a log-linear policy on a bandit; the anchor keeps out losers that the policy has come to prefer",
    compute=table,
    keys=("run", "seed", "lag", "anchor"),
    metrics=("regret", "degraded"),
    margins={"regret": MARGIN},
    figure=Plot(
        "final by dial",
        x="lag",
        y="regret",
        arm=("anchor",),
        x_label="lag of the losers' policy (0: fixed losers)",
    ),
    systems=("SePPO",),
)


@EXPERIMENT.claim(
    "self-made-losers-stop-at-the-winners",
    source="derived here: the gradient of winners against own losers is theirs of likelihood at margin 0",
    statement=(
        "With losers of the current policy and a table the policy goes to the winners' law: "
        "KL(winners || pi) "
        "falls at every step and ends below 0.01, which fixed losers of the reference do not."
    ),
)
def stops() -> Evidence:
    """Return rises of the divergence, its end over 0.01, and what the fixed losers' end misses of 0.1."""
    gaps = []
    for seed in range(2):
        plain = linear_world(seed, contexts=2, actions=4)
        found = PairWorld(plain.reward_SA, plain.ref_SA, np.eye(8).reshape(2, 4, 8))
        win_SA = tilt(found.ref_SA, found.reward_SA, 1.0)
        ends = []
        for lag in (-1, 0):
            # A lag of -1 looks for a checkpoint after the newest one, which is the newest.
            sets = partial(_own, found=found, win_SA=win_SA) if lag else partial(
                draw, found=found, win_SA=win_SA, lag=0, anchor=False
            )  # fmt: skip
            _, history = train_on_pairs(
                found.feature_SAF, found.ref_SA, sets, cells=1, steps=300, rate=1.0 / BETA, beta=BETA
            )
            away_K = np.array([kl(win_SA[None], np.exp(each)).mean() for each in history[::20]])
            ends.append(away_K[-1])
            if lag:
                gaps.append(float(np.diff(away_K).max()))
        gaps += [max(0.0, ends[0] - 0.01), max(0.0, 0.1 - ends[1])]
    return exact(gaps, 1e-9, "largest rise or excess")


def _own(_: int, history: list[Floats], *, found: PairWorld, win_SA: Floats) -> tuple[Floats, Floats]:
    """Winners against losers of the policy as it is, compared with a reference that is the policy too."""
    weight_RSAA = pair_law(found.context_S, win_SA[None], np.exp(history[-1]))
    # Labels that put margin and label 1/2 apart, as at a reference that is the policy itself.
    gain_RSA = BETA * (history[-1] - history[0])
    margin_RSAA = gain_RSA[..., :, None] - gain_RSA[..., None, :]
    return weight_RSAA, 1 / (1 + np.exp(-margin_RSAA)) + 0.5


@EXPERIMENT.claim(
    "lagged-losers-beat-fixed-ones",
    statement="At each lag, losers of checkpoints end with a regret lower by 0.05.",
)
def beats(table: pd.DataFrame) -> Evidence:
    """Return the evidence with the anchor at every lag, in both runs."""
    fixed = {"lag": 0, "anchor": "no"}
    found = {
        f"lag {lag}, {run}": x_N
        for lag in LAGS
        for run, x_N in difference(table, "regret", fixed, {"lag": lag, "anchor": "yes"}).items()
    }
    return must_exceed(found, MARGIN, "fall of regret less 0.05")


@EXPERIMENT.claim(
    "the-anchor-prevents-degradation",
    statement="At lag 1 the anchor lowers the rise of regret after its best by 0.05.",
)
def prevents(table: pd.DataFrame) -> Evidence:
    """Return the evidence in both runs."""
    first, second = ({"lag": 1, "anchor": word} for word in ("no", "yes"))
    return must_exceed(
        difference(table, "degraded", first, second), MARGIN, "fall of the degradation less 0.05"
    )
