"""Part 1 of a report card: run the contract tests on one objective and measure its behavior."""

from dataclasses import dataclass
from typing import Any

from analysis.kernels.on_use import torch
from testbed.errors import UserError
from testbed.objectives import objective
from testbed.user_files import line_of_a_user, short_names, words_of

NEEDED = ("one finite loss per token", "stacked replicas equal separate calls")
"""Checks without which nothing else of a card can be computed."""


@dataclass(frozen=True)
class Check:
    """One property: what was measured, and whether it holds (None if nothing is required)."""

    what: str
    found: str
    kept: bool | None


def title_of(name: str) -> str:
    """Return an objective's title; a function in a file goes by its function name."""
    return short_names([name])[name]


def told(error: BaseException) -> str:
    """Return the objective's exception as text, with the line of the user's file that raised it."""
    place = line_of_a_user(error)
    return words_of(error) + (f" ({place})" if place else "")


def refuse_broken(name: str) -> None:
    """Raise UserError if the objective fails on an ordinary batch or does not return one loss per token."""
    from testbed.inspection.effective_weights import effective_weights
    from testbed.inspection.promise_batches import batch_of

    logp, batch = batch_of()
    try:
        loss = objective[name].function(logp.clone().requires_grad_(), batch)
    except UserError:
        raise
    except Exception as error:  # the user's own code: a message, not our traceback
        raise UserError(f"{title_of(name)} fails on a batch of 8 answers: {told(error)}") from error
    if not isinstance(loss, torch.Tensor) or loss.shape != logp.shape:
        is_tensor = isinstance(loss, torch.Tensor)
        given = f"a tensor of shape {tuple(loss.shape)}" if is_tensor else type(loss).__name__
        raise UserError(
            f"{title_of(name)} returned {given} for log-probabilities of shape {tuple(logp.shape)}; an "
            "objective returns one loss per token, [..., B, T], without a mean over them."
        )
    try:
        effective_weights(name, logp, batch)
    except UserError:
        raise
    except Exception as error:
        raise UserError(
            f"The loss of {title_of(name)} has no gradient in logp_BT: {told(error)}. Compute it from "
            "logp_BT, and leave some of that undetached."
        ) from error


def checks(name: str) -> tuple[tuple[Check, ...], bool]:
    """Return all checks of an objective, and whether those required by the rest of the card hold."""
    from testbed.inspection.promises import CHECKS

    found = [Check(what, *_tried(name, check)) for what, check in CHECKS.items()]
    sound = all(each.kept for each in found if each.what in NEEDED)
    return (*found, *(_seen(name) if sound else ())), sound


def _tried(name: str, check: Any) -> tuple[str, bool]:
    try:
        wrong = check(name)
    except Exception as error:  # the user's own code: a line of the card, not our traceback
        wrong = told(error)
    return wrong or "yes", not wrong


def _seen(name: str) -> list[Check]:
    """Return the measured behavior of an objective, beside its promises if it is registered."""
    from testbed.inspection.promises import measure

    try:
        found = measure(name)
    except Exception as error:
        return [Check("what it does", told(error), kept=False)]
    promised = objective[name].promises
    reads = ", ".join(found.reads) or "nothing"
    bound = f"{found.largest:.4g}" if found.bounded else "none: it grows with the ratio"
    weight = "no fixed multiple of A" if found.on_policy is None else f"{found.on_policy} A"
    if isinstance(found.on_policy, float):
        weight = f"{found.on_policy:.4g} A"
    rows = [
        ("reads beside pi", reads, set(found.reads) == set(promised.get("reads", ())) if promised else None),
        ("a weight sees the", found.scope, None),
        ("weight on-policy", weight, None),
        ("largest |w/A|", bound, None),
        ("never pushes against A", "yes" if found.sign else "no", None),
        ("zero advantage, zero weight", "no: it has a penalty" if found.penalty else "yes", None),
        ("w is the derivative of the loss", "yes" if found.derivative else "no: a factor is detached", None),
    ]
    of_advantage = (
        "weight on-policy",
        "largest |w/A|",
        "never pushes against A",
        "zero advantage, zero weight",
    )
    weighs = "adv" in found.reads
    return [Check(what, text, kept) for what, text, kept in rows if weighs or what not in of_advantage]
