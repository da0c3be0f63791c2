"""Bind the arguments of a callable by name, from the table of names that stacks use."""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from testbed.conformance.names import KNOWN, PER_RESPONSE, ROLES, STACKS, role_of, told
from testbed.errors import UserError, suggest

LAYOUTS = ("padded", "packed", "lists")


@dataclass(frozen=True)
class Binding:
    """A callable and how to call it.

    arguments: parameter to role (testbed.conformance.names.ROLES). given: values of other parameters. layout:
    "padded" [B, T], "packed" one row of all tokens, "lists" a tensor per response. adv_per_token: advantages
    have a number per token, else one per response. row_axis: a packed row is [1, N], else [N]. mask_as:
    "float" or "bool". told: hyperparameters in the signature's defaults, under our names.
    """

    function: Callable[..., Any]
    name: str
    arguments: Mapping[str, str]
    given: Mapping[str, Any] = field(default_factory=dict)
    layout: str = "padded"
    adv_per_token: bool = True
    row_axis: bool = True
    mask_as: str = "float"
    told: Mapping[str, Any] = field(default_factory=dict)

    @property
    def roles(self) -> frozenset[str]:
        """The arguments that are passed."""
        return frozenset(self.arguments.values())

    @property
    def one_old(self) -> bool:
        """True if one old log-probability serves as both the anchor and mu."""
        return "batch" not in self.roles and not ("mu" in self.roles and self.roles & {"old", "anchor"})

    @property
    def per_response(self) -> bool:
        """True if a name implies one advantage per response."""
        return any(name.lower() in PER_RESPONSE for name in self.arguments)

    def variants(self) -> "list[Binding]":
        """Return the ways of calling it that a signature allows, the usual one first."""
        found = [replace(self, adv_per_token=self.adv_per_token and not self.per_response)]
        if "adv" in self.roles and not self.per_response:
            found += [replace(each, adv_per_token=False) for each in found]
        if self.layout == "packed":
            found += [replace(each, row_axis=False) for each in found]
        if "mask" in self.roles:
            found += [replace(each, mask_as="bool") for each in found]
        return found


def bind(
    function: Callable[..., Any],
    name: str,
    inputs: Mapping[str, str] | None = None,
    given: Mapping[str, Any] | None = None,
    layout: str = "",
) -> Binding:
    """Work out how to call a callable.

    Args:
        function: the loss; its attribute `told`, if it has one, holds hyperparameters under our names.
        name: its name in messages.
        inputs: parameter to role, or to a name of the table, for parameters with unknown names.
        given: values of parameters that are not inputs.
        layout: one of LAYOUTS; by default inferred from the parameters: segment ids, position ids or
            cu_seqlens mean "packed"; a parameter annotated as a list means "lists".

    Raises UserError for an unknown parameter without a default, and for a callable without log-probabilities
    among its parameters.
    """
    if layout and layout not in LAYOUTS:
        raise UserError(f"layout '{layout}' is unknown; expected {', '.join(LAYOUTS)}.")
    parameters = _parameters(function, name)
    inputs, given = dict(inputs or {}), dict(given or {})
    kinds = {p.kind for p in inspect.signature(function).parameters.values()}
    for word in (*inputs, *given):
        if word not in parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
            known = ", ".join(parameters)
            raise UserError(f"{name} has no parameter '{word}'.{suggest(word, parameters)} It has: {known}.")
    arguments = {key: _role(value) for key, value in inputs.items()}
    unknown = []
    for parameter in parameters.values():
        if parameter.name in arguments or parameter.name in given:
            continue
        role = role_of(parameter.name)
        if role and not (isinstance(parameter.default, int | float) and role not in ("tokens", "sequences")):
            arguments[parameter.name] = role
        elif parameter.default is parameter.empty:
            unknown.append(parameter.name)
    _check(name, function, arguments, unknown)
    defaults = {p.name: p.default for p in parameters.values() if p.default is not p.empty}
    layout = layout or _layout(parameters, arguments)
    hyper = told({**defaults, **given}) | dict(getattr(function, "told", {}))
    return Binding(function, name, arguments, given, layout, told=hyper)


def _parameters(function: Callable[..., Any], name: str) -> dict[str, inspect.Parameter]:
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError) as error:
        raise UserError(
            f"{name} has no signature that Python can read ({error}); wrap it in a def."
        ) from error
    return {p.name: p for p in found if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}


def _role(word: str) -> str:
    role = word if word in ROLES else role_of(word)
    if not role:
        raise UserError(
            f"'{word}' is not an input.{suggest(word, [*ROLES, *KNOWN])} Known: {', '.join(ROLES)}."
        )
    return role


def _check(name: str, function: Callable[..., Any], arguments: dict[str, str], unknown: list[str]) -> None:
    text = f"{name}{inspect.signature(function)}"
    if unknown:
        stacks = ", ".join(stack for stack in STACKS if stack != "others")
        raise UserError(
            f"{text}: the name of '{unknown[0]}' does not say what it holds, and it has no default. Expected "
            f"names of inputs that a stack uses ({stacks}); say it by --input {unknown[0]}=ROLE with one of "
            f"{', '.join(ROLES)}, or give a value by --set {unknown[0]}=…"
        )
    if not {"logp", "logits", "batch"} & set(arguments.values()):
        raise UserError(
            f"{text}: no parameter holds the policy's log-probabilities. Expected one named logp, log_probs, "
            "per_token_logps, …, or logits with labels; say it by --input PARAMETER=logp."
        )
    if "logits" in arguments.values() and "labels" not in arguments.values():
        raise UserError(f"{text} takes logits, but no labels that say which token was sampled.")


def _layout(parameters: dict[str, inspect.Parameter], arguments: dict[str, str]) -> str:
    if {"segments", "positions", "offsets"} & set(arguments.values()):
        return "packed"
    read = (parameters[key] for key, role in arguments.items() if role in ("logp", "logits"))
    texts = [str(each.annotation).lower() for each in read]
    return "lists" if any("list" in text or "sequence[" in text for text in texts) else "padded"
