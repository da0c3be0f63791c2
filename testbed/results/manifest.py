"""sweep.json: the plan of a results folder, which keeps other sweeps out of it."""

import contextlib
import hashlib
import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.config.pack import Pack, pack_id_of, packed, restore
from testbed.config.run import cell_ids
from testbed.errors import UserError
from testbed.results import atomic_files
from testbed.results.file_locks import Locks
from testbed.results.fingerprint import FORMAT, Fingerprint, difference, fingerprint

NAME = "sweep.json"
SECOND = ".sweep.json"
"""A second copy of the plan, for `testbed status --repair`."""
PARTS = ("packs", "failures", "provenance", "quarantine")
"""Folders next to sweep.json."""

SIGNED = re.compile(rb',\n"sha256": "([0-9a-f]{64})"}\n\Z')
UNSIGNED = b'{\n "fingerprint": {'
"""Last line of a plan with a digest, and first bytes of a plan without one."""


@dataclass(frozen=True)
class Sweep:
    """The planned packs, id to cell ids in plan order, and the fingerprint of the code that computes them.

    rebuilt: True if a repair wrote it from finished packs, so packs of the sweep may be missing.
    """

    packs: Mapping[str, tuple[str, ...]]
    made_by: Fingerprint
    rebuilt: bool = False


def write(folder: Path, packs: Sequence[Pack], extend: bool = False) -> None:
    """Make the folder and its sweep.json, or check that the existing one has this sweep and code.

    extend: if sweep.json has the first of these packs, add the others to it. Raises UserError if the folder
    holds something else, another sweep, or numbers of other code.
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
    # A rebuilt plan may lack packs that left no file; the sweep's command adds them without --extend.
    if there.rebuilt and there.packs.items() <= planned.items():
        there = _extend(folder, packs)
    if list(planned.items()) != list(there.packs.items()):
        theirs, ours = ({cell for cells in p.values() for cell in cells} for p in (there.packs, planned))
        raise UserError(
            f"{folder} holds another sweep: {len(theirs)} cells, {len(theirs & ours)} of them in this "
            f"sweep of {len(ours)}. Add the new cells with --extend, or choose another folder."
        )
    for part in PARTS:
        with atomic_files.mended(folder / part):
            (folder / part).mkdir(exist_ok=True)
        atomic_files.sweep_aside(folder / part)
    keep_copy(folder)


def keep_copy(folder: Path) -> None:
    """Update the second copy of the plan to the first, which has just been read."""
    content, copy = (_bytes(folder / name) for name in (NAME, SECOND))
    if content is not None and content != copy:
        atomic_files.replace(folder / SECOND, content)


def _bytes(path: Path) -> bytes | None:
    try:
        return atomic_files.read(path)
    except OSError:
        return None


def _extend(folder: Path, packs: Sequence[Pack]) -> Sweep:
    """Write the longer plan if the existing one is its beginning, or rebuilt; return the plan now there."""
    with alone(folder):
        there = load(folder)  # read again, under the lock
        held = list(there.packs)
        if there.rebuilt or held == [pack.id for pack in packs[: len(held)]]:
            atomic_files.replace(folder / NAME, _content(packs))
        return load(folder)


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold the lock on the plan; raise UserError while another process holds it."""
    locks = Locks(folder / ".locks")
    if not locks.take(NAME):
        raise UserError(f"Another run is extending {folder} just now. Run the same command again.")
    try:
        yield
    finally:
        locks.close()


