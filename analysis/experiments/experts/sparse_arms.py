"""Rare or old right answers: own prefixes and successes, max@k, and PPO over turns, each arm tuned."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.lab import Experiment, Part, Plot, of_seeds
from analysis.worlds.pilots import ask
from analysis.worlds.sparse_ways import SPARSE
from analysis.worlds.tuned_training import PILOTS

NAME = "sparse-arms"
SEEDS, FEWER, MORE, SAME = 240, 48, 0.02, 0.02
"""Seeds of a run; those of arms that were decided by so many; margins of accuracy, pass@8 or share of tokens,
and of nats per token. The margins were set before the table was made."""
OPEN = ("grpo", "spear", "spear, stored advantages", "spear, clipped", "best of k", "grpo for pass@8")
TURNS_OPEN, SOME = ("token ppo", "st-ppo"), 240
"""Arms of open claims, and two that cost twenty times as much a seed."""
ACCURACY, BEST, CLIPPED = "accuracy", "last val/pass@8", "mean actor/clip_share"
METRICS = (ACCURACY, "start", "area", BEST, "last val/pass@4", "val/entropy", CLIPPED, "collapsed")


def rows(seeds: Sequence[Any]) -> pd.DataFrame:
    """Return a row per arm and seed, each arm at the settings that are best on pilot seeds."""
    decided = [name for name in SPARSE.ways if name not in (*OPEN, *TURNS_OPEN)]
    asked = ((OPEN, seeds), (TURNS_OPEN, seeds[:SOME]), (decided, seeds[:FEWER]))
    return pd.concat([SPARSE.table(METRICS, some, names) for names, some in asked])


EXPERIMENT = Experiment(
    NAME,
    question="Where right answers are rare or old, what do own successes, the best of k and turns give?",
    source="each claim's",
    differs=(
        "toy transformers; sums of six digits with 3,840 responses, the store's included; guesses in two "
        "turns at lag 64; SPEAR's clip drops the largest covariances; ST-PPO's correction as read"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"pilots": PILOTS}),
    keys=("run", "arm", "seed"),
    metrics=("rate", "knob", "at end", *METRICS),
    margins={"accuracy, pass@8 or share of tokens": MORE, "nats per token": SAME},
    figure=Plot(
        "strips",
        x="accuracy: final accuracy",
        y="arm",
        says="Shows final accuracy of toy transformers, each arm at its best setting: six-digit sums that "
        "the base gets right once in a hundred, by GRPO (also with rate chosen for pass@8), from prefixes "
        "of own successes, after imitating these, with old batches replayed, with old successes replayed "
        "(SPEAR; their advantages recalibrated, as stored, or with tokens of large covariance dropped), by "
        "the gradient of the best of k, and on growing prefixes of right answers (staged; plain, ordered or "
        "subtree advantages); guesses in two turns from data 64 steps old, by PPO with ratios of tokens, of "
        "turns, or of turns with a corrected clip (ST-PPO).",
    ),
    systems={
        "PrefixRL (Reuse your FLOPs)": Part(
            "prefixes of about four prompts that the base solves, not of every training prompt",
            ("own-prefixes-end-above-grpo", "own-prefixes-end-above-imitation-then-grpo"),
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
PREFIX, SPEAR = (
    "Setlur et al. (2026), PrefixRL, arXiv:2601.18795",
    "Qin et al. (2025), SPEAR, arXiv:2509.22601",
)
BON, TURNS = "Best of N Worlds (2025), arXiv:2510.23393", "Li et al. (2025), ST-PPO, arXiv:2511.20718"
TREE = "Huang et al. (2025), Tree-OPO, arXiv:2509.09284"
for _name, _statement, _outcome, _first, _second, _by, _source in (
    ("own-prefixes-end-above-grpo",
     "With as many responses, GRPO from falling prefixes of the base's successes ends 0.02 more accurate "
     "than GRPO.", ACCURACY, "own prefixes", "grpo", MORE, PREFIX),
    ("own-prefixes-end-above-imitation-then-grpo",
     "It ends 0.02 more accurate than imitation of the base's successes before GRPO.",
     ACCURACY, "own prefixes", "imitated, then grpo", MORE, PREFIX),
    ("own-prefixes-end-above-replay",
     "It ends 0.02 more accurate than GRPO with part of every batch replayed.",
     ACCURACY, "own prefixes", "replayed", MORE, PREFIX),
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
