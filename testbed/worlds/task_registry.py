"""Wrap the catalog of `envs` in the project's registry: nearest names, checked arguments."""

from dataclasses import replace
from functools import cache
from typing import TypeAlias

import torch
from torch import Tensor

from envs.catalog import worlds
from envs.finite_mdp import FiniteMDP
from envs.tokens.jsonl import file_digest
from envs.tokens.token_task import TokenTask
from envs.tokens.token_tree import TokenTree
from testbed.config.argument_types import wrong_types
from testbed.config.run import Run, Scalar
from testbed.errors import UserError, listed, refuse
from testbed.registry import Entry, Registry
from testbed.user_files import in_a_file, outside_constructor


@cache
def tasks() -> Registry:
    """Return the registry of every world and token task in `envs`."""
    registry = Registry("task")
    for name, constructor in worlds().items():
        registry.add(Entry(name, constructor, source=constructor.__module__))
    return registry


Task: TypeAlias = FiniteMDP | TokenTree | TokenTask
"""Entries of the catalog: worlds with a table of states, and token tasks."""


def task_entry(name: str) -> Entry:
    """Return the world, token task or `path/to/file.py:Class` of that name; raise UserError for none."""
    if in_a_file(name):
        return outside_constructor(name)
    return tasks()[name]


def build_task(name: str, **arguments: Scalar) -> Task:
    """Return a world or token task; an unknown name or argument, or a refused value, raises UserError."""
    entry = task_entry(name)
    build = entry.bind(**arguments)
    refuse(wrong_types(f"task '{name}'", entry.function, arguments))
    try:
        made: Task = build()
    except (ValueError, TypeError, ImportError) as error:
        raise UserError(f"task '{name}' cannot be made with {listed(arguments)}: {error}") from error
    if not isinstance(made, FiniteMDP | TokenTree | TokenTask):
        raise UserError(
            f"task '{name}' makes a {type(made).__name__}, expected a TokenTask, FiniteMDP or TokenTree."
        )
    return made


def tabular_task(run: Run) -> FiniteMDP | TokenTree:
    """Return the world of a run with policy 'tabular'; raise UserError if it has no table of states."""
    task = build_task(run.task, **dict(run.task_args))
    if isinstance(task, TokenTask):
        raise UserError(
            f"task '{run.task}' is a token task, which has no table of states. Set policy to 'toy' or 'hf', "
            f"or take the token tree: task 'tree' with task_args.task={run.task}."
        )
    return task


def token_task(run: Run) -> TokenTask:
    """Return the task of a run with a token policy; raise UserError if it is not written in tokens."""
    task = build_task(run.task, **dict(run.task_args))
    if not isinstance(task, TokenTask):
        raise UserError(f"task '{run.task}' is a tabular world; set policy to 'tabular'.")
    if run.policy == "hf" and any(task.tool_T):
        raise UserError(f"task '{run.task}' has a tool, which only policies 'toy' and 'tabular' can answer.")
    return task


def turns_of(task: Task) -> tuple[int, ...]:
    """Return the turn of every position of a response; () in a task of one turn."""
    return () if isinstance(task, FiniteMDP) else task.turn_T


def tasks_with_turns() -> list[str]:
    """Return the names of the token tasks that have several turns."""
    makers = {name: entry.function for name, entry in tasks().items()}
    classes = {name: made for name, made in makers.items() if isinstance(made, type)}
    return [name for name, made in classes.items() if issubclass(made, TokenTask) and made.several_turns]


def spread(turn_T: tuple[int, ...], token_RBT: Tensor) -> Tensor | None:
    """Repeat the turns of a response for every sequence, int64 [R, B, T]; None for ()."""
    if not turn_T:
        return None
    return torch.tensor(turn_T, device=token_RBT.device).expand(token_RBT.shape)


def pin_data(run: Run) -> Run:
    """Add the digests of file and verifier to the arguments of a run on a user's file; return others as is.

    A file that changes later is then refused, so that results never mix versions.
    """
    arguments = dict(run.task_args)
    if run.task != "jsonl" or not arguments.get("file"):
        return run

    try:
        for name in ("file", "verifier"):
            given = str(arguments.get(name, ""))
            if given and "#" not in given and (name == "file" or ".py:" in given):
                path = given if name == "file" else given.rpartition(":")[0]
                arguments[name] = f"{given}#{file_digest(path)}"
    except ValueError as error:
        raise UserError(str(error)) from error
    return replace(run, task_args=tuple(sorted(arguments.items())))


def longest_response(run: Run) -> int:
    """Return the most tokens or actions of a sequence; raise UserError as `task_for` does."""
    tabular = run.policy == "tabular"
    return int(tabular_task(run).horizon if tabular else token_task(run).response_length)


def task_for(run: Run) -> Task:
    """Return the run's task; raise UserError if its policy cannot act in it."""
    return tabular_task(run) if run.policy == "tabular" else token_task(run)
