"""At which level ratios are taken, by token, prefix, sequence or in between, over response length and lag."""

from __future__ import annotations

from functools import partial
from itertools import product

import pandas as pd

from analysis.experiments.lag.level_and_sign_rates import (
    KEYS,
    LONG,
    OLD,
    RECIPES,
    SHORT,
    YOUNG,
    level_cells,
)
from analysis.experiments.lag.level_and_sign_rates import NAME as RATES
from analysis.lab import (
    Arm,
    Check,
    Evidence,
    Experiment,
    Part,
    Stop,
    arms,
    happens_more_often,
    median_exceeds,
)
from analysis.sweeps.tuned_cells import tuned
from analysis.tables.cell_table import words
from testbed.config.run import Run

MARGIN = 0.05
"""Accuracy below a rival that counts as no worse than it. Set before the sweep was run."""
BRIEF, OLD_BRIEF, LENGTHY = "lag 16 and 12 tokens", "lag 64 and 12 tokens", "lag 64 and 32 tokens"
WHERE = {BRIEF: "at-lag-16", OLD_BRIEF: "at-lag-64", LENGTHY: "at-32-tokens"}
PLACES = {BRIEF: (SHORT, YOUNG), OLD_BRIEF: (SHORT, OLD), LENGTHY: (LONG, OLD)}
FIXED = ("Hölder, p = 2", "Hölder, p = 0", "Hölder, p = -2")
ABOVE = (
    *(("MinPRO", rival, place) for rival in ("GRPO", "CISPO") for place in (OLD_BRIEF, LENGTHY)),
    *(("CTPO", rival, OLD_BRIEF) for rival in ("GRPO", "GSPO")),
    ("CTPO", "GRPO", LENGTHY),
    *(("SAPO", rival, place) for rival in ("GRPO", "GSPO") for place in (BRIEF, OLD_BRIEF)),
    *(("Hölder, annealed", rival, OLD_BRIEF) for rival in ("GRPO", *FIXED)),
    ("Hölder, p = -2", "Hölder, p = 2", OLD_BRIEF),
    *(("MHPO", f"MHPO, open {side}", OLD_BRIEF) for side in ("above", "below")),
)
"""Which arm ends above which other one, and where."""
NO_WORSE = (("MHPO", "GRPO"), ("MHPO", "SAPO"), ("GBPO", "GRPO"))
"""Which arm is no worse than which other one, at 12 tokens and both lags."""
STEADIER = (
    *(("MinPRO", rival, LENGTHY) for rival in ("GRPO", "CISPO")),
    *(("SAPO", rival, OLD_BRIEF) for rival in ("GRPO", "GSPO")),
    *((name, "GRPO", OLD_BRIEF) for name in ("MHPO", "GBPO")),
    ("Hölder, annealed", "Hölder, p = 2", OLD_BRIEF),
)
"""Which arm collapses on fewer seeds than which other one."""
GROWS = (("length", LENGTHY, OLD_BRIEF), ("lag", OLD_BRIEF, BRIEF))


def cells() -> tuple[Run, ...]:
    """Recipes on short responses at two lags and on long ones, each at its own learning rate."""
    return tuned(level_cells(), RATES, KEYS)


def slug(words: str) -> str:
    """Return words as they stand in a claim's name."""
    for old, new in ((", p = -", "-minus-"), (", p = ", "-plus-"), (", ", "-"), (" ", "-"), ("ö", "oe")):
        words = words.replace(old, new)
    return words.lower()


def _arm(label: str, place: str) -> Arm:
    (recipe, args), (length, lag) = RECIPES[label], PLACES[place]
    return {"recipe": recipe, "recipe_args": words(args), "task_args": f"digits={length}", "lag": lag}


def _gain(table: pd.DataFrame, name: str, rival: str, place: str) -> tuple[pd.Series, str]:
    """Return the gain in final accuracy by seed, and both medians in words."""
    found = arms(table, "accuracy", {each: _arm(each, place) for each in (name, rival)})
    middle = found.median()
    return found[name] - found[rival], f"{middle[name]:.3f} and {middle[rival]:.3f} at {place}"


