"""Four huge batches, each used up before the next is made, against fresh data at every step."""

from dataclasses import replace

import pandas as pd

from analysis.experiments.lag.small_rates import KEYS, NAME, OLD
from analysis.lab import (
    Arm,
    Evidence,
    Experiment,
    Part,
    Plot,
    Stop,
    arms,
    at_floor,
    median_exceeds,
    median_within,
)
from analysis.sweeps.base_runs import SMALL
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

SOURCE = "KARL (2026), arXiv:2603.05218, section 4.2: OAPL on a few large batches"
PERIOD = 100
"""Batches that are made at once; 400 steps see 4 refreshes, and a mean age of 50."""
NOISE = 0.05
"""Of every matrix's root mean square: about the error of e4m3 weights and inputs."""
MARGIN = 0.05
ENGINES = {"off": (), "layer-noise": (("matrices", "all"), ("sigma", NOISE))}
ARMS: dict[str, Arm] = {
    f"{recipe}{' noise' if engine != 'off' else ''}": {"recipe": recipe, "mismatch": engine}
    for recipe in ("oapl", "grpo")
    for engine in ENGINES
}


def cells() -> tuple[Run, ...]:
    """OAPL on four batches at the rate of lag 64, GRPO on fresh data; their own engine and a noisy one."""
    oapl, grpo = tuned([replace(SMALL, recipe="oapl", lag=OLD), replace(SMALL, recipe="grpo")], NAME, KEYS)
    few = replace(oapl, lag=PERIOD // 2, staleness="periodic", staleness_args=(("period", PERIOD),))
    return tuple(
        replace(run, mismatch=engine, mismatch_args=args, seed=0)
        for run in (few, grpo)
        for engine, args in ENGINES.items()
    )


EXPERIMENT = Experiment(
    "few-huge-batches",
    question="Do four huge batches teach OAPL as much as fresh data teach GRPO, and does the engine matter?",
    source=SOURCE,
    differs="one task, not a mix; the same number of samples; no tools, no documents",
    cells=cells,
    stop=Stop(cap=32, begun_with=16),
    keys=("recipe", "mismatch", "seed"),
    metrics=("accuracy", "best", "start", "area", "collapsed", "rollout_corr/log_rho_token_p999"),
    margins={"accuracy that counts as equal": MARGIN},
    figure=Plot(
        "distribution",
        x="mismatch: engine of the rollouts",
        y="accuracy: final accuracy",
        arm=("recipe",),
        names={"off": "the trainer's own", "layer-noise": "noisy"},
    ),
    systems={"KARL": Part("few stale batches and a noisy engine on one task; not its mix of search tasks")},
)


@EXPERIMENT.claim()
def four_batches_of_oapl_end_above_fresh_grpo(table: pd.DataFrame) -> Evidence:
    """OAPL on 4 huge batches ends with a higher accuracy than GRPO on fresh data, on most seeds."""
    found = arms(table, "accuracy", ARMS)
    middle = found.median()
    note = f"median gain in final accuracy; medians {middle['oapl']:.3f} and {middle['grpo']:.3f}"
    return median_exceeds(found["oapl"] - found["grpo"], 0.0, note)


@EXPERIMENT.claim()
def a_noisy_engine_costs_neither_recipe_anything(table: pd.DataFrame) -> Evidence:
    """Rollouts from weights off by a twentieth of their root mean square leave the final accuracy of OAPL on
    4 huge batches, and of GRPO on fresh data, within 0.05 in the median over seeds.
    """
    found = arms(table, "accuracy", ARMS)
    pairs = {name: found[f"{name} noise"] - found[name] for name in ("oapl", "grpo")}
    medians = ", ".join(f"{name} {x_N.median():+.3f}" for name, x_N in pairs.items())
    floored = [name for name in pairs if at_floor([found[name], found[f"{name} noise"]], MARGIN)]
    return median_within(pairs, MARGIN, f"median change in accuracy: {medians}", floored)
