"""Soft labels from votes (VDPO, VIPO) against majority labels (DPO, IPO), where voters differ or agree."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy import special, stats

from analysis.lab import (
    Evidence,
    Experiment,
    Plot,
    Seeds,
    columns,
    exact,
    of_seeds,
    short_of,
)
from analysis.worlds.preference_worlds import tabular_world
from testbed.offline.preferences import pair_gradient, train_on_pairs, vote_labels
from testbed.rng import generator

NAME = "pairs-votes"
SEEDS, PAIRS, STEPS, BETA = 24, 400, 400, 1.0
VOTES = (1, 3, 9)
SPREADS = np.repeat([0.3, 3.0], 3)
"""Spread of rewards: three contexts are controversial, three clear."""
MARGIN = 0.02


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return what policies lack in both halves of the contexts, by votes, loss and rule of labels."""
    arms = [(votes, rule) for votes in VOTES for rule in ("hard", "mmse")]
    for seed in seeds:
        world = tabular_world(seed, spread_S=SPREADS)
        weight_RSAA = world.pairs(world.ref_SA[None], PAIRS, generator(seed, "pairs"))
        labels = [
            vote_labels(weight_RSAA, world.chance_SAA, v, rule, generator(seed, f"{v} votes"))
            for v, rule in arms
        ]
        given = np.repeat(weight_RSAA, len(arms), 0), np.concatenate(labels)
        for kind, rate in (("dpo", 20.0), ("ipo", 5.0)):
            _, history = train_on_pairs(
                world.feature_SAF, world.ref_SA, given, cells=len(arms), steps=STEPS, rate=rate, beta=BETA,
                kind=kind,
            )  # fmt: skip
            for index, (votes, rule) in enumerate(arms):
                lacks_S = world.tilted_gap(history[-1][index : index + 1], BETA)
                lacks = {"controversial": lacks_S[:3].mean(), "clear": lacks_S[3:].mean()}
                yield columns((seed,), votes=votes, loss=kind, labels=rule, **lacks)


EXPERIMENT = Experiment(
    NAME,
    question="Do soft labels from votes help where voters disagree, and do no harm where they agree?",
    source="Cho, Park & Lee (2024), VPO: leveraging the number of votes, arXiv:2410.22891",
    differs=(
        "a table over 36 pairs of context and action; what is lacked is beta KL to the best tilted policy"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"pairs": PAIRS, "steps": STEPS, "beta": BETA}),
    keys=("run", "seed", "votes", "loss", "labels"),
    metrics=("controversial", "clear"),
    margins={"value with the KL penalty": MARGIN},
    figure=Plot(
        "final by dial",
        x="votes: votes per pair",
        y="controversial: lacked value, controversial pairs",
        arm=("loss", "labels"),
        log="y",
        names={"dpo": "DPO", "ipo": "IPO", "hard": "majority", "mmse": "soft"},
    ),
    systems=("VPO → VDPO / VIPO (votes)",),
)


@EXPERIMENT.claim(source="Cho, Park & Lee (2024); Azar et al. (2024), equation 17")
def vote_share_is_stationary_at_its_log_odds() -> Evidence:
    """DPO's gradient with soft labels vanishes at margin logit(y), IPO's at y - 1/2; the soft label is the
    posterior mean under an even prior, and has less mean squared error than the majority's.
    """
    feature_SAF, weight_RSAA = np.eye(2)[None], np.zeros((1, 1, 2, 2))
    weight_RSAA[..., 0, 1] = 1.0
    gaps = []
    for label in (0.1, 0.5, 0.7, 0.95):
        label_RSAA = np.full((1, 1, 2, 2), label)
        for kind, wanted in (("dpo", np.log(label / (1 - label))), ("ipo", label - 0.5)):
            for beta in (0.1, 1.0):
                # beta theta . (phi_0 - phi_1) is the margin.
                theta_RF = np.array([[wanted / beta, 0.0]])
                gradient = pair_gradient(
                    theta_RF, feature_SAF, weight_RSAA, label_RSAA, beta=beta, kind=kind
                )[1]
                gaps.append(np.abs(gradient).max())
    chance_K = np.linspace(0.005, 0.995, 100)
    for votes in (1, 3, 9):
        law_KV = stats.binom.pmf(np.arange(votes + 1), votes, chance_K[:, None])
        hard_V, soft_V = (
            np.array([_label(votes, count, rule) for count in range(votes + 1)]) for rule in ("hard", "mmse")
        )
        won_V, lost_V = np.arange(votes + 1), votes - np.arange(votes + 1)
        gaps.append(
            np.abs(soft_V - special.beta(won_V + 2, lost_V + 1) / special.beta(won_V + 1, lost_V + 1)).max()
        )
        hard, soft = ((law_KV * (x_V - chance_K[:, None]) ** 2).sum(-1).mean() for x_V in (hard_V, soft_V))
        gaps += [soft - hard, short_of(hard - soft, 0.01)]
    return exact(gaps, 1e-9, "largest gradient or excess")


def _label(votes: int, won: int, rule: str) -> float:
    """The project's label of a pair that was shown a million times and won `won` of `votes` each time."""

    def label(chance: float) -> float:
        rng = np.random.default_rng(0)
        one = np.ones((1, 1, 1, 1))
        return float(vote_labels(one, np.full((1, 1, 1), chance), votes, rule, rng).item())

    if rule == "hard" or votes == 0:
        return label(1.0 if won > votes / 2 else 0.0)
    never, always = label(0.0), label(1.0)
    return never + (always - never) * won / votes


EXPERIMENT.claim(
    "vote-labels-help-on-controversial-pairs",
    "With 1 to 9 votes, soft labels lack 0.02 less than majority labels in controversial contexts.",
).compare(
    "controversial",
    {"labels": "hard"},
    {"labels": "mmse"},
    by=MARGIN,
    over={"votes": VOTES, "loss": ("dpo", "ipo")},
)


EXPERIMENT.claim(
    "vote-labels-do-no-harm-on-clear-pairs",
    "With 9 votes, soft labels lack at most 0.02 more than majority labels in clear contexts.",
).compare(
    "clear",
    {"labels": "mmse"},
    {"labels": "hard"},
    by=MARGIN,
    below=True,
    over={"votes": VOTES[-1], "loss": ("dpo", "ipo")},
)
