"""A teacher's opinion of every token against one reward at the end: signal and noise over the length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, exact
from analysis.tables.committed import Table
from analysis.worlds.teaching_worlds import AllResponses, single_gradients, spread

if TYPE_CHECKING:
    from torch import Tensor


NAME = "dense-signal"
V, LENGTHS, SEEDS = 3, (1, 2, 3, 4, 5, 6), 6
COEFFICIENTS = (0.0, 0.1, 1.0, np.inf)
"""Of the teacher's term beside the reward's; inf is distillation alone."""
GROWTH, CLEARER, SAVED = 100.0, 10.0, 4.0
"""Least growth of the sparse noise over the lengths, and least ratios of it to the dense one."""


def noise(length: int, coefficient: float, seed: int) -> tuple[float, float, float]:
    """Return variance over squared mean of one response's gradient, its mean's cosine with dJ, and J.

    One of V^T responses is right; the baseline is the value; the teacher tilts the student towards the right
    one by e^2 per token.
    """
    import torch

    from testbed.objectives.reinforce.plain import reinforce
    from testbed.objectives.terms.distillation import distillation

    world = AllResponses(V, length)
    pi = world.random(seed, 0.3)
    right = int(np.random.default_rng([seed, length]).integers(V**length))
    law_L = world.law(pi)
    reward_L = torch.zeros(V**length, dtype=torch.float64)
    reward_L[right] = 1.0
    batch = world.batch(pi, tilted(world, pi, right), reward_L - law_L[right])
    sparse, dense = (single_gradients(loss, world, pi, batch) for loss in (reinforce, distillation))
    both = dense if np.isinf(coefficient) else sparse + coefficient * dense
    mean_P, variance = spread(both, law_L)
    true_P, _ = spread(sparse, law_L)
    square = float(mean_P.square().sum())
    cosine = float((mean_P * true_P).sum() / (mean_P.norm() * true_P.norm()))
    return variance / square, cosine, float(law_L[right])


def tilted(world: AllResponses, pi: Tensor, right: int) -> Tensor:
    """Return the teacher's logits: the student's, and 2 more for the right token on the right path."""
    ref = pi.clone()
    ref[world.state_LT[right], world.token_LT[right]] += 2.0
    return ref


def table() -> Table:
    """Return noise to signal and cosine, by length, coefficient and seed."""
    rows = [
        (length, "teacher alone" if np.isinf(c) else f"{c:g}", seed, *noise(length, c, seed))
        for length in LENGTHS
        for c in COEFFICIENTS
        for seed in range(SEEDS)
    ]
    frame = pd.DataFrame(rows, columns=["length", "coefficient", "student", "noise", "cosine", "value"])
    return Table.of(NAME, frame, {"vocabulary": V})


EXPERIMENT = Experiment(
    NAME,
    question="How much less noisy is a teacher's opinion of every token than one reward at the end?",
    source="dGRPO (2026), arXiv:2605.12227 (abstract)",
    differs="one response per gradient, the exact value as baseline, 3 tokens, lengths 1 to 6; no training",
    compute=table,
    keys=("length", "coefficient", "student"),
    metrics=("noise", "cosine", "value"),
    margins={"ratio of noise": CLEARER, "growth of the sparse noise": GROWTH, "ratio of tokens": SAVED},
    figure=Plot(
        "final by setting", x="length", y="noise: variance / squared mean", arm=("coefficient",), log="y",
    ),
    systems={
        "OPSD (Self-Distilled Reasoner)": Part(
            "tokens for one equally clear gradient; not tokens to an accuracy, nor a network",
            claims=("a-solution-in-context-saves-tokens-per-gradient",),
        ),
        "dGRPO (long-context)": Part(
            "the noise of one gradient with and without the teacher's term", claims=(
                "a-teachers-term-is-clearer-than-a-sparse-reward",
                "noise-of-a-sparse-reward-grows-with-length",
            ),
        )
    },
)  # fmt: skip


def means(table: pd.DataFrame) -> pd.DataFrame:
    """Return the geometric mean over students of noise to signal: by length and coefficient."""
    logs = table.assign(noise=np.log(table["noise"]))
    return pd.DataFrame(np.exp(logs.pivot_table(index="length", columns="coefficient", values="noise")))


@EXPERIMENT.claim(
    source="derived: the second moment is at least J (1 - J)^2 |S|^2, the mean J S, S the right score",
    kind="enumerated",
)
def noise_of_a_sparse_reward_grows_with_length(table: pd.DataFrame) -> Evidence:
    """The noise-to-signal ratio of a gradient from one reward at the end is at least (1 - J)^2 / J - 1, J the
    chance of success, and grows at least 100-fold from length 1 to 6; that of the teacher's term alone grows
    less than 10-fold.
    """
    sparse = table[table["coefficient"] == "0"]
    bound = (1 - sparse["value"]) ** 2 / sparse["value"] - 1
    rise = means(table).iloc[-1] / means(table).iloc[0]
    gaps = [
        *(1 - sparse["noise"] / bound)[bound > 0],
        1 - rise["0"] / GROWTH,
        rise["teacher alone"] / CLEARER - 1,
    ]
    note = f"growth {rise['0']:.0f} sparse, {rise['teacher alone']:.1f} teacher alone"
    return exact(gaps, 1e-4, f"what noise lacks to its bound, or growth to its own; {note}")


@EXPERIMENT.claim(kind="enumerated")
def a_teachers_term_is_clearer_than_a_sparse_reward(table: pd.DataFrame) -> Evidence:
    """At length 6 the teacher's term has at most a tenth of the sparse reward's noise to signal, and sums
    with coefficients 0.1 and 1 have too; all means keep a positive cosine with the reward's gradient.
    """
    last = means(table).iloc[-1]
    ratio = last["0"] / last.drop("0")
    cosine = table.groupby("coefficient")["cosine"].min()
    note = f"ratios {', '.join(f'{k}: {x:.1f}' for k, x in ratio.items())}; least cosine {cosine.min():.2f}"
    return exact([*(1 - ratio / CLEARER), -cosine.min()], 0.0, note)


@EXPERIMENT.claim(
    source="Self-Distilled Reasoner (OPSD, 2026): 4 to 8 times fewer tokens than GRPO", kind="enumerated"
)
def a_solution_in_context_saves_tokens_per_gradient(table: pd.DataFrame) -> Evidence:
    """From length 2 on, the opinion of the student itself, tilted towards the solution by 2 nats a token,
    needs at most a quarter of the tokens that one final reward needs for an equally clear gradient.

    Return what the ratios of noise to signal, which are those of tokens, lack to 4.
    """
    wide = means(table).loc[2:]
    ratio = wide["0"] / wide["teacher alone"]
    note = ", ".join(f"{x:.1f} at {t}" for t, x in ratio.items())
    return exact(1 - ratio / SAVED, 0.0, f"lacking ratio of tokens; {note}")
