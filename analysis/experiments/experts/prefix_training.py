"""Hard prompts in the toy LLM: plain RL, prefixes of solutions, of stored successes, and retries."""

from dataclasses import replace

import pandas as pd

from analysis.lab import Evidence, Experiment, Part, Stop, arm, happens_mostly, median_exceeds, paired
from analysis.sweeps.base_runs import TOY
from testbed.config.run import Arguments, Run, grid

HARD, LESS_HARD = 0.5, 0.4
"""Noise of the teacher behind the base model: it succeeds at 1 in 4,000 or less, and at 1 in 400 or so."""
MARGIN = 0.2
GUIDED: Arguments = (("law", "uniform"), ("share", 0.5), ("tokens", 10))
STORED: Arguments = (*GUIDED, ("ask", 128), ("attempts", 32))
WHOLE: Arguments = (("credit", "whole"),)
ARMS: tuple[tuple[float, str, Arguments], ...] = (
    (HARD, "off", ()),
    (HARD, "teacher", GUIDED),
    (HARD, "retry", ()),
    (HARD, "retry", WHOLE),
    (LESS_HARD, "off", ()),
    (LESS_HARD, "stored", STORED),
)
PLAIN = {"teacher_noise": HARD, "prefix": "off"}
TEACHER = {"teacher_noise": HARD, "prefix": "teacher"}
RETRY = {"teacher_noise": HARD, "prefix": "retry"}
SUFFIX, KEPT = ({**RETRY, "prefix_args": text} for text in ("default", "credit=whole"))


def cells() -> tuple[Run, ...]:
    """GRPO on hard running sums from each kind of start; half of the prompts are guided, where any are."""
    start = replace(TOY, steps=240, log_every=20)
    return tuple(
        cell
        for noise, prefix, arguments in ARMS
        for cell in grid(replace(start, teacher_noise=noise, prefix=prefix, prefix_args=arguments), seed=[0])
    )


EXPERIMENT = Experiment(
    "prefix-training",
    question="Do prefixes and retries teach a toy LLM what it hardly ever gets right, also without a prefix?",
    source="Setlur et al. (2026), PrefixRL, arXiv:2601.18795; Qu et al. (2026), POPE, arXiv:2601.18779",
    differs="a transformer of 26,000 weights on running sums; GRPO on-policy; prefixes of up to 10 tokens",
    cells=cells,
    stop=Stop(cap=32, begun_with=16),
    keys=("teacher_noise", "prefix", "prefix_args", "seed"),
    metrics=("accuracy", "best", "start", "rollouts_to 0.5", "steps_to 0.5", "last val/pass@4", "rollouts"),
    margins={"accuracy gained without a prefix": MARGIN},
    figure="prefixes",
    systems={
        "PrefixRL (Reuse your FLOPs)": Part(
            "stored successes of the base model against plain RL, rejected samples counted",
            ("stored-prefixes-pay-for-their-rejections", "stored-prefixes-learn-in-fewer-steps"),
        ),
        "POPE": Part(
            "transfer of guided prompts to unguided ones; entropy, clips and pass@k are in prefix-signal",
            ("guided-prompts-teach-unguided-ones", "plain-rl-leaves-hard-prompts-unsolved"),
        ),
        "R³L": Part(
            "retries from the first error by the task's checker, not by reflection; GRPO, no amplification",
            ("retries-solve-hard-prompts", "retries-credit-their-suffix"),
        ),
    },
)


@EXPERIMENT.claim()
def plain_rl_leaves_hard_prompts_unsolved(table: pd.DataFrame) -> Evidence:
    """Where the base model succeeds at 1 in 4,000, GRPO ends below 0.2 accuracy on most seeds."""
    return happens_mostly(arm(table, "accuracy", PLAIN) < MARGIN, "share of seeds below 0.2")


@EXPERIMENT.claim()
def guided_prompts_teach_unguided_ones(table: pd.DataFrame) -> Evidence:
    """With prefixes of the solution on half of the prompts GRPO ends 0.2 more accurate on prompts without a
    prefix than plain GRPO, in the median over seeds, at equal numbers of rollouts.
    """
    gain_N = paired(table, "accuracy", TEACHER, PLAIN)
    return median_exceeds(gain_N, MARGIN, "median over seeds of the accuracy gained by guidance, less 0.2")


@EXPERIMENT.claim(source="R3L; shiweijiezero/R3L d503f6c, docs")
def retries_solve_hard_prompts(table: pd.DataFrame) -> Evidence:
    """With half of every group retried from its first error GRPO ends 0.2 more accurate than plain GRPO, in
    the median over seeds, at equal numbers of rollouts.
    """
    gain_N = paired(table, "accuracy", SUFFIX, PLAIN)
    return median_exceeds(gain_N, MARGIN, "median over seeds of the accuracy gained by retries, less 0.2")


@EXPERIMENT.claim(source="R3L; shiweijiezero/R3L d503f6c, docs")
def retries_credit_their_suffix(table: pd.DataFrame) -> Evidence:
    """Retries that train on what they wrote end more accurate than with what they kept as well."""
    gain_N = paired(table, "accuracy", SUFFIX, KEPT)
    return median_exceeds(
        gain_N, 0.0, "median over seeds of accuracy with suffix credit less that with whole"
    )


def _stored(table: pd.DataFrame, cost: str) -> Evidence:
    """Return the evidence that stored prefixes reach 0.5 at a lower cost than plain RL; never costs most."""
    stored, plain = (
        arm(table, f"{cost}_to 0.5", {"teacher_noise": LESS_HARD, "prefix": name}).fillna(float("inf"))
        for name in ("stored", "off")
    )
    note = f"share of seeds on which stored prefixes reach 0.5 in fewer {cost}; medians "
    return happens_mostly(stored < plain, f"{note}{stored.median():g} and {plain.median():g}")


@EXPERIMENT.claim()
def stored_prefixes_pay_for_their_rejections(table: pd.DataFrame) -> Evidence:
    """Counting the 4,096 responses that filled the store, prefixes of the base model's own successes reach
    accuracy 0.5 in fewer rollouts than plain GRPO on most seeds.
    """
    return _stored(table, "rollouts")


@EXPERIMENT.claim()
def stored_prefixes_learn_in_fewer_steps(table: pd.DataFrame) -> Evidence:
    """Not counting what filled the store, prefixes of the base model's own successes reach accuracy 0.5 in
    fewer steps than plain GRPO on most seeds.
    """
    return _stored(table, "steps")
