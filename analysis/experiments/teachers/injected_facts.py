"""Facts taught to a toy transformer that can do sums: the skill left once the facts are known."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from analysis.kernels.on_use import Tensor, torch
from analysis.lab import Frame, Grid, Groups, Plot, Seeds, TunedArms, ask, asks, generator
from testbed.config.run import Run

NAME, LATER = "injected-facts", 20_000
SEEDS, PILOTS, FACTS, COPIES, STEPS, EVERY, ASKED = 32, 16, 4, 8, 3000, 5, 128
KNOWN = 0.9
"""Share of the facts, by greedy decoding of their last token, at which they count as known."""
RATES = (3.9e-6, 7.8e-6, 1.55e-5, 3.1e-5, 6.2e-5, 1.25e-4, 2.5e-4, 5e-4, 1e-3, 2e-3)
ARMS: dict[str, Grid] = {
    "foreign": {"rate": RATES},
    "own": {"rate": RATES},
    "mixed": {"rate": RATES, "share": (0.4, 0.5, 0.6, 0.7, 0.8, 0.9)},
}
"""Words around the new token, the model's own in the last two; and the expert's share, 1 for no mixing. Each
arm has the setting that keeps most of the skill; facts that are never known keep none."""
MORE = 0.1
"""Margin of the share of the skill. Set before the table was made."""


@cache
def base(seeds: Seeds) -> tuple[Any, Any, Tensor]:
    """Return task, policy and models that can do sums of six digits after either of two separators."""
    from testbed.policies.warm_start import warm_start
    from testbed.worlds.tokens import build_token_policy

    shape = (("heads", 2), ("layers", 1), ("width", 16))
    run = Run(task="styled-sum", task_args=(("digits", 6),), policy="toy", policy_args=shape)
    task, policy = build_token_policy(run)
    return task, policy, warm_start(policy, task, seeds, steps=1500, noise=0.0).detach()


def mixed(
    policy: Any, base_RP: Tensor, prompt_RNQ: Tensor, fact_RBT: Tensor, share: float, streams: Any
) -> Tensor:
    """Return targets, by place: the fact's token with probability `share`, else one of the frozen base's."""
    draw = np.stack([s.random((2, *fact_RBT.shape[1:])) for s in streams], 1)
    expert_RBT, uniform_RBT = torch.from_numpy(draw[0] < share), torch.from_numpy(draw[1])
    token_RBT = fact_RBT.clone()
    if share == 1.0:
        return token_RBT
    with torch.no_grad():
        for t in range(token_RBT.shape[-1]):
            law_RBV = policy.log_distribution(base_RP, prompt_RNQ, token_RBT)[..., t, :].exp()
            own_RB = (law_RBV.cumsum(-1) < uniform_RBT[..., t, None]).sum(-1).clamp(max=law_RBV.shape[-1] - 1)
            token_RBT[..., t] = torch.where(expert_RBT[..., t], fact_RBT[..., t], own_RB)
    return token_RBT


def facts_of(seeds: Seeds, words: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return prompts with facts, the facts [R, FACTS, T], prompts that ask for sums, and the sums.

    A separator of its own precedes facts; sums never contain their last token. The other tokens are random in
    "foreign" words, as in a corpus. In the model's "own" words they are the sums, which the model says when
    the fact stands in its context.
    """
    task = base(seeds)[0]
    streams = [generator(seed, NAME) for seed in seeds]
    prompt = np.stack([task.prompts(stream, FACTS + ASKED) for stream in streams])
    right = np.stack([task.answer(each[:, :-1]) for each in prompt])
    prompt[:, :FACTS, -1] += 1
    foreign = np.stack([stream.integers(0, 8, (FACTS, 6)) for stream in streams])
    shift = np.stack([stream.integers(1, 8, FACTS) for stream in streams])
    fact = (foreign if words == "foreign" else right[:, :FACTS]).copy()
    fact[..., -1] = (right[:, :FACTS, -1] + shift) % 8
    parts = prompt[:, :FACTS], fact, prompt[:, FACTS:], right[:, FACTS:]
    asked, told, others, sums = (torch.from_numpy(part) for part in parts)
    return asked, told, others, sums


