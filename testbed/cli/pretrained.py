"""testbed pretrained: a small model that people know, from an installed package, as an ordinary folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pretrained(
    name: Annotated[str, typer.Argument(help="smollm2: SmolLM2-135M-Instruct.")],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Write a pretrained model for `testbed validate --model`, and problems of four families for `--data`.

    Nothing is downloaded: the model lies in an installed package. Problems go to OUT-problems.

    Example: testbed pretrained smollm2 out/smollm2
    """
    from envs.tokens.graded_problems import write_problems
    from testbed.cli import show
    from testbed.policies.hf.model_folder import parameters_of
    from testbed.policies.hf.pretrained import MODELS, write_pretrained

    write_pretrained(name, out)
    files = write_problems(out.with_name(f"{out.name}-problems"))
    found = {"folder": str(out), "weights": parameters_of(out), "about": MODELS[name].about}
    if json:
        show.as_json({**found, "problems": [str(path) for path in files]})
        return
    print(f"{out}: {found['about']}")
    print(f"Problems: {', '.join(str(path) for path in files)}")
    print(
        f"Next: testbed validate --model {out} --data {files[0]} --verifier number --lora --recipe grpo "
        "--lag 0 --steps 26 --learning-rate 3e-4 prompts=8 group=8 task_args.response_length=8"
    )
