"""Another's answers in the toy LLM: imitation, mixtures, anchors, splices, and own successes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Stop, arms, median_exceeds, paired
from analysis.sweeps.base_runs import SMALL
from analysis.tables.cell_table import arms_of
from testbed.config.run import Arguments, Run

SHAPE: Arguments = (("heads", 2), ("layers", 1), ("width", 16))
ABOVE, KEPT = 0.02, 0.05
"""Accuracy, pass@4 or area under accuracy that counts as more, and accuracy that counts as kept. Set before
the table was made."""
MOST: Arguments = (("most", 0.99),)
FREE, BASE = "val/accuracy_difficulty_0", "val/accuracy_difficulty_1"
"""Accuracy where either style is right, and where the base model's own is demanded."""
PASS, ENTROPY = "last val/pass@4", "val/entropy"
ARMS: Mapping[str, dict[str, Any]] = {
    "grpo": {"recipe": "grpo"},
    "sft": {"recipe": "sft"},
    "sft, then grpo": {"recipe": "sft_then_grpo"},
    "fixed": {"recipe": "chord", "recipe_args": (("peak", 0.5), ("valley", 0.5))},
    "chord-mu": {"recipe": "chord", "recipe_args": (("decay", 60), ("peak", 0.9), ("valley", 0.05))},
    "chord-phi": {"recipe": "chord", "recipe_args": (("peak", 0.1), ("phi", "on"), ("valley", 0.1))},
    "spear": {"recipe": "spear", "recipe_args": (("warm_up", 40),)},
    "anchor": {"recipe": "grpo", "guide": "rescue"},
    "splice": {"recipe": "grpo", "guide": "splice"},
    "steps": {"recipe": "grpo", "verifier": "steps"},
    "rubric": {"recipe": "grpo", "verifier": "steps", "guide": "rescue", "guide_args": MOST},
    "shown": {"recipe": "grpo", "verifier": "steps", "guide": "insert"},
    "bent": {"recipe": "tempsamp", "verifier": "steps", "guide": "insert"},
}
PEAK, VERIFIER = "recipe_args.peak", "verifier"


def cells() -> tuple[Run, ...]:
    """GRPO alone, and with an expert of another style in every way that the family knows."""
    start = replace(
        SMALL, task="styled-sum", policy_args=SHAPE, steps=100, log_every=10, teacher_noise=0.35, seed=0
    )
    return tuple(replace(start, **fields) for fields in ARMS.values())


EXPERIMENT = Experiment(
    "expert-mixing",
    question="Which way of mixing in an expert of another style ends highest and forgets least?",
    source="CHORD (2025), arXiv:2508.11408, and the sources of the other arms, as each claim says",
    differs=(
        "a transformer of 4,000 weights; sums of six digits, that the expert writes as complements; rubrics "
        "are right steps; the expert never errs"
    ),
    cells=cells,
    stop=Stop(cap=32, begun_with=16),
    keys=("recipe", PEAK, "guide", VERIFIER, "seed"),
    metrics=("accuracy", FREE, BASE, f"first {BASE}", "best", "start", "area", PASS, ENTROPY,
             "val/kl_start_k3", "collapsed", "max actor/grad_norm"),
    margins={"accuracy, pass@4 or area that counts as more": ABOVE, "accuracy that counts as kept": KEPT},
    figure="expert-mixing",
    systems={
        "CHORD": Part(
            claims=("chord-ends-above-other-mixtures-of-style", "chord-keeps-the-base-style-and-its-entropy")
        ),
        "RGR-GRPO": Part(claims=("rubrics-with-guidance-raise-pass-at-4", "rubrics-keep-entropy")),
        "TempSamp-R1": Part(claims=("bent-advantages-end-above-plain-ones",)),
        "DaGRPO": Part(
            "anchors on hard prompts and the largest gradients; no distinctiveness, which is not public",
            ("anchors-end-above-grpo", "anchors-tame-the-largest-gradient"),
        ),
        "SCOPE (Recycling Failures)": Part(
            claims=("splices-end-above-whole-answers", "splices-stay-nearer-and-more-diverse")
        ),
        "SOPHIA": Part(claims=("splices-end-above-imitation-and-grpo",)),
        "SPEAR": Part(
            "success and entropy of self-imitation with recalibration; no covariance clip",
            ("self-imitation-ends-above-grpo", "self-imitation-keeps-entropy"),
        ),
    },
)  # fmt: skip
WHERE = arms_of(ARMS, cells(), EXPERIMENT.keys)


def _gains(table: pd.DataFrame, value: str, pairs: Mapping[str, str], margin: float) -> Evidence:
    """Return the evidence that every first arm exceeds its second one by a margin, in the median."""
    gains = {f"{a} over {b}": paired(table, value, WHERE[a], WHERE[b]) for a, b in pairs.items()}
    return median_exceeds(gains, margin, f"median over seeds of the gain in {value}, less {margin:g}")


def _over(table: pd.DataFrame, value: str, first: str, others: tuple[str, ...], margin: float) -> Evidence:
    """Return the evidence that an arm exceeds each of the others by a margin, in the median over seeds."""
    gains = {name: paired(table, value, WHERE[first], WHERE[name]) for name in others}
    return median_exceeds(
        gains, margin, f"median over seeds of the gain in {value} of {first}, less {margin:g}"
    )


