"""How long to clone before RL: final accuracy after RL, by reward and recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.kernels.on_use import Tensor, torch
from analysis.lab import PILOT, Experiment, Floats, Grid, Keys, Plot, Rows, asks, columns, of_keys, tuned
from testbed.advantages import advantage
from testbed.offline.improvement import softmax
from testbed.rng import keys

if TYPE_CHECKING:
    from testbed.recipes.composition import Recipe


PROMPTS, ANSWERS, GROUP = 12, 16, 8
SHOWN, SKILL, CLONING = 3, 0.3, 0.5
"""Demonstrations per prompt, probability that one is right, and learning rate of cloning."""
COARSE, FINE = np.eye(ANSWERS)[0], 1.0 - np.arange(ANSWERS) / ANSWERS
"""Rewards of answers: 1 for the right one alone, or more for answers nearer to it."""


def demonstrations(key_R: Keys) -> Floats:
    """Share of each answer among the demonstrations of a prompt, [R, S, A]; answer 0 is right."""
    from envs.kernels import uniforms

    shape = (len(key_R), PROMPTS, SHOWN)
    # The counters up here belong to no update: an update's counter is its step.
    right_RSK, other_RSK = (uniforms(key_R, 2**30 + i, *shape[1:]) for i in range(2))
    answer_RSK = np.where(right_RSK < SKILL, 0, 1 + (other_RSK * (ANSWERS - 1)).astype(np.int64))
    return np.asarray(np.eye(ANSWERS)[answer_RSK].mean(2))


def cloned(shown_RSA: Floats, steps: int) -> Floats:
    """Logits after `steps` of gradient descent on the mean negative log-likelihood of the demonstrations."""
    logits_RSA = np.zeros_like(shown_RSA)
    for _ in range(steps):
        logits_RSA = logits_RSA + CLONING * (shown_RSA - softmax(logits_RSA))
    return logits_RSA


def accuracy(logits_RSA: Floats) -> Floats:
    """Exact probability of the right answer, mean over prompts, [R]."""
    return np.asarray(softmax(logits_RSA)[..., 0].mean(-1))


def course(
    start_RSA: Floats, key_R: Keys, recipe: str, *, steps: int, rate: float, age: int = 0,
    reward_A: Floats = COARSE, noise: float = 0.0, **knobs: float,
) -> list[Floats]:  # fmt: skip
    """Logits before and after each of `steps` updates on groups drawn by the policy of `age` updates ago.

    In the first `age` updates the starting policy draws the groups, so an age of `steps` or more is offline.
    The starting policy is the reference. Cells with one key draw the same numbers, whatever the recipe.
    noise: probability that a reward r is read as 1 - r. knobs: settings of the recipe.
    """
    from envs.kernels import uniforms

    past, logits_RSA = [start_RSA], start_RSA
    update = _update(recipe, **knobs)
    for step in range(steps):
        mu_RSA = past[max(0, step - age)]
        # All ages of a run use the same random numbers at the same step.
        sums_RSA = softmax(mu_RSA).cumsum(-1)
        uniform_RSG = uniforms(key_R, step, PROMPTS, GROUP)
        token_RSG = (uniform_RSG[..., None] >= sums_RSA[:, :, None, :-1]).sum(-1)
        reward_RSG = reward_A[token_RSG]
        if noise:
            wrong_RSG = uniforms(key_R, 2**29 + step, PROMPTS, GROUP) < noise
            reward_RSG = np.where(wrong_RSG, 1.0 - reward_RSG, reward_RSG)
        logits_RSA = logits_RSA - rate * update(logits_RSA, mu_RSA, start_RSA, token_RSG, reward_RSG)
        past.append(logits_RSA)
    return past


@cache
def _update(name: str, **knobs: float) -> Callable[..., Floats]:
    """Gradient of a recipe's loss with respect to the logits, [R, S, A], times the number of prompts."""
    from testbed.data.batch import Batch
    from testbed.data.signals import Signals
    from testbed.recipes import recipe as recipes

    made: Recipe = recipes[name].bind()()
    score = advantage[made.advantage].bind(**dict(made.advantage_args))

    def found(
        pi_RSA: Floats, mu_RSA: Floats, ref_RSA: Floats, token_RSG: Floats, reward_RSG: Floats
    ) -> Floats:
        tokens = torch.from_numpy(token_RSG)

        def logp(logits: Tensor) -> Tensor:
            return logits.log_softmax(-1).gather(-1, tokens).flatten(1)[..., None]

        leaf = torch.from_numpy(pi_RSA).clone().requires_grad_()
        reward_RB = torch.from_numpy(reward_RSG).flatten(1)
        mask_RBT = torch.ones((*reward_RB.shape, 1), dtype=torch.bool)
        group_RB = torch.arange(PROMPTS).repeat_interleave(GROUP).expand(len(reward_RB), -1)
        batch = Batch(
            logp_mu_BT=logp(torch.from_numpy(mu_RSA)),
            adv_BT=score(Signals(reward_RB, group_RB, mask_RBT))[..., None],
            mask_BT=mask_RBT,
            reward_B=reward_RB,
            group_B=group_RB,
            logp_ref_BT=logp(torch.from_numpy(ref_RSA)),
        )
        loss_R = made.loss(logp(leaf), batch, knobs)
        (gradient,) = torch.autograd.grad(loss_R.sum(), leaf)
        return np.asarray(PROMPTS * gradient.numpy())

    return found


