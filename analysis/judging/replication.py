"""Computed tables of replications: all arms share the seeds, and everything is repeated on fresh seeds.

A claim on such a table is judged on the first run and on the replication, see `claims.look`.
"""

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from analysis.judging.comparisons import Arm, arm, paired
from analysis.judging.e_values import Evidence
from analysis.sweeps.seeds_and_rates import LEAST_CAP
from analysis.tables.committed import Table, manifest
from envs.arrays import Floats
from testbed.errors import UserError
from testbed.rng import keys

RUNS: Mapping[str, int] = MappingProxyType({"first": 0, "replication": 1_000_000})
"""Name of a run: its first seed."""
Seeds = tuple[int, ...]
Frame: TypeAlias = pd.DataFrame
Rows: TypeAlias = Iterator[pd.DataFrame]
Keys: TypeAlias = NDArray[np.uint64]
"""What an experiment computes by: a table of rows, parts of one, and keys of replicas, [R]."""
Frames: TypeAlias = pd.DataFrame | Iterable[pd.DataFrame]
Groups: TypeAlias = dict[str, Floats]
"""Units, mostly paired differences, by group."""
Check: TypeAlias = Callable[[pd.DataFrame], Evidence]


def repeated(rows: Callable[[Seeds], Frames], seeds: int) -> pd.DataFrame:
    """Return rows(seeds) of both runs, with a column `run` in front; rows have a column `seed`."""
    return _both({run: rows(tuple(range(start, start + seeds))) for run, start in RUNS.items()})


def of_seeds(
    name: str, rows: Callable[[Seeds], Frames], seeds: int, about: Mapping[str, Any] | None = None
) -> Callable[[], Table]:
    """Return the function that computes `repeated`'s table; it keeps the name of `rows`, for tracebacks.

    It raises UserError for a new table with too few seeds.
    """

    @functools.wraps(rows)
    def compute() -> Table:
        _refuse_too_few(name, seeds)
        return Table.of(name, repeated(rows, seeds), about or {})

    return compute


def averaged(
    rows: Callable[[Seeds], Frames], worlds: int, values: tuple[str, ...], *, continued: bool = False
) -> Callable[..., Any]:
    """Return rows(seeds) in which a unit is the mean of these columns over `worlds` random worlds.

    Unit s has the worlds from (s + 1000) * worlds on, which no single-world unit had; with `continued` its
    first world is s, as for a single world. This keeps the table of many worlds small.
    """

    def met(s: int) -> Iterator[int]:
        fresh = ((s + 1000) * worlds + i for i in range(worlds))
        return itertools.chain([s], itertools.islice(fresh, 1, None)) if continued else fresh

    @functools.wraps(rows)
    def units(seeds: Seeds) -> Iterator[pd.DataFrame]:
        for start in range(0, len(seeds), _AT_ONCE):
            unit_of = {world: s for s in seeds[start : start + _AT_ONCE] for world in met(s)}
            given = rows(tuple(unit_of))
            frame = given if isinstance(given, pd.DataFrame) else pd.concat(given)
            frame["seed"] = frame["seed"].map(unit_of)
            others = [column for column in frame if column not in values]
            yield frame.groupby(others, sort=False, as_index=False)[list(values)].mean()

    return units


_AT_ONCE = 64


def of_keys(
    name: str,
    make: Callable[[NDArray[np.uint64]], Frames],
    seeds: int,
    about: Mapping[str, Any] | None = None,
) -> Callable[[], Table]:
    """Return a function for make(key_R) of both runs: `seeds` keys that no other run or experiment has.

    Settings and margins may be chosen on other keys, those of a pilot, which are in no table. It keeps the
    name of `make`, as in `of_seeds`.
    """

    @functools.wraps(make)
    def compute() -> Table:
        _refuse_too_few(name, seeds)
        frame = _both({run: make(keys(tuple(range(seeds)), f"{name}/{run}")) for run in RUNS})
        return Table.of(name, frame, {"seeds": seeds, **(about or {})})

    return compute


