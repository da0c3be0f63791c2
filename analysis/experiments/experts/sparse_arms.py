"""Rare or old right answers: prefixes of traces, max@k, and PPO over turns, each arm tuned.

Three tasks: running sums of six digits, which the base model solves once in a hundred, with 3,840 responses
in all; sums of sixteen, which it never solves and of which 64 prompts have a trace; and guesses in two turns
from data 64 steps old.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.arena.tasks import task
from analysis.lab import Ints, Part, asks, generator, strips
from analysis.sweeps.base_runs import TINY
from analysis.worlds.edited_training import Arm
from analysis.worlds.edited_training import lessons as taught
from analysis.worlds.tuned_training import Family, Way, with_recipe
from testbed.config.run import Run

if TYPE_CHECKING:
    from analysis.worlds.edited_training import Batch, Rollout, Tensor
    from testbed.prefixes.prefix_source import Asked


RARE = replace(TINY, teacher_noise=0.48, prompts=8, steps=60, log_every=6, evaluation_prompts=128)
"""GRPO ends at .4 on pilots."""
OLD = replace(task("guess"), lag=64, critic="head")
CLIPS = (0.05, 0.1, 0.2, 0.5, 0.9, 3.0)


HARD = replace(
    RARE, task_args=(("digits", 16), ("modulus", 4)), teacher_noise=0.55, warm_start_steps=1200, steps=200,
    log_every=20, evaluation_prompts=64,
)  # fmt: skip
"""Sums of sixteen digits modulo 4; base models with .45 right steps solve about one in 300,000."""
FEW = (3e-3, 5.6e-3, 1e-2)
"""First rates tried on hard sums."""
KNOWN, CUT_AT, LESSON_RATE = 64, (0.4, 0.8), 1e-2
"""Training prompts, each with a right trace; cuts of PrefixRL; rate of imitating whole traces."""


def traces(task: Any, seeds: tuple[int, ...]) -> tuple[Ints, Ints]:
    """Return the training prompts of every replica and a right answer to each, [R, K, Q] and [R, K, T]."""
    prompt_RKQ = np.stack([task.prompts(generator(seed, "known/prompts"), KNOWN) for seed in seeds])
    return prompt_RKQ, np.stack([task.expert(each, generator(0, "known"))[0] for each in prompt_RKQ])


@dataclass
class Known:
    """A prefix source that only asks training prompts, a share of them after the first tokens of a trace.

    share: 0 gives no token. shortest: for each prompt, the fewest tokens after which one of 8 first tries is
    right (POPE), a quarter if none is; otherwise a random fraction between two (PrefixRL).
    """

    share: float = 0.0
    shortest: bool = False
    least_RK: Ints | None = None
    gives_parents: bool = False

    def rollout(self, asked: Asked) -> Rollout:
        """Return a step's responses; the first prompts follow a prefix."""
        from testbed.prefixes.prefix_source import Start, first_tokens

        prompt_RKQ, token_RKT = traces(asked.task, asked.seeds)
        R, N, T = len(asked.seeds), asked.prompt_RNQ.shape[1], token_RKT.shape[-1]
        if self.shortest and self.least_RK is None:
            self.least_RK = self.tried(asked, prompt_RKQ, token_RKT)
        row_R1 = np.arange(R)[:, None]
        streams = [generator(seed, "known/step", asked.step) for seed in asked.seeds]
        index_RN = np.stack([stream.choice(KNOWN, N, replace=False) for stream in streams])
        low, high = (round(part * T) for part in CUT_AT)
        kept_RN = np.stack([stream.integers(low, high + 1, N) for stream in streams])
        if self.least_RK is not None:
            kept_RN = self.least_RK[row_R1, index_RN]
        kept_RN[:, round(self.share * N) :] = 0
        given_RNT = first_tokens(token_RKT[row_R1, index_RN], kept_RN)
        return asked.respond(Start(prompt_RKQ[row_R1, index_RN], given_RNT.repeat(asked.group, axis=1)), 0)

    @staticmethod
    def tried(asked: Asked, prompt_RKQ: Ints, token_RKT: Ints) -> Ints:
        """Return the fewest tokens of each trace after which one of a group of tries is right, [R, K]."""
        from testbed.prefixes.prefix_source import Start, first_tokens

        R, K, T = token_RKT.shape
        least_RK = np.full((R, K), round(T / 4))
        for kept in range(T - 1, 0, -1):
            given_RKT = first_tokens(token_RKT, np.full((R, K), kept))
            tries = asked.respond(Start(prompt_RKQ, given_RKT.repeat(asked.group, axis=1)), kept)
            right_RK = tries.reward_RB.reshape(R, K, -1).max(-1).values.cpu().numpy() >= 1
            # Prefixes become shorter, so that the last one with a success stays.
            least_RK = np.where(right_RK, kept, least_RK)
        return least_RK


