"""docs/systems.md: every system of the literature, what its source says, and what was found here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from analysis.experiment import EXPERIMENTS, Experiment, Part
from analysis.judging.systems import OUT_OF_REACH, System, status, systems, trials
from analysis.pages.experiment_page import commands, figure_of, must_be_judged, score

COLUMNS = ("claim", "verdict", "fixed", "effect", "what the effect is", "statement")
"""Those of the page of claims that are shown; "fixed" says what was written down before the first run."""
STATUSES = ("judged", "judged in part", "not yet tried", "cannot be tried here")

HEAD = """# Systems of the literature

Written by `testbed systems page` from `analysis/judging/systems.csv` and the experiments; do not edit.
`testbed systems show NAME` prints one, `testbed systems --status` counts them.

These systems stand behind this project. Each has what its source says, what would show it here, the
experiments that judge it with their verdicts, effects and intervals, and the commands that do it all again. A
system counts as judged only if an experiment names it and has a verdict on a claim about what the source
says; running its recipe is not enough. Judged: by the experiment that the list asks for, which for kinds B
and D is the source's mechanism in a small world, not its benchmarks. Judged in part: the claims speak of a
part, which is named. The verdict is on the statement that stands beside it, which may correct the source's;
what is other here than there follows "Here". "refuted" and "inconclusive" are results. What effects are and
what "fixed" means: [claims](claims.md).

Kinds: A, a training recipe; B, a kernel simulated exactly or in a small world; C, an engine or scheduler,
simulated; D, the off-policy kernel of a domain that does not fit here.
"""


def facts(
    judged: Mapping[str, Mapping[str, str]], experiments: Mapping[str, Experiment] = EXPERIMENTS
) -> list[dict[str, Any]]:
    """Return what is known of every system, in the order of the list, as JSON can hold it.

    judged: the rows of the page of claims, as analysis.pages.claims_page.read returns them.

    Raises UserError for a claim without a verdict, and where `trials` does.
    """
    tried = trials(experiments)
    return [_facts(each, tried[name], judged, experiments) for name, each in systems().items()]


def _facts(
    system: System,
    tried: Mapping[str, Part],
    judged: Mapping[str, Mapping[str, str]],
    experiments: Mapping[str, Experiment],
) -> dict[str, Any]:
    return {
        "n": system.n,
        "name": system.name,
        "kind": system.kind,
        "says": system.says,
        "would show": system.would_show,
        "status": status(system.name, tried),
        "reason": OUT_OF_REACH.get(system.name, ""),
        "experiments": [_trial(experiments[name], part, judged) for name, part in tried.items()],
    }


def _trial(experiment: Experiment, part: Part, judged: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    must_be_judged(part.claims, judged)
    return {
        "name": experiment.name,
        "question": experiment.question,
        "differs": experiment.differs,
        "part": part.what,
        "claims": [{each: judged[claim].get(each, "–") for each in COLUMNS} for claim in part.claims],
        "figure": figure_of(experiment),
        "commands": commands(experiment),
    }


def counts(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return how many systems have each status."""
    return {word: sum(row["status"] == word for row in rows) for word in STATUSES}


def verdicts_of(row: Mapping[str, Any]) -> str:
    """Return how many claims about a system have which verdict, as text."""
    return score([claim["verdict"] for each in row["experiments"] for claim in each["claims"]])


def page(rows: list[dict[str, Any]]) -> str:
    """Return the page of what `facts` returns."""
    found = ", ".join(f"{number} {word}" for word, number in counts(rows).items())
    parts = [HEAD, f"{len(rows)} systems: {found}.\n", _contents(rows)]
    return "\n".join(parts + [_section(row) for row in rows])


def _contents(rows: list[dict[str, Any]]) -> str:
    lines = ["| n | system | kind | its source says | status | claims |", "|---|---|---|---|---|---|"]
    for row in rows:
        name = f"[{row['name']}](#system-{row['n']})"
        says = _cell(row["says"])
        lines.append(
            f"| {row['n']} | {name} | {row['kind']} | {says} | {row['status']} | {verdicts_of(row)} |"
        )
    return "\n".join(lines) + "\n"


def _section(row: Mapping[str, Any]) -> str:
    # Names hold characters of which no two renderers make the same anchor.
    lines = [f'<a id="system-{row["n"]}"></a>\n', f"## {row['n']}. {row['name']}\n"]
    lines.append(f"Kind: {row['kind']}. The source says: {_sentence(row['says'])}\n")
    state = f"**{row['status'].capitalize()}.** {row['reason']}".rstrip()
    what = {"judged": "What was to show it", "judged in part": "What would show all of it"}
    lines.append(f"{state} {what.get(row['status'], 'What would show it')}: {_sentence(row['would show'])}")
    return "\n".join(lines + [_experiment(each) for each in row["experiments"]]) + "\n"


def _experiment(each: Mapping[str, Any]) -> str:
    name = each["name"]
    lines = [f"\n**[{name}](experiments.md#{name})**: {each['question']}"]
    if each["differs"]:
        lines.append(f"Here: {each['differs']}.")
    if each["part"]:
        lines.append(f"What it judges: {_sentence(each['part'])}")
    lines += ["", "| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|"]
    for claim in each["claims"]:
        first, *rest = (_cell(text) for text in claim.values())
        lines.append(f"| `{first}` | " + " | ".join(rest) + " |")
    lines.append("")
    if each["figure"]:
        lines.append(f"- figure: {each['figure']}")
    lines.append("- commands: " + ", ".join(f"`{command}`" for command in each["commands"]))
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else f"{text}."
