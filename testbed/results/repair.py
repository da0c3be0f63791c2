"""Rebuild a lost or damaged sweep.json from its second copy, results, provenance and failures."""

import contextlib
import hashlib
import json
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from testbed.config.pack import pack_id_of
from testbed.errors import UserError, counted
from testbed.results import atomic_files, manifest
from testbed.results.fingerprint import Fingerprint
from testbed.results.parquet import decode, header

NOTHING = f"has no finished pack to rebuild {manifest.NAME} from. Choose another folder."
LAST = 1 << 60
"""Position of a pack with an unknown place in the plan."""


def repair(folder: Path) -> str:
    """Rebuild sweep.json if it is missing or damaged, and return a sentence about the repair.

    Uses the packs of the second copy, and those with results, provenance or a failure. Without the second
    copy, packs without a trace are missing; the sweep's command adds them again. Raises UserError if there is
    nothing to rebuild from, or results of several versions of the code.
    """
    if not folder.is_dir() or not ((folder / manifest.NAME).exists() or manifest.has_results(folder)):
        raise UserError(f"{folder} is not a results folder: it has no {manifest.NAME} and no results.")
    with manifest.alone(folder):
        with contextlib.suppress(UserError):
            manifest.load(folder)
            manifest.keep_copy(folder)
            return f"{manifest.NAME} is sound; nothing to repair."
        return _rebuilt(folder)


def _rebuilt(folder: Path) -> str:
    copy = _copy(folder)
    results = dict(_results(folder))
    made_by = copy[1] if copy else _one_fingerprint(folder, results)
    version = int(made_by["run_version"])
    known = dict(copy[0]) if copy else {}
    before = len(known)
    found = {entry["id"]: entry for entry in _traces(folder, results, made_by) if _is_sound(entry, version)}
    for entry in sorted(found.values(), key=lambda entry: (_place(entry), entry["id"])):
        known.setdefault(entry["id"], _without_place(entry))
    if not known:
        raise UserError(f"{folder} {NOTHING}")
    partial = not copy or copy[2] or len(known) > before
    lines = map(manifest.compact, known.values())
    content = manifest.signed(lines, made_by, partial)
    path = folder / manifest.NAME
    with atomic_files.mended(path):
        (folder / "quarantine").mkdir(exist_ok=True)
        with contextlib.suppress(FileNotFoundError):
            path.rename(folder / "quarantine" / f"{manifest.NAME}.{secrets.token_hex(4)}")
    atomic_files.replace(folder / manifest.NAME, content)
    manifest.load(folder)
    manifest.keep_copy(folder)
    source = "its second copy" if copy else "results and provenance"
    more = " Run the sweep's command again to add packs that left no file." if partial else ""
    return f"{manifest.NAME} was rebuilt from {source}: {counted(len(known), 'pack')}.{more}"


def _copy(folder: Path) -> tuple[dict[str, dict[str, Any]], Fingerprint, bool] | None:
    """Return entries by pack, fingerprint, and True if it was rebuilt, of a valid second copy."""
    try:
        sweep = manifest.read_plan(folder / manifest.SECOND)
        data = json.loads(atomic_files.read(folder / manifest.SECOND))
    except (UserError, OSError, ValueError, RecursionError):
        return None
    return {entry["id"]: entry for entry in data["packs"]}, sweep.made_by, sweep.rebuilt


def _results(folder: Path) -> Iterator[tuple[str, tuple[Fingerprint, bytes]]]:
    """Yield pack, fingerprint and content of every result that matches its name."""
    for path in sorted((folder / "packs").glob("*.parquet")):
        pack, _, digest = path.stem.partition("-")
        with contextlib.suppress(OSError, ValueError, KeyError, pa.ArrowException):
            content = atomic_files.read(path)
            said = header(content)
            if hashlib.sha256(content).hexdigest() == digest and said["pack"] == pack:
                yield pack, (dict(said["fingerprint"]), content)


def _one_fingerprint(folder: Path, results: Mapping[str, tuple[Fingerprint, bytes]]) -> Fingerprint:
    made_by = [said for said, _ in results.values()]
    if not made_by:
        raise UserError(f"{folder} {NOTHING}")
    if any(other != made_by[0] for other in made_by):
        raise UserError(f"{folder} holds results of several versions of the code; move those of one away.")
    return made_by[0]


def _traces(
    folder: Path, results: Mapping[str, tuple[Fingerprint, bytes]], made_by: Fingerprint
) -> Iterator[dict[str, Any]]:
    """Yield known facts about packs, the least first: ids of cells, then the plan in provenance."""
    for path in sorted((folder / "failures").glob("*.json")):
        cells = atomic_files.record(path).get("cells")
        if isinstance(cells, list):
            yield _bare(path.stem, map(str, cells))
    for pack, (theirs, content) in results.items():
        if theirs == made_by:
            yield _bare(pack, dict.fromkeys(decode(content)["cell"].to_pylist()))
    for path in sorted((folder / "provenance").glob("*.json")):
        planned = atomic_files.record(path).get("planned")
        if isinstance(planned, dict):
            yield planned | {"id": path.stem}


def _bare(pack: str, cells: Any) -> dict[str, Any]:
    return {"id": pack, "shared": {}, "cells": [{"id": cell, "run": {}} for cell in cells]}


def _is_sound(entry: Mapping[str, Any], version: int) -> bool:
    """Return True if a pack's cells match its id."""
    try:
        named = [str(cell["id"]) for cell in entry["cells"] if cell.keys() == {"id", "run"}]
        return len(named) == len(entry["cells"]) and entry["id"] == pack_id_of(named, version)
    except (KeyError, TypeError, AttributeError):
        return False


def _place(entry: Mapping[str, Any]) -> int:
    index = entry.get("index")
    return index if isinstance(index, int) else LAST


def _without_place(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {name: entry[name] for name in ("id", "shared", "cells") if name in entry}
