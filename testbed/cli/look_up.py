"""testbed show: whatever has a name, of whatever kind."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from testbed.recipes.composition import Recipe
    from testbed.registry import Entry

LISTED = ("tasks", "advantages", "aggregations", "mismatches", "schedules", "anchors", "teachers", "guides",
          "verifiers", "sweeps", "figures", "claims", "metrics")  # fmt: skip
"""Kinds of which `testbed show` prints the row that `testbed list` has."""

TRY = {
    "recipe": "testbed run staleness recipe={}",
    "stack": "testbed objectives from {}",
    "sweep": "testbed run {} --dry-run",
    "figure": "testbed figures {}",
    "claim": "testbed claims show {}",
}
"""The command that does something with a name of the kind."""


def show_name(
    name: Annotated[str, typer.Argument(help="A name of any kind, or path/to/file.py:function.")],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show what a name stands for: recipe, objective, stack, task, schedule, sweep, claim, metric and more.

    Examples: testbed show grpo    testbed show verl    testbed show running-sum
    """
    from testbed.cli import show

    found = look_up(name)
    if json:
        show.as_json(found)
        return
    for index, (kind, facts) in enumerate(found.items()):
        if index:
            print()
        report(name, kind, facts)


def look_up(name: str) -> dict[str, dict[str, Any]]:
    """Return what is known of a name by kind; raise UserError, with the nearest names, where nothing is."""
    from testbed.errors import unknown

    found = dict(_of_the_loss(name))
    found |= {kind: row for kind, row in _rows() if row["name"] == name}
    if found:
        return found
    raise unknown("name", name, {*_loss_names(), *(str(row["name"]) for _, row in _rows())})


def of_the_loss(name: str) -> dict[str, dict[str, Any]]:
    """Return what is known of a name among objectives, recipes and stacks, which people mix up."""
    from testbed.errors import unknown

    found = dict(_of_the_loss(name))
    if not found:
        raise unknown("objective, recipe or stack", name, _loss_names())
    return found


def _of_the_loss(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    from testbed.inspection.explain import facts, in_words
    from testbed.objectives import objective
    from testbed.recipes import recipe
    from testbed.stacks import stacks
    from testbed.user_files import in_a_file

    if in_a_file(name) or name in objective:
        entry = objective[name]
        yield "objective", {**facts(entry), "words": in_words(entry), "variants": objective.variants(name)}
    if in_a_file(name) or name in recipe:
        yield "recipe", composition(recipe[name])
    if name.lower() in stacks():
        found = stacks()[name.lower()]
        yield "stack", {"name": found.name, "what": found.title, "settings": list(found.names)}


def composition(entry: Entry) -> dict[str, Any]:
    """Return what a recipe puts together with nothing set, in the words of `Recipe`."""
    made: Recipe = entry.bind()()
    terms = [f"{t.objective}({_arguments(t.args)})" for t in made.terms]
    parts = {
        "objective": f"{made.objective}({_arguments(made.objective_args)})",
        "advantage": f"{made.advantage}({_arguments(made.advantage_args)})",
        "aggregation": made.aggregation,
        "terms": ", ".join(terms),
        "denominator": made.denominator,
        "anchor": made.anchor,
        "passes": made.passes,
        "schedules": ", ".join(name for name, _ in made.schedules),
        "step rule": _step_rule(made),
    }
    own = "the default composition of an objective without a recipe" if _default(entry) else ""
    return {
        "name": entry.name,
        "what": own or entry.formula,
        "source": entry.source,
        "recipe_args": entry.defaults,
        **parts,
    }


def _default(entry: Entry) -> bool:
    from testbed.recipes import recipe

    return recipe.get_named(entry.name) is None


def _arguments(pairs: tuple[tuple[str, Any], ...]) -> str:
    return ", ".join(f"{name}={value}" for name, value in pairs)


def _step_rule(made: Recipe) -> str:
    from testbed.recipes.composition import StepRule

    plain = vars(StepRule())
    changed = {name: value for name, value in vars(made.step_rule).items() if value != plain[name]}
    return ", ".join(f"{name}={value}" for name, value in changed.items()) or "none"


def _rows() -> Iterator[tuple[str, dict[str, Any]]]:
    from testbed.cli.listing import KINDS

    for kind in LISTED:
        yield from ((kind.removesuffix("s"), row) for row in KINDS[kind]())


def _loss_names() -> list[str]:
    from testbed.recipes import recipe
    from testbed.stacks import stacks

    return [*recipe.names(), *stacks()]


def report(name: str, kind: str, facts: dict[str, Any]) -> None:
    """Print what is known of a name of one kind."""
    print(f"{name}, {'an' if kind[0] in 'aeiou' else 'a'} {kind}")
    if kind == "objective":
        _report_objective(name)
        return
    for label, value in facts.items():
        if label != "name" and value not in ("", ()):
            text = ", ".join(f"{k}={v}" for k, v in value.items()) if isinstance(value, dict) else value
            text = ", ".join(map(str, text)) if isinstance(text, list) else text
            print(f"  {label:<12} {text or 'none'}")
    if kind in TRY:
        print(f"  {'try':<12} {TRY[kind].format(name)}")


def _report_objective(name: str) -> None:
    from testbed.inspection.explain import settings
    from testbed.objectives import objective

    entry = objective[name]
    print(f"  {'formula':<12} {(inspect.getdoc(entry.function) or '(no docstring)').splitlines()[0]}")
    print(f"  {'source':<12} {entry.source}\n  {'arguments':<12} {settings(entry)}")
    print(f"  {'more':<12} testbed objectives show {name}")
