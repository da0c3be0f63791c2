"""Rollouts of a model that skips a quarter of its layers: what training loses, and what weights regain."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.experiments.engines.fp8_training import UNCORRECTED
from analysis.lab import Arm, Evidence, Experiment, Plot, Stop, arms, at_floor, median_exceeds, median_within
from analysis.sweeps.base_runs import SMALL
from testbed.config.run import Arguments, Run

NESTED = "Nested-ReFT (2025), arXiv:2508.10123"
MARGIN = 0.02
"""Accuracy. Set before the sweep was run."""
LEARNERS: dict[str, tuple[str, Arguments]] = {
    "unweighted": ("rec_oneside", UNCORRECTED),
    "token weights": ("tis", (("level", "token"),)),
    "sequence weights": ("tis", (("level", "sequence"),)),
    "dropped tokens": ("icepop", ()),
}
"""Recipes, with the weight pi/mu left out, truncated at 2 by token or sequence, or 0 outside a window."""
LEVEL = "recipe_args.level"
SKIPPED: Arm = {"mismatch": "skip-layers"}
ARMS: dict[str, Arm] = {
    "all layers": {"mismatch": "off", "recipe": "rec_oneside"},
    "unweighted": {**SKIPPED, "recipe": "rec_oneside"},
    "token weights": {**SKIPPED, "recipe": "tis", LEVEL: "token"},
    "sequence weights": {**SKIPPED, "recipe": "tis", LEVEL: "sequence"},
    "dropped tokens": {**SKIPPED, "recipe": "icepop"},
}


def cells() -> tuple[Run, ...]:
    """Rollouts of all four layers, and of three drawn anew for every batch, with four learners."""
    base = replace(SMALL, steps=240, log_every=20, policy_args=(("layers", 4), ("width", 16)))
    skips = replace(base, mismatch="skip-layers", mismatch_args=(("ratio", 0.25),))
    plain, args = LEARNERS["unweighted"]
    return (
        replace(base, recipe=plain, recipe_args=args),
        *(replace(skips, recipe=recipe, recipe_args=args) for recipe, args in LEARNERS.values()),
    )


EXPERIMENT = Experiment(
    "skipped-layers",
    question="What do rollouts of a model that skips a quarter of its layers cost, and what regains it?",
    source=f"{NESTED}; its three corrections are not named in what could be read, these are ours",
    differs=(
        "a transformer of 4 layers of width 16, sums of 6 digits; any layer may be skipped; one rate; tokens "
        "per second in tests/benchmarks/bench_skipped_layers.py, 1.3 times as many with a quarter skipped"
    ),
    cells=cells,
    stop=Stop(block=16, cap=96, begun_with=32),
    keys=("mismatch", "recipe", LEVEL, "seed"),
    metrics=("accuracy", "collapsed", "mean rollout_corr/ess_kish_sequence_raw"),
    margins={"accuracy that counts as equal": MARGIN},
    figure=Plot(
        "distribution",
        x="mismatch",
        y="accuracy",
        arm=("recipe", LEVEL),
        names={
            "rec_oneside": "no weight",
            "icepop": "drop tokens",
            "tis": "weight",
            "none": "all",
            "off": "whole model",
            "skip-layers": "layers skipped",
        },
        x_label="rollouts",
        y_label="final accuracy",
    ),
    systems=("Nested-ReFT",),
)


def _equal(table: pd.DataFrame, name: str) -> Evidence:
    """Return the equivalence evidence of final accuracies, paired by seed."""
    found = arms(table, "accuracy", ARMS)
    middle = found.median()
    floored = [name] if at_floor([found[name], found["all layers"]], MARGIN) else []
    note = f"median change; medians {middle[name]:.3f}, {middle['all layers']:.3f} with all"
    return median_within({name: found[name] - found["all layers"]}, MARGIN, note, floored)


def _above(table: pd.DataFrame, name: str) -> Evidence:
    """Return the evidence about the gain in final accuracy over no weights, paired by seed."""
    found = arms(table, "accuracy", ARMS)
    middle = found.median()
    note = f"median gain; medians {middle[name]:.3f} and {middle['unweighted']:.3f}"
    return median_exceeds(found[name] - found["unweighted"], 0.0, note)


for _name, _what in (
    ("token weights", "weights truncated by token"),
    ("sequence weights", "weights truncated by sequence"),
    ("dropped tokens", "tokens of extreme ratio dropped"),
):
    _slug = _name.replace(" ", "-")
    EXPERIMENT.claim(
        f"skipped-layers-with-{_slug}-are-as-good-as-all-layers",
        source=f"{NESTED}: accuracy kept",
        statement=(
            f"With a quarter of the layers skipped in rollouts and {_what}, training ends within 0.02 of the "
            "accuracy that it has from rollouts of all layers, in the median over seeds."
        ),
    )(partial(_equal, name=_name))
    EXPERIMENT.claim(
        f"skipped-layers-with-{_slug}-end-above-none",
        source=f"{NESTED}: corrections recover the score",
        statement=(
            f"With a quarter of the layers skipped in rollouts, training with {_what} ends at a higher "
            "accuracy than without weights, on most seeds."
        ),
    )(partial(_above, name=_name))
