"""Write docs/findings.md: findings.txt with its names in braces replaced by numbers of the committed tables.

{CLAIM} is the effect of a claim with its interval, {times CLAIM} the same as a factor. Other names are
functions of Facts, or of `finding_tables` and `model_findings`, with their arguments.
"""

import re
from pathlib import Path

from analysis.arena import table as arena
from analysis.judging.verdicts import by_claim
from analysis.pages import finding_tables, model_findings, short_answers
from analysis.pages.finding_facts import Facts
from testbed.errors import unknown

TEXT = Path(__file__).with_name("findings.txt")
WRAPPED = re.compile(r"(?m)^(?![#|!]).+(?:\n(?![#|!]).+)*")
"""A paragraph over several lines; a heading, a picture or a row of a table is one line."""
HEADED = re.compile(r"\n## \d+\. (.+)\n\n")
SHORT = re.compile(r"(?m)^\| (.+\?) \| (.+) \| ([\d, ]+) \|$")


def page() -> str:
    facts = _facts()
    body = filled(facts)
    return f"{body}\n{facts.footnotes(body)}\n"


def stored() -> list[tuple[str, str]]:
    """Return title and text of every finding of the committed tables."""
    _, *parts = HEADED.split(filled(_facts()))
    texts = (text.partition("\n\nNot tested: ")[0] for text in parts[1::2])
    return list(zip(parts[::2], texts, strict=True))


def in_short() -> list[tuple[str, str, str]]:
    """Return the short answers: question, answer, numbers of the findings that say more."""
    head = HEADED.split(filled(_facts()))[0]
    return SHORT.findall(re.sub(r"\[\^[^\]]+\]", "", head))


def filled(f: Facts) -> str:
    """Return the text of all findings with their numbers."""
    said = finding_tables.PARTS | model_findings.PARTS | short_answers.PARTS

    def number(match: re.Match[str]) -> str:
        name, _, rest = match[1].partition(" ")
        if name in f.rows:
            return f.claim(name)
        if name == "times":
            return f.factor(rest)
        if name not in said:
            raise unknown(f"claim or number in {TEXT.name}", name, {**f.rows, **said})
        return said[name](f, *rest.split(" ") * bool(rest))

    text = WRAPPED.sub(lambda x: x[0].replace("\n", " "), TEXT.read_text("utf-8"))
    return re.sub(r"\{([^}]+)\}", number, text)


def _facts() -> Facts:
    return Facts(arena.load(), arena.tuning(), by_claim())
