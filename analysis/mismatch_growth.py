"""Table of how a sequence's log-mismatch grows with its length in a small transformer, engine by engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.load import Table

NAME = "mismatch-growth"
LENGTHS = (1, 2, 4, 8, 16, 32, 64)
ENGINES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("bf16", {}),
    ("int8", {"matrices": "all"}),
    ("fp8-tensor", {"matrices": "all"}),
    ("fp8-tensor+fp8-activations", {"matrices": "all"}),
    ("logit-noise", {"sigma": 0.1}),
)
SEEDS = range(200, 224)
PROMPTS, GROUP = 32, 8
SPREAD = 3.0
"""Times the initial weights: laws are then far from uniform, as after training."""


def mismatch_growth(seeds: range = SEEDS) -> Table:
    """Return the deviation of log pi/mu over the first tokens of a response; rows: engine, seed, length.

    The toy LLM at random weights; 256 responses of 64 tokens per seed, drawn by the engine.
    """
    rows = [
        (name, seed, length, value)
        for name, arguments in ENGINES
        for seed, value_L in zip(seeds, _deviations(name, arguments, tuple(seeds)), strict=True)
        for length, value in zip(LENGTHS, value_L, strict=True)
    ]
    frame = pd.DataFrame(rows, columns=["engine", "seed", "length", "deviation"])
    about = {"task": f"running-sum, {LENGTHS[-1]} digits", "responses": PROMPTS * GROUP, "spread": SPREAD}
    return Table.of(NAME, frame, about)


def _deviations(name: str, arguments: dict[str, Any], seeds: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the standard deviation over responses of the summed log-mismatch, [seeds, LENGTHS]."""
    import torch

    from envs.catalog import token_task
    from envs.streams import uniforms
    from testbed import rng
    from testbed.mismatch import engine
    from testbed.mismatch.behavior import Behavior
    from testbed.policies.toy.transformer import ToyTransformer

    task = token_task("running-sum", {"digits": LENGTHS[-1], "modulus": 8})
    policy = ToyTransformer(task)
    theta_RP = SPREAD * policy.initial(seeds)
    behavior = Behavior(policy, engine(name, **arguments), seeds)
    drawn = [task.prompts(rng.generator(seed, "growth/prompts"), PROMPTS) for seed in seeds]
    prompt_RNQ = torch.from_numpy(np.stack(drawn))
    key_R = rng.keys(seeds, "growth/sampling")
    uniform = torch.from_numpy(uniforms(key_R, 0, PROMPTS * GROUP, task.response_length))
    token, mask, logp_mu = behavior.sample(theta_RP, prompt_RNQ, GROUP, uniform, 0)
    difference = policy.logp(theta_RP, prompt_RNQ, token, mask) - logp_mu
    sums_RBL = difference.double().cumsum(-1)[..., [length - 1 for length in LENGTHS]]
    found: NDArray[np.float64] = sums_RBL.std(1).numpy()
    return found
