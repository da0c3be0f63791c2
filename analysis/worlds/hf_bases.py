"""Hugging Face models that experiments train before their runs, as ordinary folders."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from analysis.sweeps.base_runs import HF_RUN
from testbed.config.run import Run

MODELS = Path("out/models")
"""Their folder, relative to the working folder, so that a cell has one name on every machine."""


@dataclass(frozen=True)
class Made:
    """A small model from scratch, taught by the task's noisy teacher; see `testbed pretrained scratch`."""

    name: str
    task: str
    task_args: tuple[tuple[str, Any], ...]
    architecture: str
    noise: float
    steps: int = 600
    width: int = 64
    layers: int = 2

    @property
    def folder(self) -> Path:
        """The folder that `make` writes."""
        return MODELS / self.name

    def run(self, **fields: Any) -> Run:
        """Return a run that starts from this model; fields: those of the run that differ from `HF_RUN`."""
        base = replace(HF_RUN, model=str(self.folder), task=self.task, task_args=self.task_args)
        return replace(base, **fields)


def make(models: Iterable[Made]) -> None:
    """Train the models that have no weights yet, about half a minute each."""
    for model in models:
        if (model.folder / "model.safetensors").exists():
            continue
        from testbed.policies.hf.tiny_model import Lesson, train_base
        from testbed.worlds.task_registry import token_task

        lesson = Lesson(model.steps, model.noise)
        task = token_task(model.run())
        shape = (model.width, model.layers)
        train_base(model.folder, task, model.architecture, "char", 0, *shape, lesson=lesson)
