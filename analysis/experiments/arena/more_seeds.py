"""Comparisons that the arena's seeds left open, asked again on thousands of fresh seeds.

Rates and knobs are those that the arena chose. A unit is the mean over EACH seeds, so that the table is small.
"""

from collections.abc import Sequence
from functools import partial

import pandas as pd

from analysis.arena import table
from analysis.arena.chosen_settings import cells_of
from analysis.arena.tasks import TASKS
from analysis.experiments.arena.arena import LESS, MARGIN
from analysis.lab import Experiment, Frame, Part, Plot, Rows, Seeds, averaged, of_seeds
from analysis.worlds.edited_training import Arm, sweep

NAME = "more-seeds"
UNITS, LATER, STACK = 48, 20_000_000, 32
"""Units of a run; an offset of seeds past those of other tables; cells that run stacked."""
EACH = {"sums": 64, "sorted": 8}
"""Seeds of a unit."""
ARMS = {
    ("sums", 64): ("dispo", "cispo", "dapo", "grpo", "r2vpo", "ctpo", "gspo", "bapo"),
    ("sums", 0): ("grpo", "grpo_reuse", "sfpo_reuse"),
    ("sorted", 64): ("ctpo", "grpo"),
}
COLUMNS = {name: table.COLUMNS[name] for name in ("final", "area", "entropy", "kl", "clip_share")}


def trained(task: str, lag: int, arm: str, seeds: Sequence[int]) -> Frame:
    """Return a row per seed: the arm at the arena's setting, and COLUMNS."""
    frame = table.load()
    run = cells_of(frame, task, {arm: (lag,)}, (0,))[0]
    here = frame[(frame["task"] == task) & (frame["lag"] == lag) & (frame["arm"] == arm)]
    parts = [seeds[first : first + STACK] for first in range(0, len(seeds), STACK)]
    found = pd.concat(
        sweep({arm: Arm(run)}, tuple(COLUMNS.values()), {arm: run.learning_rate}, [s + LATER for s in part])
        for part in parts
    )
    at = {"task": task, "lag": lag, "at_edge": int(here["at_edge"].max()), "seed": [*seeds]}
    return found.rename(columns={word: name for name, word in COLUMNS.items()}).assign(**at)


def rows(seeds: Seeds) -> Rows:
    """Yield the units of every arm."""
    for (task, lag), arms in ARMS.items():
        for arm in arms:
            yield from averaged(partial(trained, task, lag, arm), EACH[task], tuple(COLUMNS))(seeds)


EXPERIMENT = Experiment(
    question="On thousands of seeds, which of the arena's open comparisons are decided, and how?",
    source="each claim's",
    differs="the arena's transformers, tasks, rates and knobs, on other seeds, trained on a GPU",
    compute=of_seeds(NAME, rows, UNITS, {"seeds of a unit": EACH}),
    keys=("run", "seed", "task", "lag", "arm"),
    metrics=("rate", "at_edge", *COLUMNS),
    budget=", ".join(f"{name} {TASKS[name].steps} steps" for name in EACH),
    margins={"final accuracy, or nats of entropy per token": MARGIN, "mean accuracy along the run": LESS},
    figure=Plot(
        "strips", x="final: final accuracy", y="arm",
        says="Shows final accuracy of arms at the arena's settings, on 16-digit sums from fresh data and from "
        "data 64 steps old and on ten sorted digits from data 64 steps old; each point is a mean over 64 "
        "seeds, on sorted digits over 8.",
    ),
    systems={
        "DISPO": Part(claims=("dispo-ends-above-tuned-*",)),
        "R²VPO": Part(claims=("r2vpo-gains-*",)),
        "SFPO (Slow-Fast)": Part(claims=("sfpo-learns-*",)),
        "CTPO (cumulative token)": Part(claims=("ctpo-*",)),
        "BAPO": Part(claims=("bapo-*",)),
    },
)  # fmt: skip

OLD = "Tuned alike, {} ends 0.05 above {} at lag 64 on {}, on thousands of seeds."
for _name, _arm, _rival, _task in (
    ("dispo-ends-above-tuned-cispo-at-lag-64-on-sums-again", "dispo", "cispo", "sums"),
    ("dispo-ends-above-tuned-dapo-at-lag-64-on-sums-again", "dispo", "dapo", "sums"),
    ("r2vpo-gains-over-tuned-grpo-at-lag-64-on-sums-again", "r2vpo", "grpo", "sums"),
    ("ctpo-ends-above-tuned-gspo-at-lag-64-on-sums-again", "ctpo", "gspo", "sums"),
    ("ctpo-gains-over-tuned-grpo-at-lag-64-on-sorted-again", "ctpo", "grpo", "sorted"),
):
    EXPERIMENT.claim(_name, OLD.format(_arm, _rival, _task)).compare(
        "final", {"arm": _arm}, {"arm": _rival}, by=MARGIN, over={"task": _task, "lag": 64}
    )
EXPERIMENT.claim(
    "bapo-keeps-entropy-at-lag-64-on-sums-again",
    "Tuned alike, BAPO ends at lag 64 with 0.05 nats more entropy per token than GRPO on sums, on thousands of "
    "seeds.",
).compare("entropy", {"arm": "bapo"}, {"arm": "grpo"}, by=MARGIN, over={"task": "sums", "lag": 64})
for _name, _rival in (
    ("sfpo-learns-faster-than-grpo-on-sums-again", "grpo"),
    ("sfpo-learns-faster-than-reused-grpo-on-sums-again", "grpo_reuse"),
):
    EXPERIMENT.claim(
        _name,
        "On fresh data, updates a batch tuned for both, sfpo_reuse has 0.02 more mean accuracy than "
        f"{_rival} on sums, on thousands of seeds.",
    ).compare("area", {"arm": "sfpo_reuse"}, {"arm": _rival}, by=LESS, over={"task": "sums", "lag": 0})
