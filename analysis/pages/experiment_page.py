"""Pages of experiments, one per area: question, table, figure, commands, and every claim with its verdict."""

import re
from collections.abc import Mapping
from typing import Any

from analysis.declared_plot import Plot
from analysis.experiment import EXPERIMENTS, Experiment
from analysis.judging.claims import CLAIMS
from analysis.judging.table_gates import NOT_RECORDED, excuse
from analysis.judging.verdicts import Row
from analysis.pages import markdown
from analysis.pages.forest import forest
from analysis.tables.committed import manifest
from testbed.objectives import objective

COLUMNS = ("claim", "verdict", "effect", "asked", "kind", "n", "lag", "what the effect is, and gates")
CHOSEN_BY = "verdict kind lag"
BLOCK = '<div class="block sortable claims found" markdown>\n\n'
"""Lines around a table that docs/assets/tables.js sorts, and filters by the fields of `filters`."""


def pages(judged: Mapping[str, Row]) -> dict[str, str]:
    """Return the text of the list of experiments and of the page of each area, by file."""
    areas = EXPERIMENTS.areas()
    rows = [
        (
            f"[{area}]({area}.md)",
            EXPERIMENTS.about(area),
            str(len(names)),
            str(sum(len(EXPERIMENTS[name].claims) for name in names)),
        )
        for area, names in areas.items()
    ]
    listed = markdown.table(("area", "what is asked", "experiments", "claims"), rows)
    head = f"{markdown.text('experiments')}\n{listed}"
    return {"experiments/index.md": f"{head}\n\n{_all(areas, judged)}\n"} | {
        f"experiments/{area}.md": _area(area, names, judged) for area, names in areas.items()
    }


def filters(columns: str, text: str) -> str:
    """Return the filters over the tables of a page: values of columns, methods named in the text, words."""
    from testbed.recipes import recipe

    named = {*recipe, *objective} & set(re.findall(r"[a-z0-9_@]+", text.lower()))
    shown = f'data-by="{columns}" data-methods="{" ".join(sorted(named))}" data-words="clip, lag"'
    return f'<div class="filters" {shown}></div>\n'


def _all(areas: Mapping[str, tuple[str, ...]], judged: Mapping[str, Row]) -> str:
    """Return one line per claim: name with a link to its experiment, verdict, effect, kind and lag."""
    lines = [
        f"| [{claim}]({area}.md#{name}) | {judged[claim]['verdict']} | {effect(judged[claim])} "
        f"| {judged[claim]['kind']} | {_lags(claim, judged[claim])} |"
        for area, names in areas.items()
        for name in names
        for claim in EXPERIMENTS[name].claims
    ]
    fields = filters(CHOSEN_BY, "\n".join(lines))
    head = ["## All claims\n", fields, '<div class="block sortable" markdown>\n']
    return "\n".join(
        [*head, "| claim | verdict | effect | kind | lag |", "|---" * 5 + "|", *lines, "\n</div>"]
    )


def _lags(claim: str, row: Row) -> str:
    """Return the lags in a claim's name, statement and note, "16, 64"."""
    said = f"{claim} {CLAIMS[claim].promises['statement']} {row['note']}"
    return ", ".join(map(str, sorted({int(lag) for lag in re.findall(r"\blags?[ -](?:of )?(\d+)", said)})))


def _area(area: str, names: tuple[str, ...], judged: Mapping[str, Row]) -> str:
    lines = [
        f"# {area.capitalize()}\n",
        EXPERIMENTS.about(area) + "\n",
        "| experiment | question |",
        "|---|---|",
    ]
    lines += [f"| [{name}](#{name}) | {_plain(EXPERIMENTS[name].question)} |" for name in names]
    if drawn := forest(names, judged):
        lines += ["", "Central claims of systems judged here, effects in margins:", "", drawn]
    sections = [_section(EXPERIMENTS[name], judged) for name in names]
    return "\n".join([*lines, "", filters(CHOSEN_BY, "\n".join(sections)), *sections])


