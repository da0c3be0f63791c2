"""All that an experiment's file needs: `from analysis.lab import Experiment, exact, paired, …`."""

# ruff: noqa: F401

from analysis.declared_plot import Plot, strips
from analysis.experiment import Check, Experiment, Part, Stop, Tuned
from analysis.judging.comparisons import (
    Arm,
    arm,
    arms,
    at_floor,
    happens_more_often,
    happens_mostly,
    median_within,
    paired,
    short_of,
    shown,
    sooner,
)
from analysis.judging.e_values import Evidence, exact
from analysis.judging.replication import (
    RUNS,
    Frame,
    Groups,
    Keys,
    Rows,
    Seeds,
    averaged,
    columns,
    combinations,
    difference,
    level,
    merged,
    of_keys,
    of_seeds,
    repeated,
    runs_of,
    slopes,
)
from analysis.worlds.pilots import PILOT, Grid, Settings, TunedArms, ask, asks, by_world, inside, tuned
from envs.arrays import Bools, Floats, Ints
from testbed.rng import generator, key, keys
