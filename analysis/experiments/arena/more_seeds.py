"""Comparisons of the arena, asked again on fresh seeds: those that its seeds left open, on thousands.

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

NAME = "more-seeds"
LATER, STACK, LOST = 20_000_000, 32, range(65_024, 1_000_000)
"""Offset of seeds past those of other tables; cells that run stacked; seeds of sums, from where on the first
run's are 1,024 higher: two blocks of 512 ended for lack of memory before a number was read."""
EACH = {"sums": 64, "sorted": 8, "guess": 1, "long": 1}
"""Seeds of a unit."""
ARMS = {
    **{("sums", 64, "dispo"): 32, ("sums", 64, "cispo"): 32, ("sums", 64, "dapo"): 24},
    **{("sorted", 64, "ctpo"): 48, ("sorted", 64, "grpo"): 48},
    **{("guess", 256, "m2po"): 64, ("guess", 256, "grpo"): 64},
    **{("long", 400, "minpro"): 48, ("long", 400, "cispo"): 48},
}
"""Units of a run by task, lag and arm."""
COLUMNS = {name: table.COLUMNS[name] for name in ("final", "area", "entropy", "kl", "clip_share")}


def trained(task: str, lag: int, arm: str, seeds: Sequence[int]) -> Frame:
    """Return a row per seed: the arm at the arena's setting, and COLUMNS."""
    frame = table.load()
    run = cells_of(frame, task, {arm: (lag,)}, (0,))[0]
    here = frame[(frame["task"] == task) & (frame["lag"] == lag) & (frame["arm"] == arm)]
    drawn = [seed + LATER + 1024 * (seed in LOST) for seed in seeds]
    parts = [drawn[first : first + STACK] for first in range(0, len(drawn), STACK)]
    rates, words = {arm: run.learning_rate}, tuple(COLUMNS.values())
    found = pd.concat(sweep({arm: Arm(run)}, words, rates, part) for part in parts)
    found = found.rename(columns={word: name for name, word in COLUMNS.items()})
    return found.assign(task=task, lag=lag, at_edge=int(here["at_edge"].max()), seed=[*seeds])


def rows(seeds: Seeds) -> Rows:
    """Yield the units of every arm."""
    for (task, lag, arm), units in ARMS.items():
        yield from averaged(partial(trained, task, lag, arm), EACH[task], tuple(COLUMNS))(seeds[:units])


EXPERIMENT = Experiment(
    NAME,
    question="Do fresh seeds decide comparisons of the arena that were left open, or had no room for a gain?",
    source="each claim's",
    differs="the arena's transformers, tasks, rates and knobs on other seeds; sums and sorted on a GPU",
    compute=of_seeds(NAME, rows, max(ARMS.values()), {"seeds of a unit": EACH}),
    keys=("run", "seed", "task", "lag", "arm"),
    metrics=("rate", "at_edge", *COLUMNS),
    budget=", ".join(f"{name} {TASKS[name].steps} steps" for name in EACH),
    margins={"final accuracy that counts": MARGIN},
    figure=strips("final: final accuracy", "Shows final accuracy from old data at the arena's settings: at "
        "lag 64 DISPO, CISPO and DAPO on 16-digit sums (means over 64 seeds), CTPO and GRPO on ten sorted "
        "digits (over 8), at lag 256 M2PO and GRPO on guesses, at 400 MinPRO and CISPO on 14 sorted digits.",
        panel="task", panel_label="task"),
    systems={
        "DISPO": Part(claims=("dispo-*",)),
        "CTPO (cumulative token)": Part(claims=("ctpo-*",)),
        "M2PO (Prosperity before Collapse)": Part("lag 256 on guesses, within 600 steps", ("m2po-*",)),
        "MinPRO (A Step Back)": Part("14 sorted digits at lag 400, within 900 steps", ("minpro-*",)),
    },
)  # fmt: skip

for _name, _arm, _rival, _task, _lag in (
    ("dispo-ends-above-tuned-cispo-at-lag-64-on-sums-again", "dispo", "cispo", "sums", 64),
    ("dispo-ends-above-tuned-dapo-at-lag-64-on-sums-again", "dispo", "dapo", "sums", 64),
    ("ctpo-gains-over-tuned-grpo-at-lag-64-on-sorted-again", "ctpo", "grpo", "sorted", 64),
    ("m2po-ends-above-tuned-grpo-at-lag-256-on-guess-again", "m2po", "grpo", "guess", 256),
    ("minpro-ends-above-tuned-cispo-at-lag-400-on-long", "minpro", "cispo", "long", 400),
):
    EXPERIMENT.claim(
        _name, f"Tuned alike, {_arm} ends 0.05 above {_rival} at lag {_lag} on {_task}, on fresh seeds."
    ).compare("final", {"arm": _arm}, {"arm": _rival}, by=MARGIN, over={"task": _task, "lag": _lag})
