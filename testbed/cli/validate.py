"""testbed validate: the same recipes and lags on a user's own local causal language model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def validate(
    model: Annotated[Path, typer.Option(help="Folder of a local causal LM: config.json and safetensors.")],
    task: Annotated[str, typer.Option(help="Token task: `testbed list tasks`.")] = "reasoning-gym",
    data: Annotated[
        Path | None, typer.Option(help="Your own problems, JSON lines of prompt and answer, as the task.")
    ] = None,
    verifier: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="Judge of --data: exact, number, choice, reasoning-gym or FILE.py:FUNCTION."
        ),
    ] = "exact",
    dedupe: Annotated[
        bool, typer.Option("--dedupe", help="Of lines of --data with one prompt, keep the first.")
    ] = False,
    recipe: Annotated[list[str] | None, typer.Option(help="Recipe; give it several times.")] = None,
    lag: Annotated[
        list[int] | None, typer.Option(help="Lag in optimizer steps; give it several times.")
    ] = None,
    steps: Annotated[int, typer.Option(min=1, help="Optimizer steps.")] = 100,
    seed: Annotated[list[int] | None, typer.Option(help="Seed; give it several times.")] = None,
    learning_rate: Annotated[float, typer.Option(help="Step size of Adam.")] = 1e-5,
    lora: Annotated[bool, typer.Option(help="Train adapters of rank 16 instead of all weights.")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[FIELD=VALUE]...", help="Other fields of Run.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Results folder.")] = Path("results/validate"),
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Take RL steps on your own model with the bench's recipes; print and store the same metrics.

    Examples:
    testbed validate --model ./my-model --recipe grpo --recipe m2po --lag 0 --lag 8

    testbed validate --model ./my-model --task running-sum --device cuda prompts=16 task_args.digits=6

    testbed validate --model ./my-model --data mine.jsonl --verifier number --lora
    """
    from dataclasses import replace

    from analysis.sweeps.base_runs import HF_RUN
    from testbed.cli.run import finish, warn
    from testbed.config.run import grid
    from testbed.config.toml_file import expand
    from testbed.execution.progress import choose
    from testbed.execution.runner import run_sweep
    from testbed.worlds.tasks import pin_data

    of_data = {"file": str(data), "verifier": verifier} | ({"dedupe": True} if dedupe else {})
    given = () if data is None else tuple(of_data.items())
    cells = grid(
        replace(HF_RUN, model=str(model), task_args=given, policy_args=(("lora", 16),) if lora else ()),
        task=[task if data is None else "jsonl"],
        steps=[steps],
        learning_rate=[learning_rate],
        device=[device],
        recipe=recipe or ["grpo"],
        lag=lag or [0, 8],
        seed=seed or [0],
    )
    cells = tuple(map(pin_data, expand(cells, overrides or [])))
    warn(cells, json)
    finish(out, run_sweep(cells, out, workers=1, progress=choose(json)), json)
