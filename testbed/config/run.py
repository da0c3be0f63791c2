"""Run: the only schema and the only place with defaults. A sweep is grid(Run(...), axis=[...])."""

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from testbed.errors import unknown

Scalar: TypeAlias = bool | int | float | str
Arguments: TypeAlias = tuple[tuple[str, Scalar], ...]

RUN_VERSION = 1
"""Increased when the same Run gives other numbers; part of every cell id."""

YOUNGER = (
    "staleness", "staleness_args", "age_limit", "too_old", "mismatch", "mismatch_args", "anchor",
    "anchor_args", "prefix", "prefix_args", "critic", "critic_args", "teacher", "teacher_args", "guide",
    "guide_args", "verifier", "verifier_args", "optimizer_args",
)  # fmt: skip
"""Fields added after RUN_VERSION 1: at their default the id ignores them, so no older result is renamed."""

OLD_NAME, NEW_NAME = "law", "distribution"
RENAMED = {"staleness_args": "staleness", "prefix_args": "prefix"}
"""Fields whose argument `distribution` was `law` in release 0.1, and the field that names the function.

A Run turns the old name into the new one until release 0.3. Ids keep the old one: no older result is renamed.
"""


@dataclass(frozen=True)
class Run:
    """One training run, a cell of a sweep: all settings that determine its numbers, and only those."""

    task: str = "bandit"
    """World the policy learns in: `testbed list tasks`."""
    task_args: Arguments = ()
    """Arguments of the task's constructor, as (name, value) pairs."""
    policy: Literal["tabular", "toy", "hf"] = "tabular"
    """Tabular softmax, small transformer, or Hugging Face causal LM."""
    policy_args: Arguments = ()
    """Arguments of the policy's constructor, as (name, value) pairs."""
    model: str = ""
    """Folder of a Hugging Face model; only with policy "hf"."""
    recipe: str = "grpo"
    """Advantage, objective, aggregation and step-size rule under one name: `testbed list recipes`."""
    recipe_args: Arguments = ()
    """Hyperparameters of the recipe's objective, as (name, value) pairs."""
    lag: int = 0
    """Optimizer steps between the weights that generate and the weights that are updated; the mean, rounded
    up, for a schedule that mixes ages."""
    staleness: str = "exact"
    """Lag schedule: the age of every sample: `testbed list schedules`."""
    staleness_args: Arguments = ()
    """Arguments of the schedule, as (name, value) pairs."""
    age_limit: int = -1
    """Age above which a sample is too old; -1 sets no limit."""
    too_old: Literal["drop", "wait", "discard", "truncate"] = "drop"
    """Treatment of samples and tokens that are too old: `testbed list schedules`."""
    mismatch: str = "off"
    """Engine that generates, if it differs from the trainer's: `testbed list mismatches`."""
    mismatch_args: Arguments = ()
    """Arguments of that engine, as (name, value) pairs."""
    anchor: str = "recipe"
    """The proximal policy around which objectives clip: `testbed list anchors`."""
    anchor_args: Arguments = ()
    """Arguments of the anchor, as (name, value) pairs."""
    prefix: str = "off"
    """Prefixes after which responses begin: `testbed list prefixes`."""
    prefix_args: Arguments = ()
    """Arguments of the prefixes, as (name, value) pairs."""
    critic: str = "none"
    """The critic that advantages read values from: `testbed list critics`."""
    critic_args: Arguments = ()
    """Arguments of the critic, as (name, value) pairs."""
    teacher: str = "start"
    """The reference policy, which also writes demonstrations: `testbed list teachers`."""
    teacher_args: Arguments = ()
    """Arguments of the teacher, as (name, value) pairs."""
    guide: str = "none"
    """The rule that replaces members of groups by other answers: `testbed list guides`."""
    guide_args: Arguments = ()
    """Arguments of the guide, as (name, value) pairs."""
    verifier: str = "task"
    """Source of training rewards; `accuracy` always uses the task's score: `testbed list verifiers`."""
    verifier_args: Arguments = ()
    """Arguments of the verifier, as (name, value) pairs."""
    seed: int = 0
    """Seed of every random stream of the run."""
    steps: int = 200
    """Optimizer steps."""
    prompts: int = 32
    """Prompts (start states, contexts) per step."""
    group: int = 8
    """Responses per prompt."""
    learning_rate: float = 0.1
    """Step size of the optimizer."""
    optimizer: Literal["sgd", "adam"] = "sgd"
    """Plain gradient descent or Adam (beta 0.9, 0.999, eps 1e-8)."""
    optimizer_args: Arguments = ()
    """Arguments of Adam, as (name, value) pairs: beta1, beta2, eps."""
    max_grad_norm: float = 0.0
    """Gradient norm above which the gradient is scaled down; 0 switches it off."""
    warm_start_steps: int = 0
    """Supervised steps on the noisy teacher before RL starts; only with policy "toy"."""
    teacher_noise: float = 0.2
    """Probability that the teacher corrupts a step."""
    evaluation_prompts: int = 64
    """Number of held-out prompts for `accuracy`; token tasks only."""
    log_every: int = 10
    """Steps between logged rows; the last step is always logged."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Device of torch."""

    def __post_init__(self) -> None:
        """Bring numbers and arguments into one form, so that equal runs have equal ids.

        Values already in that form stay the same objects: cells of a grid share unvaried values.
        """
        for name in _FLOATS:
            value = getattr(self, name)
            if type(value) is int or (type(value) is float and value == 0):
                object.__setattr__(self, name, float(value) if value else 0.0)  # -0.0 and 0.0 are equal
        for name in _ARGUMENTS:
            value = getattr(self, name)
            if value and isinstance(value, tuple):
                normal = tuple(sorted((k, _whole(v)) for k, v in self._renamed(name, value)))
                if repr(normal) != repr(value):
                    object.__setattr__(self, name, normal)

    def _renamed(self, name: str, value: Arguments) -> Arguments:
        own = name in RENAMED and ":" not in getattr(self, RENAMED[name])  # a user's file names its own
        return _put(value, OLD_NAME, NEW_NAME) if own else value


