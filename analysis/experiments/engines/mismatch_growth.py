"""Table of how a sequence's log-mismatch grows with its length in a small transformer, engine by engine."""

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.lab import Evidence, Experiment, Part, Plot, must_exceed, must_vanish
from analysis.tables.committed import Table
from envs.catalog import token_task
from envs.streams import uniforms
from testbed import rng

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
MARGIN = 0.05
ROUNDING = ("bf16", "int8", "fp8-tensor", "fp8-tensor+fp8-activations")
"""Engines whose error stays what it is for a whole response."""


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


EXPERIMENT = Experiment(
    NAME,
    question="Does a sequence's log-mismatch grow as the root of its length in a transformer?",
    source="rollout precision as in Jet-RL, arXiv:2601.14243; growth derived",
    differs="a transformer of 26,000 weights at random, with emulated number formats",
    compute=mismatch_growth,
    keys=("engine", "seed", "length"),
    metrics=("deviation",),
    margins={"distance of an exponent from 1/2 that counts as none": MARGIN},
    figure=Plot(
        "curves by arm",
        x="length: tokens of a response",
        y="deviation: deviation of log π/μ, nats",
        arm=("engine",),
        log="xy",
    ),
    see=("log-mismatch-outgrows-root-t-where-its-drift-varies", "log-mismatch-grows-as-root-t"),
    systems={"Jet-RL": Part("how its mismatch grows with the horizon, up to 64 tokens; no training, no GPU")},
)


@EXPERIMENT.claim(source="rollout precision as in Jet-RL, arXiv:2601.14243; growth derived")
def precision_noise_grows_as_root_t_in_a_transformer(table: pd.DataFrame) -> Evidence:
    """In a small transformer the standard deviation of log(pi/mu) over the first T tokens grows as a power of
    T within 0.05 of 1/2, T from 1 to 64: for weights in bf16, int8 and e4m3, for e4m3 activations too, and
    for logit noise.
    """
    slope = _exponents(table)
    means = ", ".join(f"{name} {mean:.3f}" for name, mean in slope.mean().items())
    pairs = {str(name): slope[name].to_numpy() - 0.5 for name in slope}
    return must_vanish(pairs, MARGIN, f"distance of the mean exponent from 1/2: {means}")


@EXPERIMENT.claim(
    source="a perturbation that stays has a drift that varies; see log-mismatch-outgrows-root-t"
)
def roundings_outgrow_root_t_in_a_transformer(table: pd.DataFrame) -> Evidence:
    """There the exponent of roundings, which stay what they are while a response is written, is above 1/2 on
    average over bf16, int8, e4m3 weights, and e4m3 weights with activations.
    """
    slope = _exponents(table)
    mean_N = slope[list(ROUNDING)].mean(axis=1)
    return must_exceed(mean_N, 0.5, f"mean exponent; logit noise {slope['logit-noise'].mean():.3f}", null=0.5)


def _exponents(table: pd.DataFrame) -> pd.DataFrame:
    """Return least-squares slopes of log deviation in log length, a row per seed, a column per engine."""
    wide = table.pivot(index=["engine", "seed"], columns="length", values="deviation")
    length_L = np.log(wide.columns.to_numpy(dtype=np.float64))
    centered_L = length_L - length_L.mean()
    slope_N = np.log(wide.to_numpy()) @ centered_L / (centered_L @ centered_L)
    return pd.Series(slope_N, wide.index).unstack("engine")