def planned(folder: Path) -> tuple[Pack, ...]:
    """Return a results folder's planned packs and their cells; () without a plan.

    Raises UserError if the plan is damaged, or of a newer format.
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
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise _damaged(path, error) from None
    packs = [packed(i, runs, names[name]) for i, (name, runs) in enumerate(zip(names, cells, strict=True))]
    for pack in packs:
        if tuple(cell_ids(pack.cells)) != pack.names:
            raise _damaged(path, ValueError(f"{pack} has cells of other code"))
    return tuple(packs)


def load(folder: Path) -> Sweep:
    """Return the content of sweep.json; raise UserError if it is missing, damaged, or of a newer format."""
    sweep = read_plan(folder / NAME)
    for part in (folder / part for part in PARTS):
        if part.is_symlink() or (part.exists() and not part.is_dir()):
            raise UserError(f"{part} must be a folder, not a link or a file. Choose another folder.")
    return sweep


def read_plan(path: Path) -> Sweep:
    """Return this file's plan; raise UserError as `load` does."""
    folder = path.parent
    try:
        content = atomic_files.read(path)
        data = json.loads(content, object_hook=_without_runs)
        made_by = dict(data["fingerprint"])
        written_in = int(made_by["format"])
    except FileNotFoundError:
        lost = f"{folder} has lost its {NAME}.{_todo(folder)}"
        raise UserError(
            lost if has_results(folder) else f"{folder} is not a results folder: it has no {NAME}."
        ) from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(path, error) from None
    if written_in > FORMAT:
        raise UserError(
            f"{folder} has format {written_in}, this testbed reads up to {FORMAT}. Install a newer testbed."
        )
    try:
        packs = {str(pack["id"]): tuple(map(str, pack["cells"])) for pack in data["packs"]}
        run_version = int(made_by["run_version"])
        signed = SIGNED.search(content)
        if signed and hashlib.sha256(content[: signed.start()]).hexdigest().encode() != signed[1]:
            raise ValueError("the content does not match its digest")
        if not signed and not content.startswith(UNSIGNED):
            raise ValueError("the digest is missing")
        for name, cells in packs.items():
            if name != pack_id_of(cells, run_version):
                raise ValueError(f"pack {name!r} has other cells than its id says")
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(path, error) from None
    return Sweep(packs, made_by, data.get("rebuilt") is True)


def has_results(folder: Path) -> bool:
    """Return True if a plan can be rebuilt here: from a second copy, or files of finished packs."""
    if (folder / SECOND).exists():
        return True
    with contextlib.suppress(OSError):
        return any(name.endswith(".parquet") for name in os.listdir(folder / "packs"))
    return False


def _todo(folder: Path) -> str:
    again = f" Its results are kept; rebuild the plan: testbed status {shlex.quote(str(folder))} --repair"
    return again if has_results(folder) else " Choose another folder."


def _without_runs(found: dict[str, Any]) -> Any:
    """Return a cell's id in place of the cell; its fields, most of the file, are for readers."""
    return found["id"] if found.keys() == {"id", "run"} else found


def _damaged(path: Path, error: Exception) -> UserError:
    reason = f"no entry {error}" if isinstance(error, KeyError) else str(error) or "too deeply nested"
    return UserError(f"{path} cannot be read as the plan of a sweep ({reason}).{_todo(path.parent)}")


def _refuse_strangers(folder: Path) -> None:
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file, expected a folder for results. Choose another folder.")
    if folder.is_dir() and not (folder / NAME).exists():
        if has_results(folder):
            raise UserError(f"{folder} has lost its {NAME}.{_todo(folder)}")
        strangers = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
        if strangers:
            listed = ", ".join(strangers[:3]) + (", …" if len(strangers) > 3 else "")
            raise UserError(f"{folder} is not a results folder: it holds {listed}. Choose another folder.")


def _content(packs: Sequence[Pack]) -> bytes:
    """Return the plan, one line per pack: fields that its cells share once, the others per cell."""
    return signed(map(_line, packs), fingerprint())


def signed(lines: Iterable[str], made_by: Fingerprint, rebuilt: bool = False) -> bytes:
    """Return a plan of these lines, one JSON object per pack, and its digest."""
    mark = '"rebuilt": true,\n' if rebuilt else ""
    head = '{"fingerprint": ' + json.dumps(made_by, sort_keys=True) + f',\n{mark}"packs": [\n'
    body = (head + ",\n".join(lines) + "\n]").encode()
    return body + f',\n"sha256": "{hashlib.sha256(body).hexdigest()}"}}\n'.encode()


def entry(pack: Pack) -> dict[str, Any]:
    """Return the plan's entry of a pack, and its position, for the provenance of its results."""
    return {"index": pack.index, **json.loads(_line(pack))}


def _line(pack: Pack) -> str:
    first = vars(pack.cells[0])
    fields = (vars(cell) for cell in pack.cells[1:])
    # Cells of a grid share objects, so that few values are left to compare by their repr.
    own = [{name: value for name, value in each.items() if value is not first[name]} for each in fields]
    varied = {field for fields in own for field, value in fields.items() if repr(value) != repr(first[field])}
    own = [{field: vars(cell)[field] for field in first if field in varied} for cell in pack.cells]
    shared = {field: value for field, value in first.items() if field not in varied}
    cells = [{"id": name, "run": run} for name, run in zip(pack.names, own, strict=True)]
    return compact({"id": pack.id, "shared": shared, "cells": cells})


compact = json.JSONEncoder(separators=(",", ":")).encode
