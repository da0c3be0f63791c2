"""Rare or old right answers: prefixes of traces, own successes, max@k, and PPO over turns, each arm tuned."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.lab import Experiment, Part, Plot, of_seeds
from analysis.worlds.pilots import ask
from analysis.worlds.sparse_ways import SPARSE
from analysis.worlds.tuned_training import PILOTS

NAME = "sparse-arms"
SEEDS, FEWER, PAIR, LEAST, MORE, SAME, MUCH = 240, 48, 20, 12, 0.02, 0.02, 0.1
"""Seeds of a run; those of arms that were decided by so many, of two arms on hard sums, and of the others
there; margins of accuracy, pass@8 or share of tokens, of nats per token, and of accuracy on hard sums. Set
before the table."""
OPEN = ("grpo", "spear", "spear, stored advantages", "spear, clipped", "best of k", "grpo for pass@8")
TURNS_OPEN, SOME = ("token ppo", "st-ppo"), 240
"""Arms of open claims, and two that cost twenty times as much a seed."""
TRACED = ("hard, prefixes", "hard, imitated first")
STUCK = tuple(
    f"hard, {name}" for name in ("grpo", "wide clip", "entropy bonus", "pass@k", "shortest prefixes")
)
ACCURACY, BEST, CLIPPED = "accuracy", "last val/pass@8", "mean actor/clip_share"
METRICS = (ACCURACY, "start", "area", BEST, "last val/pass@4", "val/entropy", CLIPPED, "collapsed")


def rows(seeds: Sequence[Any]) -> pd.DataFrame:
    """Return a row per arm and seed, each arm at the settings that are best on pilot seeds."""
    decided = [name for name in SPARSE.ways if name not in (*OPEN, *TURNS_OPEN, *TRACED, *STUCK)]
    asked = (
        (OPEN, seeds), (TURNS_OPEN, seeds[:SOME]), (decided, seeds[:FEWER]), (TRACED, seeds[:PAIR]),
        (STUCK, seeds[:LEAST]),
    )  # fmt: skip
    return pd.concat([SPARSE.table(METRICS, some, names) for names, some in asked])


EXPERIMENT = Experiment(
    question="Where right answers are rare or old, what do own successes, the best of k and turns give?",
    source="each claim's",
    differs=(
        "toy transformers; sums of six digits with 3,840 responses; sums of sixteen modulo 4 that the base "
        "gets right once in 300,000, 64 prompts with a trace each, which cost nothing, and 12,800 responses; "
        "no instruction beside a prefix; guesses in two turns at lag 64; SPEAR's clip drops the largest "
        "covariances; ST-PPO's correction as read"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"pilots": PILOTS}),
    keys=("run", "arm", "seed"),
    metrics=("rate", "knob", "at end", *METRICS),
    margins={
        "accuracy, pass@8 or share of tokens": MORE,
        "nats per token": SAME,
        "accuracy on hard prompts": MUCH,
    },
    figure=Plot(
        "strips",
        x="accuracy: final accuracy",
        y="arm",
        says="Shows final accuracy of toy transformers, each arm at its best setting: six-digit sums that "
        "the base gets right once in a hundred, by GRPO (also with rate chosen for pass@8), with old "
        "successes replayed (SPEAR; their advantages recalibrated, as stored, or with tokens of large "
        "covariance dropped), by the gradient of the best of k, and on growing prefixes of right answers "
        "(staged; plain, ordered or subtree advantages); hard: sums of sixteen digits, 64 prompts with a "
        "right trace each, also from random prefixes of these, from the shortest that "
        "let a try succeed, or after imitating them; guesses in two turns from data 64 steps old, by PPO "
        "with ratios of tokens, of turns, or of turns with a corrected clip (ST-PPO).",
    ),
    systems={
        "PrefixRL (Reuse your FLOPs)": Part(
            "accuracy at new prompts after as many responses; a task has one right answer, so that traces "
            "are any policy's; rejections are not counted; without its prefix it is the rival, GRPO",
            ("random-prefixes-end-above-*",),
        ),
        "POPE": Part(
            "no instruction; no interference of easy prompts", ("oracle-prefixes-solve-hard-prompts",)
        ),
        "SPEAR": Part(
            "no turns, no tools, no curriculum; entropy collapses in no arm, so that none can be saved",
            ("recalibrated-successes-keep-more-entropy", "spear-ends-above-grpo-on-rare-success"),
        ),
        "max@k (Best of N Worlds)": Part("fresh data, not old", ("tuned-max-at-k-has-more-pass-at-8",)),
        "Tree-OPO": Part(
            "prefixes of one right answer, the source's mean of a subtree as a prefix's value; no tree "
            "search, no constraints",
            ("staged-advantages-end-above-flat-ones", "subtree-baselines-end-above-flat-ones"),
        ),
        "ST-PPO": Part(
            "accuracy; no arm collapses; ratios of turns gain without the correction, a reading of ours, too",
            ("st-ppo-*", "turn-ppo-*", "the-clips-correction-adds-to-turn-ratios"),
        ),
    },
)
PREFIX = "Setlur et al. (2026), PrefixRL, arXiv:2601.18795"
POPE = "Qu et al. (2026), POPE, arXiv:2601.18779"
SPEAR = "Qin et al. (2025), SPEAR, arXiv:2509.22601"
BON, TURNS = "Best of N Worlds (2025), arXiv:2510.23393", "Li et al. (2025), ST-PPO, arXiv:2511.20718"
TREE = "Huang et al. (2025), Tree-OPO, arXiv:2509.09284"
for _name, _statement, _outcome, _first, _second, _by, _source in (
    ("spear-ends-above-grpo-on-rare-success",
     "Replayed successes with recalibrated advantages end 0.02 more accurate than GRPO.",
     ACCURACY, "spear", "grpo", MORE, SPEAR),
    ("recalibrated-successes-keep-more-entropy",
     "With recalibrated advantages replay ends with 0.02 nats more entropy than with stored ones.",
     "val/entropy", "spear", "spear, stored advantages", SAME, SPEAR),
    ("clipped-successes-keep-more-entropy",
     "Without the tenth of replayed tokens of largest covariance it ends with 0.02 nats more entropy.",
     "val/entropy", "spear, clipped", "spear", SAME, SPEAR),
    ("tuned-max-at-k-has-more-pass-at-8",
     "On fresh data, from a base right once in a hundred, training for the best of k (k = 2, the best of 2, "
     "4, 8) ends with a pass@8 0.02 above GRPO's.",
     BEST, "best of k", "grpo for pass@8", MORE, BON),
    ("staged-advantages-end-above-flat-ones",
     "With half of the groups on prefixes of growing length, rewards projected onto their order end 0.02 "
     "more accurate than GRPO's advantages.", ACCURACY, "staged, tree", "staged, flat", MORE, TREE),
    ("subtree-baselines-end-above-flat-ones",
     "There rewards less a share of their subtree's mean end 0.02 more accurate than GRPO's advantages.",
     ACCURACY, "staged, subtrees", "staged, flat", MORE, TREE),
    ("st-ppo-ends-above-token-ppo",
     "On turns 64 steps old ST-PPO ends 0.02 more accurate than PPO over tokens, each at its best clip.",
     ACCURACY, "st-ppo", "token ppo", MORE, TURNS),
    ("turn-ppo-ends-above-token-ppo", "There PPO over turns ends 0.02 more accurate than over tokens.",
     ACCURACY, "turn ppo", "token ppo", MORE, TURNS),
    ("the-clips-correction-adds-to-turn-ratios",
     "There ST-PPO ends 0.02 more accurate than PPO over turns, which lacks its correction.",
     ACCURACY, "st-ppo", "turn ppo", MORE, TURNS),
    ("st-ppo-cuts-fewer-tokens", "There ST-PPO cuts a share of tokens smaller by 0.02 than PPO over tokens.",
     CLIPPED, "token ppo", "st-ppo", MORE, TURNS),
):  # fmt: skip
    ask(EXPERIMENT, _name, _statement, _first, _second, _by, _outcome, _source)
for _name, _statement, _first, _rivals, _by, _source in (
    ("random-prefixes-end-above-grpo",
     "With a trace for each of 64 hard prompts GRPO from random prefixes of them ends 0.1 more accurate at "
     "new prompts, without a prefix, than GRPO.",
     "hard, prefixes", "hard, grpo", MUCH, PREFIX),
    ("random-prefixes-end-above-imitation-then-grpo",
     "It ends 0.02 more accurate than imitation of the same traces that is followed by GRPO.",
     "hard, prefixes", "hard, imitated first", MORE, PREFIX),
    ("oracle-prefixes-solve-hard-prompts",
     "With the shortest prefixes after which a try succeeds GRPO ends 0.1 more accurate at new prompts, "
     "without a prefix, than GRPO, than with a wider clip, an entropy bonus, and pass@k as the objective.",
     "hard, shortest prefixes", STUCK[:4], MUCH, POPE),
):  # fmt: skip
    ask(EXPERIMENT, _name, _statement, _first, _rivals, _by, ACCURACY, _source,
        off={"arm": "hard, grpo"})  # fmt: skip
