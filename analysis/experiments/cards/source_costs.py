"""What every token task's base model gets right, and what a step costs there and with every source."""

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.lab import Experiment
from analysis.sweeps.base_runs import SMALL
from analysis.tables.committed import Table
from testbed.config.run import Arguments, Run

NAME = "source-costs"
SHAPE: Arguments = (("heads", 2), ("layers", 1), ("width", 16))
BASE = replace(SMALL, policy_args=SHAPE, steps=8, log_every=8, warm_start_steps=300, teacher_noise=0.2)
SEEDS = 2
"""Cells of a pack; a step's cost is the least of seven after the first, over them."""
SIX: Arguments = (("digits", 6),)
FIVE = ("tokens", 5)
TASKS: Mapping[str, dict[str, Any]] = {
    **{
        name: {"task": name, "task_args": SIX}
        for name in ("copy", "sorted", *(f"{kind}-sum" for kind in ("running", "graded", "styled", "stated")),
                     "three-skills", "hinted-sum")
    },
    "length": {"task": "length", "task_args": (("limit", 8),)},
    "guess": {"task": "guess", "task_args": ()},
    "solver-checker": {"task": "solver-checker", "task_args": ()},
}  # fmt: skip
BETTER: dict[str, Any] = {"teacher": "trained", "teacher_args": (("steps", 300),)}
SOURCES: Mapping[tuple[str, str], dict[str, Any]] = {
    ("prefix", "off"): {},
    ("prefix", "teacher"): {"prefix": "teacher", "prefix_args": (FIVE,)},
    ("prefix", "teacher, staged"): {"prefix": "teacher", "prefix_args": (("distribution", "staged"), FIVE)},
    ("prefix", "stored"): {"prefix": "stored", "prefix_args": (("ask", 32), ("attempts", 8), FIVE)},
    ("prefix", "retry"): {"prefix": "retry"},
    ("guide", "insert"): {"guide": "insert"},
    ("guide", "rescue"): {"guide": "rescue"},
    ("guide", "splice"): {"guide": "splice"},
    ("guide", "own"): {"guide": "own"},
    ("teacher", "trained, dgrpo"): {"recipe": "dgrpo", **BETTER},
    ("teacher", "noisy, dgrpo"): {"recipe": "dgrpo", "teacher": "noisy"},
    ("teacher", "solutions, sft"): {"recipe": "sft"},
    ("teacher", "trained, insert"): {"guide": "insert", **BETTER},
    ("critic", "head, ppo"): {"recipe": "ppo", "critic": "head"},
    ("critic", "model, ppo"): {"recipe": "ppo", "critic": "model"},
    ("verifier", "lenient"): {"verifier": "lenient"},
    ("verifier", "last"): {"verifier": "last"},
    ("verifier", "steps"): {"verifier": "steps"},
    ("verifier", "comparisons"): {"verifier": "comparisons"},
    ("verifier", "comparisons, five models"): {"verifier": "comparisons", "verifier_args": (("members", 5),)},
}


def measured(run: Run) -> tuple[float, float, float]:
    """Return success at the start, the first batch's reward, and CPU milliseconds per cell and step."""
    from testbed.training.loop import train_pack

    clock: list[float] = []

    def tick(done: int, total: int) -> None:
        del done, total
        clock.append(time.process_time())

    found = train_pack(tuple(replace(run, seed=seed) for seed in range(SEEDS)), tick)
    first = np.flatnonzero(np.asarray(found["step"]) == 0)
    start, reward = (float(np.mean(np.asarray(found[name])[first])) for name in ("accuracy", "reward/mean"))
    return start, reward, 1e3 * float(np.diff(clock)[:-1].min()) / SEEDS  # the last step is logged


def table() -> Table:
    """Return a row per task, and per source on running-sum."""
    rows = [("task", name, *measured(replace(BASE, **fields))) for name, fields in TASKS.items()]
    here = replace(BASE, **TASKS["running-sum"])
    rows += [(*key, *measured(replace(here, **fields))) for key, fields in SOURCES.items()]
    frame = pd.DataFrame(rows, columns=["kind", "name", "success", "reward", "ms"])
    return Table.of(NAME, frame, {"batch": "8 prompts, 8 responses each", "warm start": "300 steps"})


EXPERIMENT = Experiment(
    NAME,
    question="What does every task's base model get right, and what does a step cost with every source?",
    source="this project",
    differs="a stopwatch: other machines give other milliseconds",
    compute=table,
    keys=("kind", "name"),
    metrics=("success", "reward", "ms"),
)
