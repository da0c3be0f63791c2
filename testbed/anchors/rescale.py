"""Batch-size invariance: rescale settings when a batch is divided, so that learning stays the same."""

import math
from dataclasses import replace
from inspect import signature

from testbed.anchors import anchor
from testbed.config.run import Arguments, Run
from testbed.errors import UserError
from testbed.policies.optimizers import Adam
from testbed.recipes import Recipe, recipe


def rescaled_decay(decay: float, parts: int) -> float:
    """Return decay' with 1 / (1 - decay') - 1 = parts (1 / (1 - decay) - 1): the same age in samples.

    Source: Hilton, Cobbe & Schulman (2021), arXiv:2110.00641, on the center of mass of the average.
    """
    center = parts * decay / (1 - decay)
    return center / (1 + center)


def rescaled_rate(rate: float, parts: int, optimizer: str) -> float:
    """Return rate / parts for SGD and rate / sqrt(parts) for Adam: the same drift per sample."""
    return rate / (math.sqrt(parts) if optimizer == "adam" else parts)


def rescaled_betas(run: Run, parts: int) -> Arguments:
    """Return the optimizer's arguments with Adam's betas beta^(1 / parts): the same memory in samples."""
    if run.optimizer != "adam" or parts == 1:
        return run.optimizer_args
    betas = {name: signature(Adam).parameters[name].default for name in ("beta1", "beta2")}
    given = {**betas, **dict(run.optimizer_args)}
    return tuple((name, x if name == "eps" else float(x) ** (1 / parts)) for name, x in given.items())


def smaller_batches(run: Run, parts: int) -> Run:
    """Return the run with 1 / parts of the prompts per batch: as many samples, with the same age in samples.

    Steps, lag and the distance of logged rows grow by `parts`; learning rate, Adam's betas and the decay of
    an averaged anchor are rescaled. Raises UserError if the prompts cannot be divided.
    """
    if parts < 1 or run.prompts % parts:
        raise UserError(
            f"prompts is {run.prompts}, which {parts} does not divide into whole batches; expected a "
            "divisor of prompts, at least 1."
        )
    smaller = replace(
        run,
        prompts=run.prompts // parts,
        steps=run.steps * parts,
        lag=run.lag * parts,
        log_every=run.log_every * parts,
        learning_rate=rescaled_rate(run.learning_rate, parts, run.optimizer),
        optimizer_args=rescaled_betas(run, parts),
    )
    decay = average_of(run)
    if decay is None:
        return smaller
    return replace(smaller, anchor="ewma", anchor_args=(("decay", rescaled_decay(decay, parts)),))


def average_of(run: Run) -> float | None:
    """Return the decay of the run's averaged anchor, from Run or its recipe; None for any other anchor."""
    if run.anchor == "ewma":
        return float({**anchor["ewma"].defaults, **dict(run.anchor_args)}["decay"])
    made: Recipe = recipe[run.recipe].bind(**dict(run.recipe_args))()
    averaged = run.anchor == "recipe" and made.anchor == "ewma"
    return float(dict(made.anchor_args)["decay"]) if averaged else None
