"""The results folder: one immutable Parquet file per pack, failures apart, no partial files.

sweep.json            the planned packs and cells, the format, the fingerprint
packs/                <pack id>-<sha256 of the content>.parquet
failures/             <pack id>.json: failed, died, timeout or oom; never mixed with results
provenance/           <pack id>.json: versions, CPU, threads, times
quarantine/           result files with a content that does not match their name
"""

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import pyarrow as pa

from testbed.config.pack import Pack
from testbed.errors import UserError, counted, printable
from testbed.results import atomic_files, manifest
from testbed.results.file_locks import Locks
from testbed.results.fingerprint import difference
from testbed.results.parquet import decode, header

RESULT = re.compile(r"([0-9a-f]{16})-([0-9a-f]{64})\.parquet")

WORD = 200
"""Most characters of a word about a machine."""
TRACE = 20_000
"""Most characters kept of a trace."""

Kind = Literal["failed", "died", "timeout", "oom"]


@dataclass(frozen=True)
class Failure:
    """Reason why a pack has no result: it raised, its process died, it timed out, or memory ran out."""

    pack: str
    kind: Kind
    message: str
    cells: tuple[str, ...]
    attempts: int = 1
    trace: str = ""


@dataclass(frozen=True)
class Status:
    """Counts of cells; always planned = done + failed + pending. A rerun retries failed packs.

    quarantined: damaged files ever set aside. damaged: pending cells that lost their result in this way.
    """

    planned: int
    done: int
    failed: int
    pending: int
    failures: tuple[Failure, ...] = ()
    quarantined: int = 0
    damaged: int = 0


