"""What recipes make of signs on old data: the negatives' share of the mass, entropy, and where they end."""

from __future__ import annotations

from functools import partial

import pandas as pd

from analysis.experiments.lag.level_and_sign_rates import KEYS, OLD, SIGNED, YOUNG, sign_cells
from analysis.experiments.lag.level_and_sign_rates import NAME as RATES
from analysis.lab import (
    Arm,
    Check,
    Evidence,
    Experiment,
    Part,
    Stop,
    arm,
    arms,
    happens_more_often,
    happens_mostly,
    median_exceeds,
)
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

MOST, ENTROPY = 0.6, 0.02
"""Share of the gradient mass that is domination; nats per token that count as more. Set before the sweep."""
KEEPS = f"{ENTROPY:g} nats per token more entropy"
MASS = "known actor/positive_share"
KINDS: dict[str, Arm] = {
    "on-policy": {"staleness": "exact", "lag": 0},
    "at lag 16": {"staleness": "exact", "lag": YOUNG},
    "at lag 64": {"staleness": "exact", "lag": OLD},
    "under replay": {"staleness": "replay"},
    "under partial rollout": {"staleness": "partial"},
    "offline": {"staleness": "offline"},
    "at lag 128": {"staleness": "exact", "lag": 2 * OLD},
}
"""Kinds of old data."""
MORE, FEWER = "TOPR with more negatives", "TOPR with fewer negatives"
ARMS: dict[str, Arm] = {
    **{name.upper(): {"recipe": name} for name in ("grpo", "dapo", "bapo", "cispo", "dispo")},
    "TOPR": {"recipe": "topr", "recipe_args": "baseline=0.5"},
    "positives alone": {"recipe": "topr", "recipe_args": "baseline=0"},
    MORE: {"recipe": "topr", "recipe_args": "baseline=0.75"},
    FEWER: {"recipe": "topr", "recipe_args": "baseline=0.25"},
    "REINFORCE": {"recipe": "reinforce"},
    "importance sampling": {"recipe": "importance"},
    "max@4": {"recipe": "max_at_k"},
}
FRESH, LAG_16, LAG, REPLAY, PARTIAL, OFFLINE, LAG_128 = KINDS
ENDS_ABOVE = (
    *(("BAPO", "GRPO", kind) for kind in (LAG, REPLAY, PARTIAL)),
    *(("DISPO", rival, LAG) for rival in ("CISPO", "DAPO")),
    ("CISPO", "DAPO", LAG),
    ("DAPO", "GRPO", LAG),
    *(("TOPR", rival, OFFLINE) for rival in ("positives alone", "REINFORCE", "importance sampling")),
    *(("TOPR", rival, LAG_128) for rival in ("positives alone", "REINFORCE")),
    *(("TOPR", rival, OFFLINE) for rival in (MORE, FEWER)),
)
KEEPS_ENTROPY = (*(("BAPO", "GRPO", kind) for kind in (LAG, REPLAY, PARTIAL)), ("DAPO", "GRPO", LAG))
BEST_OF_K = (
    ("keeps entropy", "max@4", "GRPO", "val/entropy", ENTROPY, KEEPS),
    ("raises pass@8", "max@4", "GRPO", "last val/pass@8", 0.0, "a higher pass@8"),
    ("lowers pass@1", "GRPO", "max@4", "accuracy", 0.0, "a higher pass@1"),
)
"""What is said of both on fresh data, and at lag 16."""


def cells() -> tuple[Run, ...]:
    """Five recipes by sign on data of three kinds, TOPR by baseline and its rivals on two more."""
    return tuned(sign_cells(), RATES, KEYS)


def _gain(
    table: pd.DataFrame, *, name: str, rival: str, kind: str, outcome: str = "accuracy", margin: float = 0.0
) -> Evidence:
    """Return the evidence about the difference of an outcome, paired by seed."""
    found = arms(table, outcome, {each: {**ARMS[each], **KINDS[kind]} for each in (name, rival)})
    middle = found.median()
    note = f"median gain in final {outcome}; medians {middle[name]:.3f}, {middle[rival]:.3f}"
    return median_exceeds(found[name] - found[rival], margin, note)


def _negatives(table: pd.DataFrame, *, kind: str) -> Evidence:
    share_N = 1 - arm(table, MASS, {**ARMS["GRPO"], **KINDS[kind]})
    note = f"median share of the negatives; median {share_N.median():.3f}"
    return median_exceeds(share_N, MOST, note, null=MOST)