def _above(table: pd.DataFrame, *, name: str, rival: str, place: str, margin: float = 0.0) -> Evidence:
    gain_N, said = _gain(table, name, rival, place)
    return median_exceeds(gain_N, margin, f"median gain in final accuracy; medians {said}")


def _grows(table: pd.DataFrame, *, rival: str, more: str, less: str) -> Evidence:
    """Return the evidence that MinPRO's gain over a rival is larger at one place than at another."""
    (large_N, said), (small_N, before) = (_gain(table, "MinPRO", rival, place) for place in (more, less))
    note = f"median growth of the gain over {rival}; medians {said}, {before}"
    return median_exceeds((large_N - small_N).dropna(), 0.0, note)


def _steadier(table: pd.DataFrame, *, name: str, rival: str, place: str) -> Evidence:
    lost = arms(table, "collapsed", {each: _arm(each, place) for each in (name, rival)}) > 0.5
    note = f"collapsed: {name} {lost[name].sum()}, {rival} {lost[rival].sum()} of {len(lost)} seeds"
    return happens_more_often(lost[rival], lost[name], f"{note}; share among seeds where one did")


def _claims() -> dict[str, tuple[str, Check]]:
    """Return statement and check by the claim's name, which begins with the recipe that it speaks of."""
    found: dict[str, tuple[str, Check]] = {}
    for name, rival, place in ABOVE:
        found[f"{slug(name)}-ends-above-{slug(rival)}-{WHERE[place]}"] = (
            f"At {place}, {name} ends with a higher accuracy than {rival}, on most seeds.",
            partial(_above, name=name, rival=rival, place=place),
        )
    for (name, rival), place in product(NO_WORSE, (BRIEF, OLD_BRIEF)):
        found[f"{slug(name)}-is-no-worse-than-{slug(rival)}-{WHERE[place]}"] = (
            f"At {place}, {name} ends at most 0.05 below {rival}, on most seeds.",
            partial(_above, name=name, rival=rival, place=place, margin=-MARGIN),
        )
    for name, rival, place in STEADIER:
        found[f"{slug(name)}-collapses-less-often-than-{slug(rival)}"] = (
            f"At {place}, {name} collapses on fewer seeds than {rival}.",
            partial(_steadier, name=name, rival=rival, place=place),
        )
    for rival in ("GRPO", "CISPO"):
        for dial, more, less in GROWS:
            found[f"minpro-gains-more-over-{slug(rival)}-with-{dial}"] = (
                f"MinPRO's gain over {rival} is larger at {more} than at {less}, on most seeds.",
                partial(_grows, rival=rival, more=more, less=less),
            )
    return found


CLAIMS = _claims()


def _part(subject: str, what: str = "") -> Part:
    return Part(what, claims=tuple(name for name in CLAIMS if name.startswith(subject)))


EXPERIMENT = Experiment(
    "ratio-level",
    question="Does the level at which ratios are taken decide what old data do, the more so with length?",
    source="MinPRO (2026), arXiv:2601.22718, and the papers of the other recipes",
    differs="copying 12 and 32 digits, width 16, 200 steps, of which lag 64 is a third; rates by arm",
    cells=cells,
    stop=Stop(block=16, cap=32, begun_with=16),
    keys=("task_args", "recipe", "recipe_args", "lag", "seed"),
    metrics=(
        *("accuracy", "best", "start", "area", "collapsed", "mean actor/clip_share"),
        *("mean actor/learning_rate", "min rollout_corr/ess_kish_sequence_raw"),
    ),
    margins={"accuracy below a rival that counts as no worse": MARGIN},
    figure="ratio-level",
    systems={
        "MinPRO (A Step Back)": _part(
            "minpro", "12 and 32 tokens, lags 16 and 64; neither 48 tokens nor lag 256"
        ),
        "CTPO (cumulative token)": _part(
            "ctpo", "accuracy at lag 64, 12 and 32 tokens; not the clip share by position"
        ),
        "SAPO": _part("sapo"),
        "HölderPO": _part("hoelder"),
        "MHPO": _part("mhpo"),
        "BPO / GBPO (Bounded Ratio RL)": _part("gbpo"),
    },
)
for _name, (_statement, _check) in CLAIMS.items():
    EXPERIMENT.claim(_name, statement=_statement)(_check)
