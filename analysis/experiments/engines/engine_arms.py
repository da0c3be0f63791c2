"""Engines unlike the trainer's model: what skipped layers, FP8 and noise cost, and what corrects them."""

from collections.abc import Sequence
from typing import Any

import pandas as pd

from analysis.lab import Experiment, Part, Plot, of_seeds
from analysis.worlds.engine_ways import ENGINES
from analysis.worlds.pilots import ask
from analysis.worlds.tuned_training import PILOTS

NAME = "engine-arms"
SEEDS, SOME, FEWER, MORE, LITTLE = 160, 48, 32, 0.02, 0.05
"""Seeds of a run of HALF, of FP8_ARMS, and of the others; accuracy that counts as gained, and as lost. The
margins were set before the table was made. With 32 + 32 seeds the claims of Jet-RL and the second of
Nested-ReFT were open."""
HALF = ("whole", "skipping, sequence weights")
FP8_ARMS = ("fp8 on both sides", "fp8", "full precision")
METRICS = ("accuracy", "area", "collapsed", "mean rollout_corr/ess_kish_sequence_raw")


def rows(seeds: Sequence[Any]) -> pd.DataFrame:
    """Return a row per arm and seed, each arm at the settings that are best on pilot seeds."""
    others = [name for name in ENGINES.ways if name not in (*HALF, *FP8_ARMS)]
    asked = ((HALF, seeds), (FP8_ARMS, seeds[:SOME]), (others, seeds[:FEWER]))
    return pd.concat([ENGINES.table(METRICS, some, names) for names, some in asked])


EXPERIMENT = Experiment(
    question="What do rollouts of a model with skipped layers, in FP8 or with noise cost, each arm tuned?",
    source="Nested-ReFT (2025), arXiv:2508.10123; Jet-RL, arXiv:2601.14243; ALP (2026), arXiv:2603.19470",
    differs=(
        "toy transformers of four layers; guesses in two turns, sums of sixteen digits for FP8, which is "
        "emulated; no speed is measured"
    ),
    compute=of_seeds(NAME, rows, SEEDS, {"pilots": PILOTS}),
    keys=("run", "arm", "seed"),
    metrics=("rate", "knob", "at end", *METRICS),
    margins={"accuracy gained": MORE, "accuracy lost": LITTLE},
    figure=Plot(
        "strips",
        x="accuracy: final accuracy",
        y="arm",
        says="Shows final accuracy of toy transformers of four layers: guesses in two turns with all layers "
        "(whole) or with a quarter of them skipped in rollouts, uncorrected, with weights truncated by "
        "token or sequence, or with tokens of extreme ratio dropped; sums of sixteen digits with rollouts "
        "in emulated FP8, uncorrected, with truncated weights (TIS), with the trainer in FP8 too, or "
        "without FP8; guesses from an engine with noisy weights, four steps old, by GRPO, TIS or ALP, which "
        "adds learned noise in all layers or to the logits alone.",
    ),
    systems={
        "Nested-ReFT": Part(
            "the corrections are ours; one layer of four is skipped; unbiasedness and speed are not judged",
            ("weights-regain-what-skipped-layers-cost", "sequence-weights-regain-what-skipped-layers-cost"),
        ),
        "Jet-RL": Part(
            "sixteen tokens, where emulated FP8 costs nothing; no speed",
            ("fp8-rollouts-end-below-one-precision", "one-precision-ends-as-high-as-full-precision"),
        ),
        "ALP (Adaptive Layerwise Perturbation)": Part(
            claims=("tuned-alp-ends-above-grpo", "tuned-alp-ends-above-tis", "alp-ends-above-noise-on-logits")
        ),
    },
)


NESTED, JET = "Nested-ReFT (2025), arXiv:2508.10123: accuracy kept", "Jet-RL, arXiv:2601.14243 (abstract)"
ALP = "ALP (2026), arXiv:2603.19470"
for _name, _statement, _first, _second, _by, _source in (
    ("weights-regain-what-skipped-layers-cost",
     "With one of four layers skipped in rollouts and weights truncated by token, training ends less than "
     "0.05 below training on rollouts of all layers.",
     "skipping, token weights", "whole", -LITTLE, NESTED),
    ("sequence-weights-regain-what-skipped-layers-cost",
     "With weights truncated by sequence it ends less than 0.05 below that.",
     "skipping, sequence weights", "whole", -LITTLE, NESTED),
    ("fp8-rollouts-end-below-one-precision",
     "FP8 rollouts of sixteen tokens for a trainer in full precision, without weights, end 0.05 below FP8 "
     "on both sides.",
     "fp8 on both sides", "fp8", LITTLE, JET),
    ("one-precision-ends-as-high-as-full-precision",
     "On sixteen tokens FP8 on both sides ends less than 0.05 below full precision on both.",
     "fp8 on both sides", "full precision", -LITTLE, JET),
    ("tuned-alp-ends-above-grpo",
     "On a noisy engine's rollouts ALP in all layers ends 0.02 above GRPO at its best clip.",
     "noisy alp", "noisy grpo", MORE, ALP),
    ("tuned-alp-ends-above-tis",
     "There it ends 0.02 above truncated importance sampling at its best cap.",
     "noisy alp", "noisy tis", MORE, ALP),
    ("alp-ends-above-noise-on-logits",
     "There it ends 0.02 above ALP with noise on the logits alone.",
     "noisy alp", "noisy alp, logits", MORE, ALP),
):  # fmt: skip
    ask(EXPERIMENT, _name, _statement, _first, _second, _by, source=_source)