class Store:
    """A results folder. `packs` maps the id of every planned pack to its cell ids, in plan order."""

    def __init__(self, folder: str | Path) -> None:
        """Open an existing folder for reading; raise UserError if it is invalid, or of a newer format."""
        self.folder = Path(folder)
        sweep = manifest.load(self.folder)
        self.packs, self.made_by = sweep.packs, sweep.made_by
        self._found: set[str] | None = None
        self._locks = Locks(self.folder / ".locks")

    @classmethod
    def start(cls, folder: str | Path, packs: Sequence[Pack], extend: bool = False) -> "Store":
        """Return the store of a sweep, making or continuing the folder; `extend` allows new packs.

        Raises UserError if the folder holds something else, another sweep, or numbers of other code.
        """
        manifest.write(Path(folder), packs, extend)
        return cls(folder)

    def claim(self, pack: str) -> bool:
        """Return True if only this process may now run the pack, False while another one does."""
        return self._locks.take(pack)

    def release(self, pack: str) -> None:
        """Let others run the pack."""
        self._locks.release(pack)

    def note_share(self, pack: str, share: float) -> None:
        """Publish the finished share (0 to 1) of a claimed pack's steps."""
        self._locks.note(pack, f"{share:.6f}")

    def running(self) -> dict[str, float]:
        """Return the finished share of steps, by pack, of packs that some process is running."""
        folder = self.folder / ".locks"
        names = set(os.listdir(folder)) & self.packs.keys() if folder.is_dir() else set()
        found = {}
        for name in names:
            with contextlib.suppress(ValueError):
                found[name] = float(self._locks.noted(name))
        return found

    def close(self) -> None:
        """Let others run every pack claimed here."""
        self._locks.close()

    def commit(self, pack: str, content: bytes, provenance: Mapping[str, Any]) -> bool:
        """Store a pack's result permanently; return False if it already has one.

        Raises UserError naming the path if the disk is full or not writable.
        """
        if self.settled(pack):
            return False
        # Provenance comes first: where it is missing, `settled` looks for no result.
        digest = hashlib.sha256(content).hexdigest()
        atomic_files.replace(self.folder / "provenance" / f"{pack}.json", _json(provenance), flush=False)
        return atomic_files.create(self.folder / "packs" / f"{pack}-{digest}.parquet", content)

    def fail(self, failure: Failure) -> None:
        """Record why a pack has no result, replacing an earlier failure."""
        record = _signed(vars(_readable(failure)))
        atomic_files.replace(self.folder / "failures" / f"{failure.pack}.json", record)

    def failure(self, pack: str) -> Failure | None:
        """Return the record of a pack's last failure, or None if there is none or it is damaged."""
        try:
            record = _unsigned(atomic_files.read(self.folder / "failures" / f"{pack}.json"))
            said = Failure(**record | {"cells": tuple(map(str, record["cells"]))})
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            return None
        known = said.kind in get_args(Kind) and isinstance(said.attempts, int)
        return _readable(said) if known else None

    def result(self, pack: str) -> bytes | None:
        """Return the verified content of a pack's result file, or None if there is none.

        Moves a file to quarantine if its content does not match its name, or other code wrote it.
        """
        return self._verified(pack, [path for _, path in self._files(f"{pack}-")])

    def settled(self, pack: str) -> bool:
        """Return True if a pack has a verified result, without listing the whole folder for every pack.

        A result is recognized if it was there when this store first looked, or if its provenance, which is
        written first, is there.
        """
        if self._found is None:
            self._found = {name for name, _ in self._files()}
        known = pack in self._found or (self.folder / "provenance" / f"{pack}.json").exists()
        return known and self.result(pack) is not None

    def results(self) -> Iterator[tuple[str, bytes]]:
        """Yield (pack, verified content) of every finished pack, in plan order."""
        files: dict[str, list[Path]] = {}
        for name, path in self._files():
            files.setdefault(name, []).append(path)
        for name in self.packs:
            content = self._verified(name, files.get(name, []))
            if content is not None:
                yield name, content

    def done(self) -> set[str]:
        """Return the packs that have a verified result."""
        return {name for name, _ in self.results()}

    def failures(self) -> dict[str, Failure]:
        """Return the last failure of every pack that has one, done since or not, in plan order."""
        folder = self.folder / "failures"
        there = set(os.listdir(folder)) if folder.is_dir() else set()
        named = (name for name in self.packs if f"{name}.json" in there)
        return {name: found for name in named if (found := self.failure(name))}

    def status(self) -> Status:
        """Return the counts of planned, done, failed and pending cells."""
        done = self.done()
        failures = tuple(failure for name, failure in self.failures().items() if name not in done)
        failed = {failure.pack for failure in failures}
        size = {name: len(cells) for name, cells in self.packs.items()}
        held = self.quarantined()
        lost = {name.partition("-")[0] for name in held} - done - failed
        kinds = ([size.get(name, 0) for name in names] for names in (size, done, failed, lost))
        planned, good, bad, damaged = map(sum, kinds)
        return Status(planned, good, bad, planned - good - bad, failures, len(held), damaged)

    def quarantined(self) -> list[str]:
        """Return the names of the damaged files set aside; each starts with its pack's id."""
        folder = self.folder / "quarantine"
        return sorted(os.listdir(folder)) if folder.is_dir() else []

    def _files(self, start: str = "") -> Iterator[tuple[str, Path]]:
        """Yield (pack, path) of result files with this name prefix."""
        folder = self.folder / "packs"
        for name in sorted(os.listdir(folder)) if folder.is_dir() else ():
            if name.startswith(start) and (match := RESULT.fullmatch(name)):
                yield match[1], folder / name

    def _verified(self, pack: str, paths: Sequence[Path]) -> bytes | None:
        good = None
        for path in paths:
            content = self._content(path)
            if content is None:
                self._quarantine(pack, path)
            elif good is not None:
                raise UserError(f"{path.parent} holds two results of pack {pack}; move one of them away.")
            else:
                good = content
        return good

    def _content(self, path: Path) -> bytes | None:
        """Return a result file's content, or None if it does not match its name and sweep.json."""
        match = RESULT.fullmatch(path.name)
        try:
            content = atomic_files.read(path)
            if not match or hashlib.sha256(content).hexdigest() != match[2]:
                return None
            found = header(content)
        except (OSError, ValueError, pa.ArrowException):
            return None
        ours = found.get("pack") == match[1] and not difference(found.get("fingerprint", {}), self.made_by)
        return content if ours else None

    def _quarantine(self, pack: str, path: Path) -> None:
        """Move a bad file away, under the pack's lock, so that a good replacement is never moved instead."""
        held = pack in self._locks
        with contextlib.suppress(OSError, UserError):  # a reader without write access skips it
            if self._locks.take(pack):
                if self._content(path) is None:
                    path.rename(self.folder / "quarantine" / f"{path.name}.{secrets.token_hex(4)}")
                    atomic_files.flush_folder(path.parent)
                if not held:
                    self._locks.release(pack)


