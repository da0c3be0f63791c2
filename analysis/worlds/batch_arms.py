"""Ways of learning from batches: fresh and periodic ones, with a critic or without.

The tasks are the arena's: guesses from fresh batches, running sums from periodic ones. Every arm has its best
rate and value of one knob; `python -m analysis.worlds.batch_arms` chooses them, arm by arm.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from analysis.arena.tasks import task
from analysis.worlds.tuned_training import Family, Way
from analysis.worlds.tuned_training import with_recipe as _recipe

FRESH = task("guess")
"""Where the greedy response is right as often as a sampled one, on .37 of prompts; on sums it is right on .87
and a sampled one on .003, which no language model is like."""
PERIODIC = replace(task("sums"), staleness="periodic", lag=25, steps=400, log_every=40)
"""Eight generations of 51 batches each in 400 steps, which is lag 25 in the mean."""
CLIPS, BETAS, CAPS = (0.1, 0.2, 0.5, 0.9, 3.0), (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0), (1, 2, 4, 8, 32)
WAYS: Mapping[str, Way] = {
    "remax": Way(_recipe(FRESH, "remax", "kappa"), (0.0, 1e-4, 1e-3, 1e-2, 0.1), True),
    "reinforce, mean baseline": Way(_recipe(FRESH, "reinforce")),
    "ppo": Way(_recipe(FRESH, "ppo", "lam", critic="head"), (0.5, 0.8, 0.95, 0.99, 1.0), True),
    "periodic grpo": Way(_recipe(PERIODIC, "grpo", "eps_low+eps_high"), CLIPS),
    "periodic oapl": Way(_recipe(PERIODIC, "oapl", "beta2"), BETAS),
    "periodic tis": Way(_recipe(PERIODIC, "tis", "cap"), CAPS),
}
BATCHES = Family(WAYS, Path(__file__).with_suffix(".csv"))

if __name__ == "__main__":
    BATCHES.choose()
