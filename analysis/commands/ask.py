"""testbed ask: search verdicts, systems and answered questions for the words of a question."""

from typing import Annotated

import typer

from testbed.cli import show


def ask_words(
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="A question, as: m2po lag 16.")],
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Answer a question in words: what was judged, the effect first, and what else is known.

    Words that name nothing, as "better than", are left out; clips and clipping are one word. The short
    answer comes first, if there is one, then findings, answered questions, and claims with all other words.
    Where no claim has all, those with most of them follow, and rare words count for more.

    Examples:
    testbed ask m2po better than grpo

    testbed ask does clipping help on stale data

    testbed ask which at lag 16 --json
    """
    from analysis.questions import search

    found = search.ask(words)
    if json:
        show.as_json(vars(found))
        return
    if found.unknown:
        print(f"Nothing here is about: {', '.join(found.unknown)}.")
    show.say([f"{row['name']} {row['answer']} (docs/findings.md, {row['findings']})" for row in found.short])
    show.say([f"Finding {row['n']}: {row['name']}. (docs/findings.md)" for row in found.findings])
    for row in found.questions:
        whole = f"testbed evidence questions {row['n']}"
        show.say([f"Question {row['n']}: {row['name']} {row['answer']} All of it: {whole}"])
    print(search.summary(found))
    show.say([f"  {search.in_words(row)}" for row in found.claims])
    if found.total > len(found.claims):
        print(f"  and {found.total - len(found.claims)} more; testbed list claims has all.")
    if found.arena:
        print("The arena, means of 32 seeds or more, gains over tuned GRPO with 95 % intervals:")
        show.say([f"  {line}" for line in search.gains(found.arena) if any(w in line for w in found.words)])
        show.table(found.arena)
    for row in found.systems:
        central = "; ".join(f"{name} {verdict}" for name, verdict in row["central"].items())
        show.say([f"System {row['name']}, {row['status']}: {central or 'no central claim judged'}"])
    if found.claims:
        print(f"More of a claim: testbed show {found.claims[0]['name']}")