@cache
def learn(seeds: Seeds, arm: str, rate: float, share: float = 1.0) -> Groups:
    """Return, by seed, the shares of facts known and of skill kept, when facts are first known or at the
    end, and the step; models and facts have seeds that no earlier table had.
    """
    from testbed.policies.optimizers import Adam

    seeds = tuple(seed + LATER for seed in seeds)
    _, policy, base_RP = base(seeds)
    fact_prompts, fact_RNT, others, sums_RNT = facts_of(seeds, arm)
    streams = [generator(seed, f"{NAME}/mixed") for seed in seeds]
    fact_RBT = fact_RNT.repeat_interleave(COPIES, 1)
    theta_RP, optimizer = base_RP.clone(), Adam(base_RP)
    mask_RBT, rate_R = torch.ones_like(fact_RBT, dtype=torch.bool), base_RP.new_full((len(seeds),), rate)

    def right(weights_RP: Tensor, prompt_RNQ: Tensor, wanted_RNT: Tensor, since: int = 0) -> np.ndarray:
        zero_RNT = torch.zeros(wanted_RNT.shape, dtype=torch.float64)
        token_RNT = policy.sample(weights_RP, prompt_RNQ, 1, zero_RNT, greedy=True)[0]
        return np.asarray((token_RNT == wanted_RNT)[..., since:].all(-1).double().mean(-1))

    first, found = right(base_RP, others, sums_RNT), np.full((3, len(seeds)), np.nan)
    for step in range(STEPS + 1):
        if step % EVERY == 0:
            known_R = right(theta_RP, fact_prompts, fact_RNT, since=5)
            due_R = np.isnan(found[0]) & ((known_R >= KNOWN) | (step == STEPS))
            if due_R.any():
                kept_R = right(theta_RP, others, sums_RNT) / first
                now = np.stack([np.full(len(seeds), float(step)), known_R, kept_R])
                found = np.where(due_R, now, found)
            if not np.isnan(found[0]).any():
                break
        target_RBT = mixed(policy, base_RP, fact_prompts, fact_RBT, share, streams)
        leaf_RP = theta_RP.detach().requires_grad_()
        loss = -policy.logp(leaf_RP, fact_prompts, target_RBT, mask_RBT).mean((1, 2)).sum()
        theta_RP = optimizer.step(theta_RP, torch.autograd.grad(loss, leaf_RP)[0], rate_R)
    kept_R = np.where(found[1] >= KNOWN, found[2], 0.0)  # a model that never knows the facts has kept nothing
    return {"step": found[0], "known": found[1], "kept": kept_R}


TUNED = TunedArms(
    ARMS, learn, "kept", PILOTS,
    starts={"foreign": {"rate": 1.25e-4}, "own": {"rate": 3.1e-5}, "mixed": {"rate": 2.5e-4, "share": 0.6}},
)  # fmt: skip
EXPERIMENT = TUNED.experiment(
    NAME, SEEDS, ("step", "known", "kept"), {"facts": FACTS, "copies": COPIES, "at most steps": STEPS},
    question="Do targets mixed of a model's own tokens keep its skill while it learns new facts?",
    source="MixSD (2026), arXiv:2605.16865",
    differs="a transformer of 4,000 weights that sums six digits; 4 facts, each a new last token; the "
    "expert is sure of it and otherwise says what the frozen base would; all by greedy decoding",
    margins={"share of the skill kept more": MORE, "facts known": KNOWN},
    figure=Plot(
        "distribution", x="arm: targets", y="kept: skill kept, share",
        says="Shows how much of its skill, sums of six digits, a transformer of 4,000 weights has left when "
        "it first knows 4 new facts (0: never), each arm at its best rate; the words before a fact's new "
        "token are random (foreign) or those the model would say (own); mixed has own words of which the "
        "frozen base chooses a share itself, the best one.",
    ),
    systems={"MixSD": "a hand-made expert; own words and mixing, together and apart"},
)  # fmt: skip

asks(EXPERIMENT,
    ("mixed-targets-keep-more-of-the-skill", "When 4 facts are first known, a model trained on own words "
     "mixed with the base's tokens keeps 0.1 more of its skill at other prompts than one fine-tuned on the "
     "facts in foreign words, each at its best settings, in the median over seeds.", "mixed", "foreign",
     MORE),
    ("own-words-keep-the-skill-without-mixing", "When 4 facts are first known, a model trained on own words "
     "with the expert's tokens alone keeps 0.1 more of its skill at other prompts than one fine-tuned on the "
     "facts in foreign words, in the median over seeds.", "own", "foreign", MORE),
    ("mixing-own-words-keeps-more-still", "When 4 facts are first known, mixed targets keep more than own "
     "words with the expert's tokens alone, in the median over seeds.", "mixed", "own"),
    outcome="kept", typical="median",
)  # fmt: skip


def known(table: Frame) -> pd.Series:
    """Return shares of facts known; nine tenths of them are enough."""
    return table["known"] + 1e-9


ask(EXPERIMENT, "facts-get-known-by-mixed-targets", "Within 3,000 steps nine tenths of the facts are known "
    "in every arm, in the median over seeds.", {"arm": tuple(ARMS)}, by=KNOWN, outcome=known,
    typical="median")  # fmt: skip
