"""Ways of learning from a base model's answers alone, without a KL term: what becomes of the failures.

Ten digits in order, of which the base gets all right once in fifty times; every batch is new, and the base's.
`python -m analysis.worlds.offline_ways` chooses the settings, arm by arm.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from analysis.arena.tasks import task
from analysis.worlds.tuned_training import Family, Way
from analysis.worlds.tuned_training import with_recipe as _recipe

OFFLINE = replace(task("sorted"), staleness="offline")
RATES = (1e-4, 3e-4, 1e-3, 3e-3)
BASELINES = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5)
"""Taken off rewards of 0 and 1: 0.5 makes them -1 and 1. On pilot seeds naive REINFORCE scores .57 at .005,
and at most .50 and .55 at .0025 and .001."""
WAYS: Mapping[str, Way] = {
    "TOPR": Way(_recipe(OFFLINE, "topr", "baseline"), BASELINES, rates=RATES),
    "naive REINFORCE": Way(_recipe(OFFLINE, "topr", "baseline", ("low", 1)), BASELINES, rates=RATES),
    "positives alone": Way(
        _recipe(OFFLINE, "topr", "", ("baseline", 0)), rates=(*RATES, 1.8e-4, 5.6e-4, 1.8e-3)
    ),
    "importance weights": Way(_recipe(OFFLINE, "importance", "cap"), (1, 2, 8, 32, 128), rates=RATES),
}
LEFT = Family(WAYS, Path(__file__).with_suffix(".csv"))

if __name__ == "__main__":
    LEFT.choose()
