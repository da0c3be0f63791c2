"""Gradients mixed from an expert's answers and own samples: bias and variance over the mixing weight."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, exact
from analysis.tables.committed import Table

if TYPE_CHECKING:
    from torch import Tensor

NAME = "expert-gradients"
ARMS, OWN, EXPERTS, RIGHT = 4, 3, 1, 0
DIGITS = 1e-5
"""What the digits of a table leave open."""
WEIGHTS = tuple(np.round(np.linspace(0.0, 1.0, 21), 9))
TEACHERS = {"spread": (0.7, 0.1, 0.1, 0.1), "sure": (1.0, 0.0, 0.0, 0.0)}


def mixed(teacher: str, mu: float) -> tuple[Tensor, float]:
    """Return mean [K] and total variance of CHORD's gradient over every batch of 3 own samples and 1 answer.

    Own samples are a group with GRPO's centered rewards (1 for the first arm), the answer is the teacher's.
    """
    import torch

    from testbed.data.batch import EXPERT, ROLLOUT, Batch
    from testbed.recipes.composition import Recipe

    pi_K = torch.tensor([0.4, 0.3, 0.2, 0.1], dtype=torch.float64)
    token_RB = torch.tensor(list(itertools.product(range(ARMS), repeat=OWN + EXPERTS)))
    own_RB, theirs_RB = token_RB[:, :OWN], token_RB[:, OWN:]
    law_K = torch.tensor(TEACHERS[teacher], dtype=torch.float64)
    weight_R = pi_K[own_RB].prod(-1) * law_K[theirs_RB].prod(-1)
    reward_RB = (token_RB == RIGHT).double()
    adv_RB = reward_RB - reward_RB[:, :OWN].mean(-1, keepdim=True)
    leaf_RK = pi_K.log().expand(len(token_RB), -1).clone().requires_grad_()
    logp_RBT = leaf_RK.log_softmax(-1).gather(-1, token_RB)[..., None]
    origin_B = torch.tensor([ROLLOUT] * OWN + [EXPERT] * EXPERTS)
    batch = Batch(
        logp_mu_BT=logp_RBT.detach(),
        adv_BT=adv_RB[..., None],
        mask_BT=torch.ones_like(logp_RBT, dtype=torch.bool),
        reward_B=reward_RB,
        group_B=torch.tensor([0] * OWN + [1] * EXPERTS).expand_as(token_RB),
        origin_B=origin_B.expand_as(token_RB),
    )
    recipe = Recipe("group_mean", "chord", "token_mean")
    loss_R = recipe.loss(logp_RBT, batch, {"mu": mu, "phi": "off"})
    (found_RK,) = torch.autograd.grad(loss_R.sum(), leaf_RK)
    mean_K = (weight_R[:, None] * found_RK).sum(0)
    return mean_K, float((weight_R * (found_RK - mean_K).square().sum(-1)).sum())


def table() -> Table:
    """Return bias from the pure RL gradient and variance, by teacher and weight."""
    rows = []
    for teacher in TEACHERS:
        clean_K, _ = mixed(teacher, 0.0)
        for mu in WEIGHTS:
            mean_K, variance = mixed(teacher, mu)
            rows.append((teacher, mu, float((mean_K - clean_K).norm()), variance))
    frame = pd.DataFrame(rows, columns=["teacher", "weight", "bias", "variance"])
    return Table.of(NAME, frame, {"own": OWN, "answers": EXPERTS})


EXPERIMENT = Experiment(
    NAME,
    question="How do bias and variance of a mixed gradient depend on the expert's weight?",
    source="DYPO (2026), its bias and variance of mixed gradients; CHORD (2025), arXiv:2508.11408",
    differs="CHORD's mixture on a bandit of 4 arms; the alignment loss and the gate of DYPO are not there",
    compute=table,
    keys=("teacher", "weight"),
    metrics=("bias", "variance"),
    figure=Plot(
        "curves by arm", x="weight", y="variance", arm=("teacher",), x_label="weight of the expert's answer",
        y_label="variance of the gradient",
    ),
    systems={
        "DYPO": Part("bias and variance over the mixing weight, and over the number of teachers")
    },
)  # fmt: skip


@EXPERIMENT.claim(
    "mixed-gradient-bias-is-linear-in-the-weight",
    kind="identity",
    statement=(
        "The bias of the mixed gradient is the expert's weight times the distance of the imitation gradient "
        "from the policy gradient."
    ),
)
def linear(table: pd.DataFrame) -> Evidence:
    """Return distances of the bias from its line, and lacking slope."""
    gaps = []
    for _, part in table.groupby("teacher"):
        slope = float(part.loc[part["weight"] == 1.0, "bias"].iloc[0])
        gaps += [*(part["bias"] - slope * part["weight"]).abs(), 0.01 - slope]
    return exact(gaps, DIGITS, "largest distance from the line, or lacking slope")


@EXPERIMENT.claim(
    "mixed-gradient-variance-is-least-inside-only-for-an-unsure-expert",
    kind="identity",
    statement=(
        "The variance is (1 - w)^2 V_own + w^2 V_expert. With an expert that spreads its answers it is "
        "least inside, at w = V_own / (V_own + V_expert); with an expert that always gives the same answer "
        "it falls to 0 at w = 1, where nothing is left of the reward."
    ),
)
def inside(table: pd.DataFrame) -> Evidence:
    """Return distances from the parabola, and from where it must be least on the grid."""
    gaps, said = [], []
    for teacher, part in table.groupby("teacher"):
        w, found = part["weight"].to_numpy(), part["variance"].to_numpy()
        own, expert = found[w == 0.0][0], found[w == 1.0][0]
        gaps += list(np.abs(found - (1 - w) ** 2 * own - w**2 * expert))
        best, wanted = w[found.argmin()], own / (own + expert)
        gaps.append(max(0.0, abs(best - wanted) - 0.025))
        gaps.append(0.0 if (0 < best < 1) == (teacher == "spread") else 1.0)
        said.append(f"{teacher} at {best:.2f}")
    return exact(gaps, DIGITS, f"distance from the parabola or its least point; least {', '.join(said)}")


@EXPERIMENT.claim(
    "more-teachers-lower-squared-bias-to-a-floor",
    source="derived",
    statement=(
        "Averaged over n teachers with errors of their own around a common answer, the expected squared "
        "bias of the imitation gradient is floor + spread / n: it falls like 1/n, not linearly, and not to "
        "0 where the teachers err alike."
    ),
)
def teachers() -> Evidence:
    """Return distances of the enumerated squared bias from the law in n, over all choices of 6 teachers."""
    import torch

    from analysis.worlds.teaching_worlds import AllResponses, expected_gradient
    from testbed.objectives.terms.distillation import sft

    world = AllResponses(ARMS, 1)
    pi, common = world.random(0), world.random(1)
    laws = [(common + 0.7 * world.random(10 + i)).softmax(-1) for i in range(6)]
    best = torch.tensor([[1.0, 0.0, 0.0, 0.0]], dtype=torch.float64)

    def bias(law: Tensor) -> Tensor:
        return expected_gradient(sft, world, pi, law[0], world.batch(pi, pi)) - target

    target = torch.zeros_like(pi)
    target = bias(best)
    each = torch.stack([bias(law) for law in laws])
    floor = float(each.mean(0).square().sum())
    spread = float((each - each.mean(0)).square().sum((1, 2)).mean())
    gaps = [0.01 - floor, 0.001 - spread]
    for n in (1, 2, 3):
        chosen = itertools.product(range(6), repeat=n)  # drawn independently
        found = [float(bias(torch.stack([laws[i] for i in c]).mean(0)).square().sum()) for c in chosen]
        gaps.append(abs(float(np.mean(found)) - floor - spread / n))
    return exact(gaps, 1e-12, f"distance from floor + spread / n; floor {floor:.3f}, spread {spread:.3f}")