def read(*folders: str | Path) -> pa.Table:
    """Read the finished runs of one sweep.

    Args:
        folders: a results folder, or the folders of its shards.

    Returns:
        A pyarrow table with a row per run and logged step, in plan order; `.to_pandas()` makes a frame.

    Raises UserError if no run is finished, or if the folders differ in sweep, code or a result.
    """
    if not folders:
        raise UserError("No results folder was given, expected at least one.")
    stores = [Store(folder) for folder in folders]
    first = stores[0]
    for store in stores[1:]:
        if store.packs != first.packs:
            raise UserError(f"{first.folder} and {store.folder} hold different sweeps; read them one by one.")
        if changed := difference(store.made_by, first.made_by):
            raise UserError(f"{store.folder} and {first.folder} were computed by different code: {changed}.")
    found: dict[str, bytes] = {}
    for store in stores:
        for name, content in store.results():
            if found.setdefault(name, content) != content:
                raise UserError(
                    f"{store.folder} has other numbers for pack {name}; move one of the two away."
                )
    if not found:
        many = sum(len(store.quarantined()) for store in stores)
        aside = f" Set aside: {counted(many, 'damaged file')}; the sweep's command makes them again."
        hint = aside if many else ""
        raise UserError(f"No finished results yet in {' or '.join(map(str, folders))}.{hint}")
    tables = [decode(found[name]) for name in first.packs if name in found]
    return pa.concat_tables(tables, promote_options="permissive").combine_chunks()


def status(folder: str | Path) -> Status:
    """Return the counts of planned, done, failed and pending cells in a results folder."""
    return Store(folder).status()


def made_on(folder: Path) -> list[dict[str, str]]:
    """Return the machines that made a folder's results: CPU, threads, versions; each once.

    Provenance files are for readers: unreadable ones are skipped.
    """
    found = []
    for path in sorted((folder / "provenance").glob("*.json")):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            said = atomic_files.record(path)
            parts = ("python", "numpy", "torch", "numba")
            versions = {name: printable(said["versions"][name], WORD) for name in parts}
            cpu, threads = said["cpu"], said["threads"]["OMP_NUM_THREADS"]
            machine = {"cpu": printable(cpu, WORD), "threads": printable(threads, WORD), **versions}
            if machine not in found:
                found.append(machine)
    return found


def folder_for(root: str | Path, name: str) -> Path:
    """Return root/name; raise UserError unless name is one plain folder inside root."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise UserError(
            f"'{name}' cannot name a results folder; use letters, digits, '.', '_' and '-', at most 100."
        )
    folder = Path(root) / name
    if folder.is_symlink():
        raise UserError(f"{folder} is a symbolic link, expected a folder. Choose another name.")
    return folder


def _readable(failure: Failure) -> Failure:
    """Return the failure with texts made safe for a terminal, because raised errors may contain anything."""
    return replace(failure, message=printable(failure.message), trace=printable(failure.trace, TRACE))


def _json(data: Mapping[str, Any]) -> bytes:
    return json.dumps(data, indent=1, sort_keys=True).encode()


def _signed(data: Mapping[str, Any]) -> bytes:
    """Return the record as JSON with the digest of its other entries."""
    return _json({**data, "sha256": hashlib.sha256(_json(data)).hexdigest()})


def _unsigned(content: bytes) -> dict[str, Any]:
    """Return a record without its digest; raise ValueError if it is damaged. Old records have none."""
    record: dict[str, Any] = json.loads(content)
    digest = record.pop("sha256", None)
    if digest is not None and digest != hashlib.sha256(_json(record)).hexdigest():
        raise ValueError("the record does not match its digest")
    return record
