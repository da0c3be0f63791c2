"""docs/experiments.md: every experiment from its question to its command, with the verdicts on its claims."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence

from analysis.experiment import EXPERIMENTS, Experiment, Experiments
from analysis.plot import Plot
from analysis.tables.committed import load_committed
from testbed.errors import UserError

HEAD = """# Experiments

Written by `testbed experiments page` from `analysis/experiments/`, a room for each subject; do not edit.
`testbed experiments show NAME` prints one; `testbed experiments run NAME` does all of it and leaves committed
files as they are. The verdicts are those of [claims.md](claims.md), where effects and intervals are.
"""
ROW = re.compile(r"^\| `([^`]+)` \| (\w+) \|", re.M)


def verdicts(claims: str) -> dict[str, str]:
    """Return the verdict of every claim on the page of claims."""
    return {match[1]: match[2] for match in ROW.finditer(claims)}


def page(judged: Mapping[str, str], experiments: Mapping[str, Experiment] = EXPERIMENTS) -> str:
    """Return the page.

    Raises UserError for a claim without a verdict: the page of claims is older than the claims.
    """
    for experiment in experiments.values():
        must_be_judged((*experiment.claims, *experiment.see), judged)
    rooms = {"": tuple(experiments)}
    if isinstance(experiments, Experiments):
        rooms = {
            f"## {room}\n\n{experiments.about(room)}\n": names for room, names in experiments.rooms().items()
        }
    contents = [head + "\n" + _contents(judged, names, experiments) for head, names in rooms.items()]
    sections = [_section(experiments[name], judged) for names in rooms.values() for name in names]
    return "\n".join([HEAD, *contents, *sections])


def must_be_judged(claims: Iterable[str], judged: Container[str]) -> None:
    """Raise UserError for a claim without a verdict."""
    for name in claims:
        if name not in judged:
            raise UserError(f"Claim '{name}' has no verdict yet; write it first: testbed claims page")


def _contents(judged: Mapping[str, str], names: Iterable[str], experiments: Mapping[str, Experiment]) -> str:
    lines = ["| experiment | question | claims |", "|---|---|---|"]
    for name in names:
        each = experiments[name]
        found = [judged[claim] for claim in each.claims]
        lines.append(f"| [{name}](#{name}) | {_plain(each.question)} | {score(found)} |")
    return "\n".join(lines) + "\n"


def score(found: Sequence[str]) -> str:
    """Return how many verdicts there are of each kind, as text; a dash for none."""
    kinds = ("supported", "refuted", "inconclusive")
    return ", ".join(f"{found.count(kind)} {kind}" for kind in kinds if kind in found) or "–"


def _section(experiment: Experiment, judged: Mapping[str, str]) -> str:
    lines = [f"### {experiment.name}\n", f"**{experiment.question}** Source: {experiment.source}."]
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
        lines.append("- see also: " + ", ".join(f"`{name}` ({judged[name]})" for name in experiment.see))
    if experiment.claims:
        lines += ["", "| claim | verdict | statement |", "|---|---|---|"]
    for name, entry in experiment.claims.items():
        lines.append(f"| `{name}` | {judged[name]} | {_plain(entry.promises['statement'])} |")
    return "\n".join(lines) + "\n"


def _table(experiment: Experiment) -> str:
    """Return the table's name and columns, and its rows once it is committed."""
    name = experiment.name
    try:
        rows = f", {len(load_committed([name])[name].frame)} rows"
    except UserError:
        rows = ", not committed yet"
    keys, metrics = (", ".join(f"`{column}`" for column in x) for x in (experiment.keys, experiment.metrics))
    return f"`paper_figs/data/{name}.csv`{rows}; keys {keys}; metrics {metrics}"


def origin(experiment: Experiment) -> str:
    """Return what an experiment's numbers are made of."""
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
    """Return what makes an experiment's table, judges its claims and draws its figure."""
    found = [experiment.command or f"testbed experiments run {experiment.name}"]
    if experiment.keys:
        found.append(f"testbed experiments table {experiment.name}")
    if isinstance(experiment.figure, Plot):
        found.append(f"testbed figures {experiment.name}")
    elif experiment.figure and "*" not in experiment.figure:
        found.append(f"testbed figures {experiment.figure}")
    return found


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
