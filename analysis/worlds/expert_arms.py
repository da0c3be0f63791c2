"""Ways of learning with help where a base model is seldom right, each tuned over its rate and one knob.

The base model writes running sums of eight digits, right once in 200. Two experts know more: one is a model
that errs at a tenth of the steps, the other is always right but writes complements in place of sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.sweeps.base_runs import SMALL
from analysis.worlds.aligned_groups import aligned
from analysis.worlds.edited_training import Arm, Maker, trained
from analysis.worlds.pilots import FLAT, PILOT
from testbed.config.run import Arguments, Run

SETTINGS = Path(__file__).with_suffix(".csv")
"""The settings chosen: `python -m analysis.worlds.expert_arms` makes the file, arm by arm."""
PILOTS, ROUNDS = 4, 3
"""Pilot seeds from 5,000,000 on, and how often a grid may grow beyond an end."""
RATES, BEYOND = (1.8e-3, 3e-3, 5.6e-3, 1e-2, 1.8e-2), 1.8
OWN = replace(
    SMALL, task_args=(("digits", 8),), policy_args=(("heads", 2), ("layers", 1), ("width", 16)), prompts=4,
    steps=300, log_every=30, teacher_noise=0.45, evaluation_prompts=128,
)  # fmt: skip
TAUGHT = replace(OWN, teacher="trained", teacher_args=(("noise", 0.1), ("steps", 600)))
STYLED = replace(OWN, task="styled-sum")
OTHER = "other style: "
"""In front of the arms beside the expert that writes complements."""


@dataclass(frozen=True)
class Way:
    """Runs by the value of a knob.

    at: value -> the run. ladder: values from small to large; the middle three are tried first, and nothing
    sensible lies beyond its ends if `whole`. change: of batches, as in analysis.worlds.edited_training.
    """

    at: Callable[[Any], Run]
    ladder: tuple[float, ...] = (0,)
    whole: bool = False
    change: Maker | None = None

    def arm(self, value: float) -> Arm:
        """Return the arm at a value of the knob."""
        return Arm(self.at(value), self.change)


def _recipe(start: Run, name: str, knob: str = "", *more: tuple[str, Any]) -> Callable[[float], Run]:
    """Return value -> the run with a recipe; several knobs, joined by "+", have the same value."""

    def at(value: float) -> Run:
        args: Arguments = tuple((each, value) for each in knob.split("+") if each)
        return replace(start, recipe=name, recipe_args=(*args, *more))

    return at


def _guided(start: Run, guide: str, knob: str = "count", **fields: Any) -> Callable[[float], Run]:
    return lambda value: replace(start, guide=guide, guide_args=((knob, value),), **fields)


def _gated(value: float) -> Run:
    args = (("peak", value), ("share", 0.0), ("valley", value))
    return replace(TAUGHT, recipe="chord", recipe_args=args, guide="rescue", guide_args=(("count", 8),))


def _bent(value: float) -> Run:
    return replace(GRADED, guide="insert", recipe="tempsamp", recipe_args=(("knee", value),))


def _begun(value: float) -> Run:
    return replace(OWN, prefix="teacher", prefix_args=(("share", 0.5), ("tokens", value)))


def _amplified(value: float) -> Run:
    return replace(OWN, prefix="retry", recipe="r3l", recipe_args=(("alpha", value),))


GRADED = replace(OWN, verifier="steps")
FALLING = (("peak", 0.9), ("valley", 0.05))
COUNTS, STEPS = (1, 2, 4, 6), (10, 25, 50, 100, 200)
WEIGHTS = (0.03, 0.1, 0.3, 0.6, 0.9)
WAYS: Mapping[str, Way] = {
    "grpo": Way(_recipe(OWN, "grpo")),
    "sft": Way(_recipe(TAUGHT, "sft")),
    "sft, then grpo": Way(_recipe(TAUGHT, "sft_then_grpo", "step"), STEPS),
    "fixed": Way(_recipe(TAUGHT, "chord", "peak+valley"), WEIGHTS),
    "chord-mu": Way(_recipe(TAUGHT, "chord", "decay", *FALLING), (25, 50, 100, 200, 300), True),
    "chord-phi": Way(_recipe(TAUGHT, "chord", "peak+valley", ("phi", "on")), WEIGHTS),
    "anchors": Way(_guided(TAUGHT, "rescue"), COUNTS, True),
    "gate": Way(_gated, (0.05, 0.1, 0.25, 0.5, 0.8)),
    "dypo": Way(_gated, (0.05, 0.1, 0.25, 0.5, 0.8), change=aligned),
    "distillation": Way(_recipe(TAUGHT, "opd")),
    "dgrpo": Way(_recipe(TAUGHT, "dgrpo", "coefficient"), (0.01, 0.03, 0.1, 0.3, 1)),
    "graded": Way(lambda _: GRADED),
    "graded, plain": Way(_guided(GRADED, "insert"), COUNTS, True),
    "graded, bent": Way(_bent, (0.35, 0.5, 0.65, 0.8, 0.9)),
    "rubrics": Way(_guided(TAUGHT, "rescue", "most", verifier="steps"), (0, 0.25, 0.5, 0.75, 0.99), True),
    "prefixes": Way(_begun, (1, 2, 4, 6, 7), True),
    "entropy bonus": Way(_recipe(OWN, "grpo", "entropy"), (1e-5, 1e-4, 3e-4, 1e-3, 3e-3)),
    "pass@k": Way(_recipe(OWN, "max_at_k", "k"), (2, 4, 8), True),
    "retries": Way(lambda _: replace(OWN, prefix="retry")),
    "amplified retries": Way(_amplified, (1, 1.5, 3, 6, 12)),
    "self-imitation": Way(_recipe(OWN, "spear", "share", ("warm_up", 100)), (0.25, 0.5, 0.75), True),
    f"{OTHER}grpo": Way(_recipe(STYLED, "grpo")),
    f"{OTHER}sft": Way(_recipe(STYLED, "sft")),
    f"{OTHER}sft, then grpo": Way(_recipe(STYLED, "sft_then_grpo", "step"), STEPS),
    f"{OTHER}whole answers": Way(_guided(STYLED, "rescue"), COUNTS, True),
    f"{OTHER}splices": Way(_guided(STYLED, "splice"), COUNTS, True),
}  # fmt: skip
Scores = dict[tuple[float, float], float]


def score(way: Way, value: float, rates: list[float]) -> dict[float, float]:
    """Return the mean final accuracy over pilot seeds at each rate."""
    arm = way.arm(value)
    seeds = range(PILOT, PILOT + PILOTS)
    runs = tuple(replace(arm.run, learning_rate=rate, seed=seed) for rate in rates for seed in seeds)
    rows = trained(arm, runs)
    last = rows[rows["step"] == rows["step"].max()]
    return {float(rate): float(part["accuracy"].mean()) for rate, part in last.groupby("learning_rate")}


def ends(scores: Scores, way: Way) -> list[str]:
    """Return which of rate and knob are best at an end where one step inward is worse by more than FLAT.

    An end of the knob's whole ladder is none where nothing sensible lies beyond.
    """
    best = max(scores, key=lambda key: (scores[key], -key[0]))
    found = []
    for axis, name in enumerate(("rate", "knob")):
        line = sorted(key for key in scores if key[1 - axis] == best[1 - axis])
        at = line.index(best)
        if len(line) < 2 or 0 < at < len(line) - 1:
            continue
        if name == "knob" and way.whole and best[1] in (way.ladder[0], way.ladder[-1]):
            continue
        inward = line[1] if at == 0 else line[-2]
        found += [name] * (scores[best] - scores[inward] > FLAT)
    return found


def grown(scores: Scores, way: Way, rates: list[float], values: list[float]) -> bool:
    """Add a rate or a value beyond each end at which the best setting lies; return whether there was one."""
    rate, value = max(scores, key=lambda key: (scores[key], -key[0]))
    before = len(rates), len(values)
    for name in ends(scores, way):
        if name == "rate":
            rates.append(float(f"{rate * BEYOND if rate == max(rates) else rate / BEYOND:.2g}"))
        else:
            place = way.ladder.index(value) + (1 if value == max(values) else -1)
            values += way.ladder[place : place + 1] if place >= 0 else ()
    return before != (len(rates), len(values))


def settled(way: Way) -> dict[str, float]:
    """Return rate, value and score of the best setting on pilot seeds; at_end: how many lie at an end."""
    first = max(0, (len(way.ladder) - 3) // 2)
    rates, values = list(RATES), list(way.ladder[first : first + 3])
    scores: Scores = {}
    for _ in range(ROUNDS + 1):
        for value in values:
            missing = [rate for rate in rates if (rate, value) not in scores]
            if missing:
                scores |= {(rate, value): x for rate, x in score(way, value, missing).items()}
        if not grown(scores, way, rates, values):
            break
    rate, value = max(scores, key=lambda key: (scores[key], -key[0]))
    return {"rate": rate, "value": value, "score": scores[rate, value], "at_end": len(ends(scores, way))}


@cache
def chosen() -> dict[str, dict[str, float]]:
    """Return the settings of every arm that has some."""
    if not SETTINGS.exists():
        return {}
    frame = pd.read_csv(SETTINGS).set_index("arm")
    return {str(arm): {str(k): float(x) for k, x in row.items()} for arm, row in frame.iterrows()}


def tuned_arm(name: str) -> Arm:
    """Return an arm at its value of the knob; its rate stands in chosen()."""
    way, value = WAYS[name], chosen()[name]["value"]
    return way.arm(next(each for each in way.ladder if each == value))


def main() -> None:
    """Choose the settings of the arms that have none yet."""
    done = chosen()
    for name, way in WAYS.items():
        if name not in done:
            done[name] = settled(way)
            frame = pd.DataFrame(done).T.rename_axis("arm")
            frame.to_csv(SETTINGS, float_format="%.6g")
            print(name, done[name], flush=True)


if __name__ == "__main__":
    main()
