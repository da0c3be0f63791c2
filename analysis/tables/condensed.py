"""Condense result rows into the three small tables that figures and claims read."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.tables.committed import Table, is_committed, load_committed, load_results
from analysis.tables.outcomes import ACCURACY, DIVERGED, ESS, ESS_FLOOR, need
from analysis.tables.sampled_ess import EXACT, deepest
from analysis.tables.tails import HISTOGRAM, pool
from testbed.errors import UserError

LIMIT = 300 * 1024
"""Largest size of a committed table in bytes; above it, steps are thinned."""

UNLIMITED = 2**40
"""Largest size of a table that is made from results only for drawing."""

NAMES = ("ess-collapse", "ratio-tails", "staleness")
KEYS = ("recipe", "lag", "seed")
TOKEN_ESS = "rollout_corr/ess_kish_token_raw"
CLIP_SHARE = "actor/clip_share"
EXACT_VALUE = "exact/value"

STALENESS = (ACCURACY, ESS, TOKEN_ESS, ESS_FLOOR, CLIP_SHARE, DIVERGED)
ESS_COLLAPSE = (EXACT, ESS, TOKEN_ESS, ESS_FLOOR, EXACT_VALUE)


def load_tables(folder: Path | None = None) -> dict[str, Table]:
    """Return the tables by name: committed (None, or a folder of CSV files) or condensed from results.

    Results are condensed whole, however many cells they have; only committed tables must be small.
    """
    if folder is None:
        return load_committed()
    if is_committed(folder):
        return load_committed(folder=folder)
    return condense(load_results(folder), UNLIMITED)


def condense(frame: pd.DataFrame, limit: int = LIMIT) -> dict[str, Table]:
    """Return the tables that the rows can fill, among staleness, ess-collapse and ratio-tails.

    staleness: accuracy and ESS per recipe, lag, seed, step of a language policy (toy, else hf).
    ratio-tails: that policy's histograms of sequence ratios, summed over steps.
    ess-collapse: exact and sampled ESS per recipe, lag, seed, step of tabular worlds.
    """
    need(frame, [*KEYS, "step", "policy"])
    tables = {}
    language = next((p for p in ("toy", "hf") if (frame["policy"] == p).any()), None)
    if language is not None:
        rows = _one_setting(frame[frame["policy"] == language])
        tables["staleness"] = _curves("staleness", rows, STALENESS, limit)
        if HISTOGRAM in rows and rows[HISTOGRAM].notna().any():
            pooled = pool(rows[rows[HISTOGRAM].notna()])
            pooled[HISTOGRAM] = [" ".join(str(int(count)) for count in row) for row in pooled[HISTOGRAM]]
            tables["ratio-tails"] = Table.of("ratio-tails", pooled, _about(rows))
    if EXACT in frame:
        exact = frame[(frame["policy"] == "tabular") & frame[EXACT].notna()]
        if len(exact):
            tables["ess-collapse"] = _curves("ess-collapse", _one_setting(exact), ESS_COLLAPSE, limit)
    if not tables:
        raise UserError(
            "No table can be made of these rows: neither a toy or hf policy nor a tabular policy with "
            f"{EXACT}. Policies found: {', '.join(sorted(set(frame['policy'].astype(str))))}."
        )
    return tables


def _one_setting(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in order; raise UserError if more than recipe, lag and seed varies between cells.

    The same cell read from two folders counts once: its id stands for its numbers.
    """
    if "cell" in rows:
        rows = rows.drop_duplicates(["cell", "step"])
    clashes = rows[rows.duplicated([*KEYS, "step"], keep=False)]
    if len(clashes):
        first = clashes[(clashes[[*KEYS, "step"]] == clashes[[*KEYS, "step"]].iloc[0]).all(axis=1)]
        varied = [
            name
            for name in first.columns
            if "/" not in name and first[name].astype(str).nunique(dropna=False) > 1
        ]
        raise UserError(
            "Cells with the same recipe, lag and seed differ in "
            f"{', '.join(name for name in varied if name != 'cell') or 'their numbers'}; "
            "export one setting at a time, or draw them all with: testbed plot RESULTS"
        )
    return rows.sort_values([*KEYS, "step"], ignore_index=True)


def _about(rows: pd.DataFrame) -> dict[str, Any]:
    fields = [
        name for name in ("task", "policy", "optimizer", "learning_rate", "prompts", "group") if name in rows
    ]
    about: dict[str, Any] = {
        name: value.item() if isinstance(value, np.generic) else value
        for name in fields
        if len(values := rows[name].unique()) == 1
        for value in values
    }
    return about | {
        "cells": len(rows[list(KEYS)].drop_duplicates()),
        "recipes": sorted(set(rows["recipe"])),
        "lags": sorted({int(lag) for lag in rows["lag"]}),
        "seeds": sorted({int(seed) for seed in rows["seed"]}),
    }


def _curves(name: str, rows: pd.DataFrame, columns: tuple[str, ...], limit: int) -> Table:
    """Return the key columns and the metrics, with every 1st, 2nd, … logged step until the table fits.

    The row with the smallest exact ESS of every cell stays, whatever its step.
    """
    kept = [*KEYS, "step", *(column for column in columns if column in rows)]
    if ACCURACY in kept:  # a diverged run has lost everything; leaving it out would favor its recipe
        rows = rows.assign(**{ACCURACY: rows[ACCURACY].fillna(0.0)})
    about = _about(rows)
    always = rows.index.isin(deepest(rows).index) if EXACT in kept else np.zeros(len(rows), dtype=bool)
    steps = np.sort(rows["step"].unique())
    for stride in range(1, len(steps) + 1):
        # Counted from the end: the last step, where outcomes are read, always stays.
        chosen = {int(step) for step in steps[::-1][::stride]} | {int(steps[0])}
        some = rows.loc[rows["step"].isin(chosen) | always, kept]
        table = Table.of(name, some, about | {"steps": len(chosen)})
        if len(table.csv) <= limit:
            return table
    raise UserError(
        f"Table '{name}' stays above {limit // 1024} KiB even with {len(chosen)} steps: {about['cells']} "
        "cells. Export fewer lags, recipes or seeds."
    )


def describe(tables: Mapping[str, Table]) -> dict[str, Any]:
    """Return the manifest of the tables: file, sha256, rows, columns and what they were made from."""
    return {
        "tables": {
            name: {
                "file": f"{name}.csv",
                "sha256": table.sha256,
                "rows": len(table.frame),
                "columns": list(table.frame.columns),
                "about": dict(table.about),
                **({"made": dict(table.made)} if table.made else {}),
            }
            for name, table in sorted(tables.items())
        }
    }
