"""Fitted Q that is shared by two groups and may differ in one (NFQI), against pooled and separate ones."""

from collections.abc import Iterator

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Plot, Seeds, columns, exact, of_seeds
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, random_worlds
from envs.offline import exact_model, two_groups
from testbed.offline.models import nested_fitted_q
from testbed.offline.tabular import fitted_q, greedy

NAME = "offline-nfqi"
SEEDS, BACKGROUND = 24, 4000
SIZES = (50, 200, 800, 3200)
RIDGES = {"separate": 0.0, "nested": 5.0, "pooled": np.inf}
MARGIN, FAR = 0.0, 0.4
"""Fall of log error that counts as lower, and as far lower (a third off). Set before the table was made."""


def groups(seeds: Seeds) -> tuple[Worlds, Worlds]:
    """Pairs of worlds: rewards of 30 % of the pairs differ by normal numbers."""
    first = random_worlds(seeds)
    other = tuple(
        two_groups(w, gap=1.0, share=0.3, seed=s)[1] for w, s in zip(first.worlds, seeds, strict=True)
    )
    models = [exact_model(world) for world in other]
    return first, Worlds(other, np.stack([m for m, _ in models]), np.stack([r for _, r in models]))


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return log error of the small group's Q, and the score of its greedy policy, by its logged steps."""
    (many, few) = groups(seeds)
    mu_RSA = np.full(many.reward_RSA.shape, 0.25)
    background = many.logged(mu_RSA, BACKGROUND, seeds, "background")
    right_RSA = fitted_q(few.moves_RSAS, few.reward_RSA, DISCOUNT)
    for steps in SIZES:
        foreground = few.logged(mu_RSA, steps, seeds, f"foreground of {steps}")
        for name, ridge in RIDGES.items():
            q_RSA = nested_fitted_q(background, foreground, DISCOUNT, ridge)[1]
            error_R = np.log(np.abs(q_RSA - right_RSA).mean((1, 2)))
            found = {"log_error": error_R, "score": few.score(greedy(q_RSA))}
            yield columns(seeds, steps=steps, fit=name, **found)


EXPERIMENT = Experiment(
    NAME,
    question="Does a Q that two groups share in part err less for the small group?",
    source="Mandyam et al. (2021), Nested policy reinforcement learning (NFQI), arXiv:2110.02879",
    differs="random worlds, tables; a ridge of 5 on the group's difference in place of networks",
    compute=of_seeds(NAME, rows, SEEDS, {"background": BACKGROUND, "ridge": RIDGES["nested"]}),
    keys=("run", "seed", "steps", "fit"),
    metrics=("log_error", "score"),
    margins={"fall of log error that counts as lower": MARGIN, "as far lower": FAR},
    figure=Plot(
        "final by dial",
        x="steps: logged steps of the small group",
        y="log_error: log mean error of its Q",
        arm=("fit",),
    ),
    systems=("NFQI (nested policy RL)",),
)


@EXPERIMENT.claim()
def nested_fitted_q_lies_between_separate_and_pooled() -> Evidence:
    """With no ridge nested fitted Q is each group's own, with an infinite one that of the pooled data; the
    background's Q is its own at ridge 0 too.
    """
    seeds = tuple(range(6))
    many, few = groups(seeds)
    mu_RSA = np.full(many.reward_RSA.shape, 0.25)
    logs = many.logged(mu_RSA, 900, seeds, "background"), few.logged(mu_RSA, 300, seeds, "foreground")
    alone = [fitted_q(counts.moves_RSAS, counts.reward_RSA, DISCOUNT) for counts in logs]
    both = logs[0] + logs[1]
    pooled_RSA = fitted_q(both.moves_RSAS, both.reward_RSA, DISCOUNT)
    separate, shared = (nested_fitted_q(*logs, DISCOUNT, ridge) for ridge in (0.0, np.inf))
    pairs = [*zip(separate, alone, strict=True), *((q_RSA, pooled_RSA) for q_RSA in shared)]
    return exact([np.abs(a - b).max() for a, b in pairs], 1e-9, "largest distance from plain fitted Q")


EXPERIMENT.claim(
    "nested-errs-less-than-pooled", "The small group's Q errs less nested than pooled, at each size."
).compare("log_error", {"fit": "pooled"}, {"fit": "nested"}, by=MARGIN, over={"steps": SIZES})

EXPERIMENT.claim(
    "nested-errs-far-less-than-separate-in-a-small-group",
    "With 50 and 200 steps of the small group its Q errs a third less nested than separate.",
).compare("log_error", {"fit": "separate"}, {"fit": "nested"}, by=FAR, over={"steps": SIZES[:2]})
