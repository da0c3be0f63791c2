"""Rollouts in FP8 or under strong noise, a trainer in full precision, and two repairs."""

from __future__ import annotations

from dataclasses import replace

from testbed.config.run import Arguments, Run, grid
from testbed.sweeps import TOY, sweep_table

UNCORRECTED: Arguments = (
    ("advantage", "group_std"),
    ("aggregation", "token_mean"),
    ("eps_low", 1.0),
    ("eps_high", 1e9),
    ("weight", "none"),
)
"""The recipe rec_oneside with a region that holds every token: the recipe tis without its weight."""
FP8 = "fp8-tensor+fp8-activations"
"""Weights and the inputs of linear layers in e4m3; embeddings and head too."""
NOISE = 0.2
"""Of every matrix's root mean square: seven times the error of e4m3 weights."""


@sweep_table(
    "fp8-training",
    source="Jet-RL, arXiv:2601.14243 (abstract); truncated importance sampling as in verl's documentation",
    keys=("mismatch", "policy_args", "recipe", "seed"),
    metrics=(
        "accuracy",
        "best",
        "start",
        "collapsed",
        "mean rollout_corr/ess_kish_sequence_raw",
        "mean rollout_corr/kl_mu_pi_k3",
        "max rollout_corr/log_rho_token_p999",
    ),
)
def cells() -> tuple[Run, ...]:
    """The toy LLM with rollouts in full precision, FP8 or noise, with and without TIS; FP8 on both sides."""
    plain = replace(TOY, recipe="rec_oneside", recipe_args=UNCORRECTED)
    fp8 = replace(plain, mismatch=FP8, mismatch_args=(("matrices", "all"),))
    noise = replace(plain, mismatch="layer-noise", mismatch_args=(("matrices", "all"), ("sigma", NOISE)))
    both = replace(plain, policy_args=(("precision", f"{FP8} matrices=all"),))
    tis = [replace(run, recipe="tis", recipe_args=()) for run in (fp8, noise)]
    return tuple(cell for run in (plain, fp8, noise, both, *tis) for cell in grid(run, seed=range(10, 26)))