@EXPERIMENT.claim(source="Zhang et al. (2025), CHORD, arXiv:2508.11408")
def chord_ends_above_other_mixtures_of_style(table: pd.DataFrame) -> Evidence:
    """CHORD-phi ends with an accuracy in either style higher by 0.02 than GRPO, supervised learning, that
    followed by GRPO, and a constant mixture, each in the median over seeds.
    """
    return _over(table, FREE, "chord-phi", ("grpo", "sft", "sft, then grpo", "fixed"), ABOVE)


@EXPERIMENT.claim(source="Zhang et al. (2025), CHORD, arXiv:2508.11408")
def chord_keeps_the_base_style_and_its_entropy(table: pd.DataFrame) -> Evidence:
    """Where the base model's style is demanded CHORD-mu and CHORD-phi end at most 0.05 below the base model,
    and with more entropy than GRPO, in the median over seeds.
    """
    groups = {}
    for name in ("chord-mu", "chord-phi"):
        first, last = (arms(table, x, {name: WHERE[name]})[name] for x in (f"first {BASE}", BASE))
        groups[f"{name}, style"] = (last - first + KEPT).to_numpy()
        groups[f"{name}, entropy"] = paired(table, ENTROPY, WHERE[name], WHERE["grpo"])
    return median_exceeds(groups, 0.0, "median over seeds of accuracy kept plus 0.05, and of entropy gained")


@EXPERIMENT.claim(source="RGR-GRPO (2025)")
def rubrics_with_guidance_raise_pass_at_4(table: pd.DataFrame) -> Evidence:
    """Rewards for right steps with the expert in groups without a success end with a pass@4 higher by 0.02
    than GRPO, and than the expert in such groups without rubrics, in the median over seeds.
    """
    return _over(table, PASS, "rubric", ("grpo", "anchor"), ABOVE)


@EXPERIMENT.claim(source="RGR-GRPO (2025)")
def rubrics_keep_entropy(table: pd.DataFrame) -> Evidence:
    """They end with more entropy than GRPO, in the median over seeds."""
    return _gains(table, ENTROPY, {"rubric": "grpo"}, 0.0)


@EXPERIMENT.claim(source="TempSamp-R1 (2025), arXiv:2509.18056")
def bent_advantages_end_above_plain_ones(table: pd.DataFrame) -> Evidence:
    """With the expert in every group and graded rewards, bent rewards end with an accuracy higher by 0.02
    than plain ones, and than GRPO without an expert, in the median over seeds.
    """
    return _over(table, FREE, "bent", ("shown", "steps"), ABOVE)


@EXPERIMENT.claim(source="DaGRPO (2025), arXiv:2512.06337")
def anchors_end_above_grpo(table: pd.DataFrame) -> Evidence:
    """Anchors in groups without a success end 0.02 more accurate than GRPO, in the median."""
    return _gains(table, FREE, {"anchor": "grpo"}, ABOVE)


@EXPERIMENT.claim(source="DaGRPO (2025), arXiv:2512.06337")
def anchors_tame_the_largest_gradient(table: pd.DataFrame) -> Evidence:
    """The largest gradient norm of training is smaller with anchors than with GRPO alone."""
    return _gains(table, "max actor/grad_norm", {"grpo": "anchor"}, 0.0)


@EXPERIMENT.claim(source="SCOPE (2026), Recycling Failures")
def splices_end_above_whole_answers(table: pd.DataFrame) -> Evidence:
    """Failures mended from their first error on end 0.02 more accurate than whole answers of the expert in
    their place, and than GRPO, in the median over seeds.
    """
    return _over(table, "accuracy", "splice", ("anchor", "grpo"), ABOVE)


@EXPERIMENT.claim(source="SCOPE (2026), Recycling Failures")
def splices_stay_nearer_and_more_diverse(table: pd.DataFrame) -> Evidence:
    """They end with a smaller KL to the start, and with more entropy, than whole answers of the expert, in
    the median over seeds.
    """
    groups = {
        "KL": paired(table, "val/kl_start_k3", WHERE["anchor"], WHERE["splice"]),
        "entropy": paired(table, ENTROPY, WHERE["splice"], WHERE["anchor"]),
    }
    return median_exceeds(groups, 0.0, "median over seeds of the KL saved, and of the entropy gained")


@EXPERIMENT.claim(source="SOPHIA (2025)")
def splices_end_above_imitation_and_grpo(table: pd.DataFrame) -> Evidence:
    """Own first parts with right second parts end 0.02 more accurate over both kinds of prompts than
    supervised learning on the expert's answers, and than GRPO, in the median over seeds.
    """
    return _over(table, "accuracy", "splice", ("sft", "grpo"), ABOVE)


@EXPERIMENT.claim(source="Qin et al. (2025), SPEAR, arXiv:2509.22601")
def self_imitation_ends_above_grpo(table: pd.DataFrame) -> Evidence:
    """Self-imitation has an accuracy over training higher by 0.02 than GRPO, in the median."""
    return _gains(table, "area", {"spear": "grpo"}, ABOVE)


@EXPERIMENT.claim(source="Qin et al. (2025), SPEAR, arXiv:2509.22601")
def self_imitation_keeps_entropy(table: pd.DataFrame) -> Evidence:
    """It ends with more entropy than GRPO, in the median over seeds."""
    return _gains(table, ENTROPY, {"spear": "grpo"}, 0.0)