def known(run: Run = HARD, lessons: int = 0, **how: Any) -> Arm:
    """Return a run on training prompts alone, after supervised steps on their traces."""

    def begin(world: Any, base_RP: Tensor) -> Tensor:
        world.prefixes = Known(**how)
        known = traces(world.task, world.seeds)
        return taught(world, base_RP, [known] * lessons, LESSON_RATE)

    return Arm(run, begin=begin)


STAGED = replace(
    RARE, prefix="teacher", prefix_args=(("distribution", "staged"), ("share", 0.5), ("tokens", 5))
)  # fmt: skip
"""Half of the groups continue prefixes of a right answer of growing length, each the child of the last."""


def _below(alpha: float) -> Arm:
    """Return GRPO with R - alpha V minus its mean, V the mean reward of a member and of those below it."""

    def change(batch: Batch, rollout: Rollout, _logp: Tensor, _step: int) -> Batch:
        group = STAGED.group
        reward_RNG = rollout.reward_RB.unflatten(1, (-1, group))
        left_G = reward_RNG.new_tensor(range(group, 0, -1))
        value_RNG = reward_RNG.flip(-1).cumsum(-1).flip(-1) / left_G
        parent_RB = rollout.parents()
        assert parent_RB is not None
        guided_RN1 = (parent_RB.unflatten(1, (-1, group)) >= 0).any(-1, True)
        raw_RNG = reward_RNG - alpha * value_RNG
        adv_RNG = (raw_RNG - raw_RNG.mean(-1, keepdim=True)).where(guided_RN1, 0.0)
        plain_RNG = batch.adv_BT[..., 0].unflatten(1, (-1, group))
        adv_RB = adv_RNG.where(guided_RN1, plain_RNG).flatten(1)
        return replace(batch, adv_BT=adv_RB[..., None] * batch.mask_BT)

    return Arm(replace(STAGED, recipe="tree_opo"), lambda *_: change)


hard_way = partial(Way, rates=FEW)
WAYS: Mapping[str, Way] = {
    "grpo": Way(with_recipe(RARE, "grpo")),
    "hard, grpo": hard_way(lambda _: known()),
    "hard, imitated first": hard_way(lambda lessons: known(lessons=int(lessons)), (10, 30, 100, 300, 1000)),
    "hard, prefixes": hard_way(lambda share: known(share=share), (0.25, 0.5, 0.75, 1.0), True),
    "best of k": Way(with_recipe(RARE, "max_at_k", "k"), (2, 4, 8), True, by="last val/pass@8"),
    "grpo for pass@8": Way(with_recipe(RARE, "grpo"), by="last val/pass@8"),
    "staged, flat": Way(with_recipe(STAGED, "grpo")),
    "staged, subtrees": Way(_below, (0.1, 0.25, 0.5, 0.75, 1.0), True),
    **{name: Way(with_recipe(OLD, "ppo", "eps", ("loss", loss)), CLIPS, pilots=4)
       for name, loss in (("token ppo", "ppo_clip"), ("turn ppo", "turn_ppo"), ("st-ppo", "st_ppo"))},
}  # fmt: skip
SPARSE = Family(WAYS, by="accuracy")


SEEDS, FEWER, PAIR, LEAST, MORE, MUCH = 240, 48, 20, 12, 0.02, 0.1
"""Seeds of a run, of arms that needed fewer, of two arms on hard sums, and of GRPO there; margins of
accuracy or pass@8, and of accuracy on hard sums. Set before the table."""
OPEN = ("grpo", "best of k", "grpo for pass@8", "staged, flat", "staged, subtrees")
TURNS_OPEN, SOME = ("token ppo", "st-ppo"), 240
"""Arms of open claims, and two that cost twenty times as much per seed."""
TRACED, STUCK = ("hard, prefixes", "hard, imitated first"), ("hard, grpo",)
ACCURACY, BEST, CLIPPED = "accuracy", "last val/pass@8", "mean actor/clip_share"
METRICS = (ACCURACY, "start", "area", BEST, "last val/pass@4", "val/entropy", CLIPPED, "collapsed")


