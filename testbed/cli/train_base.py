"""testbed train-base: a small language model from scratch, as an ordinary folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def train_base(
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    task: Annotated[str, typer.Option(help="Token task: `testbed list tasks`.")] = "reasoning-gym",
    architecture: Annotated[str, typer.Option(help="qwen2, llama, gpt-neox or gemma.")] = "qwen2",
    tokenizer: Annotated[str, typer.Option(help="char, or bpe learned from the task.")] = "char",
    width: Annotated[int, typer.Option(help="Width, a multiple of 16.")] = 64,
    layers: Annotated[int, typer.Option(min=1, help="Layers.")] = 2,
    vocabulary: Annotated[int, typer.Option(help="Most tokens of the bpe tokenizer.")] = 512,
    steps: Annotated[int, typer.Option(min=0, help="Supervised steps.")] = 900,
    noise: Annotated[float, typer.Option(help="Chance that the teacher corrupts a step.")] = 0.3,
    sequences: Annotated[int, typer.Option(min=1, help="Sequences per step.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Step size of Adam.")] = 3e-3,
    seed: Annotated[int, typer.Option(help="Seed of weights and lessons.")] = 0,
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Arguments of the task.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Train a base model on a task's noisy solutions, for `testbed validate --model`.

    Examples:
    testbed train-base out/base --steps 900

    testbed train-base out/base --task running-sum --architecture llama --tokenizer bpe --width 128 digits=6
    """
    from envs.tokens.base import arguments as parsed
    from testbed.cli import show
    from testbed.config.run import Run
    from testbed.errors import UserError
    from testbed.policies.hf.model_folder import parameters_of
    from testbed.policies.hf.special_tokens import finish_folder
    from testbed.policies.hf.tiny_model import Lesson
    from testbed.policies.hf.tiny_model import train_base as train
    from testbed.worlds.build import build_world
    from testbed.worlds.tasks import token_task

    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; give a new folder, so that no model is written over.")
    try:
        given = tuple(parsed(" ".join(arguments or ())).items())
    except ValueError as error:
        raise UserError(str(error)) from error
    lesson = Lesson(steps, noise, sequences, learning_rate)
    run = Run(task=task, task_args=given, policy="hf", model=str(out), seed=seed)
    train(out, token_task(run), architecture, tokenizer, seed, width, layers, vocabulary, lesson)
    finish_folder(out)
    world = build_world((run,))
    accuracy = world.accuracy(world.initial())
    found = {
        "folder": str(out),
        "weights": parameters_of(out),
        "accuracy": None if accuracy is None else round(float(accuracy[0]), 3),
    }
    if json:
        show.as_json(found)
    else:
        print(f"{out}: {found['weights']:,} weights, mean reward {found['accuracy']} on held-out prompts.")
