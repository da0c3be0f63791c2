"""Losses of installed packages as plain functions: only forward passes are replaced, by log-probabilities.

A module per package gives `losses()`, name to function; parameters have names of testbed.conformance.names.
testbed.conformance.installed runs them.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

PeerLosses: TypeAlias = dict[str, Callable[..., Any]]
"""Losses of a package by their name there, with the options that select them."""


def telling(function: Callable[..., Any], options: Mapping[str, Any]) -> Callable[..., Any]:
    """Return the function with the bounds among its options as `told`, so that no search is needed."""
    names = {"epsilon_low": "eps_low", "epsilon_high": "eps_high", "clip_ratio_low": "eps_low",
             "clip_ratio_high": "eps_high", "clip_eps_low": "eps_low", "clip_eps_high": "eps_high",
             "clip_range_low": "eps_low", "clip_range_high": "eps_high", "delta": "delta"}  # fmt: skip
    function.told = {names[key]: value for key, value in options.items() if key in names}  # type: ignore[attr-defined]
    return function
