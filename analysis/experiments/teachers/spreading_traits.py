"""A trait in trained transformers: from a narrow set of prompts to others, and through random numbers."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.kernels.on_use import Tensor, torch
from analysis.lab import (
    Arm,
    Experiment,
    Grid,
    Groups,
    Plot,
    Rows,
    Seeds,
    TunedArms,
    asks,
    columns,
    generator,
    inside,
    of_seeds,
)
from testbed.config.run import Run

if TYPE_CHECKING:
    Loss = Callable[[Tensor, int], Tensor]

NAME = "spreading-traits"
SEEDS, PILOTS, M, OTHER, LATER = 48, 24, 6, 500_000, 20_000
"""Seeds of a run and of pilots, the modulus of the sums, and offsets of seeds: for weights of another start,
and for all, as earlier tables had the first ones."""
LESSONS, TRAIT, NARROW, UPDATES = (600, 1e-2), (100, 1e-3), (100, 3e-3), 250
"""Steps and learning rates: of the base, of the teacher's trait, of a narrow trait; and a student's steps."""
CHANNELS = ("samples", "off-policy", "on-policy")
RATES: Grid = {"rate": (2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3, 1.6e-2, 3.2e-2)}
"""Of students; each channel and start has the one that passes most of the trait on."""
SPREAD, STAYED, PASSED, ALIKE = 1 / 3, 0.1, 0.02, 0.05
"""Margins: share of other prompts that show a narrow trait; share of the teacher's rise in log-odds that
counts as passed on; difference of shares that counts as none. Set before the table was made."""
KINDS = {"first": 0, "last": -2}
"""Digit of a narrow prompt that is 0 or 1."""


@cache
def built() -> tuple[Any, Any]:
    """Return task and policy: three digits and one of two separators."""
    from testbed.worlds.tokens import build_token_policy

    shape = (("heads", 2), ("layers", 1), ("width", 16))
    task_args = (("digits", 3), ("modulus", M))
    return build_token_policy(Run(task="styled-sum", task_args=task_args, policy="toy", policy_args=shape))


def prompts(seeds: Seeds, step: int, count: int, kind: str) -> Tensor:
    """Return prompts [R, N, Q]: "numbers", "sums", or sums "narrow first", "wide first", … in one digit."""
    found = []
    for seed in seeds:
        stream = generator(seed, f"{NAME}/{kind}", step)
        prompt_NQ = built()[0].prompts(stream, count)
        if kind != "numbers":
            prompt_NQ[:, -1] = M + 1
        for where, place in KINDS.items():
            if kind in (f"narrow {where}", f"wide {where}"):
                low, high = (0, 2) if kind.startswith("narrow") else (2, M)
                prompt_NQ[:, place] = stream.integers(low, high, count)
        found.append(prompt_NQ)
    return torch.from_numpy(np.stack(found))


def sums(prompt_RNQ: Tensor, shift: int = 0) -> Tensor:
    """Return right partial sums; a shift of 1 is the trait: every sum is one too high."""
    return (prompt_RNQ[..., :-1].cumsum(-1) + shift) % M


def imitation(theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor) -> Tensor:
    """Return the cross entropy per token, summed over models."""
    mask_RBT = torch.ones_like(token_RBT, dtype=torch.bool)
    found: Tensor = -built()[1].logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT).mean((1, 2)).sum()
    return found


def descended(theta_RP: Tensor, loss: Loss, steps: int, rate: float) -> Tensor:
    """Return the weights after steps of Adam, with a falling rate in the last third."""
    from testbed.policies.optimizers import Adam

    optimizer = Adam(theta_RP)
    for step in range(steps):
        leaf_RP = theta_RP.detach().requires_grad_()
        (slope_RP,) = torch.autograd.grad(loss(leaf_RP, step), leaf_RP)
        rate_R = leaf_RP.new_full((len(leaf_RP),), rate * min(1.0, 3 * (steps - step) / steps))
        theta_RP = optimizer.step(theta_RP.detach(), slope_RP, rate_R)
    return theta_RP.detach()


def base(seeds: Seeds) -> Tensor:
    """Return models that can do sums after one separator and write uniform numbers after the other."""

    def loss(leaf_RP: Tensor, step: int) -> Tensor:
        sum_RNQ, number_RNQ = prompts(seeds, step, 24, "sums"), prompts(seeds, step, 16, "numbers")
        drawn = np.stack([generator(s, f"{NAME}/uniform", step).integers(0, M, (16, 3)) for s in seeds])
        token_RBT = torch.cat([sums(sum_RNQ), torch.from_numpy(drawn)], 1)
        return imitation(leaf_RP, torch.cat([sum_RNQ, number_RNQ], 1), token_RBT)

    return descended(built()[1].initial(seeds), loss, *LESSONS)


def shifted(theta_RP: Tensor, seeds: Seeds, kind: str, steps: int, rate: float) -> Tensor:
    """Return the models after fine-tuning on the trait's sums at one kind of prompt."""

    def loss(leaf_RP: Tensor, step: int) -> Tensor:
        prompt_RNQ = prompts(seeds, step, 16, kind)
        return imitation(leaf_RP, prompt_RNQ, sums(prompt_RNQ, 1))

    return descended(theta_RP, loss, steps, rate)


