"""Finds the claims, systems, questions and rows of the arena that a question in words names."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.arena import table
from analysis.judging.needed import OPEN
from analysis.judging.systems import System, status, systems
from analysis.judging.verdicts import Row, by_claim
from analysis.questions import catalog
from analysis.questions.question import in_brief
from testbed.errors import UserError, suggest

SHOWN = 8
"""Claims that one screen has room for."""
BEST = 3
"""Arms of a task that a question without a method gets."""
WORDLESS = frozenset(
    """a about above after all an and any are as at be beat beats best better between by can compare compared
    do does for from good has have help helps hold holds how i if in is it its known me method my of off on
    one or over should so than that the their there they this to under use used vs was we well what when where
    which who why will with work works worse worth would""".split()  # noqa: SIM905
)
"""Words of a question that name nothing."""


@dataclass(frozen=True)
class Answer:
    """What a question finds.

    words: those that were searched for. complete: whether some claim has all of them. verdicts: their number
    among the `total` claims, the most frequent first. claims: the first SHOWN, with
    verdict, effect, interval and scope. systems: with status and the verdicts on their central claims.
    questions: number and title. arena: means of an arm by task and lag, gains over GRPO.
    """

    words: tuple[str, ...]
    complete: bool
    total: int
    verdicts: dict[str, int]
    claims: list[dict[str, Any]]
    systems: list[dict[str, Any]]
    questions: list[dict[str, Any]]
    arena: list[dict[str, Any]]


def tokens(text: str) -> list[str]:
    """Return the words of a text in lower case; "lag 16" and "lag=16" are one word, lag-16."""
    joined = re.sub(r"\blag[ =]+(\d+)", r"lag-\1", text.lower())
    return re.findall(r"[a-z0-9²³]+(?:-[a-z0-9]+)*", joined)


def ask(question: Iterable[str]) -> Answer:
    """Return what is known about the words of a question.

    Claims that have all words come first; where none has, those that have the rarest one. Raises UserError
    for a question that names nothing, and for a word that nothing here has, with the nearest one.
    """
    judged, listed = by_claim(), systems()
    texts = {name: f"{name} {row['systems']}".lower() for name, row in judged.items()}
    asked = catalog.find(())
    other = [each.name.lower() for each in listed.values()] + [each.title.lower() for each in asked]
    words = _searched(tokens(" ".join(question)), [*texts.values(), *other])
    hits = {word: {name for name, text in texts.items() if _has(text, word)} for word in words}
    every = set.intersection(*hits.values())
    found = every or min((names for names in hits.values() if names), key=len, default=set())
    central = {claim for each in listed.values() for claim in each.central}
    order = sorted(found, key=lambda name: _rank(judged[name], name in central))
    return Answer(
        words,
        bool(every),
        len(order),
        dict(Counter(str(judged[name]["verdict"]).partition(":")[0] for name in order).most_common()),
        [_claim(judged[name]) for name in order[:SHOWN]],
        [_system(each, judged) for each in listed.values() if any(_named(each.name, word) for word in words)],
        [{"n": q.n, "name": q.title} for q in asked if all(_has(q.title.lower(), word) for word in words)],
        _arena(words),
    )


def _searched(given: Sequence[str], texts: Sequence[str]) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word for word in given if word not in WORDLESS))
    if not words:
        raise UserError(
            "The question has no word to search for. Name a method, a lag or a subject: m2po lag 64."
        )
    for word in words:
        if not any(_has(text, word) for text in texts):
            known = {each for text in texts for each in re.findall(r"[a-z0-9]+", text)}
            raise UserError(f"Nothing here is about '{word}'.{suggest(word, known)} All: testbed list claims")
    return words


def _has(text: str, word: str) -> bool:
    """Return whether a text contains the whole word or its plural."""
    return (
        re.search(rf"(?<![a-z0-9]){re.escape(word.removesuffix('s') or word)}s?(?![a-z0-9])", text)
        is not None
    )


def _named(system: str, word: str) -> bool:
    """Return whether a system's name contains the whole word: GRPO does not match RGR-GRPO."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", system.lower()) is not None


def _rank(row: Row, central: bool) -> tuple[bool, bool, float]:
    """Return the sort key: central claims first, then decided ones, then by evidence."""
    open_ = row["verdict"] in OPEN or str(row["verdict"]).startswith("invalid")
    return (not central, open_, -float(row["e"] or 0))


def _claim(row: Row) -> dict[str, Any]:
    kept = ("verdict", "effect", "low", "high", "asks", "n", "kind", "experiment", "gates", "note")
    return {"name": row["claim"], **{name: row[name] for name in kept}}


def _system(system: System, judged: Mapping[str, Row]) -> dict[str, Any]:
    central = {claim: judged[claim]["verdict"] for claim in system.central if claim in judged}
    return {"name": system.name, "says": system.says, "status": status(system, judged), "central": central}


def _arena(words: Sequence[str]) -> list[dict[str, Any]]:
    """Return the arena's rows of the named arms and lags, by task and lag, best final value first.

    GRPO is omitted beside other arms: their gains are measured against it. Without a named
    arm, return the BEST arms of every task at the lags.
    """
    found = table.summary(table.load())
    lags = {int(word.removeprefix("lag-")) for word in words if re.fullmatch(r"lag-\d+", word)}
    arms = {name for name in found["arm"].unique() if name.replace("_", "-") in words}
    if not arms and not lags:
        return []
    rows = found[found["lag"].isin(lags) if lags else found["lag"] > 0]
    if arms:
        rows = rows[rows["arm"].isin(arms - {"grpo"} or arms)]
    else:
        rows = rows.groupby(["task", "lag"], sort=False).head(BEST)
    kept = ["task", "lag", "arm", "rate", "knob", "final", "gain", "gain_low", "gain_high"]
    return table.records(rows[kept])


def gains(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return per arm on how many tasks and lags its interval lies above or below tuned GRPO."""
    found = []
    for arm in dict.fromkeys(row["arm"] for row in rows):
        here = [row for row in rows if row["arm"] == arm and row["gain"] == row["gain"]]
        above, below = sum(row["gain_low"] > 0 for row in here), sum(row["gain_high"] < 0 for row in here)
        open_ = len(here) - above - below
        if here:
            where = f"{len(here)} task{'s and lags' if len(here) > 1 else ' and lag'}"
            found.append(f"{arm} against tuned GRPO, {where}: {above} above, {below} below, {open_} open.")
    return found


def summary(found: Answer) -> str:
    """Return the first line: what was searched for, and how many claims were found."""
    words = " ".join(found.words)
    if not found.total:
        return f"No claim is about: {words}."
    how = "have" if found.complete else "are nearest; none has all words of"
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in found.verdicts.items())
    return f"{found.total} claim{'s' * (found.total > 1)} {how}: {words} ({verdicts})."


def in_words(row: Mapping[str, Any]) -> str:
    """Return a claim in one line: effect with interval, verdict, name, kind of evidence and size."""
    size = f", n = {row['n']:.0f}" if row["n"] else ""
    return f"{in_brief(row)}: {row['name']} ({row['kind']}{size})"
