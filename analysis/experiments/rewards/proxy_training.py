"""Proxy rewards in the toy LLM, the gold beside them: a loophole, one reward model, ensembles, and resets."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Stop, arms, happens_mostly, median_exceeds, paired
from analysis.sweeps.base_runs import SMALL
from analysis.tables.cell_table import arms_of
from testbed.config.run import Arguments, Run

SHAPE: Arguments = (("heads", 2), ("layers", 1), ("width", 16))
FEW: Arguments = (("blind", 0.34), ("pairs", 256), ("wrong", 0.25))
"""Reward models of 256 comparisons, a quarter mislabeled, each blind to two of six places."""
GOOD: Arguments = (("blind", 0), ("pairs", 512), ("wrong", 0.25))
"""Twice as many, all places seen."""
LOST, GAINED = 0.1, 0.05
"""Gold accuracy that counts as lost to a proxy, and as gained. Set before the table was made."""
KL = "val/kl_start_k3"
ARMS: Mapping[str, dict[str, Any]] = {
    "loophole": {"verifier": "lenient", "verifier_args": (("places", 1), ("rate", 0))},
    "single": {"verifier_args": (*FEW, ("combine", "single"))},
    "worst": {"verifier_args": (*FEW, ("combine", "worst"), ("members", 5))},
    "uncertainty": {"verifier_args": (*FEW, ("combine", "uncertainty"), ("members", 5))},
    "root": {"verifier_args": GOOD},
    "reset": {"verifier_args": GOOD, "prefix": "teacher", "prefix_args": (("share", 0.5), ("tokens", 5))},
    "p3o": {"verifier_args": GOOD, "recipe": "p3o"},
    "ppo": {"verifier_args": GOOD, "recipe": "ppo", "critic": "head"},
    "dpo": {"verifier_args": GOOD, "recipe": "online_dpo"},
}
PAIRS = "verifier_args.pairs"


def cells() -> tuple[Run, ...]:
    """GRPO on proxies of several kinds, and other recipes and starts on a better one."""
    start = replace(SMALL, policy_args=SHAPE, steps=120, log_every=12, teacher_noise=0.4, seed=0)
    return tuple(replace(start, **{"verifier": "comparisons", **fields}) for fields in ARMS.values())


EXPERIMENT = Experiment(
    "proxy-training",
    question="What becomes of the gold reward when a toy LLM is trained on a proxy?",
    source="Coste et al. (2023), arXiv:2310.02743; Wu et al. (2023), P3O; Chang et al. (2024), DR-PO",
    differs=(
        "a transformer of 4,000 weights on six running sums; reward models are linear in right places and "
        "counts of tokens; resets go to prefixes of right answers; P3O, PPO and DPO without a KL term"
    ),
    cells=cells,
    stop=Stop(cap=32, begun_with=16),
    keys=("recipe", "prefix", "verifier", "verifier_args.combine", PAIRS, "seed"),
    metrics=("accuracy", "best", "start", "val/proxy", KL, "last val/pass@4"),
    margins={"gold accuracy lost": LOST, "gold accuracy gained": GAINED},
    figure="proxy-training",
    systems={
        "Reward-model ensembles": Part(
            claims=(
                "one-reward-model-loses-gold-in-training",
                "ensembles-end-above-one-reward-model",
                "ensembles-keep-their-gold-in-training",
            )
        ),
        "P3O": Part(claims=("p3o-earns-more-than-ppo", "p3o-moves-less-than-ppo")),
        "DR-PO (Dataset Reset)": Part(claims=("resets-end-above-the-root", "resets-end-above-dpo")),
    },
)
WHERE = arms_of(ARMS, cells(), EXPERIMENT.keys)


def _gain(table: pd.DataFrame, value: str, first: str, second: str, margin: float) -> Evidence:
    """Return the evidence that one arm exceeds another by a margin, in the median over seeds."""
    found = arms(table, value, {name: WHERE[name] for name in (first, second)}).median()
    note = f"median over seeds of {value}, {first} less {second}"
    medians = f"; medians {found[first]:.3f} and {found[second]:.3f}"
    return median_exceeds(paired(table, value, WHERE[first], WHERE[second]), margin, note + medians)


@EXPERIMENT.claim(source="verifiers with false positives")
def a_loophole_ends_the_gold(table: pd.DataFrame) -> Evidence:
    """Where a verifier also passes whatever begins with one zero, training ends with a proxy reward above 0.9
    and a gold accuracy below 0.2, on most seeds.
    """
    gold = arms(table, "accuracy", {"x": WHERE["loophole"]})["x"]
    proxy = arms(table, "val/proxy", {"x": WHERE["loophole"]})["x"]
    note = f"share of seeds; medians {gold.median():.3f} gold, {proxy.median():.3f} proxy"
    return happens_mostly((gold < 0.2) & (proxy > 0.9), note)


def _loss(table: pd.DataFrame, name: str) -> pd.Series:
    """Return how far below its best an arm's gold ends, by seed."""
    where = {name: WHERE[name]}
    return (arms(table, "best", where) - arms(table, "accuracy", where))[name]


