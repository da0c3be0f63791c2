"""Ratios of tokens, prefixes and sequences on responses of 12 and 48 tokens that are 64 and 256 steps old."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pandas as pd

from analysis.arm_claims import above, declare, named
from analysis.claims import Evidence
from analysis.comparisons import Arm, arms
from analysis.experiment import Check, Experiment, Part, Stop
from analysis.experiments.class_rates import AT, KEYS, LEVELS, LONG, NAME, OLD, SHORT, VERY_OLD, level_cells
from analysis.lab_rates import tuned
from analysis.sequential import happens_more_often, median_exceeds
from testbed.config.run import Run

PLACES: dict[tuple[int, int], dict[str, Arm]] = {
    (length, lag): named({name: LEVELS[name] for name in names}, task_args=f"digits={length}", lag=lag)
    for (length, lag), names in AT.items()
}
GROWS = (
    ("lag", (SHORT, OLD), (SHORT, VERY_OLD)),
    ("length", (SHORT, VERY_OLD), (LONG, VERY_OLD)),
    ("lag and length", (SHORT, OLD), (LONG, VERY_OLD)),
)


def cells() -> tuple[Run, ...]:
    """Token ratios and MinPRO at two lengths and two lags, prefix and sequence ratios at 48 tokens and 64."""
    return tuned(level_cells(), NAME, KEYS)


def _grows(table: pd.DataFrame, *, rival: str, less: tuple[int, int], more: tuple[int, int]) -> Evidence:
    """Return the evidence that MinPRO's gain over a rival in best accuracy is larger at one place."""
    gain = {}
    for place in (less, more):
        both = arms(table, "best", {name: PLACES[place][name] for name in ("MinPRO", rival)})
        gain[place] = both["MinPRO"] - both[rival]
    note = f"median growth of the gain; median gains {gain[less].median():.3f} and {gain[more].median():.3f}"
    return median_exceeds((gain[more] - gain[less]).dropna(), 0.0, note)


def _steadier(table: pd.DataFrame, *, rival: str, place: tuple[int, int]) -> Evidence:
    both = arms(table, "collapsed", {name: PLACES[place][name] for name in ("MinPRO", rival)}) > 0.5
    note = f"collapsed: MinPRO {both['MinPRO'].sum()}, {rival} {both[rival].sum()} of {len(both)} seeds"
    return happens_more_often(
        both[rival], both["MinPRO"], f"{note}; share among seeds where one did, less 1/2"
    )


def claims() -> Iterator[tuple[str, str, Check]]:
    """Yield what the sources say of MinPRO, whose name begins so, and of CTPO."""
    for rival in ("GRPO", "CISPO"):
        for length, lag in (place for place, names in AT.items() if "MinPRO" in names):
            found = PLACES[length, lag]
            yield (
                f"minpro-peaks-above-{rival.lower()}-at-{length}-tokens-and-lag-{lag}",
                f"Copying {length} tokens at lag {lag}, MinPRO's best accuracy is higher than {rival}'s, on "
                "most seeds.",
                partial(above, pair={name: found[name] for name in ("MinPRO", rival)}, outcome="best"),
            )
        yield (
            f"minpro-collapses-less-often-than-{rival.lower()}-at-48-tokens-and-lag-256",
            f"Copying 48 tokens at lag 256, MinPRO collapses on fewer seeds than {rival}.",
            partial(_steadier, rival=rival, place=(LONG, VERY_OLD)),
        )
        for dial, less, more in GROWS:
            yield (
                f"minpro-s-lead-over-{rival.lower()}-grows-with-{dial.replace(' ', '-')}",
                f"MinPRO's gain over {rival} in best accuracy is larger at {more[0]} tokens and lag "
                f"{more[1]} than at {less[0]} tokens and lag {less[1]}, on most seeds.",
                partial(_grows, rival=rival, less=less, more=more),
            )
    found = PLACES[LONG, OLD]
    for rival in ("GRPO", "GSPO"):
        yield (
            f"ctpo-ends-above-{rival.lower()}-at-48-tokens",
            f"Copying 48 tokens at lag 64, CTPO ends with a higher accuracy than {rival}, on most seeds.",
            partial(above, pair={name: found[name] for name in ("CTPO", rival)}),
        )


CLAIMS = tuple(claims())
EXPERIMENT = Experiment(
    "long-old-data",
    question="Does the level at which ratios are taken decide what long and very old data do?",
    source="MinPRO (2026), arXiv:2601.22718; CTPO (2026), arXiv:2605.07331",
    differs="copying digits, a transformer of 7,000 weights, 320 steps of 32 responses; rates by arm",
    cells=cells,
    stop=Stop(block=16, cap=16),
    keys=("task_args", "recipe", "recipe_args", "lag", "seed"),
    metrics=(
        *("accuracy", "best", "start", "area", "collapsed", "mean actor/clip_share"),
        *("mean actor/learning_rate", "min rollout_corr/ess_kish_sequence_raw"),
    ),
    systems={
        "MinPRO (A Step Back)": Part(claims=tuple(name for name, *_ in CLAIMS if name.startswith("minpro"))),
        "CTPO (cumulative token)": Part(
            "accuracy at lag 64 and 48 tokens; the clip share by position: see clip-by-position-in-training",
            claims=tuple(name for name, *_ in CLAIMS if name.startswith("ctpo")),
        ),
    },
)
declare(EXPERIMENT, CLAIMS)