def _stable(table: pd.DataFrame) -> Evidence:
    lost_N = arm(table, "collapsed", {**ARMS["TOPR"], **KINDS[OFFLINE]}) > 0.5
    note = f"share of seeds without collapse; {int(lost_N.sum())} of {len(lost_N)} collapsed"
    return happens_mostly(~lost_N, note)


def _steadier(table: pd.DataFrame, *, rival: str) -> Evidence:
    lost = (
        arms(table, "collapsed", {each: {**ARMS[each], **KINDS[OFFLINE]} for each in ("TOPR", rival)}) > 0.5
    )
    note = f"collapsed: TOPR {lost['TOPR'].sum()}, {rival} {lost[rival].sum()} of {len(lost)} seeds"
    return happens_more_often(lost[rival], lost["TOPR"], f"{note}; share among seeds where one did")


def _claims() -> dict[str, tuple[str, Check]]:
    """Return statement and check by the claim's name, which begins with what it speaks of."""
    found: dict[str, tuple[str, Check]] = {}
    for name, rival, kind in ENDS_ABOVE:
        found[_slug(f"{name} ends above {rival} {kind}")] = (
            f"{kind.capitalize()}, {name} ends with a higher accuracy than {rival}, on most seeds.",
            partial(_gain, name=name, rival=rival, kind=kind),
        )
    for name, rival, kind in KEEPS_ENTROPY:
        found[_slug(f"{name} keeps more entropy than {rival} {kind}")] = (
            f"{kind.capitalize()}, {name} ends with {KEEPS} than {rival}, on most seeds.",
            partial(_gain, name=name, rival=rival, kind=kind, outcome="val/entropy", margin=ENTROPY),
        )
    for kind in (FRESH, LAG_16):
        for word, name, rival, outcome, margin, more in BEST_OF_K:
            found[_slug(f"max-at-k training {word} {kind}")] = (
                f"{kind.capitalize()}, {name} ends with {more} than {rival}, on most seeds.",
                partial(_gain, name=name, rival=rival, kind=kind, outcome=outcome, margin=margin),
            )
    for kind in (LAG, REPLAY, PARTIAL):
        found[_slug(f"negatives carry most of the mass {kind}")] = (
            f"{kind.capitalize()}, negatives carry over 60 % of GRPO's gradient mass, on most seeds.",
            partial(_negatives, kind=kind),
        )
    found["topr-does-not-collapse-offline"] = (
        "Offline, TOPR collapses on less than half of all seeds.",
        _stable,
    )
    for rival in ("REINFORCE", MORE):
        found[_slug(f"TOPR collapses less often than {rival} offline")] = (
            f"Offline, TOPR collapses on fewer seeds than {rival}.",
            partial(_steadier, rival=rival),
        )
    return found


def _slug(words: str) -> str:
    return words.lower().replace(" ", "-").replace("@", "-at-")


CLAIMS = _claims()


def _part(*subjects: str, what: str = "") -> Part:
    return Part(what, claims=tuple(name for name in CLAIMS if name.startswith(subjects)))


EXPERIMENT = Experiment(
    "signs-in-training",
    question="What does the treatment of signs and clips decide when data are old?",
    source="BAPO, arXiv:2510.18927; DISPO, arXiv:2602.00983; TOPR, arXiv:2503.14286",
    differs=f"sums of 6 digits, width 16, {SIGNED.steps} steps; each arm at its rate of three, on 2 seeds",
    cells=cells,
    stop=Stop(block=16, cap=32, begun_with=16),
    keys=(*KEYS, "seed"),
    metrics=(
        *(
            "accuracy",
            "best",
            "area",
            "collapsed",
            "entropy_collapsed",
            "val/entropy",
            "last val/pass@8",
            MASS,
        ),
        *("mean actor/clip_share_positive", "mean actor/clip_share_negative", "mean actor/learning_rate"),
    ),
    margins={"share of the mass that is domination": MOST, "nats of entropy per token": ENTROPY},
    figure="signs-in-training",
    systems={
        "max@k (Best of N Worlds)": _part("max-at-k"),
        "BAPO": _part("bapo", "negatives"),
        "DISPO": _part(
            "dispo", "cispo", what="final accuracy on old data; not what kind of collapse there is"
        ),
        "TOPR": _part("topr", what="offline; at lag 128 neither importance sampling nor other baselines"),
    },
)
for _name, (_statement, _check) in CLAIMS.items():
    EXPERIMENT.claim(_name, statement=_statement)(_check)
