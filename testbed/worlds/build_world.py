"""Build the world of a pack of runs, and report facts about its policy before it is built."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from testbed.config.argument_types import wrong_arguments
from testbed.config.run import Run
from testbed.errors import UserError, refuse
from testbed.policies.hf.json_files import read_json
from testbed.policies.hf.model_folder import (
    adapter_parameters,
    check_model_folder,
    parameters_of,
    refuse_unloadable,
)
from testbed.policies.hf.options import check_options
from testbed.policies.hf.text_task import SURVEY, task_for_model
from testbed.policies.policy import Policy, Reweighted
from testbed.policies.toy.toy_transformer import ToyTransformer
from testbed.worlds.loss_noise import perturb_of
from testbed.worlds.rounded import rounding_of, split_precision
from testbed.worlds.tabular_world import TabularRuns, build_tabular_policy
from testbed.worlds.task_registry import token_task
from testbed.worlds.tokens import TokenRuns, build_token_policy
from testbed.worlds.world import World

KEPT = 16
"""Approximate numbers per token, layer and unit of width kept for a Hugging Face model's backward pass."""


def build_world(runs: tuple[Run, ...]) -> World:
    """Return the world in which cells of equal shape run stacked."""
    return TabularRuns(runs) if runs[0].policy == "tabular" else TokenRuns(runs)


def check_policy(run: Run) -> None:
    """Raise UserError if the run's policy is invalid; inspects a Hugging Face model without loading it."""
    if run.policy != "hf":
        _policy(run)
        return
    from testbed.policies.hf.hf_policy import HuggingFacePolicy

    folder = check_model_folder(run.model)
    given, precision = split_precision(run)
    rounding_of(precision)
    _refuse_arguments(run, HuggingFacePolicy)
    options: dict[str, Any] = dict(given)
    check_options(**options)
    refuse_unloadable(folder)
    _refuse_short_context(run)
    if parameters_of(folder) <= TRIED:
        _try(run, given)


def _try(run: Run, given: dict[str, Any]) -> None:
    """Load the model once on the CPU; raise UserError as its pack would."""
    from testbed.policies.hf.hf_policy import HuggingFacePolicy

    options = {name: value for name, value in given.items() if name not in ("ranks", "engine")}
    perturb_of(options)
    HuggingFacePolicy(run.model, task_for_model(token_task(run), run.model), **options)


def _refuse_short_context(run: Run) -> None:
    """Raise UserError if sampled prompts plus the longest response exceed the model's context."""
    config = read_json(check_model_folder(run.model) / "config.json")
    most = config.get("max_position_embeddings", config.get("n_positions"))
    if not isinstance(most, int):
        return
    task = task_for_model(token_task(run), run.model)
    draw = np.random.Generator(np.random.Philox(key=0))
    prompt_NQ = np.concatenate([task.prompts(draw, SURVEY), task.held_out_prompts(draw, SURVEY)])
    longest = prompt_NQ.shape[1] - int((prompt_NQ != task.pad_token).any(0).argmax())
    needed = longest + task.response_length - 1  # the last token is written, not read
    if needed > most:
        raise UserError(
            f"task '{run.task}' needs {needed} positions, prompts of up to {longest} tokens and responses of "
            f"up to {task.response_length}; the model in '{run.model}' has {most}. Take shorter prompts or "
            "responses (task_args), or a model with a longer context."
        )


TRIED = 2_000_000
"""Most weights of a model that a sweep loads once before it writes anything: about a second."""
NOT_GIVEN = {"toy": ("task", "device", "dtype"), "hf": ("model_path", "task", "device")}
"""Constructor parameters set by other fields of Run."""


def _refuse_arguments(run: Run, constructor: Callable[..., object]) -> None:
    """Raise UserError for policy_args that the constructor lacks, or takes only with another type."""
    given, _ = split_precision(run)
    if run.policy == "toy":
        given.pop("roles", None)
    elif "ranks" in given:
        from testbed.policies.hf.shared_batches import checked_ranks

        checked_ranks(given.pop("ranks"))
    perturb_of(given)
    refuse(wrong_arguments(f"policy '{run.policy}'", constructor, given, NOT_GIVEN[run.policy]))


def policy_size(run: Run) -> tuple[int, int, int]:
    """Return parameters P, bytes per weight and approximate bytes that one batch keeps for the backward pass.

    Parameters and bytes are 0 for an unreadable model folder. Activations grow with layers, width and columns
    (prompt tokens once per group, response tokens once per response), a toy's also with columns times
    positions.
    """
    sequences = run.prompts * run.group
    if run.policy == "hf":
        return _model_size(run, sequences)
    policy = _policy(run)
    inside = policy
    while isinstance(inside, Reweighted):
        inside = inside.policy
    size = policy.dtype.itemsize
    if not isinstance(inside, ToyTransformer):
        return policy.parameters, size, 0
    shape, task = inside.shape, inside.task
    answers = sequences * (task.response_length - 1)
    columns = run.prompts * task.prompt_length + answers
    kept = columns * shape.layers * (7 * shape.width + 2 * shape.hidden)
    read = columns * (shape.vocabulary + task.prompt_length + task.response_length)  # see `embed`
    return policy.parameters, size, size * (kept + read + 2 * shape.vocabulary * (run.prompts + answers))


def _policy(run: Run) -> Policy:
    if run.policy == "toy":
        _refuse_arguments(run, ToyTransformer)
    on_cpu = replace(run, device="cpu")  # a weightless policy, for its sizes
    return (build_tabular_policy if run.policy == "tabular" else build_token_policy)(on_cpu)[1]


def _model_size(run: Run, sequences: int) -> tuple[int, int, int]:
    task = token_task(run)
    config = read_json(check_model_folder(run.model) / "config.json")
    layers, width = (
        next((int(config[name]) for name in names if isinstance(config.get(name), int)), 0)
        for names in (("num_hidden_layers", "n_layer"), ("hidden_size", "n_embd"))
    )
    columns = run.prompts * task.prompt_length + sequences * task.response_length
    given = dict(run.policy_args)
    micro_tokens = given.get("micro_tokens", 0)
    columns = min(columns, int(micro_tokens)) if micro_tokens else columns
    size = 8 if given.get("dtype") == "float64" else 4
    narrow = given.get("dtype") in ("bfloat16", "float16")
    activations = (2 if narrow else size) * columns * layers * width * KEPT
    parameters = parameters_of(run.model)
    if not given.get("lora") and not given.get("adapter"):
        # A 16-bit copy of the weights and its gradient are held besides the full ones.
        return parameters, size, activations + (4 * parameters if narrow else 0)
    frozen = parameters * (2 if narrow else size)
    return adapter_parameters(run.model, given), size, activations + frozen
