"""Any results folder as one table: its settings, its metrics, one row per cell.

    from analysis.sweeps.sweep_table import load, per_cell
    rows = load("results/mine")                   # a row per cell and logged step
    cells = per_cell(rows, "final accuracy")      # a row per cell: settings, seed, value

A setting is a field of Run that the sweep varies, or one of its arguments, `recipe_args.eps`; the seed is no
setting.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.tables.cell_table import FIELDS, OUTCOMES, REACHED, REDUCTIONS, value_of
from analysis.tables.committed import load_results, results_folders
from analysis.tables.outcomes import ACCURACY, DIVERGED, ESS, READS, WINDOW, need
from analysis.tables.sampled_ess import EXACT
from analysis.tables.value_table import VALUE
from testbed.errors import UserError, unknown
from testbed.results import store
from testbed.user_files import short_names
from testbed.words import split

ARGUMENTS = tuple(name for name in FIELDS if name.endswith("_args"))
REWARD = "reward/mean"
OF_FILES = ("task", "recipe", "staleness")
"""Fields that may name an object in a user's file; `recipe_file` and so on keep the whole name."""


def load(*folders: str | Path) -> pd.DataFrame:
    """Return every finished row of results folders, or of those directly inside them, as a pandas frame.

    Columns: cell and step, every field of Run, a column for each argument (`recipe_args.eps`, missing for
    cells without it), every logged metric. If two folders have the same cell, the first is taken. An object
    from a file is named by its function, as in `recipe`, with the full name in `recipe_file`.

    Raises UserError when a folder holds no results, or none that are finished.
    """
    rows = pd.concat([load_results(Path(folder)) for folder in folders], ignore_index=True)
    rows = rows.drop_duplicates(["cell", "step"], ignore_index=True)
    added: dict[str, pd.Series] = {}
    for field in ARGUMENTS:
        added |= _arguments(field, rows[field])
    for field in OF_FILES:
        short = short_names(rows[field].unique())
        if any(name != full for full, name in short.items()):
            added[f"{field}_file"] = rows[field]
            rows[field] = rows[field].map(short)
    return pd.concat([rows, pd.DataFrame(added, index=rows.index)], axis=1)


def _arguments(field: str, column: pd.Series) -> dict[str, pd.Series]:
    """Return a column per argument of a field.

    A comma ends a value only if a name and "=" follow, because a user's text may contain commas.
    """
    by_text = {
        text: dict(pair.split("=", 1) for pair in re.split(r",(?=[A-Za-z_]\w*=)", text) if "=" in pair)
        for text in column.unique()
    }
    found = {}
    for name in dict.fromkeys(name for given in by_text.values() for name in given):
        values = column.map({text: given.get(name) for text, given in by_text.items()})
        try:
            found[f"{field}.{name}"] = pd.to_numeric(values)
        except ValueError:
            found[f"{field}.{name}"] = values
    return found


def settings(rows: pd.DataFrame) -> list[str]:
    """Return the settings, recipe and lag first."""
    single = [name for name in map(str, rows) if name.partition(".")[0] in ARGUMENTS and "." in name]
    covered = {name.partition(".")[0] for name in single}
    fields = [name for name in FIELDS if name != "seed" and name not in covered]
    known = dict.fromkeys(["recipe", "lag", *fields, *single])
    return [name for name in known if name in rows and rows[name].nunique(dropna=False) > 1]


def usual_axis(rows: pd.DataFrame) -> str:
    """Return the first setting that varies, recipe before lag; raise UserError where only the seed does."""
    found = telling(rows, settings(rows))
    if not found:
        raise UserError("Only the seed varies, so there is nothing to compare.")
    return found[0]


def telling(rows: pd.DataFrame, names: Iterable[str]) -> list[str]:
    """Return the settings that earlier ones do not determine; two that change together count once."""
    kept: list[str] = []
    for name in names:
        if not kept or rows.groupby(kept, dropna=False)[name].nunique(dropna=False).max() > 1:
            kept.append(name)
    return kept


