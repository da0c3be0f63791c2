"""Ways of learning from an engine that is not the trainer's model: layers skipped, FP8, or noise on weights.

Models of four layers guess numbers in two turns from fresh batches, or from batches four steps old where
weights are noisy; in FP8 they write running sums of sixteen digits.
`python -m analysis.worlds.engine_ways` chooses the settings, arm by arm.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from analysis.arena.tasks import task
from analysis.experiments.engines.fp8_training import FP8, UNCORRECTED
from analysis.worlds.tuned_training import Family, Way
from analysis.worlds.tuned_training import with_recipe as _recipe
from testbed.config.run import Arguments, Run

DEEP = (("layers", 4), ("width", 16))
WHOLE, LONG = (replace(task(name), policy_args=DEEP) for name in ("guess", "sums"))
SKIPS: dict[str, Any] = {"mismatch": "skip-layers", "mismatch_args": (("ratio", 0.25),)}
"""A quarter of the layers is left out of every batch's rollouts, drawn anew."""
IN_FP8: dict[str, Any] = {"mismatch": FP8, "mismatch_args": (("matrices", "all"),)}
BOTH = replace(LONG, policy_args=(*DEEP, ("precision", f"{FP8} matrices=all")))
NOISY = replace(WHOLE, lag=4, mismatch="layer-noise", mismatch_args=(("matrices", "all"), ("sigma", 0.2)))
"""Weights off by a fifth of their root mean square."""
CAPS, CLIPS = (1, 2, 4, 8, 32, 128, 1024), (0.1, 0.2, 0.5, 0.9, 3.0)
SIZES = (0.03, 0.1, 0.3, 1.0, 3.0)
"""Of ALP's noise at the start; it learns from there."""


def _plain(start: Run, **fields: Any) -> Callable[[float], Run]:
    """Return value -> a policy gradient without weights."""
    return lambda _: replace(start, recipe="rec_oneside", recipe_args=UNCORRECTED, **fields)


def _perturbed(where: str) -> Callable[[float], Run]:
    def at(value: float) -> Run:
        args: Arguments = (*DEEP, ("perturb", value), ("perturb_where", where))
        return replace(NOISY, recipe="alp", policy_args=args)

    return at


WAYS: Mapping[str, Way] = {
    "whole": Way(_plain(WHOLE)),
    "skipping": Way(_plain(WHOLE, **SKIPS)),
    "skipping, token weights": Way(_recipe(WHOLE, "tis", "cap", ("level", "token"), **SKIPS), CAPS),
    "skipping, sequence weights": Way(_recipe(WHOLE, "tis", "cap", ("level", "sequence"), **SKIPS), CAPS),
    "skipping, dropped tokens": Way(_recipe(WHOLE, "icepop", **SKIPS)),
    "full precision": Way(_plain(LONG)),
    "fp8": Way(_plain(LONG, **IN_FP8)),
    "fp8 tis": Way(_recipe(LONG, "tis", "cap", **IN_FP8), CAPS),
    "fp8 on both sides": Way(_plain(BOTH)),
    "noisy grpo": Way(_recipe(NOISY, "grpo", "eps_low+eps_high"), CLIPS),
    "noisy tis": Way(_recipe(NOISY, "tis", "cap"), CAPS),
    "noisy alp": Way(_perturbed("all"), SIZES),
    "noisy alp, logits": Way(_perturbed("logits"), SIZES),
}
ENGINES = Family(WAYS, Path(__file__).with_suffix(".csv"))

if __name__ == "__main__":
    ENGINES.choose()