def _put(value: Arguments, name: str, other: str) -> Arguments:
    """Return the arguments with another name for one of them, sorted; the same object if it is not there."""
    if name not in (key for key, _ in value):
        return value
    return tuple(sorted((other if key == name else key, item) for key, item in value))


def _whole(value: Scalar) -> Scalar:
    """Return 2 for 2.0: arguments have no declared type that could distinguish them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


_FLOATS = tuple(item.name for item in dataclasses.fields(Run) if isinstance(item.default, float))
_ARGUMENTS = tuple(item.name for item in dataclasses.fields(Run) if item.name.endswith("_args"))
_DEFAULTS = {item.name: item.default for item in dataclasses.fields(Run)}
_SORTED = tuple(sorted(_DEFAULTS))
_NOTHING = object()

MODEL_RUN = Run(
    task="reasoning-gym", policy="hf", model="the folder of a local model", prompts=16, group=8, steps=100,
    learning_rate=1e-5, optimizer="adam", max_grad_norm=1.0,
)  # fmt: skip
"""Starting settings of `testbed run --model`; the command line gives the model."""


def grid(run: Run, **axes: Any) -> tuple[Run, ...]:
    """Return one Run per combination of the axes.

    Args:
        run: the settings that all cells share.
        axes: values by field of Run, as lag=[0, 8]; a number or text is one value.

    Returns:
        The runs; the last axis varies fastest.

    >>> [cell.lag for cell in grid(Run(), lag=[0, 4])]
    [0, 4]
    """
    known = [f.name for f in dataclasses.fields(Run)]
    for name in axes:
        if name not in known:
            raise unknown("field of Run", name, known)
    # A text has items, too, but recipe="grpo" means no recipe "g".
    single = {name: isinstance(x, str) or not isinstance(x, Iterable) for name, x in axes.items()}
    combinations = itertools.product(*([x] if single[name] else x for name, x in axes.items()))
    return tuple(dataclasses.replace(run, **dict(zip(axes, values, strict=True))) for values in combinations)


def canonicals(runs: Iterable[Run]) -> Iterator[str]:
    """Yield every run as JSON with sorted keys; equal runs give equal text.

    Encodes a value again only if it is a different object from the previous run's, which makes large grids
    several times faster.
    """
    place = {name: index for index, name in enumerate(_SORTED)}
    held: list[Any] = [_NOTHING] * len(_SORTED)
    parts = [""] * len(_SORTED)
    for run in runs:
        values = vars(run)
        for name in _SORTED:
            value, index = values[name], place[name]
            if value is not held[index]:
                held[index], parts[index] = value, _part(name, value)
        yield "{" + ",".join(filter(None, parts)) + "}"


def _part(name: str, value: Any) -> str:
    if name in YOUNGER and value == _DEFAULTS[name]:
        return ""
    if name in RENAMED:
        value = _put(value, NEW_NAME, OLD_NAME)
    return f'"{name}":{json.dumps(value, separators=(",", ":"))}'


def canonical(run: Run) -> str:
    """Return the run as JSON with sorted keys; equal runs give equal text."""
    return next(canonicals([run]))


def cell_ids(runs: Iterable[Run]) -> Iterator[str]:
    """Yield the stable name of every cell: task/recipe/lag/seed and a hash of all fields."""
    for_text, for_name = itertools.tee(runs)
    for text, run in zip(canonicals(for_text), for_name, strict=True):
        digest = hashlib.sha256(f"{RUN_VERSION}:{text}".encode()).hexdigest()[:12]
        recipe = run.recipe.rpartition("/")[2]  # for an objective in a file, the file's name is enough
        yield f"{run.task}/{recipe}/lag{run.lag}/seed{run.seed}-{digest}"


def cell_id(run: Run) -> str:
    """Return the stable name of one cell."""
    return next(cell_ids([run]))
