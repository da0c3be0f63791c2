"""testbed demo: a tour of the bench, in minutes on two cores."""

import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from analysis.commands.evidence_commands import say
from analysis.commands.summary_table import print_summary, summarize
from analysis.experiment import sweep
from analysis.sweeps.base_runs import HF_RUN
from testbed.cli import show
from testbed.errors import UserError, counted
from testbed.execution.progress import choose

if TYPE_CHECKING:
    from testbed.config.run import Run

TASK, SEEDS = "sorted", (0, 1, 2, 3)
ARMS = {"grpo": (0, 64), "m2po": (64,), "vcpo": (64,), "topr": (64,), "reinforce": (64,)}
"""Of the arena, by lag; each runs at the setting that the arena's tuning chose for it."""
CAPTION = (
    f"arena.png: accuracy on held-out prompts along training; lines: medians of {len(SEEDS)} seeds, bands: "
    "their range. Differences within the bands say nothing: docs/arena.md has 32 seeds and more."
)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for results and figures.")] = Path("out/demo"),
    workers: Annotated[
        int | None, typer.Option(min=0, help="Worker processes; default one per core.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """See off-policy RL break and hold: exact ESS collapse, a part of the arena, a real model.

    What the folder already holds is not run again.
    """
    began = time.monotonic()
    parts: tuple[tuple[str, str, tuple[Run, ...] | None], ...] = (
        ("1/3 A chain MDP under lag: exact and sampled ESS", "ess-collapse", sweep("ess-collapse")),
        (
            f"2/3 A toy LLM sorts digits: {len(ARMS)} tuned recipes at lag 64, GRPO on fresh data",
            "arena",
            arena(),
        ),
        ("3/3 A Hugging Face model, trained here, on reasoning-gym sums", "real-model", None),
    )
    if find_spec("reasoning_gym") is None:
        parts = parts[:2]
        say("3/3 is left out: it needs pip install 'off-policy-testbed[tasks]'", quiet or json)
    for title, name, cells in parts:
        say(title, quiet or json)
        _run(cells or _real_cells(out / "tiny-model", quiet or json), out / name, workers, quiet or json)
    rows = [row for _, name, _ in parts[1:] for row in summarize(out / name)]
    saved = _draw(out, quiet or json)
    if json:
        show.as_json({"folder": str(out), "summary": rows, "figures": saved})
        return
    print_summary(rows)
    print("\n".join(["", *saved]))
    print(CAPTION)
    print("Captions of the others: " + str(out / "figures" / "manifest.json"))
    print(f"\nDone in {time.monotonic() - began:.0f} s. Results and figures are in {out}.")


def _run(cells: "tuple[Run, ...]", folder: Path, workers: int | None, quiet: bool) -> None:
    from testbed.execution.runner import run_sweep

    progress = choose(quiet)
    progress.lines = False  # a bar says enough of a sweep that takes seconds
    status = run_sweep(cells, folder, workers=workers, progress=progress)
    if status.failed:
        raise UserError(f"{counted(status.failed, 'cell')} failed. To see why: testbed status {folder}")


def _real_cells(folder: Path, quiet: bool) -> "tuple[Run, ...]":
    """Train the tiny model unless it is there, and return the cells that fine-tune it."""
    from analysis.experiments.real.real_model import ONE_DIGIT, demo_model
    from testbed.worlds.task_registry import token_task

    if not (folder / "model.safetensors").exists():
        from testbed.policies.hf.tiny_model import train_base

        began = time.monotonic()
        train_base(folder, token_task(replace(HF_RUN, task_args=ONE_DIGIT)))
        say(f"trained and saved a Qwen2-shaped model in {time.monotonic() - began:.0f} s: {folder}", quiet)
    return demo_model(str(folder))


def arena() -> "tuple[Run, ...]":
    """Return the cells of the arena's part that the demo runs."""
    from analysis.arena import table
    from analysis.arena.chosen_settings import cells_of

    return cells_of(table.load(), TASK, ARMS, SEEDS)


def _draw(out: Path, quiet: bool) -> list[str]:
    from paper_figs import plot
    from paper_figs.save_figures import figures

    say("Drawing figures", quiet)
    paths: list[str] = []
    for name, source in (("ess-collapse", "ess-collapse"), ("ratio-tails", "arena")):
        paths += [str(saved.png) for saved in figures((name,), out / source, out / "figures")]
    with plot.style():
        curves = plot.KINDS["curves"](plot.load(out / "arena"), arm=["recipe"], by=["lag"])
        return [*paths, str(plot.save(curves, out / "figures" / "arena.png"))]
