"""Minutes of the standard phase diagram on 2 cores, and what is said of them before a sweep.

12 recipes x 6 lags x 3 learning rates x 8 seeds, 600 steps: 1,728 cells. A full pack of each recipe is timed
between steps 20 and 100, in CPU seconds, so that other work on the machine does not count; base models are
added. The limit is 75 minutes at the laboratory's shape.

    python tests/benchmarks/bench_phase_diagram.py [--shape lab|small] [--json]
"""

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace

from analysis.experiments.lag.phase_diagram import RATES, RECIPES
from analysis.sweeps.base_runs import LAB, SMALL
from testbed.config.run import Run, grid
from testbed.execution import cost
from testbed.execution.packs import plan
from testbed.training.loop import train_pack

LIMIT, CORES, SEEDS, LAGS = 75.0, 2, range(8), (0, 4, 12, 40, 120, 400)
SHAPES = {"lab": LAB, "small": replace(SMALL, steps=LAB.steps)}
BEGIN, END, FULL = 20, 100, 32
"""Timed steps: 80 with four rows, one of them with pass@k, as in the whole run; cells of a full pack."""


def seconds_per_cell(cells: tuple[Run, ...]) -> float:
    """Return the CPU seconds of a cell without its base model, from part of one full pack of the cells."""
    chosen = [cells[len(cells) * place // FULL] for place in range(FULL)]
    marks: list[float] = []
    short = tuple(replace(cell, steps=END + 2, warm_start_steps=0) for cell in chosen)
    with cost.one_thread():
        train_pack(short, lambda _done, _total: marks.append(time.process_time()))
    return (marks[END] - marks[BEGIN]) / (END - BEGIN) * cells[0].steps / FULL


def main() -> int:
    """Print minutes by recipe, of the whole, and as estimated; exit status 1 above the limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--shape", choices=SHAPES, default="lab")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    axes = {"lag": list(LAGS), "learning_rate": list(RATES), "seed": SEEDS}
    cells = {recipe: grid(SHAPES[given.shape], recipe=[recipe], **axes) for recipe in RECIPES}
    with tempfile.TemporaryDirectory() as empty:
        os.environ["TESTBED_BASE_MODELS"] = empty
        packs = plan(cell for each in cells.values() for cell in each)
        said = cost.cost(packs, CORES).seconds or 0.0
        bases = len(SEEDS) * LAB.warm_start_steps * cost.timed(packs[0]).lesson
    each = {recipe: seconds_per_cell(runs) for recipe, runs in cells.items()}
    took = sum(each[recipe] * len(runs) for recipe, runs in cells.items()) + bases
    result = {
        "shape": given.shape,
        "cells": sum(map(len, cells.values())),
        "seconds_per_cell": each,
        "minutes": took / CORES / 60,
        "minutes_said_before": said / 60,
        "limit_minutes": LIMIT,
    }
    if given.json:
        print(json.dumps(result, indent=2))
    else:
        for recipe, seconds in each.items():
            print(f"{recipe:<10} {seconds:6.2f} CPU seconds a cell")
        print(f"{result['cells']:,} cells: {result['minutes']:.1f} minutes on {CORES} cores, limit {LIMIT:g}")
        print(f"said before: {result['minutes_said_before']:.1f} minutes")
    return int(result["minutes"] > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
