"""Cells of `testbed run --model`: train a local causal language model on a task or a file of problems."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.config.run import MODEL_RUN, grid
from testbed.errors import UserError

if TYPE_CHECKING:
    from testbed.config.run import Run

EXACT = "exact"
"""The default judge of --data."""

Model = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", help="Train this local causal LM: config.json and safetensors."),
]
Data = Annotated[
    Path | None, typer.Option(help="With --model: problems, JSON lines of prompt and answer, as the task.")
]
Verifier = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Judge of --data: exact, number, choice, reasoning-gym or FILE.py:FUNCTION."
    ),
]
Dedupe = Annotated[bool, typer.Option("--dedupe", help="Keep only the first line of --data for each prompt.")]
Lora = Annotated[
    bool, typer.Option("--lora", help="With --model: train adapters of rank 16 instead of all weights.")
]


def own_model(model: Path, data: Path | None, verifier: str, dedupe: bool, lora: bool) -> "tuple[Run, ...]":
    """Return a model's default cells: GRPO at lags 0 and 8, one seed.

    Raises UserError for options about --data without it.
    """
    if data is None and (dedupe or verifier != EXACT):
        raise UserError("--verifier and --dedupe are about the problems of --data. Give --data FILE too.")
    of_data = {"file": str(data), "verifier": verifier} | ({"dedupe": True} if dedupe else {})
    base = replace(MODEL_RUN, model=str(model), policy_args=(("lora", 16),) if lora else ())
    if data is not None:
        base = replace(base, task="jsonl", task_args=tuple(of_data.items()))
    return grid(base, recipe=["grpo"], lag=[0, 8], seed=[0])


def refuse_without_model(**given: object) -> None:
    """Raise UserError for options that require --model without it."""
    if words := [f"--{name}" for name, value in given.items() if value]:
        raise UserError(f"{' and '.join(words)}: these options need --model FOLDER, the folder of the model.")