def _refuse_too_few(name: str, seeds: int) -> None:
    """Raise UserError for a new table that could not decide a gap of one standard deviation."""
    if seeds < LEAST_CAP and name not in manifest():
        raise UserError(
            f"'{name}' would have {seeds} seeds a run, too few to decide a gap of one standard deviation. "
            f"Give it {LEAST_CAP} (testbed power --gap 1 --spread 1)."
        )


def _both(found: Mapping[str, Frames]) -> pd.DataFrame:
    """Return the rows of both runs, with a column `run` in front."""
    frames = []
    for run, given in found.items():
        frame = given if isinstance(given, pd.DataFrame) else pd.concat(given)
        frame.insert(0, "run", run)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)


def runs_of(table: pd.DataFrame) -> list[str]:
    """Return the runs in a table: one of the two, or "both" where they are judged together."""
    return list(dict.fromkeys(map(str, table["run"])))


def combinations(
    key_R: NDArray[np.uint64], **levels: Iterable[Any]
) -> tuple[pd.DataFrame, NDArray[np.uint64]]:
    """Return a row for every combination of levels and every seed 0 … R - 1, and the rows' keys.

    Cells of one seed share their key, so that arms are paired.
    """
    every = {**levels, "seed": range(len(key_R))}
    frame = pd.MultiIndex.from_product(list(every.values()), names=list(every)).to_frame(index=False)
    return frame, key_R[frame["seed"].to_numpy()]


def columns(seeds: Seeds, **values: object) -> pd.DataFrame:
    """Return a frame with a row per seed: numbers, or arrays [R]."""
    return pd.DataFrame({"seed": seeds, **values})


def difference(
    table: pd.DataFrame, value: str, first: Arm, second: Arm, *, log: bool = False, **each: Any
) -> Groups:
    """Return a column of the first arm minus that of the second, by seed.

    Where an arm has several values of a column, every combination of them is a group, named by its values.
    each: further columns that both arms share. log: take logarithms of the column.
    """
    if log:
        table = table.assign(**{value: np.log(table[value])})
    return {
        name: paired(rows, value, {**one, **here}, {**other, **here})
        for name, rows, (here, one, other) in _groups(table, each, first, second)
    }


def level(table: pd.DataFrame, value: str, where: Arm) -> Groups:
    """Return a column of an arm, seed by seed for each combination, as in `difference`."""
    return {
        name: arm(rows, value, here).to_numpy(dtype=float) for name, rows, (here,) in _groups(table, where)
    }


def slopes(table: pd.DataFrame, x: str, y: str, where: Arm) -> Groups:
    """Return the least-squares slope of y over x within each seed of an arm, for each combination."""
    found = {}
    for name, rows, (here,) in _groups(table, where):
        for column, wanted in here.items():
            rows = rows[rows[column] == wanted]
        wide = rows.pivot(index="seed", columns=x, values=y)
        place_K = wide.columns.to_numpy(dtype=float)
        # Centered places sum to 0, so that the mean of y needs no subtraction.
        centered_K = place_K - place_K.mean()
        found[name] = wide.to_numpy(dtype=float) @ centered_K / (centered_K @ centered_K)
    return found


def _groups(table: pd.DataFrame, *arms: Arm) -> Iterator[tuple[str, pd.DataFrame, list[dict[str, Any]]]]:
    """Yield "column level", the rows and the arms, for every combination of levels."""
    several = [(i, name) for i, each in enumerate(arms) for name, x in each.items() if _is_several(x)]
    for levels in itertools.product(*(arms[i][name] for i, name in several)):
        chosen: list[dict[str, Any]] = [dict(each) for each in arms]
        for (i, name), x in zip(several, levels, strict=True):
            chosen[i][name] = x
        words = [f"{name} {x}" for (_, name), x in zip(several, levels, strict=True)]
        yield ", ".join(words), table, chosen


def _is_several(x: object) -> bool:
    return isinstance(x, Collection) and not isinstance(x, str)


def merged(**groups: Groups) -> Groups:
    """Return all groups, each under the name of its part and its own."""
    return {f"{part}, {name}": x_N for part, found in groups.items() for name, x_N in found.items()}
