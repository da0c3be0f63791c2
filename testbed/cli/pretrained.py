"""testbed pretrained: write a small language model as a folder, from a package or trained here."""

from pathlib import Path
from typing import Annotated, Any

import typer

from testbed.cli import show
from testbed.config.run import Run
from testbed.errors import UserError
from testbed.words import named_values

SCRATCH = "scratch"


def pretrained(
    context: typer.Context,
    name: Annotated[
        str,
        typer.Argument(help="smollm2: SmolLM2-135M-Instruct. gemma3: Gemma 3 270M. scratch: trained here."),
    ],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME=VALUE]...", help="Arguments of the task (scratch).")
    ] = None,
    task: Annotated[
        str, typer.Option(help="For scratch, like all options below: token task (`testbed list tasks`).")
    ] = "reasoning-gym",
    architecture: Annotated[str, typer.Option(help="qwen2, llama, gpt-neox or gemma.")] = "qwen2",
    tokenizer: Annotated[str, typer.Option(help="char, or bpe learned from the task.")] = "char",
    width: Annotated[int, typer.Option(help="Width, a multiple of 16.")] = 64,
    layers: Annotated[int, typer.Option(min=1, help="Layers.")] = 2,
    vocabulary: Annotated[int, typer.Option(help="Largest vocabulary of the bpe tokenizer, tokens.")] = 512,
    steps: Annotated[int, typer.Option(min=0, help="Supervised steps.")] = 900,
    noise: Annotated[float, typer.Option(help="Probability that the teacher corrupts a step.")] = 0.3,
    sequences: Annotated[int, typer.Option(min=1, help="Sequences per step.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Step size of Adam.")] = 3e-3,
    seed: Annotated[int, typer.Option(help="Seed of the weights and the training data.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Write a small language model for `testbed run --model`; nothing is downloaded.

    smollm2 and gemma3 come from installed packages; problems of four families for `--data` go to
    OUT-problems.
    scratch is trained on a task's noisy solutions.

    Examples:
    testbed pretrained smollm2 out/smollm2

    testbed pretrained scratch out/base --task running-sum --architecture llama --width 128 digits=6
    """
    if name != SCRATCH:
        _refuse_options(context, name)
        _from_package(name, out, json)
        return
    from testbed.policies.hf.model_folder import parameters_of
    from testbed.policies.hf.special_tokens import finish_folder
    from testbed.policies.hf.tiny_model import Lesson, train_base
    from testbed.worlds.task_registry import token_task

    if out.exists() and any(out.iterdir()):
        raise UserError(f"{out} is not empty; nothing was written. Give a new folder.")
    run = _run(task, arguments or [], out, seed)
    lesson = Lesson(steps, noise, sequences, learning_rate)
    train_base(out, token_task(run), architecture, tokenizer, seed, width, layers, vocabulary, lesson)
    finish_folder(out)
    found = {"folder": str(out), "weights": parameters_of(out), "accuracy": _accuracy(run)}
    if json:
        show.as_json(found)
    else:
        print(f"{out}: {found['weights']:,} weights, mean reward {found['accuracy']} on held-out prompts.")


def _run(task: str, arguments: list[str], out: Path, seed: int) -> Any:
    given = tuple(named_values(arguments).items())
    return Run(task=task, task_args=given, policy="hf", model=str(out), seed=seed)


def _accuracy(run: Any) -> float | None:
    from testbed.worlds.build_world import build_world

    world = build_world((run,))
    accuracy = world.accuracy(world.initial())
    return None if accuracy is None else round(float(accuracy[0]), 3)


def _refuse_options(context: typer.Context, name: str) -> None:
    """Raise UserError for options of `scratch` with a model that is not trained here."""
    told = [key for key in context.params if key not in ("name", "out", "json")]
    given = [key for key in told if getattr(context.get_parameter_source(key), "name", "") == "COMMANDLINE"]
    if given:
        raise UserError(
            f"{', '.join(given)}: {name} is not trained here; such settings are those of scratch."
        )


def _from_package(name: str, out: Path, json: bool) -> None:
    """Write a model of an installed package, and problems next to it."""
    from envs.tokens.graded_problems import write_problems
    from testbed.policies.hf.model_folder import parameters_of
    from testbed.policies.hf.options import faster_dtype
    from testbed.policies.hf.shipped_models import MODELS, write_pretrained
    from testbed.policies.hf.text_task import load_tokenizer

    write_pretrained(name, out)
    chat = load_tokenizer(out).chat_template is not None
    files = write_problems(out.with_name(f"{out.name}-problems"), chat=chat)
    found = {"folder": str(out), "weights": parameters_of(out), "about": MODELS[name].about}
    if json:
        show.as_json({**found, "problems": [str(path) for path in files]})
        return
    print(f"{out}: {found['about']}")
    print(f"Problems: {', '.join(str(path) for path in files)}")
    print(
        f"Next: testbed run --model {out} --data {files[0]} --verifier number --lora recipe=grpo lag=0 "
        "steps=26 learning_rate=3e-4 prompts=8 group=8 task_args.response_length=4 "
        f"policy_args.dtype={faster_dtype()} policy_args.attention=eager{'' if chat else ' task_args.stop=.'}"
    )
