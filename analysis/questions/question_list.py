"""Load all questions and their stored numbers, and write docs/questions.md from both."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from analysis.questions import counts, gradients, losses, schedules
from analysis.questions.question import (
    FUNCTIONS,
    Judgments,
    Numbers,
    Question,
    Range,
    in_brief,
    in_ranges,
    read,
)
from testbed.errors import UserError, unknown
from testbed.results import atomic_files

STORED = Path(__file__).with_name("numbers.json")
QUESTIONS = read(Path(__file__).with_name("answers.toml"))
PARTS = (gradients, counts, losses, schedules)
"""The modules whose import fills FUNCTIONS."""
if without := sorted(set(FUNCTIONS) - set(QUESTIONS)):
    raise KeyError(f"answers.toml has no question {without[0]}, but a function computes its numbers.")
DIGITS = 5
ROUNDING = 1e-12
"""Size below which a computed error is 0."""
HEAD = """# Questions that users ask, and what is known

{count} questions from public threads of training stacks. {computed} are answered by a computation, the others
by claims that were judged here. Brackets hold 95 % intervals of judged effects and of simulations, and the
smallest and largest of several trees where an answer says so. Claims are judged by
[the rule](theory/verdicts.md) and listed in [the table of verdicts](verdicts.md). The page is written by
`testbed evidence pages questions`; `testbed ask WORDS` searches it and all claims.
"""


def find(numbers: Iterable[int]) -> list[Question]:
    """Return the questions with these numbers, all if none is given; raise UserError for an unknown one."""
    chosen = list(numbers) or sorted(QUESTIONS)
    for n in chosen:
        if n not in QUESTIONS:
            raise unknown("question", str(n), map(str, QUESTIONS))
    return [QUESTIONS[n] for n in chosen]


def stored() -> dict[int, Numbers]:
    """Return the committed numbers by question; raise UserError if the file cannot be read."""
    try:
        found = json.loads(STORED.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{STORED} cannot be read ({error}). Write it with: testbed evidence questions --write"
        ) from error
    return {int(n): numbers for n, numbers in found.items()}


def compute(question: Question) -> Numbers:
    """Return the numbers of a question, computed now, five significant digits; {} without a computation."""
    return {} if question.compute is None else _rounded(question.compute())


def _rounded(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    if not isinstance(value, float):
        return value
    return 0.0 if abs(value) < ROUNDING else float(f"{value:.{DIGITS}g}")


def write(numbers: Mapping[int, Numbers]) -> Path:
    """Store the numbers of these questions; the numbers of other questions stay."""
    known = stored() if STORED.is_file() else {}
    both = {**known, **numbers}
    lines = ",\n".join(f'"{n}": {json.dumps(both[n])}' for n in sorted(both) if n in QUESTIONS)
    text = "{\n" + lines + "\n}\n"
    atomic_files.replace(STORED, text.encode())
    return STORED


def page(judged: Judgments, numbers: Mapping[int, Numbers]) -> str:
    chosen = find(())
    head = HEAD.format(count=len(chosen), computed=sum(each.compute is not None for each in chosen))
    return "\n".join([head, *(_section(each, judged, numbers.get(each.n, {})) for each in chosen)])


def _section(question: Question, judged: Judgments, numbers: Numbers) -> str:
    from testbed.cli.show import markdown

    lines = [f"## {question.n}. {question.title}\n", question.text(numbers, judged) + "\n"]
    if rows := table(numbers):
        lines += [markdown(rows) + "\n"]
    if question.claims:
        found = [{"claim": f"`{name}`", "finding": in_brief(judged[name])} for name in question.claims]
        lines += [markdown(found) + "\n"]
    lines.append(
        f"- Asked in: [{question.thread}]({question.url})\n- Holds for: {question.scope(numbers, judged)}"
    )
    each = ", and `testbed evidence judge CLAIM` for each claim" if question.claims else ""
    return "\n".join([*lines, f"- Again: `testbed evidence questions {question.n}`{each}", ""])


def table(numbers: Numbers) -> list[dict[str, Any]]:
    """Return the table's rows with ranges as text; [] if the question has no table."""
    rows = in_ranges(numbers.get("table", []))
    return [
        {key: str(each) if isinstance(each, Range) else each for key, each in row.items()} for row in rows
    ]
