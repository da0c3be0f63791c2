"""Fingerprint of the code behind a result: store format, RUN_VERSION, versions of numeric packages."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TypeAlias

from testbed.config.run import RUN_VERSION

FORMAT = 1
"""Layout version of a results folder; increased if older code could not read it."""

Fingerprint: TypeAlias = Mapping[str, int | str]


@cache
def fingerprint() -> Fingerprint:
    """Return {"format": …, "run_version": …, "numpy": …, "torch": …, "numba": …} without importing them."""
    packages = {name: version_of(name) for name in ("numpy", "torch", "numba")}
    return {"format": FORMAT, "run_version": RUN_VERSION, **packages}


def difference(theirs: Fingerprint, ours: Fingerprint) -> str:
    """Return "numpy 2.3 instead of 2.4, …" for the differences between theirs and ours, or ""."""
    names = dict.fromkeys([*ours, *theirs])
    return ", ".join(
        f"{name} {theirs.get(name, 'absent')} instead of {ours.get(name, 'absent')}"
        for name in names
        if theirs.get(name) != ours.get(name)
    )


def version_of(package: str) -> str:
    """Return the installed version of a package, or "absent"."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"