NAME = "excess-cloning"
SEEDS, FEWER, PILOTS, STEPS, NOISE = 1536, 512, 48, 60, 0.4
"""Seeds of a run of OPEN, and of the other cells. NOISE: probability that a reward r is read as 1 - r.
Without it one right answer is enough to learn."""
CLONED, OPEN = (0, 10, 100, 1000), ((10, "GRPO"), (10, "DPO"))
ARMS: dict[str, dict[str, Any]] = {
    "GRPO": {"recipe": "grpo"},
    "GRPO, fine rewards": {"recipe": "grpo", "reward_A": FINE},
    "DPO": {"recipe": "dpo", "age": STEPS},
}
RATES: Grid = {"rate": (0.1, 0.3, 0.6, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)}
BETAS: Grid = {"beta": (0.03, 0.1, 0.3, 1.0, 3.0)}
MARGIN = 0.05


@cache
def setting_of(arm: str, cloning: int) -> tuple[Mapping[str, Any], bool]:
    """Return the rate at which an arm ends best on pilot keys, DPO's beta too, and whether one is an end."""
    key_R = keys(tuple(range(PILOT, PILOT + PILOTS)), NAME)
    start_RSA = cloned(demonstrations(key_R), cloning)

    def score(**setting: Any) -> float:
        past = course(start_RSA, key_R, steps=STEPS, noise=NOISE, **setting, **ARMS[arm])
        return float(accuracy(past[-1]).mean())

    if arm == "DPO":
        return tuned(score, {**RATES, **BETAS}, start={"rate": 32.0, "beta": 0.1})
    return tuned(score, RATES, start={"rate": 4.0})


def make(key_R: Keys) -> Rows:
    """Return exact accuracies after training from each length of cloning, each arm at its best rate there.

    The gain in the last fifth of the updates shows whether a gap is still closing. DPO's pairs come from the
    starting policy.
    """
    shown_RSA, seeds = demonstrations(key_R), tuple(range(len(key_R)))
    for cloning in CLONED:
        start_RSA = cloned(shown_RSA, cloning)
        still = {"accuracy": accuracy(start_RSA[:FEWER]), "rise accuracy": 0.0, "at end": 0}
        yield columns(seeds[:FEWER], cloned=cloning, arm="cloning alone", **still)
        for arm, more in ARMS.items():
            met = slice(None if (cloning, arm) in OPEN else FEWER)
            setting, end = setting_of(arm, cloning)
            past = course(start_RSA[met], key_R[met], steps=STEPS, noise=NOISE, **setting, **more)
            early_R, late_R = accuracy(past[STEPS * 4 // 5]), accuracy(past[-1])
            found = {"accuracy": late_R, "rise accuracy": late_R - early_R, "at end": int(end)}
            yield columns(seeds[met], cloned=cloning, arm=arm, **found)


EXPERIMENT = Experiment(
    question="Does longer cloning leave less for RL to explore?",
    source="SFT to RL for vulnerability detection: a study of SFT, preferences and GRPO in one pipeline",
    differs="tables of 12 prompts with 16 answers, 3 demonstrations each, 3 in 10 of them right; 60 updates "
    "on rewards of which 4 in 10 are wrong; DPO on pairs of the starting policy; no ORPO",
    compute=of_keys(NAME, make, SEEDS, {"steps": STEPS, "noise": NOISE}),
    keys=("run", "seed", "cloned", "arm"), metrics=("accuracy", "rise accuracy", "at end"),
    margins={"accuracy": MARGIN},
    figure=Plot(
        "final by setting", x="cloned: steps of cloning", y="accuracy", arm=("arm",),
        says="Shows exact accuracy in tables of 12 prompts with 16 answers, by steps of cloning "
        "demonstrations of which 3 in 10 are right; arms: as cloned (cloning alone), or after 60 more "
        "updates of GRPO with a reward for the right answer alone, of GRPO with a reward that grows towards "
        "it (fine rewards), or of DPO on pairs that the clone wrote; in training 4 in 10 rewards are wrong; "
        "all arms are tuned.",
    ),
    systems={"SFT→RL for vulnerability detection": "GRPO against DPO behind little cloning"}
)  # fmt: skip

asks(EXPERIMENT,
    ("excess-cloning-lowers-what-grpo-reaches", "After 1000 steps of cloning GRPO ends 0.05 lower than after "
     "10, each at its best rate.", {"cloned": 10}, {"cloned": 1000}, {"over": {"arm": "GRPO"}}),
    ("grpo-ends-above-offline-dpo-behind-little-cloning", "After 10 steps of cloning GRPO ends 0.05 above "
     "DPO on the cloned policy's own pairs, each at its best rate.", "GRPO", "DPO", {"over": {"cloned": 10}}),
    by=MARGIN,
)  # fmt: skip
