"""testbed objectives: the registry of losses, for readers."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed.cli import from_stack

if TYPE_CHECKING:
    from testbed.registry import Entry

app = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
app.command("from", context_settings={"ignore_unknown_options": True})(from_stack.from_stack)
Json = Annotated[bool, typer.Option("--json", help="Print as JSON.")]
Family = Annotated[str | None, typer.Option(help="Only this family: a folder of testbed/objectives.")]
Name = Annotated[
    str, typer.Argument(help="An objective, a variant name@source, or path/to/file.py:function.")
]
Names = Annotated[
    list[str], typer.Argument(metavar="NAME...", help="Objectives, variants or file.py:function.")
]


@app.callback()
def default(context: typer.Context, json: Json = False) -> None:
    """List, explain and compare objectives. Without a command: the list.

    Examples: testbed objectives    testbed objectives show m2po    testbed objectives compare cispo
    """
    if context.invoked_subcommand is None:
        list_objectives(None, json)


@app.command("list")
def list_objectives(family: Family = None, json: Json = False) -> None:
    """List every objective with its loss and source.

    Example: testbed objectives list --family smooth
    """
    from testbed.cli import show
    from testbed.errors import unknown
    from testbed.inspection.explain import facts
    from testbed.objectives import objective

    rows = [facts(objective[name]) for name in objective]
    families = {row["family"] for row in rows}
    if family is not None and family not in families:
        raise unknown("family of objectives", family, families)
    rows = [row for row in rows if family in (None, row["family"])]
    if json:
        show.as_json(rows)
        return
    show.table([{key: row[key] for key in ("name", "family", "formula", "source")} for row in rows])


@app.command("show")
def show_objective(name: Name, json: Json = False) -> None:
    """Show one objective: formula, source, hyperparameters, promises, variants.

    Of a recipe or a stack it says what that composes: `testbed show` knows names of every kind.

    Example: testbed objectives show m2po
    """
    from testbed.cli import look_up, show
    from testbed.inspection.explain import difference, facts, in_words, settings
    from testbed.objectives import objective
    from testbed.user_files import in_a_file

    if not in_a_file(name) and name not in objective:
        found = look_up.of_the_loss(name)  # the name of a recipe or a stack, told as what it is
        if json:
            show.as_json(found)
            return
        for kind, known in found.items():
            look_up.report(name, kind, known)
        return
    entry = objective[name]
    variants = [objective[each] for each in objective.variants(name)]
    if json:
        others = [{**facts(each), "difference": difference(each)} for each in variants]
        show.as_json({**facts(entry), "words": in_words(entry), "variants": others})
        return
    print(f"{name}\n\n{inspect.getdoc(entry.function) or '(no docstring)'}\n")
    print(f"Source: {entry.source}\nFamily: {entry.family or 'none'}\nHyperparameters: {settings(entry)}")
    print("Promises:", *in_words(entry), sep="\n  ")
    if entry.base != name and entry.base in objective:
        print(f"Variant of: {entry.base}, {objective[entry.base].formula}")
    if variants:
        print("Variants:")
    for each in variants:
        print(f"  {each.name}  {each.formula}\n    {difference(each)}")


@app.command("cite")
def cite(
    names: Names,
    json: Json = False,
    bibtex: Annotated[
        bool, typer.Option("--bibtex", help="Print BibTeX entries of papers and code.")
    ] = False,
) -> None:
    """Print the sources of objectives.

    Examples: testbed objectives cite m2po cispo    testbed objectives cite m2po --bibtex
    """
    from testbed.cli import show
    from testbed.objectives import objective

    sources = {name: objective[name].source for name in names}
    if json:
        show.as_json(sources)
    elif bibtex:
        from testbed.inspection.bibtex import bibtex as entries

        print(entries(sources.values()))
    elif len(sources) == 1:
        print(*sources.values())
    else:
        show.table([{"name": name, "source": source} for name, source in sources.items()])


@app.command("compare")
def compare(
    names: Names,
    figure: Annotated[
        Path | None, typer.Option(help="Draw all effective weights together into this .png or .pdf file.")
    ] = None,
    json: Json = False,
) -> None:
    """Compare objectives: settings, and effective weights at several log-ratios and on a worked example.

    The name of a paper's objective stands for itself and all its variants.

    Examples: testbed objectives compare m2po    testbed objectives compare ppo_clip cispo --figure both.png
    """
    from testbed.cli import comparison, show

    entries = with_variants(names)
    rows = [comparison.row(entry) for entry in entries]
    if figure is not None:
        comparison.draw(entries, figure)
    if json:
        show.as_json(rows)
        return
    comparison.report(rows)
    print(f"Figure: {figure}" if figure else "All curves together: --figure FILE.png")


@app.command("atlas")
def atlas(
    data: Annotated[
        Path | None, typer.Option(help="Folder of the tables; default: the committed ones.")
    ] = None,
    docs: Annotated[Path | None, typer.Option(help="Folder of the page; default: docs/.")] = None,
) -> None:
    """Make the objective atlas again: table, docs/objectives.md, a picture per family, docs/stacks/.

    Example: testbed objectives atlas
    """
    from paper_figs import atlas_files

    for path in atlas_files.write(data or atlas_files.DATA, docs or atlas_files.DOCS):
        print(path)


def with_variants(names: list[str]) -> list[Entry]:
    """Return the entries, each once; the name of a base also stands for its variants."""
    from testbed.objectives import objective

    entries = [
        objective[each] for name in names for each in (objective[name].name, *objective.variants(name))
    ]
    return list({entry.name: entry for entry in entries}.values())
