"""Ways of training a Hugging Face model on rollouts of an engine that samples from another distribution.

The engine takes the likeliest tokens that hold .9 of the mass (top-p), or samples at temperature 1.3; the
trainer knows both log-probabilities. `python -m analysis.worlds.real_engine_ways` chooses the rates.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from analysis.experiments.real.toy_for_real import MODELS
from analysis.worlds.hf_bases import make
from analysis.worlds.tuned_training import Family, Way
from testbed.config.run import Run

MODEL = MODELS[0]
"""A Qwen2 of 70,000 weights that writes running sums of six digits."""
SIZES: dict[str, Any] = {"steps": 60, "prompts": 8, "group": 8, "log_every": 20}
LAGS = (0, 16)
ENGINES: Mapping[str, dict[str, Any]] = {
    "top-p": {"mismatch": "top-p", "mismatch_args": (("p", 0.9),)},
    "hot": {"mismatch": "temperature", "mismatch_args": (("temperature", 1.3),)},
}
CORRECTIONS: Mapping[str, str] = {"none": "grpo", "tis": "tis", "mis": "mis", "icepop": "icepop"}
"""Recipes at their defaults. The anchor is the trainer's model at the version that wrote a token: the clip
limits staleness alone, and only the correction sees the engine.
"""
RATES = (3e-4, 5.6e-4, 1e-3)


def _way(lag: int, recipe: str, **engine: Any) -> Way:
    run: Callable[[float], Run] = lambda _: MODEL.run(  # noqa: E731
        **SIZES, lag=lag, recipe=recipe, anchor="snapshot", **engine
    )
    return Way(run, rates=RATES)


WAYS: Mapping[str, Way] = {
    **{f"exact, lag {lag}": _way(lag, "grpo") for lag in LAGS},
    **{
        f"{engine}, {correction}, lag {lag}": _way(lag, recipe, **fields)
        for engine, fields in ENGINES.items()
        for correction, recipe in CORRECTIONS.items()
        for lag in LAGS
    },
}
TRAINED = Family(WAYS, Path(__file__).with_suffix(".csv"))

if __name__ == "__main__":
    make((MODEL,))
    TRAINED.choose()
