"""All questions, their stored numbers, and the page that is written from both."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from analysis.questions import counts, gradients, losses, schedules, verdicts
from analysis.questions.question import QUESTIONS, Numbers, Question, in_brief
from testbed.errors import UserError, unknown

STORED = Path(__file__).with_name("numbers.json")
PARTS = (gradients, counts, losses, schedules, verdicts)
"""The modules whose import fills QUESTIONS."""
DIGITS = 5
HEAD = """# Questions that users ask, and what is known

{count} questions from public threads of training stacks, {computed} of them answered by computation, the
others by judged claims. A number in an answer comes from its function or from
[the table of verdicts](verdicts.md), effects with 95 % intervals; [the rule](theory/verdicts.md) decides the
word behind it. Written by `testbed evidence pages questions`; `testbed ask WORDS` searches this page and all
claims.
"""


def find(numbers: Iterable[int]) -> list[Question]:
    """Return the questions of these numbers, all for none; raise UserError for an unknown one."""
    chosen = list(numbers) or sorted(QUESTIONS)
    for n in chosen:
        if n not in QUESTIONS:
            raise unknown("question", str(n), map(str, QUESTIONS))
    return [QUESTIONS[n] for n in chosen]


def stored() -> dict[int, Numbers]:
    """Return the committed numbers by question; raise UserError where they cannot be read."""
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
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value


def write(numbers: Mapping[int, Numbers]) -> Path:
    """Keep the numbers of questions; those of others stay."""
    from testbed.results import atomic_files

    known = stored() if STORED.is_file() else {}
    both = {**known, **numbers}
    text = json.dumps({str(n): both[n] for n in sorted(both)}, indent=1) + "\n"
    atomic_files.replace(STORED, text.encode())
    return STORED


def page(judged: Mapping[str, Mapping[str, Any]], numbers: Mapping[int, Numbers]) -> str:
    """Return docs/questions.md."""
    chosen = find(())
    head = HEAD.format(count=len(chosen), computed=sum(each.compute is not None for each in chosen))
    return "\n".join([head, *(_section(each, judged, numbers.get(each.n, {})) for each in chosen)])


def _section(question: Question, judged: Mapping[str, Mapping[str, Any]], numbers: Numbers) -> str:
    from testbed.cli.show import markdown

    lines = [f"## {question.n}. {question.title}\n", question.text(numbers, judged) + "\n"]
    if numbers.get("table"):
        lines += [markdown(numbers["table"]) + "\n"]
    if question.claims:
        rows = [{"claim": f"`{name}`", "finding": in_brief(judged[name])} for name in question.claims]
        lines += [markdown(rows) + "\n"]
    lines.append(f"- Asked in: [{question.thread}]({question.url})\n- Holds for: {question.holds}")
    again = [f"`testbed evidence questions {question.n}`"] if question.compute else []
    again += [f"`testbed evidence judge {name}`" for name in question.claims]
    return "\n".join([*lines, f"- Again: {', '.join(again)}", ""])