def _section(experiment: Experiment, judged: Mapping[str, Row]) -> str:
    lines = [f"{BLOCK}## {experiment.name}\n", f"**{experiment.question}** Source: {experiment.source}."]
    if experiment.differs:
        lines.append(f"Here: {experiment.differs}.")
    lines.append("")
    if made := origin(experiment):
        lines.append(f"- made of: {made}")
    if experiment.keys:
        lines.append(f"- table: {_table(experiment)}")
    for what, margin in experiment.margins.items():
        lines.append(f"- margin: {margin:g} is the {what}")
    if figure := figure_of(experiment):
        lines.append(f"- figure: {figure}")
    lines.append("- commands: " + ", ".join(f"`{command}`" for command in commands(experiment)))
    if experiment.see:
        lines.append(
            "- see also: " + ", ".join(f"`{name}` ({judged[name]['verdict']})" for name in experiment.see)
        )
    if experiment.claims:
        lines += ["", table(experiment.claims, judged)]
    return "\n".join(lines) + "\n\n</div>\n"


def table(claims: Mapping[str, object] | tuple[str, ...], judged: Mapping[str, Row]) -> str:
    """Return claims as a Markdown table: statement, effect with interval, verdict."""
    head = ["| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    return "\n".join(head + [_claim(name, judged[name]) for name in claims])


def _claim(name: str, row: Row) -> str:
    said = f"{CLAIMS[name].promises['statement']} `{name}`"
    held = row["checked"].split("; ") if row["checked"] else []
    parts = [row["note"], row["gates"], *(each for each in held if NOT_RECORDED not in each)]
    missing = excuse(row)
    found = "; ".join(filter(None, [*parts, missing and f"**{NOT_RECORDED}**: {missing}"]))
    numbers = (row["asks"], row["kind"], f"{row['n']:.0f}", _lags(name, row))
    words = (said, f"**{row['verdict']}**", effect(row), *numbers, found)
    return "| " + " | ".join(map(_plain, words)) + " |"


def effect(row: Mapping[str, Any]) -> str:
    """Return the effect as text, "0.12 [0.08, 0.15]"; 0 for rounding of a computed one."""
    value = row["effect"]
    if value is None:
        return "–"
    if row["kind"] in ("identity", "enumerated"):
        return "0" if abs(value) < ROUNDING else f"{value:.2g}"
    ends = [row["low"], row["high"]]
    if any(end is None or abs(end) == float("inf") for end in ends):
        return f"{value:.3g}"
    return f"{value:.3g} [{ends[0]:.3g}, {ends[1]:.3g}]"


ROUNDING = 1e-6
"""A computed effect below this is shown as 0: its digits are rounding."""


def _table(experiment: Experiment) -> str:
    """Return the table's name and columns, and its rows once it is committed."""
    name = experiment.name
    listed = manifest()
    rows = f", {listed[name]['rows']} rows" if name in listed else ", not committed yet"
    keys, metrics = (", ".join(f"`{column}`" for column in x) for x in (experiment.keys, experiment.metrics))
    return f"`paper_figs/data/{name}.csv`{rows}; keys {keys}; metrics {metrics}"


def origin(experiment: Experiment) -> str:
    """Return the source of an experiment's numbers."""
    if experiment.runs:
        return f"the runs of {experiment.runs}"
    if experiment.compute is not None:
        return f"a computation, {experiment.compute.__module__}.{experiment.compute.__name__}"
    if experiment.cells is None:
        return ""
    cells = experiment.table_cells()
    seeds = {cell.seed for cell in cells}
    what = (experiment.cells.__doc__ or "").strip().split("\n", 1)[0]
    found = f"{len(cells)} cells on {', '.join(sorted({c.task for c in cells}))}, {len(seeds)} seeds"
    return f"{found}. {what}".rstrip(". ")


def figure_of(experiment: Experiment) -> str:
    """Return the figure's name and kind, or "" without one."""
    if isinstance(experiment.figure, Plot):
        plot = experiment.figure
        return f"`{experiment.name}`, {plot.kind}: {plot.y} by {plot.x}" + (
            f" and {', '.join(plot.arm)}" if plot.arm else ""
        )
    return f"`{experiment.figure}`" if experiment.figure else ""


def commands(experiment: Experiment) -> list[str]:
    """Return the commands that make an experiment's table, judge its claims and draw its figure."""
    found = [experiment.command or f"testbed evidence run {experiment.name}"]
    if experiment.keys:
        found.append(f"testbed evidence run {experiment.name} --write")
    if isinstance(experiment.figure, Plot):
        found.append(f"testbed evidence figures {experiment.name}")
    elif experiment.figure and "*" not in experiment.figure:
        found.append(f"testbed evidence figures {experiment.figure}")
    return found


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
