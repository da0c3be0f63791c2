"""Validation of a Run: types by pydantic, values and pairs of fields by hand. Front end only."""

import dataclasses
import math
import typing
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from testbed.config.run import Run, Scalar
from testbed.errors import UserError, suggest

FIELDS = tuple(f.name for f in dataclasses.fields(Run))
ARGUMENTS = tuple(name for name in FIELDS if name.endswith("_args"))
"""Fields that hold (name, value) pairs; a TOML table and a dotted override fill them by name."""

LEAST = {
    "lag": 0, "age_limit": -1, "seed": 0, "steps": 1, "prompts": 1, "group": 1, "learning_rate": 0,
    "max_grad_norm": 0, "warm_start_steps": 0, "teacher_noise": 0, "evaluation_prompts": 1, "log_every": 1,
}  # fmt: skip
MOST = {"teacher_noise": 1, "seed": 2**63 - 1}
"""Integer fields without an entry end at 2**31 - 1, so that every column of a result table fits."""


@cache
def adapters() -> Mapping[str, TypeAdapter[Any]]:
    """Return one pydantic adapter per field of Run, and "scalar" for an argument's value."""
    hints = typing.get_type_hints(Run)
    return {name: TypeAdapter(hints[name]) for name in FIELDS} | {"scalar": TypeAdapter(Scalar)}


def coerced(name: str, value: Any) -> Any:
    """Return a field's value in its normal form, so that equal cells have equal ids.

    An int for a float field becomes a float, arguments are sorted by name, a whole float
    among arguments becomes an int, a numpy scalar a Python one. Text is never turned into a number.
    Raises ValueError with the given value and the expected one.
    """
    if name in ARGUMENTS:
        try:
            items = [(key, item) for key, item in (value.items() if isinstance(value, Mapping) else value)]
        except (TypeError, ValueError):
            raise ValueError(f"is {value!r}, expected a table of names and values, as eps = 0.2.") from None
        names = [key for key, _ in items]
        for key, item in items:
            if not isinstance(key, str) or not key:
                raise ValueError(f"has the name {key!r}, expected text.")
            if names.count(key) > 1:
                raise ValueError(f"sets '{key}' twice, expected each name once.")
            if isinstance(item, float) and math.isnan(item):
                raise ValueError(f"has {key} = nan, expected a number.")
        return tuple(sorted((key, _scalar(key, item)) for key, item in items))
    value = value.item() if getattr(value, "shape", None) == () else value
    try:
        return adapters()[name].validate_python(value, strict=True)
    except ValidationError as error:
        wanted = error.errors()[0]["msg"].removeprefix("Input should be ")
        choices = typing.get_args(typing.get_type_hints(Run)[name])
        hint = suggest(value, choices) if isinstance(value, str) and choices else ""
        raise ValueError(f"is {value!r} ({type(value).__name__}), expected {wanted}.{hint}") from None


def _scalar(key: str, item: Any) -> Scalar:
    item = item.item() if getattr(item, "shape", None) == () else item
    try:
        checked: Scalar = adapters()["scalar"].validate_python(item, strict=True)
    except ValidationError:
        raise ValueError(f"has {key} = {item!r}, expected a number, text, or true or false.") from None
    if isinstance(checked, str) and not checked.isascii():
        try:
            checked.encode()
        except UnicodeEncodeError:
            raise ValueError(f"has {key} = {checked!r}, which is not UTF-8 text.") from None
    whole = isinstance(checked, float) and checked.is_integer() and abs(checked) < 2**53
    return int(checked) if whole else checked


def problems(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield (field, problem) for every field with an invalid value."""
    for name, value in values.items():
        try:
            value = coerced(name, value)
        except ValueError as error:
            yield name, str(error)
            continue
        if isinstance(value, int | float) and not isinstance(value, bool):
            low, high = LEAST.get(name, -math.inf), MOST.get(name, 2**31 - 1)
            if not math.isfinite(value):
                yield name, f"is {value}, expected a finite number{f' of at least {low}' * (name in LEAST)}."
            elif not low <= value <= high:
                yield name, f"is {value}, expected {f'at least {low}' if value < low else f'at most {high}'}."


def contradictions(run: Run) -> Iterator[tuple[str, str]]:
    """Yield (field, problem) for fields that are valid alone but not together."""
    if run.policy == "hf" and not run.model:
        yield "model", "is empty, expected the folder of a Hugging Face model, because policy is 'hf'."
    if run.policy != "hf" and run.model:
        yield (
            "model",
            f"is '{run.model}', but policy is '{run.policy}'; set policy to 'hf' or leave model out.",
        )
    if run.warm_start_steps and run.policy != "toy":
        yield "warm_start_steps", f"is {run.warm_start_steps}, expected 0 unless policy is 'toy'."
    if run.too_old != "drop" and run.age_limit < 0:
        yield "too_old", f"is '{run.too_old}', but without age_limit no sample is too old; set age_limit."


def check(run: Run) -> Run:
    """Return the run in normal form; raise UserError with all its problems."""
    sound, wrong = normal([run])
    if wrong:
        raise UserError(wrong[0])
    return sound[0]


def normal(runs: Iterable[Run]) -> tuple[tuple[Run, ...], list[str]]:
    """Return the valid runs in normal form, and the problems of the others, as `check` words them.

    Only checks values that are different objects from the previous run's, so a large grid is quick.
    """
    good: dict[str, Any] = {}
    nothing = object()
    sound, wrong = [], []
    for run in runs:
        values = vars(run)
        fresh = {name: value for name, value in values.items() if value is not good.get(name, nothing)}
        reasons = list(problems(fresh)) or list(contradictions(run))
        if reasons:
            wrong.append("\n".join(f"{name} {reason}" for name, reason in reasons))
            continue
        coerced_values = {name: coerced(name, value) for name, value in fresh.items()}
        good |= fresh
        changed = {n: value for n, value in coerced_values.items() if repr(value) != repr(values[n])}
        for name in changed:
            del good[name]  # the next run needs the same change
        sound.append(dataclasses.replace(run, **changed) if changed else run)
    return tuple(sound), wrong
