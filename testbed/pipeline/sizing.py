"""Planning: (accelerators, split, queue, in-flight) -> throughput, staleness; for 8 to 8,000 accelerators."""

import dataclasses
import itertools
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from testbed.errors import UserError, suggest
from testbed.pipeline.design import Design, check

SAMPLES = 60_000
"""Least number of samples, and of batches (LEAST), measured per row."""
LEAST = 12


@dataclass(frozen=True)
class SizingPlan:
    """Axes of a plan, and one accelerator's capacity; every combination of the axes is a row.

    accelerators: in total. trainer_share: share for the trainer (rounded, at least one on each side).
    queue, in_flight: as in Design. slots_per_accelerator: sequences on one generating accelerator.
    batch_per_accelerator: samples per batch and accelerator; batch: the same in total, if above 0.
    train_second_per_sample: seconds one accelerator needs to train one sample.
    group, tau_0, tau_1, length_mean, sigma, max_length, queue_rule: as in Design.
    """

    accelerators: tuple[int, ...] = (8, 64, 512, 8000)
    trainer_share: tuple[float, ...] = (0.25, 0.5, 0.75)
    queue: tuple[float, ...] = (1.0, 2.0)
    in_flight: tuple[bool, ...] = (False, True)
    slots_per_accelerator: int = 16
    batch_per_accelerator: int = 8
    batch: int = 0
    train_second_per_sample: float = 1.5
    group: int = 8
    tau_0: float = 0.02
    tau_1: float = 0.0003
    length_mean: float = 1000.0
    sigma: float = 0.6
    max_length: int = 8192
    queue_rule: str = "drop-oldest"


_HINTS = typing.get_type_hints(SizingPlan)


def designs(plan: SizingPlan) -> list[tuple[dict[str, Any], Design]]:
    """Return the key and the design of every row. Raises UserError for an impossible design."""
    found = []
    axes = (plan.accelerators, plan.trainer_share, plan.queue, plan.in_flight)
    for accelerators, share, queue, in_flight in itertools.product(*axes):
        if accelerators < 2 or not 0 < share < 1:
            raise UserError(
                f"accelerators={accelerators}, trainer_share={share:g}: both sides need one, so expected at "
                "least 2 accelerators and a share between 0 and 1."
            )
        training = min(max(1, round(share * accelerators)), accelerators - 1)
        generating = accelerators - training
        batch = plan.batch or plan.batch_per_accelerator * accelerators
        design = Design(
            slots=generating * plan.slots_per_accelerator, engines=generating, batch=batch,
            train_time=plan.train_second_per_sample * batch / training, queue=queue, in_flight=in_flight,
            **{name: getattr(plan, name) for name in _SHARED},
        )  # fmt: skip
        key = {"accelerators": accelerators, "training": training, "queue": queue, "in_flight": in_flight}
        found.append((key, check(design)))
    return found


_SHARED = ("group", "tau_0", "tau_1", "length_mean", "sigma", "max_length", "queue_rule")


def table(plan: SizingPlan, replicas: int = 1, seed: int = 0) -> list[dict[str, Any]]:
    """Return one row per combination: key, load u, throughput, lags, drop rate, utilization of both sides."""
    from testbed.pipeline.closed_forms import load
    from testbed.pipeline.simulate import simulate

    rows = []
    for key, design in designs(plan):
        batches = max(LEAST, SAMPLES // design.batch)
        found = simulate([design], replicas=replicas, batches=batches, seed=seed)[0]
        means = ("lag_sample", "lag_token", "drop_rate", "trainer_busy", "slots_busy")
        period, speed = found.mean("period"), found.mean("samples_per_s")
        row = {**key, "batch": design.batch, "load": load(design), "period": period, "samples_per_s": speed}
        each = {"per_accelerator": speed / key["accelerators"]}
        rows.append(row | each | {name: found.mean(name) for name in means})
    return rows


def from_words(words: Sequence[str]) -> SizingPlan:
    """Return the plan with `field=value` words applied; an axis takes `a,b,c`. Raises UserError if wrong."""
    values: dict[str, Any] = {}
    wrong = []
    for word in words:
        name, _, text = word.partition("=")
        if "=" not in word or name not in _HINTS:
            hint = suggest(name, _HINTS)
            wrong.append(f"'{word}': expected field=value.{hint} Fields: {', '.join(_HINTS)}.")
            continue
        if name in values:
            wrong.append(f"'{word}': '{name}' is given twice.")
            continue
        kind = _HINTS[name]
        many = typing.get_origin(kind) is tuple
        try:
            each = [_value(typing.get_args(kind)[0] if many else kind, part) for part in text.split(",")]
        except ValueError:
            wrong.append(
                f"'{word}': expected {'values' if many else 'a value'} like {getattr(SizingPlan, name)}."
            )
            continue
        if not many and len(each) > 1:
            wrong.append(f"'{word}': expected one value.")
        values[name] = tuple(each) if many else each[0]
    if wrong:
        raise UserError("\n".join(wrong))
    return dataclasses.replace(SizingPlan(), **values)


def _value(kind: type, text: str) -> Any:
    if kind is bool:
        return bool(("false", "true").index(text.lower()))
    return kind(text)
