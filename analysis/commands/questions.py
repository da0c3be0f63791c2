"""testbed evidence questions: the computed answers of docs/questions.md, computed again."""

from typing import Annotated

import typer

from testbed.cli import show


def answer_questions(
    numbers: Annotated[
        list[int] | None,
        typer.Argument(
            metavar="[NUMBER]...", help="Numbers of questions in docs/questions.md; default: all."
        ),
    ] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Keep the numbers in analysis/questions/numbers.json.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Compute the numbers behind answers of docs/questions.md now, and print the answers.

    Examples:
    testbed evidence questions 9

    testbed evidence questions --write
    """
    from analysis.judging.verdicts import by_claim
    from analysis.questions import question_list

    chosen = question_list.find(numbers or ())
    found = {each.n: question_list.compute(each) for each in chosen}
    if write:
        question_list.write({n: each for n, each in found.items() if each})
    judged = by_claim()
    if json:
        show.as_json(
            [
                {"n": q.n, "question": q.title, "answer": q.text(found[q.n], judged), **found[q.n]}
                for q in chosen
            ]
        )
        return
    for each in chosen:
        show.say([f"{each.n}. {each.title}", each.text(found[each.n], judged)])
        if rows := question_list.table(found[each.n]):
            show.table(rows)
