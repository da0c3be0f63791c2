"""A student without memory on a teacher with two modes: divergences, whose prefixes, and length; all sums."""

from __future__ import annotations

from functools import cache, partial
from itertools import pairwise, product
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Plot, exact
from analysis.tables.committed import Table
from analysis.worlds.teaching_worlds import AllResponses, expected_gradient, place_gradients

if TYPE_CHECKING:
    from torch import Tensor

NAME = "distilled-trees"
KINDS, PREFIXES, LENGTHS = ("reverse", "js", "forward"), ("own", "half", "teacher's"), (2, 4, 6, 8)
WEIGHTS, SLIP, STEPS, RATE = (0.6, 0.4), 0.02, 100, 4.0
CELLS = (*product(KINDS, PREFIXES, LENGTHS), *product(("reverse, whole",), ("own",), LENGTHS))


def teacher(world: Any) -> Tensor:
    """Return logits [S, 2] of a law that says mostly 0 or mostly 1, with slips of 2 % at every token."""
    import torch

    one_L = world.token_LT.sum(-1).double()
    zero_L = world.length - one_L
    law_L = WEIGHTS[0] * (1 - SLIP) ** zero_L * SLIP**one_L + WEIGHTS[1] * (1 - SLIP) ** one_L * SLIP**zero_L
    found: Tensor = world.of_law(law_L)
    assert torch.isfinite(found).all()
    return found


def visits(world: Any, logits_SV: Tensor) -> Tensor:
    """Return the chance of every prefix under a policy, [S]."""
    import torch

    found_S, law_L = torch.zeros(world.states, dtype=torch.float64), world.law(logits_SV)
    for t in range(world.length):
        found_S.index_add_(0, world.state_LT[:, t], law_L)
    return found_S


@cache
def fitted(kind: str, prefixes: str, length: int) -> tuple[float, float, float]:
    """Return a fitted student's chance of a lesser first token, tokens unlike the first, and the teacher's.

    The student has one law per place. Token by token it follows the objective's expected gradient at every
    prefix, weighed by how often the prefix comes by; "whole" is REINFORCE on log(teacher/student) of a
    response, the reverse divergence of whole responses.
    """
    import torch

    from testbed.objectives.reinforce.plain import reinforce
    from testbed.objectives.terms.f_distillation import f_distillation

    world = AllResponses(2, length)
    ref_SV = teacher(world)
    place_S = torch.tensor([t for t in range(length) for _ in range(2**t)])
    share = {"own": 0.0, "half": 0.5, "teacher's": 1.0}[prefixes]
    loss = partial(f_distillation, divergence=kind, beta=0.5)
    theta_TV, shown_S = torch.zeros(length, 2, dtype=torch.float64), visits(world, ref_SV)
    for _ in range(STEPS):
        logits_SV = theta_TV[place_S]
        if kind == "reverse, whole":
            gain_L = (world.logp(ref_SV) - world.logp(logits_SV)).sum(-1)
            batch, law_L = world.batch(logits_SV, ref_SV, gain_L), world.law(logits_SV)
            by_row = expected_gradient(reinforce, world, theta_TV, law_L, batch, lambda x_TV: x_TV[place_S])
            theta_TV = theta_TV - RATE * by_row / length
            continue
        weight_S = share * shown_S + (1 - share) * visits(world, logits_SV)
        slope_SV = weight_S[:, None] * place_gradients(loss, logits_SV, ref_SV, logits_SV)
        theta_TV = theta_TV - RATE * torch.zeros_like(theta_TV).index_add_(0, place_S, slope_SV)
    off_L = (world.token_LT != world.token_LT[:, :1]).sum(-1).double()
    student_L = world.law(theta_TV[place_S])
    lesser = float(theta_TV[0].softmax(-1)[1])
    return lesser, float(student_L @ off_L), float(world.law(ref_SV) @ off_L)


def table() -> Table:
    """Return a row per divergence, origin of the prefixes, and length."""
    frame = pd.DataFrame(CELLS, columns=["divergence", "prefixes", "length"])
    frame[["lesser", "off", "of teacher"]] = [fitted(*cell) for cell in CELLS]
    return Table.of(NAME, frame, {"slip": SLIP, "modes": list(WEIGHTS), "steps": STEPS})


EXPERIMENT = Experiment(
    NAME,
    question="Which modes does a limited student keep, and how does it err with length?",
    source="survey of on-policy distillation (2026); Agarwal et al. (2024), GKD, arXiv:2306.13649",
    differs="a student with one law per place, a teacher with two modes of up to 8 binary tokens; no samples",
    compute=table,
    keys=("divergence", "prefixes", "length"),
    metrics=("lesser", "off", "of teacher"),
    figure=Plot(
        "final by setting", x="length", y="off: tokens unlike the first", arm=("divergence", "prefixes"),
    ),
    systems={"On-policy distillation survey": Part()},
)  # fmt: skip


@EXPERIMENT.claim()
def token_wise_distillation_seeks_no_mode() -> Evidence:
    """Token by token a student keeps the teacher's share of the lesser mode, 0.404, at its first token to
    1e-3, under the reverse, Jensen-Shannon and forward divergence, on own prefixes and on the teacher's: what
    is lost later does not count there.

    Return distances of the lesser first token's chance from the teacher's, over 36 students.
    """
    share = WEIGHTS[1] * (1 - SLIP) + WEIGHTS[0] * SLIP
    gaps = [abs(fitted(*cell)[0] - share) for cell in product(KINDS, PREFIXES, LENGTHS)]
    return exact(gaps, 1e-3, "largest distance of the lesser first token's chance from the teacher's")


@EXPERIMENT.claim(kind="enumerated")
def reverse_divergence_of_whole_responses_seeks_a_mode() -> Evidence:
    """The reverse divergence of whole responses gives the lesser mode's first token at most 0.05 from four
    tokens on, and at most twice the teacher's tokens unlike the first.

    Return excesses of the first token's chance and of tokens off, at lengths 4, 6 and 8.
    """
    found = [fitted("reverse, whole", "own", length) for length in LENGTHS[1:]]
    gaps = [max(lesser - 0.05, off - 2 * least) for lesser, off, least in found]
    return exact(gaps, 0.0, f"excess; chances {', '.join(f'{x[0]:.3f}' for x in found)}")


@EXPERIMENT.claim(kind="enumerated")
def own_prefixes_lower_the_error_that_grows_with_length() -> Evidence:
    """For each divergence tokens unlike the first are more on the teacher's prefixes than on half of them,
    and there than on own ones, from four tokens on, and the excess over own ones grows with every length.
    """
    gaps = []
    for kind in KINDS:
        off = {p: [fitted(kind, p, length)[1] for length in LENGTHS[1:]] for p in PREFIXES}
        more = [b - a for a, b in zip(off["own"], off["teacher's"], strict=True)]
        gaps += [a - b for a, b in zip(off["own"], off["half"], strict=True)]
        gaps += [a - b for a, b in zip(off["half"], off["teacher's"], strict=True)]
        gaps += [a - b for a, b in pairwise(more)]
    return exact(gaps, 0.0, "largest lack of order")


@EXPERIMENT.claim(kind="enumerated")
def reverse_errs_less_than_forward() -> Evidence:
    """On the same prefixes tokens unlike the first are fewest under the reverse divergence, more under
    Jensen-Shannon's and most under the forward one, at every length.
    """
    gaps = []
    for prefixes, length in product(PREFIXES, LENGTHS):
        off = [fitted(kind, prefixes, length)[1] for kind in KINDS]
        gaps += [a - b for a, b in pairwise(off)]
    return exact(gaps, 0.0, "largest lack of order")