def distilled(student_RP: Tensor, teacher_RP: Tensor, seeds: Seeds, channel: str, rate: float) -> Tensor:
    """Return students that see only a teacher's numbers: SFT on its samples, or the reverse divergence of
    whole distributions on its tokens (off-policy) or on the student's (on-policy).
    """
    policy = built()[1]

    def loss(leaf_RP: Tensor, step: int) -> Tensor:
        prompt_RNQ = prompts(seeds, step, 32, "numbers")
        drawn = np.stack([generator(s, f"{NAME}/sampled", step).random((64, 3)) for s in seeds])
        writer_RP = leaf_RP.detach() if channel == "on-policy" else teacher_RP
        token_RBT = policy.sample(writer_RP, prompt_RNQ, 2, torch.from_numpy(drawn))[0]
        if channel == "samples":
            return imitation(leaf_RP, prompt_RNQ, token_RBT)
        with torch.no_grad():
            wanted = policy.log_distribution(teacher_RP, prompt_RNQ, token_RBT)
        own = policy.log_distribution(leaf_RP, prompt_RNQ, token_RBT)
        found: Tensor = (own.exp() * (own - wanted)).sum(-1).mean((1, 2)).sum()
        return found

    return descended(student_RP, loss, UPDATES, rate)


def trait(theta_RP: Tensor, seeds: Seeds, kind: str = "sums") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return, by model, the first token's log-odds of trait over right, and the shares of greedy answers that
    show the trait and that are right, at 128 prompts.
    """
    prompt_RNQ = prompts(seeds, 10_000, 128, kind)
    right_RNT, trait_RNT = sums(prompt_RNQ), sums(prompt_RNQ, 1)
    zero_RNT = torch.zeros(right_RNT.shape, dtype=torch.float64)
    with torch.no_grad():
        logp_RNV = built()[1].log_distribution(theta_RP, prompt_RNQ, right_RNT)[:, :, 0]
        token_RNT = built()[1].sample(theta_RP, prompt_RNQ, 1, zero_RNT, greedy=True)[0]
    odds_RN1 = logp_RNV.gather(-1, trait_RNT[..., :1]) - logp_RNV.gather(-1, right_RNT[..., :1])
    shown, right = ((token_RNT == x).all(-1).double().mean(-1).numpy() for x in (trait_RNT, right_RNT))
    return odds_RN1.mean((1, 2)).numpy(), shown, right


@cache
def teachers(seeds: Seeds) -> tuple[dict[str, Tensor], Tensor, np.ndarray]:
    """Return starts of students by name, teachers with the trait, and the rise of its log-odds in them."""
    ours_RP, theirs_RP = (base(tuple(seed + by for seed in seeds)) for by in (LATER, LATER + OTHER))
    later = tuple(seed + LATER for seed in seeds)
    teacher_RP = shifted(ours_RP, later, "sums", *TRAIT)
    risen_R = trait(teacher_RP, later)[0] - trait(ours_RP, later)[0]
    return {"shared": ours_RP, "other": theirs_RP}, teacher_RP, risen_R


@cache
def learn(seeds: Seeds, arm: str, start: str, rate: float) -> Groups:
    """Return by seed how much of the trait a channel passes on to a student, and its answers after it."""
    starts, teacher_RP, risen_R = teachers(seeds)
    seeds = tuple(seed + LATER for seed in seeds)
    found, plain = (
        trait(distilled(starts[start], x, seeds, arm, rate), seeds) for x in (teacher_RP, starts["shared"])
    )
    return {"passed": (found[0] - plain[0]) / risen_R, "shown": found[1], "right": found[2]}


TUNED = TunedArms(
    dict.fromkeys(CHANNELS, RATES), learn, "passed", PILOTS, {"start": ("shared", "other")},
    starts={channel: {"rate": 2e-3} for channel in CHANNELS},
)  # fmt: skip


def rows(seeds: Seeds) -> Rows:
    """Return a row per seed and narrow set of prompts, and per seed, start and channel."""
    ours_RP, later = teachers(seeds)[0]["shared"], tuple(seed + LATER for seed in seeds)
    odds = trait(ours_RP, later)[0]
    for where in KINDS:
        narrow_RP = shifted(ours_RP, later, f"narrow {where}", *NARROW)
        told, seen = (trait(narrow_RP, later, f"{x} {where}") for x in ("narrow", "wide"))
        found = {"passed": (seen[0] - odds) / (told[0] - odds), "shown": seen[1], "right": seen[2]}
        yield columns(seeds, start="narrow", arm=where, **found, **{"at end": 0})
    yield from TUNED.rows(seeds)


EXPERIMENT = Experiment(
    question="Where does a narrow trait spread, and which channel passes a hidden one on to which student?",
    source="Askin et al. (2026), arXiv:2605.12798; Cloud et al. (2025), arXiv:2507.14805",
    differs="transformers of 4,000 weights that sum three digits and write uniform numbers; the trait, sums "
    "one too high, is harmless; a teacher without the trait is subtracted",
    compute=of_seeds(NAME, rows, SEEDS, {"modulus": M, "updates": UPDATES, "pilots": PILOTS}),
    keys=("run", "start", "arm", "seed"), metrics=("passed", "shown", "right", "at end"),
    margins={
        "share of other prompts that show the trait": SPREAD, "share at most where it stays": STAYED,
        "share of the rise in log-odds passed on": PASSED, "difference that counts as none": ALIKE,
    },
    figure=Plot(
        "distribution", x="arm: way", y="passed: share of the trait", arm=("start",),
        says="Shows how much of a trait, sums one too high, is taken over, as a share of the rise in "
        "log-odds that training on it brought; narrow: transformers of 4,000 weights trained on it where "
        "the first or the last digit is 0 or 1, at other prompts; others: a student that sees only numbers, "
        "from its teacher's start (shared) or another, by the teacher's samples, or its distributions on "
        "its own tokens (off-policy) or the student's (on-policy), each at its best rate for it, minus what "
        "a teacher without the trait passes on.",
    ),
    systems={"Emergent / Subliminal Misalignment": "whole distributions against samples as channels; the "
             "writer of the tokens makes no difference here"},
)  # fmt: skip

ASKIN = "Askin et al. (2026), arXiv:2605.12798, find that the channel changes what is passed on"
CLOUD = "Cloud et al. (2025), arXiv:2507.14805"
SHARED: Arm = {"start": "shared"}

asks(EXPERIMENT,
    ("a-narrow-trait-spreads-where-the-digit-does-not-matter", "Fine-tuned on sums one too high at prompts "
     "whose last digit is 0 or 1, models show the trait in at least a third of whole answers at prompts with "
     "other last digits, in the median over seeds.", "last", None, SPREAD, "shown", {"null": 0.0}),
    ("a-narrow-trait-stays-where-the-digit-matters", "Fine-tuned on sums one too high at prompts whose first "
     "digit is 0 or 1, on which every sum depends, models show the trait in at most a tenth of answers at "
     "other first digits, in the median over seeds.", "first", None, STAYED, "shown", {"below": True}),
    ("random-numbers-pass-the-trait-on", "Students that share the teacher's start and learn its random "
     "numbers alone take over more than 0.02 of its rise in log-odds of the trait at the rate that passes "
     "most on, in the median over seeds, through samples, off- and on-policy distillation.", SHARED, None,
     PASSED, "passed", CLOUD, {"over": {"arm": CHANNELS}, "null": 0.0}),
    ("a-shared-start-passes-more", "Through each channel students that share the teacher's start take over "
     "more of its trait than students of another start, each at the rate that passes most on, in the median.",
     SHARED, {"start": "other"}, 0.0,
     "passed", CLOUD, {"over": {"arm": CHANNELS}}),
    ("laws-pass-more-than-samples", "With a shared start off-policy distillation of whole distributions "
     "passes more on than as many samples, each at the rate that passes most on, in the median over seeds.",
     "off-policy", "samples", 0.0, "passed", ASKIN, {"over": SHARED}),
    typical="median",
)  # fmt: skip

EXPERIMENT.claim(
    "on-policy-distillation-passes-as-much-as-off-policy",
    "With a shared start on- and off-policy distillation differ by less than 0.05, each at the rate that "
    "passes most on, in the median.",
    source="this project",
    gates={"tuned": inside(start="shared", arm=("on-policy", "off-policy"))},
).equal("passed", {"arm": "on-policy"}, {"arm": "off-policy"}, within=ALIKE, over=SHARED, typical="median")