EXPERIMENT = SPARSE.experiment(
    METRICS, SEEDS, ((OPEN, SEEDS), (TURNS_OPEN, SOME), ((), FEWER), (TRACED, PAIR), (STUCK, LEAST)),
    question="Where right answers are rare or old, what do prefixes, the best of k and turns give?",
    source="each claim's",
    differs="toy transformers; sums of six digits with 3,840 responses; sums of sixteen modulo 4 that the "
    "base solves once in 300,000, with 12,800 responses and 64 prompts whose traces cost nothing; guesses in "
    "two turns at lag 64; ST-PPO's correction as this project reads it",
    margins={"accuracy or pass@8": MORE, "accuracy on hard prompts": MUCH},
    figure=strips("accuracy: final accuracy", "Shows final accuracy of toy transformers, each arm at its "
        "best setting; six-digit sums that the base solves once in a hundred: GRPO (also with a rate chosen "
        "for pass@8), the gradient of the best of k, and growing prefixes of right answers (staged; plain or "
        "subtree advantages); hard, sums of sixteen digits with 64 right traces: also random prefixes of "
        "these, or imitation first; guesses in two turns from data 64 steps old: PPO with ratios of tokens, "
        "of turns, or of turns with a corrected clip (ST-PPO)."),
    systems={
        "PrefixRL (Reuse your FLOPs)": Part(
            "accuracy at new prompts after as many responses; a task has one right answer, so a trace may "
            "come from any policy; rejected tries cost nothing; without its prefix the arm is its rival, "
            "GRPO",
            ("random-prefixes-end-above-*",),
        ),
        "max@k (Best of N Worlds)": Part("60 steps on fresh data", ("tuned-max-at-k-has-more-pass-at-8",)),
        "Tree-OPO": Part(
            "prefixes of one right answer; a prefix's value is the mean of its subtree, as in the source; "
            "no tree search, no constraints",
            ("subtree-baselines-end-above-flat-ones",),
        ),
        "ST-PPO": Part(
            "accuracy; no arm collapses; ratios of turns, as this project reads them, gain without the "
            "correction too",
            ("st-ppo-*", "turn-ppo-*", "the-clips-correction-adds-to-turn-ratios"),
        ),
    },
)  # fmt: skip
PREFIX = "Setlur et al. (2026), PrefixRL, arXiv:2601.18795"
POPE = "Qu et al. (2026), POPE, arXiv:2601.18779"
BON, TURNS = "Best of N Worlds (2025), arXiv:2510.23393", "Li et al. (2025), ST-PPO, arXiv:2511.20718"
TREE = "Huang et al. (2025), Tree-OPO, arXiv:2509.09284"
asks(EXPERIMENT,
    ("tuned-max-at-k-has-more-pass-at-8", "On fresh data, from a base right once in a hundred, training for "
     "the best of k (k = 2, the best of 2, 4, 8) ends with a pass@8 0.02 above GRPO's.", "best of k",
     "grpo for pass@8", MORE, BEST, BON),
    ("subtree-baselines-end-above-flat-ones", "With half of the groups on prefixes of growing length, "
     "rewards less a share of their subtree's mean end 0.02 more accurate than GRPO's advantages.",
     "staged, subtrees", "staged, flat", MORE, ACCURACY, TREE),
    ("st-ppo-ends-above-token-ppo", "On turns 64 steps old ST-PPO ends 0.02 more accurate than PPO over "
     "tokens, each at its best clip.", "st-ppo", "token ppo", MORE, ACCURACY, TURNS),
    ("turn-ppo-ends-above-token-ppo", "On turns 64 steps old PPO over turns ends 0.02 more accurate than PPO "
     "over tokens.",
     "turn ppo", "token ppo", MORE, ACCURACY, TURNS),
    ("the-clips-correction-adds-to-turn-ratios", "On turns 64 steps old ST-PPO ends 0.02 more accurate than "
     "PPO over turns, which lacks its correction.", "st-ppo", "turn ppo", MORE, ACCURACY, TURNS),
    ("random-prefixes-end-above-grpo", "With a trace for each of 64 hard prompts GRPO that starts from "
     "random prefixes of them ends 0.1 more accurate at new prompts, without a prefix, than GRPO.",
     "hard, prefixes",
     "hard, grpo", MUCH, ACCURACY, PREFIX, {"off": {"arm": "hard, grpo"}}),
    ("random-prefixes-end-above-imitation-then-grpo", "With a trace for each hard prompt GRPO from random "
     "prefixes of them ends 0.02 more accurate at new prompts than imitation of the same traces that is "
     "followed by GRPO.", "hard, prefixes", "hard, imitated first", MORE, ACCURACY, PREFIX,
     {"off": {"arm": "hard, grpo"}}),
)  # fmt: skip