def numeric(rows: pd.DataFrame, names: Iterable[str]) -> list[str]:
    """Return the settings that are numeric in every cell."""
    kept = [name for name in names if pd.api.types.is_numeric_dtype(rows[name])]
    return [name for name in kept if not pd.api.types.is_bool_dtype(rows[name]) and rows[name].notna().all()]


def metrics(rows: pd.DataFrame) -> list[str]:
    """Return the logged metrics with a number in at least one row."""
    others = {"cell", "step", *FIELDS}
    return [
        str(name)
        for name in rows
        if name not in others
        and str(name).partition(".")[0] not in ARGUMENTS
        and pd.api.types.is_numeric_dtype(rows[name])
        and rows[name].notna().any()
    ]


def usual_metric(rows: pd.DataFrame) -> str:
    """Return the first logged metric of accuracy, exact value and mean reward."""
    there = metrics(rows)
    for name in (ACCURACY, VALUE, REWARD, *there):
        if name in there:
            return name
    raise UserError("No metric was logged in these results.")


def metric_word(rows: pd.DataFrame, name: str) -> str:
    """Return a metric as `analysis.tables.cell_table` writes it: final_accuracy is "final accuracy".

    Raises UserError with the nearest name for one that was not logged.
    """
    there = metrics(rows)
    outcomes = [one for one in OUTCOMES if set(READS.get(one, (ACCURACY,))) <= set(there)]
    words = {f"{how}{gap}{one}": f"{how} {one}" for how in REDUCTIONS for gap in " _" for one in there}
    words |= {one: one for one in (*there, *outcomes)}
    words |= _words_of_the_summary(there, outcomes)
    if ACCURACY in there:
        words |= {"final": ACCURACY, "best_accuracy": "best"}
        words |= {name: name} if name.partition(" ")[0] in REACHED else {}
    if name not in words:
        raise unknown("metric", name, [*there, *outcomes])
    return words[name]


def _words_of_the_summary(there: Sequence[str], outcomes: Sequence[str]) -> dict[str, str]:
    """Return the headings of the table that `testbed run` prints, as words of `cell_table`."""
    if ACCURACY in there:
        return {"smallest ESS": "ess_min"} if "ess_min" in outcomes else {}
    named = {"exact ESS": f"min {EXACT}", "sampled ESS": f"min {ESS}"}
    named |= {"final": f"last {VALUE}", "best": f"max {VALUE}"}
    return {name: word for name, word in named.items() if word.rpartition(" ")[2] in there}


def value_words(rows: pd.DataFrame, name: str) -> str:
    """Return in words which value of a cell a metric is: a logged metric stands for the mean of its end."""
    word = metric_word(rows, name)
    reduction, _, logged = word.rpartition(" ")
    if word in OUTCOMES or reduction not in ("", "final"):
        return word
    return f"the mean of the last {WINDOW} logged rows of {logged}"


def logged_metric(rows: pd.DataFrame, name: str) -> str:
    """Return the column of a metric, "accuracy" for "final accuracy".

    Raises UserError for an outcome, and for a reduction such as "min accuracy".
    """
    reduction, _, column = metric_word(rows, name).rpartition(" ")
    if column not in rows or reduction not in ("", "final", "last"):
        raise UserError(f"'{name}' is one number per cell, not logged step by step. Give a logged metric.")
    return column


def setting(rows: pd.DataFrame, name: str) -> str:
    """Return the column that a name means; raise UserError with candidates for an unknown name.

    "learning rate" and "eps", as tables print them, stand for learning_rate and recipe_args.eps.
    """
    known = [*FIELDS, *(str(c) for c in rows if str(c).partition(".")[0] in ARGUMENTS)]
    there = [column for column in known if column in rows]
    printed = [column for column in there if name in (column, _short(column))]
    if name not in there and len(printed) != 1:
        raise unknown("setting", name, [*settings(rows), "seed"])
    return name if name in there else printed[0]


