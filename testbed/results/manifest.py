"""sweep.json: what a results folder was made for, so that nothing else is ever mixed into it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.config.pack import Pack
from testbed.errors import UserError
from testbed.results import atomic_files
from testbed.results.fingerprint import FORMAT, Fingerprint, difference, fingerprint

NAME = "sweep.json"
PARTS = ("packs", "failures", "provenance", "quarantine")
"""Folders beside sweep.json."""


@dataclass(frozen=True)
class Sweep:
    """The packs planned, id to cell ids in plan order, and the fingerprint of the code that computes them."""

    packs: Mapping[str, tuple[str, ...]]
    made_by: Fingerprint


def write(folder: Path, packs: Sequence[Pack]) -> None:
    """Make the folder and its sweep.json, or check that the one there is of this sweep and this code.

    Raises UserError when the folder holds something else, another sweep, or numbers of other code.
    """
    _refuse_strangers(folder)
    with atomic_files.mended(folder):
        folder.mkdir(parents=True, exist_ok=True)
    atomic_files.sweep_aside(folder)
    if not (folder / NAME).exists():
        atomic_files.create(folder / NAME, _content(packs))
    there = load(folder)
    if changed := difference(there.made_by, fingerprint()):
        raise UserError(
            f"{folder} was computed by other code: {changed}. Go on with that code, or choose another folder."
        )
    planned = {pack.id: pack.names for pack in packs}
    if list(planned.items()) != list(there.packs.items()):
        theirs, ours = ({cell for cells in p.values() for cell in cells} for p in (there.packs, planned))
        raise UserError(
            f"{folder} holds another sweep: {len(theirs)} cells, of which this sweep of {len(ours)} has "
            f"{len(theirs & ours)}. Choose another folder."
        )
    for part in PARTS:
        with atomic_files.mended(folder / part):
            (folder / part).mkdir(exist_ok=True)
        atomic_files.sweep_aside(folder / part)


def load(folder: Path) -> Sweep:
    """Return what sweep.json says; raise UserError when it is missing, damaged, or of a newer format."""
    path = folder / NAME
    try:
        data = json.loads(atomic_files.read(path))
        made_by = dict(data["fingerprint"])
        written_in = int(made_by["format"])
    except FileNotFoundError:
        raise UserError(f"{folder} is not a results folder: it has no {NAME}.") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, error) from None
    if written_in > FORMAT:
        raise UserError(
            f"{folder} has format {written_in}, this testbed reads up to {FORMAT}. Install a newer testbed."
        )
    try:
        packs = {str(pack["id"]): tuple(str(cell["id"]) for cell in pack["cells"]) for pack in data["packs"]}
    except (KeyError, TypeError) as error:
        raise _damaged(path, error) from None
    if not all(re.fullmatch("[0-9a-f]{16}", name) for name in packs):
        raise _damaged(path, ValueError("a pack's id is not 16 hexadecimal digits"))
    for part in (folder / part for part in PARTS):
        if part.is_symlink() or (part.exists() and not part.is_dir()):
            raise UserError(f"{part} must be a folder, not a link or a file. Choose another folder.")
    return Sweep(packs, made_by)


def _damaged(path: Path, error: Exception) -> UserError:
    reason = f"{type(error).__name__}: {error}"
    return UserError(f"{path} cannot be read as the plan of a sweep ({reason}). Choose another folder.")


def _refuse_strangers(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, expected a folder for results. Choose another folder.")
    if folder.is_dir() and not (folder / NAME).exists():
        strangers = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        if strangers:
            listed = ", ".join(strangers[:3]) + (", …" if len(strangers) > 3 else "")
            raise UserError(f"{folder} is not a results folder: it holds {listed}. Choose another folder.")


def _content(packs: Sequence[Pack]) -> bytes:
    listed = [
        {
            "id": pack.id,
            "cells": [
                {"id": name, "run": vars(cell)} for name, cell in zip(pack.names, pack.cells, strict=True)
            ],
        }
        for pack in packs
    ]
    return json.dumps({"fingerprint": fingerprint(), "packs": listed}, indent=1, sort_keys=True).encode()
