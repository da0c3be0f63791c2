"""A set-point of entropy in training a toy language model, against an entropy bonus and a higher clip."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.experiments.cards.card_training import BASE
from analysis.lab import Arm, Evidence, Experiment, Plot, Stop, arms, median_exceeds, median_within
from testbed.config.run import Arguments, Run

SET_POINT, CLOSE, OLD = 0.15, 0.05, 4
"""Nats per token; what counts as held, set before the sweep was run; lag at which a clip binds."""
LEARNERS: dict[str, tuple[int, Arguments]] = {
    "GRPO": (0, ()),
    "bonus 0.03": (0, (("entropy", 0.03),)),
    "bonus 0.1": (0, (("entropy", 0.1),)),
    "set-point": (0, (("entropy", 10.0), ("set_point", SET_POINT))),
    "higher clip, old": (OLD, (("eps_high", 0.28),)),
    "set-point, old": (OLD, (("entropy", 10.0), ("set_point", SET_POINT))),
}


def _words(args: Arguments) -> str:
    return ",".join(f"{name}={value:g}" for name, value in args) or "default"


ARMS: dict[str, Arm] = {
    name: {"lag": lag, "recipe_args": _words(args)} for name, (lag, args) in LEARNERS.items()
}


def cells() -> tuple[Run, ...]:
    """GRPO on-policy, with two bonuses and with a set-point; at lag 4 with a higher clip and with that."""
    base = replace(BASE, recipe="grpo", log_every=16)
    return tuple(replace(base, lag=lag, recipe_args=args) for lag, args in LEARNERS.values())


EXPERIMENT = Experiment(
    "entropy-in-training",
    question="Does a set-point hold a language model's entropy in training, and raise its accuracy?",
    source="DCPO (2026), distribution-centric policy optimization, abstract",
    differs=(
        "the target is pi^k at the set-point, a form of ours, whose pull is the entropy's gradient times the "
        "distance from it; a transformer of one layer, sums of 4 digits; one rate and one weight"
    ),
    cells=cells,
    stop=Stop(block=16, cap=32),
    keys=("lag", "recipe_args", "seed"),
    metrics=("accuracy", "collapsed", "val/entropy"),
    margins={"nats per token from the set-point that count as held": CLOSE},
    figure=Plot(
        "distribution",
        x="lag: lag (optimizer steps)",
        y="val/entropy",
        arm=("recipe_args: ",),
        names={_words(args): name.removesuffix(", old") for name, (_, args) in LEARNERS.items()},
        y_label="entropy at the end, nats per token",
    ),
    systems=("DCPO (distribution-centric)",),
)


@EXPERIMENT.claim(
    "a-set-point-holds-the-entropy-in-training",
    statement="On-policy and at lag 4 the entropy ends within 0.05 nats per token of 0.15, in the median.",
)
def held(table: pd.DataFrame) -> Evidence:
    """Return the equivalence evidence of the entropy's distance, by lag."""
    found = arms(table, "val/entropy", ARMS)
    names = ("set-point", "set-point, old")
    medians = ", ".join(f"{name} {x:.3f}" for name, x in found.median().items())
    return median_within({name: found[name] - SET_POINT for name in names}, CLOSE, f"distance; {medians}")


def _nearer(table: pd.DataFrame, ours: str, other: str) -> Evidence:
    """Return the evidence about distances from the set-point, paired by seed."""
    off = (arms(table, "val/entropy", ARMS) - SET_POINT).abs()
    note = f"median gain in distance; medians {off[ours].median():.3f} and {off[other].median():.3f}"
    return median_exceeds(off[other] - off[ours], 0.0, note)


for _name, _ours, _other, _what in (
    ("bonus-of-0.03", "set-point", "bonus 0.03", "on-policy than a bonus of 0.03 does"),
    ("bonus-of-0.1", "set-point", "bonus 0.1", "on-policy than a bonus of 0.1 does"),
    ("higher-clip", "set-point, old", "higher clip, old", "at lag 4 than a clip at 1.28 does"),
):
    EXPERIMENT.claim(
        f"a-set-point-is-nearer-than-a-{_name}",
        statement=f"With the set-point the entropy ends nearer to it {_what}, on most seeds.",
    )(partial(_nearer, ours=_ours, other=_other))


@EXPERIMENT.claim(
    "a-set-point-ends-above-grpo",
    source="DCPO: about 20 % over GRPO",
    statement="On-policy GRPO with a set-point ends at a higher accuracy than without, on most seeds.",
)
def gains(table: pd.DataFrame) -> Evidence:
    """Return the evidence about the difference of final accuracies, paired by seed."""
    found = arms(table, "accuracy", ARMS)
    medians = ", ".join(f"{name} {x:.3f}" for name, x in found.median().items())
    return median_exceeds(found["set-point"] - found["GRPO"], 0.0, f"median gain; medians {medians}")