def only(rows: pd.DataFrame, words: Sequence[str]) -> pd.DataFrame:
    """Return the rows selected by `field=value,value` words; raise UserError if a word selects none."""
    for word in words:
        name, text = split(word, "setting=value, as lag=0,16")
        shown = rows[setting(rows, name)].map(as_word)
        wanted = [named(f"value of {name}", value, set(shown)) for value in text.split(",")]
        rows = rows[shown.isin(wanted)]
    return rows


def named(kind: str, given: str, known: Iterable[str]) -> str:
    """Return the known value that is meant, 1e-3 for 0.001 too; raise UserError with candidates if none."""
    known = list(known)
    try:
        number = float(given)
    except ValueError:
        number = float("nan")
    # A large whole number is written in digits where it is an int, and as 1e+08 where it is a float.
    whole = [str(int(number))] if number.is_integer() else []
    for word in (given, f"{number:g}", *whole):
        if word in known:
            return word
    raise unknown(kind, given, known)


def as_word(value: Any) -> str:
    """Return a setting's value in short form: 0.3, 16, grpo; "default" if a cell does not give it."""
    if isinstance(value, float):
        return "default" if pd.isna(value) else f"{value:g}"
    return "default" if value is None or value == "" else str(value)


def labeled(rows: pd.DataFrame, names: Sequence[str]) -> tuple[pd.Series, list[str]]:
    """Return a label per row, as "m2po, lag 4", and the labels in the order of the settings' values.

    Numbers carry the name of their setting.
    """
    if not names:
        return pd.Series("", index=rows.index), [""]
    values = rows[list(names)].drop_duplicates().sort_values(list(names), na_position="first")
    text = {name: _named(name) for name in names}
    label = {tuple(map(as_word, row)): ", ".join(text[n](v) for n, v in zip(names, row, strict=True))
             for row in values.itertuples(index=False, name=None)}  # fmt: skip
    keys = pd.Series(list(zip(*(rows[name].map(as_word) for name in names), strict=True)), index=rows.index)
    return keys.map(label), list(dict.fromkeys(label.values()))


def _named(name: str) -> Callable[[Any], str]:
    if name in ("recipe", "task"):
        return as_word
    short = _short(name)
    return lambda value: f"{short} {as_word(value)}"


def _short(name: str) -> str:
    """Return a column's name as tables print it: recipe_args.eps is "eps"."""
    return name.rpartition(".")[2].replace("_", " ")


def per_cell(rows: pd.DataFrame, metric: str, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Return a row per cell, sorted by setting and seed: settings (or `names`), seed, metric, diverged.

    metric: as `metric_word` takes it; the column has the name that was given. A diverged run has accuracy 0.
    """
    need(rows, ["cell", "step", "seed"])
    word = metric_word(rows, metric)
    keys = list(dict.fromkeys([*(settings(rows) if names is None else names), "seed"]))
    groups = rows.sort_values("step").groupby("cell", sort=False)
    found = groups[keys].first()
    found[metric] = pd.Series({str(cell): value_of(part, word) for cell, part in groups}, dtype=float)
    found[DIVERGED] = (groups[DIVERGED].max() != 0) if DIVERGED in rows else False
    return found.reset_index().sort_values(keys, ignore_index=True)


def about(rows: pd.DataFrame) -> Mapping[str, str]:
    """Return the fields of Run that are constant over the sweep, as text without empty ones."""
    held = [name for name in FIELDS if name in rows and rows[name].nunique(dropna=False) == 1]
    return {name: word for name in held if (word := as_word(rows[name].iloc[0])) != "default"}


def gaps(rows: pd.DataFrame) -> dict[str, int]:
    """Return, for each logged metric with gaps, the number of cells that lack it where others have it."""
    found = {}
    for name in metrics(rows):
        known = rows[name].notna()
        expected = rows["step"].isin(rows.loc[known, "step"])
        found[name] = int(rows.loc[expected & ~known, "cell"].nunique())
    return {name: count for name, count in found.items() if count}


def unfinished(*folders: str | Path) -> int:
    """Return how many planned cells of these results folders have no result: they failed, or never ran."""
    counted = [store.status(each) for folder in folders for each in results_folders(Path(folder))]
    return sum(one.planned - one.done for one in counted)
