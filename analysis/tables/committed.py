"""Read tables: a results folder of Parquet packs, or the small committed CSV files behind the figures."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from testbed.errors import UserError, unknown
from testbed.results.manifest import has_results

COMMITTED = Path(__file__).resolve().parents[2] / "paper_figs" / "data"
"""Folder of the committed tables and their manifest."""

REMEASURED = COMMITTED / "remeasured"
"""Folder of the data that gates need and older tables lack."""

MANIFEST = "manifest.json"
SWEEP = "sweep.json"
"""File that marks a results folder."""
DIGITS = 5
"""Significant digits in a CSV file."""


@dataclass(frozen=True)
class Table:
    """A small result table as the bytes of its CSV file, so that a digest identifies the data of a figure.

    name: that of its experiment. about: its contents (cells, tasks, recipes), JSON-able. made: "preset", the
    design fixed before (analysis.judging.preregistration), and "machines"; {} if nobody recorded it.
    """

    name: str
    csv: bytes
    about: Mapping[str, Any] = field(default_factory=dict)
    made: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, frame: pd.DataFrame, about: Mapping[str, Any] | None = None) -> Table:
        """Return the frame as a table: floats with five significant digits, rows in the given order.

        about["once"]: columns written only in a row that differs in any of them from the row before.
        about["counts"]: a column left out where it is that of the row before plus one.
        """
        if counts := (about or {}).get("counts"):
            frame = frame.assign(**{counts: frame[counts].mask(frame[counts].diff() == 1).astype("Int64")})
        if once := (about or {}).get("once"):
            words = frame[once].astype(str).fillna("")
            repeats = (words == words.shift()).all(axis=1)
            frame = frame.assign(**{column: frame[column].mask(repeats) for column in once})
        text = frame.to_csv(index=False, float_format=f"%.{DIGITS}g", lineterminator="\n")
        return cls(name, text.encode(), about or {})

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.csv).hexdigest()

    @cached_property
    def frame(self) -> pd.DataFrame:
        """Rows; what `about` says is left out, or derived as `run` from seeds, is filled in."""
        rows = pd.read_csv(io.BytesIO(self.csv))
        if once := self.about.get("once"):
            starts = rows[once[0]].notna()
            of_row = starts.cumsum() - 1
            for column in once:
                said = rows.loc[starts, column]
                whole = (
                    said.dtype.kind == "f" and said.mod(1).eq(0).all()
                )  # blanks had turned them into floats
                rows[column] = (said.astype(int) if whole else said).to_numpy()[of_row]
        if counts := self.about.get("counts"):
            since = rows[counts].notna().cumsum()
            rows[counts] = rows[counts].ffill().astype(int) + rows.groupby(since).cumcount()
        if "fresh" in self.about:
            run = np.where(rows["seed"] < self.about["fresh"], "first", "replication")
            rows.insert(list(rows.columns).index("seed"), "run", run)
        return rows


def manifest(folder: Path = COMMITTED) -> dict[str, Any]:
    """Return the manifest's entries by table: file, sha256, rows, columns, how made; or raise UserError."""
    try:
        path = folder / MANIFEST
        known = path.stat()
        return dict(_entries(path, known.st_mtime_ns, known.st_size))
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{folder} holds no readable {MANIFEST} ({type(error).__name__}). "
            "Make the tables with: testbed evidence run NAME --write"
        ) from error


@lru_cache(maxsize=4)
def _entries(path: Path, _mtime: int, _size: int) -> dict[str, Any]:
    return dict(json.loads(path.read_text())["tables"])


def load_committed(names: Iterable[str] | None = None, folder: Path = COMMITTED) -> dict[str, Table]:
    """Return committed tables by name, all of them by default.

    Raises UserError for a folder without manifest, an unknown name, or a file whose digest is not the
    manifest's.
    """
    listed = manifest(folder)
    found = {}
    for name in sorted(listed) if names is None else names:
        if name not in listed:
            raise unknown(f"table in {folder}:", name, listed)
        found[name] = _read_csv(name, listed[name], folder)
    return found


@cache
def remeasured(experiment: str) -> pd.DataFrame | None:
    """Return keys, accuracy, its rise, and KL and clip share, from repeated runs of an experiment's arms.

    They are not the table's runs, because later code does not repeat those bit for bit; accuracy shows how
    close they end. None if nothing was repeated.
    """
    path = REMEASURED / f"{experiment}.csv"
    return pd.read_csv(path) if path.exists() else None


def _read_csv(name: str, entry: Mapping[str, Any], folder: Path) -> Table:
    path = folder / str(entry.get("file", f"{name}.csv"))
    try:
        table = Table(name, path.read_bytes(), entry.get("about", {}), entry.get("made", {}))
    except OSError as error:
        raise UserError(f"{path} is in the manifest but cannot be read: {error.strerror}.") from error
    if table.sha256 != entry.get("sha256"):
        raise UserError(
            f"{path} has sha256 {table.sha256[:12]}…, but the manifest says "
            f"{str(entry.get('sha256'))[:12]}…: the file was edited or truncated. Make it again with: "
            "testbed evidence run NAME --write"
        )
    return table


def is_committed(folder: Path) -> bool:
    """Return whether the folder holds condensed CSV tables; otherwise it is read as a results folder."""
    return (folder / MANIFEST).is_file() and any(folder.glob("*.csv"))


def load_results(folder: Path) -> pd.DataFrame:
    """Return all finished rows of a results folder, or of those inside it; UserError if there are none."""
    from testbed.results import store

    frames: list[pd.DataFrame] = [store.read(each).to_pandas() for each in results_folders(folder)]
    return pd.concat(frames, ignore_index=True)


def results_folders(folder: Path) -> list[Path]:
    """Return the folder itself if a sweep wrote to it, else the results folders inside it, by name."""
    if (folder / SWEEP).is_file() or has_results(folder):  # whoever reads a lost plan reports it
        return [folder]
    found = sorted(path.parent for path in folder.glob(f"*/{SWEEP}")) if folder.is_dir() else []
    if not found:
        raise UserError(
            f"{folder} is not a results folder and contains none ({SWEEP} is missing). Give the folder that "
            "a sweep wrote to, or the one above it."
        )
    return found