@EXPERIMENT.claim()
def one_reward_model_loses_gold_in_training(table: pd.DataFrame) -> Evidence:
    """On one reward model the gold accuracy ends 0.1 below its best, in the median over seeds."""
    return median_exceeds(_loss(table, "single"), LOST, "median over seeds of the gold lost, less 0.1")


@EXPERIMENT.claim()
def ensembles_keep_their_gold_in_training(table: pd.DataFrame) -> Evidence:
    """On the worst case of five reward models, and on their mean less half their variance, the gold accuracy
    ends less than 0.1 below its best, in the median over seeds.
    """
    kept = {name: -_loss(table, name) for name in ("worst", "uncertainty")}
    return median_exceeds(kept, -LOST, "0.1 less the median over seeds of the gold lost")


@EXPERIMENT.claim()
def ensembles_end_above_one_reward_model(table: pd.DataFrame) -> Evidence:
    """Both end with a gold accuracy higher by 0.1 than one reward model, in the median over seeds."""
    gains = {
        name: paired(table, "accuracy", WHERE[name], WHERE["single"]) for name in ("worst", "uncertainty")
    }
    return median_exceeds(gains, LOST, "median over seeds of the gold gained over one model, less 0.1")


@EXPERIMENT.claim(source="Wu et al. (2023), P3O, arXiv:2310.00212")
def p3o_earns_more_than_ppo(table: pd.DataFrame) -> Evidence:
    """On the same reward models P3O ends with a higher proxy reward than PPO, on most seeds."""
    return _gain(table, "val/proxy", "p3o", "ppo", 0.0)


@EXPERIMENT.claim(source="Wu et al. (2023), P3O, arXiv:2310.00212")
def p3o_moves_less_than_ppo(table: pd.DataFrame) -> Evidence:
    """There P3O ends with a smaller KL to the start than PPO, on most seeds."""
    return _gain(table, KL, "ppo", "p3o", 0.0)


@EXPERIMENT.claim(source="Chang et al. (2024), DR-PO, arXiv:2404.08495")
def resets_end_above_the_root(table: pd.DataFrame) -> Evidence:
    """Where half of the prompts begin at prefixes of right answers, GRPO on the same reward models ends with
    a gold accuracy higher by 0.05 without a prefix, in the median over seeds.
    """
    return _gain(table, "accuracy", "reset", "root", GAINED)


@EXPERIMENT.claim(source="Chang et al. (2024), DR-PO, arXiv:2404.08495")
def resets_end_above_dpo(table: pd.DataFrame) -> Evidence:
    """They end with a gold accuracy higher by 0.05 than online DPO, in the median over seeds."""
    return _gain(table, "accuracy", "reset", "dpo", GAINED)
