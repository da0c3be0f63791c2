"""sweep.json: what a results folder was made for, so that nothing else is ever mixed into it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.config.pack import Pack, pack_id_of, packed, restore
from testbed.config.run import cell_ids
from testbed.errors import UserError
from testbed.results import atomic_files
from testbed.results.fingerprint import FORMAT, Fingerprint, difference, fingerprint
from testbed.results.locks import Locks

NAME = "sweep.json"
PARTS = ("packs", "failures", "provenance", "quarantine")
"""Folders beside sweep.json."""

SIGNED = re.compile(rb',\n"sha256": "([0-9a-f]{64})"}\n\Z')
UNSIGNED = b'{\n "fingerprint": {'
"""How a plan ends that has a digest of what is before it, and how one begins that was written without."""


@dataclass(frozen=True)
class Sweep:
    """The packs planned, id to cell ids in plan order, and the fingerprint of the code that computes them."""

    packs: Mapping[str, tuple[str, ...]]
    made_by: Fingerprint


def write(folder: Path, packs: Sequence[Pack], extend: bool = False) -> None:
    """Make the folder and its sweep.json, or check that the one there is of this sweep and this code.

    extend: where sweep.json has the first of these packs, let the others join it.
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
    if extend and len(planned) > len(there.packs):
        there = _extend(folder, packs)
    if list(planned.items()) != list(there.packs.items()):
        theirs, ours = ({cell for cells in p.values() for cell in cells} for p in (there.packs, planned))
        raise UserError(
            f"{folder} holds another sweep: {len(theirs)} cells, of which this sweep of {len(ours)} has "
            f"{len(theirs & ours)}. Let the others join it with --extend, or choose another folder."
        )
    for part in PARTS:
        with atomic_files.mended(folder / part):
            (folder / part).mkdir(exist_ok=True)
        atomic_files.sweep_aside(folder / part)


def _extend(folder: Path, packs: Sequence[Pack]) -> Sweep:
    """Write the longer plan where the one there is its beginning; return the plan that is there then."""
    locks = Locks(folder / ".locks")
    if not locks.take(NAME):
        raise UserError(f"Another run is extending {folder} just now. Run the same command again.")
    try:
        held = list(load(folder).packs)  # once more, under the lock
        if held == [pack.id for pack in packs[: len(held)]]:
            atomic_files.replace(folder / NAME, _content(packs))
        return load(folder)
    finally:
        locks.close()


def planned(folder: Path) -> tuple[Pack, ...]:
    """Return the packs that a results folder was planned with, and their cells; () where there is no plan.

    Raises UserError when the plan is damaged, or of a newer format.
    """
    if not (folder / NAME).exists():
        return ()
    names = load(folder).packs
    path = folder / NAME
    try:
        data = json.loads(atomic_files.read(path))
        cells = [
            [restore({**pack.get("shared", {}), **cell["run"]}) for cell in pack["cells"]]
            for pack in data["packs"]
        ]
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from None
    packs = [packed(i, runs, names[name]) for i, (name, runs) in enumerate(zip(names, cells, strict=True))]
    for pack in packs:
        if tuple(cell_ids(pack.cells)) != pack.names:
            raise _damaged(path, ValueError(f"{pack} has cells of other code"))
    return tuple(packs)


def load(folder: Path) -> Sweep:
    """Return what sweep.json says; raise UserError when it is missing, damaged, or of a newer format."""
    path = folder / NAME
    try:
        content = atomic_files.read(path)
        data = json.loads(content, object_hook=_without_runs)
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
        packs = {str(pack["id"]): tuple(map(str, pack["cells"])) for pack in data["packs"]}
        _verify(content, packs, int(made_by["run_version"]))
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from None
    for part in (folder / part for part in PARTS):
        if part.is_symlink() or (part.exists() and not part.is_dir()):
            raise UserError(f"{part} must be a folder, not a link or a file. Choose another folder.")
    return Sweep(packs, made_by)


def _without_runs(found: dict[str, Any]) -> Any:
    """Return a cell's id in place of the cell: its fields, most of the file, are for people."""
    return found["id"] if found.keys() == {"id", "run"} else found


def _verify(content: bytes, packs: Mapping[str, Sequence[str]], run_version: int) -> None:
    """Raise ValueError when the bytes are not those that were written.

    Until the plan had a digest of its own it was written with an indent, and only the ids in it can be
    verified: a pack's id is a hash of those of its cells.
    """
    signed = SIGNED.search(content)
    if signed and hashlib.sha256(content[: signed.start()]).hexdigest().encode() != signed[1]:
        raise ValueError("the content is not what its digest says")
    if not signed and not content.startswith(UNSIGNED):
        raise ValueError("the digest is missing")
    for name, cells in packs.items():
        if name != pack_id_of(cells, run_version):
            raise ValueError(f"pack {name!r} has other cells than its id says")


def _damaged(path: Path, error: Exception) -> UserError:
    reason = f"no entry {error}" if isinstance(error, KeyError) else str(error) or "too deeply nested"
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
    """Return the plan, one line per pack: what its cells share once, and of each cell what is its own."""
    head = '{"fingerprint": ' + json.dumps(fingerprint(), sort_keys=True) + ',\n"packs": [\n'
    body = (head + ",\n".join(map(_line, packs)) + "\n]").encode()
    return body + f',\n"sha256": "{hashlib.sha256(body).hexdigest()}"}}\n'.encode()


def _line(pack: Pack) -> str:
    first = vars(pack.cells[0])
    own = [
        {field: value for field, value in vars(cell).items() if value is not first[field]}
        for cell in pack.cells[1:]
    ]
    varied = {field for fields in own for field, value in fields.items() if repr(value) != repr(first[field])}
    own = [{field: vars(cell)[field] for field in first if field in varied} for cell in pack.cells]
    shared = {field: value for field, value in first.items() if field not in varied}
    cells = [{"id": name, "run": run} for name, run in zip(pack.names, own, strict=True)]
    return _COMPACT({"id": pack.id, "shared": shared, "cells": cells})


_COMPACT = json.JSONEncoder(separators=(",", ":")).encode
