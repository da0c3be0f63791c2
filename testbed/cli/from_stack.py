"""testbed objectives from: translate a public stack's configuration into our names."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.cli import show
from testbed.objectives import objective
from testbed.stacks import stack

if TYPE_CHECKING:
    from testbed.recipes.stack_composition import Composition

NONE = "none"
LABELS = ("objective", "formula", "aggregation", "denominator", "advantage", "terms", "anchor", "passes")


def from_stack(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STACK",
            help="verl, trl, areal, nemo-rl, roll, trinity, slime, prime-rl or open-instruct.",
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Its settings; leading paths and dashes are ignored."),
    ] = None,
    sweep: Annotated[str, typer.Option(help="The sweep of the printed command.")] = "staleness",
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Say what a public stack computes with some settings, and how to run the same here: docs/stacks/.

    Examples: testbed objectives from verl loss_mode=gspo clip_ratio_low=3e-4 clip_ratio_high=4e-4

    testbed objectives from trl loss_type=cispo epsilon_high=5.0 beta=0.04
    """
    from testbed.recipes.stack_composition import compose

    composed = compose(name, settings or [])
    composed.recipe()  # raises for hyperparameters that the objective lacks
    facts = summary(composed, sweep)
    if json:
        show.as_json(facts)
        return
    given = " ".join(f"{key}={value}" for key, value in facts["given"].items()) or "nothing set"
    print(f"{stack(composed.stack).title} with {given}\n")
    for label in LABELS:
        print(f"  {label:<12} {_line(facts, label)}")
    if composed.unused:
        print(f"\nWithout effect here: {', '.join(composed.unused)}.")
    for note in composed.notes:
        print(f"Note: {note}.")
    print(f"\n{facts['run']}")


def summary(composed: "Composition", sweep: str) -> dict[str, Any]:
    """Return everything about a composition, for printing."""
    return {
        "stack": composed.stack,
        "given": dict(composed.given),
        "objective": composed.objective,
        "hyperparameters": dict(composed.hyper),
        "formula": objective[composed.objective].formula,
        "aggregation": composed.aggregation,
        "length": composed.length,
        "denominator": composed.denominator,
        "advantage": composed.advantage,
        "advantage_hyperparameters": dict(composed.advantage_args),
        "terms": [
            {"objective": n, "coefficient": c, "hyperparameters": dict(a)} for n, c, a in composed.terms
        ],
        "anchor": composed.anchor,
        "passes": composed.passes,
        "unused": list(composed.unused),
        "notes": list(composed.notes),
        "run": composed.run_line(sweep),
    }


def _line(facts: dict[str, Any], label: str) -> str:
    """Return one fact as text, followed by its hyperparameters."""
    if label == "terms":
        each = (
            _called(f"{t['coefficient']:g} {t['objective']}", t["hyperparameters"]) for t in facts["terms"]
        )
        return " + ".join(each) or NONE
    if label == "aggregation" and facts["length"]:
        return f"{facts[label]} (length={facts['length']:g})"
    if label == "denominator":
        return {"all": "all tokens", "kept": "the tokens that are kept"}[facts[label]]
    hyper = {"objective": "hyperparameters", "advantage": "advantage_hyperparameters"}.get(label)
    return _called(str(facts[label]), facts[hyper] if hyper else {})


def _called(name: str, hyper: dict[str, Any]) -> str:
    plain = {key: f"{value:.6g}" if isinstance(value, float) else value for key, value in hyper.items()}
    words = ", ".join(f"{key}={value}" for key, value in plain.items())
    return f"{name}({words})" if words else name
