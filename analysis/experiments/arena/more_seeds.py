"""Comparisons that the arena's seeds left open, asked again on thousands of fresh seeds.

Rates and knobs are those that the arena chose. A unit is a mean over EACH seeds, so that the table is small.
"""

from collections.abc import Sequence
from functools import partial

import pandas as pd

from analysis.arena import table
from analysis.arena.chosen_settings import cells_of
from analysis.arena.tasks import TASKS
from analysis.experiments.arena.arena import MARGIN
from analysis.lab import Experiment, Frame, Part, Rows, Seeds, averaged, of_seeds, strips
from analysis.worlds.edited_training import Arm, sweep

NAME, OLD = "more-seeds", 64
LATER, STACK, LOST = 20_000_000, 32, range(65_024, 1_000_000)
"""Offset of seeds past those of other tables; cells that run stacked; seeds of sums, from where on the first
run's are 1,024 higher: two blocks of 512 ended for lack of memory before a number was read."""
EACH = {"sums": 64, "sorted": 8}
"""Seeds of a unit."""
ARMS = {
    **{("sums", "dispo"): 32, ("sums", "cispo"): 32, ("sums", "dapo"): 24},
    **{("sorted", "ctpo"): 48, ("sorted", "grpo"): 48},
}
"""Units of a run."""
COLUMNS = {name: table.COLUMNS[name] for name in ("final", "area", "entropy", "kl", "clip_share")}


def trained(task: str, arm: str, seeds: Sequence[int]) -> Frame:
    """Return a row per seed: the arm at the arena's setting, and COLUMNS."""
    frame = table.load()
    run = cells_of(frame, task, {arm: (OLD,)}, (0,))[0]
    here = frame[(frame["task"] == task) & (frame["lag"] == OLD) & (frame["arm"] == arm)]
    drawn = [seed + LATER + 1024 * (seed in LOST) for seed in seeds]
    parts = [drawn[first : first + STACK] for first in range(0, len(drawn), STACK)]
    rates, words = {arm: run.learning_rate}, tuple(COLUMNS.values())
    found = pd.concat(sweep({arm: Arm(run)}, words, rates, part) for part in parts)
    found = found.rename(columns={word: name for name, word in COLUMNS.items()})
    return found.assign(task=task, lag=OLD, at_edge=int(here["at_edge"].max()), seed=[*seeds])


def rows(seeds: Seeds) -> Rows:
    """Yield the units of every arm."""
    for (task, arm), units in ARMS.items():
        yield from averaged(partial(trained, task, arm), EACH[task], tuple(COLUMNS))(seeds[:units])


EXPERIMENT = Experiment(
    NAME,
    question="On thousands of seeds, what do comparisons say that the arena's seeds left open?",
    source="each claim's",
    differs="the arena's transformers, tasks, rates and knobs on other seeds, trained on a GPU",
    compute=of_seeds(NAME, rows, max(ARMS.values()), {"seeds of a unit": EACH}),
    keys=("run", "seed", "task", "lag", "arm"),
    metrics=("rate", "at_edge", *COLUMNS),
    budget=", ".join(f"{name} {TASKS[name].steps} steps" for name in EACH),
    margins={"final accuracy that counts": MARGIN},
    figure=strips("final: final accuracy", "Shows final accuracy from data 64 steps old at the arena's "
        "settings: DISPO, CISPO and DAPO on 16-digit sums, means over 64 seeds; CTPO and GRPO on ten sorted "
        "digits, means over 8."),
    systems={"DISPO": Part(claims=("dispo-*",)), "CTPO (cumulative token)": Part(claims=("ctpo-*",))},
)  # fmt: skip

for _name, _arm, _rival, _task in (
    ("dispo-ends-above-tuned-cispo-at-lag-64-on-sums-again", "dispo", "cispo", "sums"),
    ("dispo-ends-above-tuned-dapo-at-lag-64-on-sums-again", "dispo", "dapo", "sums"),
    ("ctpo-gains-over-tuned-grpo-at-lag-64-on-sorted-again", "ctpo", "grpo", "sorted"),
):
    EXPERIMENT.claim(
        _name, f"Tuned alike, {_arm} ends 0.05 above {_rival} at lag 64 on {_task}, on hundreds of seeds."
    ).compare("final", {"arm": _arm}, {"arm": _rival}, by=MARGIN, over={"task": _task, "lag": OLD})
