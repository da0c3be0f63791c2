"""testbed show: print what a name of any kind stands for."""

import inspect
import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import show
from testbed.cli.extensions import Kind
from testbed.cli.listing import kinds
from testbed.errors import UserError, unknown
from testbed.inspection.explain import difference, in_words, settings
from testbed.objectives import objective
from testbed.stacks import stacks
from testbed.user_files import in_a_file

if TYPE_CHECKING:
    from testbed.recipes.composition import Recipe
    from testbed.registry import Entry

TRY = {"recipe": "testbed run staleness recipe={}", "stack": "testbed objectives from {}"}
"""A command that uses a name of the kind."""


def show_names(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names of any kind, or path/to/file.py:function.")
    ],
    kind: Annotated[str, typer.Option(help="Look only among this kind, e.g. objective or recipe.")] = "",
    cite: Annotated[bool, typer.Option("--cite", help="Print the sources: works, repositories.")] = False,
    bibtex: Annotated[bool, typer.Option("--bibtex", help="Print these sources as BibTeX entries.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Show what a name stands for: recipe, objective, stack, task, schedule, sweep, claim, system and more.

    Examples:
    testbed show grpo

    testbed show m2po --kind system

    testbed show m2po cispo --cite --bibtex
    """
    if cite or bibtex:
        _cite(names, bibtex, json)
        return
    found = {name: look_up(name, kind) for name in names}
    if json:
        show.as_json(found if len(names) > 1 else found[names[0]])
        return
    each = [(name, one, facts) for name, known in found.items() for one, facts in known.items()]
    for index, (name, one, facts) in enumerate(each):
        if index:
            print()
        report(name, one, facts)


def look_up(name: str, kind: str = "") -> dict[str, dict[str, Any]]:
    """Return the facts about a name by kind; raise UserError, with the nearest names, if there are none."""
    known = {singular(plural): each for plural, each in _others().items()}
    if kind and kind not in (*OF_THE_LOSS, *known):
        raise unknown("kind of thing", kind, (*OF_THE_LOSS, *known))
    found = {one: facts for one, facts in _of_the_loss(name) if kind in ("", one)}
    for one, each in known.items():
        if kind in ("", one) and (inside := _name_in(each, name)):
            found[one] = each.detail(inside) if each.detail else _row(each, inside)
    if found:
        return found
    of_the_loss = _loss_names() if kind in ("", *OF_THE_LOSS) else []
    asked = (each for one, each in known.items() if kind in ("", one))
    others = (word for each in asked for inside in _names(each) for word in _words_for(each, inside))
    raise unknown(kind or "name", name, {*of_the_loss, *others})


OF_THE_LOSS = ("objective", "recipe", "stack")


def singular(kind: str) -> str:
    """Return "mismatch" for "mismatches"."""
    return kind.removesuffix("es") if kind.endswith(("ches", "xes")) else kind.removesuffix("s")


def _others() -> dict[str, Kind]:
    """Return the kinds of `testbed list` other than objectives and recipes."""
    return {name: each for name, each in kinds().items() if name not in ("objectives", "recipes")}


def _names(kind: Kind) -> list[str]:
    return list(kind.names()) if kind.names else [str(row["name"]) for row in kind.rows()]


def _words_for(kind: Kind, name: str) -> list[str]:
    return [name, *(kind.aliases(name) if kind.aliases else ())]


def _row(kind: Kind, name: str) -> dict[str, Any]:
    return next(row for row in kind.rows() if row["name"] == name)


def _name_in(kind: Kind, name: str) -> str:
    """Return the name of the kind, resolving aliases; "" for none."""
    known = _names(kind)
    meant = _meant(name, known)
    return meant or next((each for each in known if _meant(name, _words_for(kind, each))), "")


def _meant(name: str, known: Iterable[str]) -> str:
    """Return the known name that equals `name` but for case and "-" written for "_"; "" where none does."""
    names = list(known)
    return name if name in names else next((each for each in names if _folded(each) == _folded(name)), "")


def _folded(name: str) -> str:
    return name.casefold().replace("_", "-")


def _cite(names: list[str], bibtex: bool, json: bool) -> None:
    """Print the sources of names: of an objective first, then of what else has the name."""
    known = {name: list(_of_the_loss(name)) for name in names}
    first = {name: found[0][1] for name, found in known.items() if found}
    sources = {name: str(facts["source"]) for name, facts in first.items() if "source" in facts}
    for name in names:
        if name in sources:
            continue
        one, facts = next(iter(look_up(name).items()))
        if not facts.get("source"):
            raise UserError(
                f"'{name}' is a {one}, and its source is not recorded. What is known of it: "
                f"testbed show {shlex.quote(name)}"
            )
        sources[name] = str(facts["source"])
    if json:
        show.as_json(sources)
    elif bibtex:
        from testbed.inspection.bibtex import bibtex as entries

        print(entries(sources.values()))
    elif len(sources) == 1:
        print(*sources.values())
    else:
        show.table([{"name": name, "source": source} for name, source in sources.items()])


def _of_the_loss(name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    from testbed.inspection.explain import difference, facts, in_words
    from testbed.recipes import recipe

    meant = name if in_a_file(name) else _meant(name, [*recipe.names(), *objective])
    if in_a_file(name) or meant in objective:
        entry = objective[meant]
        variants = [objective[each] for each in objective.variants(meant)]
        others = [{**facts(each), "difference": difference(each)} for each in variants]
        yield "objective", {**facts(entry), "words": in_words(entry), "variants": others}
    if in_a_file(name):
        return
    if meant in recipe:
        yield "recipe", composition(recipe[meant])
    if name.lower() in stacks():
        found = stacks()[name.lower()]
        yield "stack", {"name": found.name, "what": found.title, "settings": list(found.names)}


def composition(entry: "Entry") -> dict[str, Any]:
    """Return a recipe's parts at default settings, in the words of `Recipe`."""
    made: Recipe = entry.bind()()
    terms = [f"{t.objective}({_arguments(t.args)})" for t in made.terms]
    from testbed.recipes.composition import StepRule

    plain = vars(StepRule())
    changed = {name: value for name, value in vars(made.step_rule).items() if value != plain[name]}
    parts = {
        "objective": f"{made.objective}({_arguments(made.objective_args)})",
        "advantage": f"{made.advantage}({_arguments(made.advantage_args)})",
        "aggregation": made.aggregation,
        "terms": ", ".join(terms),
        "denominator": made.denominator,
        "anchor": made.anchor,
        "passes": made.passes,
        "schedules": ", ".join(name for name, _ in made.schedules),
        "step rule": (", ".join(f"{name}={value}" for name, value in changed.items()) or "none"),
    }
    own = "the default composition of an objective without a recipe" if _default(entry) else ""
    given = {"source": entry.source, "recipe_args": entry.defaults}
    return {"name": entry.name, "what": own or entry.formula, **given, **parts}


def _default(entry: "Entry") -> bool:
    from testbed.recipes import recipe

    return recipe.get_named(entry.name) is None


def _arguments(pairs: tuple[tuple[str, Any], ...]) -> str:
    return ", ".join(f"{name}={value}" for name, value in pairs)


def _loss_names() -> list[str]:
    from testbed.recipes import recipe

    return [*recipe.names(), *objective, *stacks()]


def report(name: str, kind: str, facts: dict[str, Any]) -> None:
    """Print the facts about a name of one kind, under the name that it has there."""
    name = str(facts.get("name", name))
    print(f"{name}, {'an' if kind[0] in 'aeiou' else 'a'} {kind}")
    if kind == "objective":
        _report_objective(name)
        return
    _print_facts({label: value for label, value in facts.items() if label != "name"})
    plural = {singular(each): other.use for each, other in _others().items()}
    if use := TRY.get(kind) or plural.get(kind):
        print(f"  {'try':<12} {use.format(name)}")


def _print_facts(facts: dict[str, Any]) -> None:
    """Print a line per fact, and one per entry of a list of sentences or of rows."""
    for label, value in facts.items():
        if value in ("", (), []):
            continue
        if isinstance(value, list) and isinstance(value[0], dict):
            for each in value:
                print()
                _print_facts(each)
        elif isinstance(value, list) and " " in str(value[0]):
            print(*(f"  {label:<12} {each}" for each in value), sep="\n")
        else:
            pairs = [f"{k}={v}" for k, v in value.items()] if isinstance(value, dict) else value
            text = ", ".join(map(str, pairs)) if isinstance(pairs, list | tuple) else pairs
            print(f"  {label:<12} {'none' if text in ('', None) else text}")


def _report_objective(name: str) -> None:
    entry = objective[name]
    print(f"\n{inspect.getdoc(entry.function) or '(no docstring)'}\n")
    print(f"Source: {entry.source}\nFamily: {entry.family or 'none'}\nHyperparameters: {settings(entry)}")
    print("Promises:", *in_words(entry), sep="\n  ")
    if entry.base != name and entry.base in objective:
        print(f"Variant of: {entry.base}, {objective[entry.base].formula}")
    variants = [objective[each] for each in objective.variants(name)]
    if variants:
        print("Variants:")
    for each in variants:
        print(f"  {each.name}  {each.formula}\n    {difference(each)}")
