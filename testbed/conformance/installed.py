"""Identify the losses of installed packages, a row each; writes docs/conformance.md."""

import importlib
import importlib.metadata
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from testbed.conformance.batches import tensors
from testbed.conformance.calling import LossError
from testbed.conformance.layouts import call_arguments
from testbed.conformance.loss_evidence import visible
from testbed.conformance.nearest_entries import identify
from testbed.conformance.signature import bind
from testbed.results.atomic_files import replace

PACKAGES = {
    "trl": "trl", "liger-kernel": "liger", "verl": "verl", "torchrl": "torchrl", "OpenRLHF": "openrlhf",
    "trinity-rft": "trinity",
}  # fmt: skip
"""Package name -> the module NAME_losses of testbed.conformance.peers that calls its losses."""


@dataclass(frozen=True)
class Outcome:
    """One loss of one package version: its equal entry, its difference, or why it cannot be called.

    example: the smallest batch on which it differs. passed: that call's arguments, as Python. also: other
    entries that it equals.
    """

    package: str
    version: str
    loss: str
    verdict: str
    entry: str = ""
    example: tuple[str, ...] = ()
    passed: tuple[str, ...] = ()
    also: tuple[str, ...] = ()

    def lines(self) -> list[str]:
        """Return it as text: the verdict, then the batch and the call that show a difference."""
        head = f"{self.package} {self.version}  {self.loss}: {self.verdict} {self.entry}"
        return [head, *(f"    {line}" for line in (*self.example, *self.passed))]


def version(package: str) -> str:
    """Return the installed version of a package, "" where it is absent."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def outcomes(packages: Iterable[str] = PACKAGES, only: str = "") -> Iterator[Outcome]:
    """Yield a row per loss of every installed package; only: text within "package loss"."""
    for package in packages:
        release = version(package)
        if release:
            yield from _of(package, release, only)


def _of(package: str, release: str, only: str) -> Iterator[Outcome]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            losses = importlib.import_module(f"testbed.conformance.peers.{PACKAGES[package]}_losses").losses()
        except Exception as error:  # the package cannot be imported on this machine
            why = f"{type(error).__name__}: {error}"
            yield Outcome(package, release, "every loss", "cannot be called", why)
            return
        for name, function in losses.items():
            if only in f"{package} {name}":
                yield _one(package, release, name, function)


def _one(package: str, release: str, name: str, function: Callable[..., Any]) -> Outcome:
    try:
        found = identify(bind(function, name))
    except LossError as error:
        why = str(error).removeprefix(name).strip().partition(" It was passed ")[0]
        return Outcome(package, release, name, "cannot be called", why)
    if found.equals:
        first = found.equals[0]
        alike = (e for e in found.equals if e.factor == first.factor)
        same = [e.objective for e in alike if e.objective != first.objective]
        also = tuple(dict.fromkeys(same))
        return Outcome(package, release, name, "equals", first.words(), also=also)
    near = found.nearest[0]
    share = f"{near.fit.agree:.1%} of tokens agree with {near.fit.reference.words()}"
    if found.evidence.leaks:
        share += "; tokens outside the mask have weights"
    shown = near.counterexample
    if shown is None:
        return Outcome(package, release, name, "differs", share)
    logp, batch = tensors(visible(shown.rows, found.binding))
    arguments = call_arguments(found.binding, logp, batch, torch.float64)
    passed = tuple(f"{key} = {_literal(value)}" for key, value in arguments.items())
    return Outcome(package, release, name, "differs", share, tuple(shown.lines()), passed)


def _literal(value: Any) -> str:
    """Return a tensor as Python numbers, six digits of each."""
    if isinstance(value, list):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, torch.Tensor):
        return _literal(value.tolist())
    return f"{value:.7g}" if isinstance(value, float) else repr(value)


HEAD = """\
# Losses of installed packages

Each loss below was called as it is installed, on batches of adversarial ratios, signs and masks. Its weights
-dLoss/dlogp were compared with every entry of [the atlas](objectives.md). "Equals" says which entry, with the
hyperparameters and the aggregation that were found. "Differs" gives the nearest entry, the smallest batch on
which the two part, and the arguments of that call. Only forward passes are replaced, by log-probabilities. A
difference is a fact about two formulas; it does not say which is better.

`testbed conform --installed --page docs/conformance.md` writes this page for the versions that are installed
where it runs; `--only "liger-kernel"`, or the name of a loss, runs a part of it and prints each difference.
[How to install them, and how to hold a loss of your own against an entry](howto/conform.md).

"""


def page(found: Iterable[Outcome]) -> str:
    """Return docs/conformance.md."""
    rows = list(found)
    heads = "package", "version", "losses", "equal an entry", "differ", "cannot be called"
    lines = [f"| {' | '.join(heads)} |", "|---|---|---:|---:|---:|---:|"]
    names = list(dict.fromkeys((row.package, row.version) for row in rows))
    for package, release in names:
        mine = [row.verdict for row in rows if row.package == package]
        counts = " | ".join(str(mine.count(v)) for v in ("equals", "differs", "cannot be called"))
        lines.append(f"| {package} | {release} | {len(mine)} | {counts} |")
    text = HEAD + "\n".join(lines) + "\n"
    for package, release in names:
        text += f"\n## {package} {release}\n\n| loss | | entry |\n|---|---|---|\n"
        for row in rows:
            if row.package == package:
                also = f"; the same on these inputs: {', '.join(row.also[:3])}" if row.also else ""
                text += f"| `{row.loss}` | {row.verdict} | {_cell(row.entry + also)} |\n"
        for row in rows:
            if row.package == package and row.example:
                block = "\n".join((*row.example, "", *row.passed))
                text += f"\n`{row.loss}` parts from it on this batch, passed as\n\n```text\n{block}\n```\n"
    return text


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("_", "\\_").replace("*", "\\*")


def write(path: Path, found: Iterable[Outcome]) -> None:
    """Write the page, whole or not at all."""
    replace(path, page(found).encode())
