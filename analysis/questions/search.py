"""Find claims, systems, questions and rows of the arena that match a question in words."""

import functools
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analysis.arena import table
from analysis.judging.needed import OPEN
from analysis.judging.system_list import System, status, systems
from analysis.judging.verdicts import Row, by_claim
from analysis.pages import findings_page
from analysis.questions import question_list
from analysis.questions.question import Question, in_brief
from analysis.questions.question_list import QUESTIONS
from testbed.errors import UserError, suggest

SHOWN = 8
"""Number of claims that fit on one screen."""
BEST = 3
"""Arms of a task to show for a question without a method."""
WORDLESS = frozenset(
    """a about above after all an and any are as at be beat beats best better between by can compare compared
    do does for from good has have help helps hold holds how i if in is it its known me method my of off on
    one or over should so than that the their there they this to under use used vs was we well what when where
    which who why will with work works worse worth would""".split()  # noqa: SIM905
)
"""Words of a question to ignore."""


KIN = (
    {"stale", "old", "lag", "delay", "asynchronous"},
    {"mismatch", "engine"},
    {"crash", "collapse", "fail"},
    {"log-probabilities", "log-probability", "log-probs", "log-prob", "logprobs", "logprob", "logps", "logp"},
    {"quantized", "quantization", "four-bit", "4-bit", "int4", "q4-0"},
    {"kv", "cache"},
    {"partial", "interrupted", "half-way"},
    {"dynamic", "zero-variance", "equal rewards"},
    {"overlong", "cut at the limit"},
    {"microbatch", "micro-batch"},
    {"normalization", "divide", "denominator"},
    {"aggregation", "token mean", "sequence mean"},
)
"""Words and phrases that mean the same."""
FINDINGS = 3
"""Findings and answered questions that fit on one screen."""


@dataclass(frozen=True)
class Answer:
    """Result of a search.

    words: those searched for. unknown: those that match nothing. complete: whether some claim has all words.
    verdicts: their counts among the `total` claims, the most frequent first. claims: the first SHOWN, with
    verdict, effect, interval and scope. short: question, answer and findings of the short answer, if one has
    all words, else none. findings: number, title and text. systems: with status and the
    verdicts on their central claims. questions: number, title and the answer's first sentence. arena: means
    of an arm by task and lag, gains over GRPO.
    """

    words: tuple[str, ...]
    unknown: tuple[str, ...]
    complete: bool
    total: int
    verdicts: dict[str, int]
    claims: list[dict[str, Any]]
    short: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    systems: list[dict[str, Any]]
    questions: list[dict[str, Any]]
    arena: list[dict[str, Any]]


def tokens(text: str) -> list[str]:
    """Return the words of a text in lower case; "lag 16" and "lag=16" are one word, lag-16."""
    joined = re.sub(r"\blag[ =]+(\d+)", r"lag-\1", text.lower())
    return re.findall(r"[a-z0-9²³]+(?:-[a-z0-9]+)*", joined)


def ask(question: Iterable[str]) -> Answer:
    """Return all results that match the words of a question.

    Rare words count for more. Claims with all words come first; if there are none, claims with at least half
    of the words' total weight. Raises UserError for a question without a known word, and suggests the nearest
    one.
    """
    judged, listed, asked = by_claim(), systems(), question_list.find(())
    found = findings_page.stored()
    texts = {name: _plain(f"{name} {row['systems']}") for name, row in judged.items()}
    titles = {q.n: _plain(q.title) for q in asked}
    sections = {n: _plain(f"{title} {text}") for n, (title, text) in enumerate(found, 1)}
    heads = {n: _plain(title) for n, (title, _) in enumerate(found, 1)}
    answers = {q.n: _plain(f"{q.title} {q.answer} {q.holds}") for q in asked}
    names = [_plain(each.name) for each in listed.values()]
    titled = (*judged, *(q.title for q in asked), *(title for title, _ in found))
    words, unknown = _searched(
        tokens(" ".join(question)),
        [*texts.values(), *answers.values(), *sections.values(), *names],
        {word for text in titled for word in tokens(text.replace("-", " ")) if len(word) > 2},
    )
    counts = {word: _weight(word, texts.values()) for word in words}
    near = _nearest(texts, counts)
    central = {claim for each in listed.values() for claim in each.central}
    order = sorted(near, key=lambda name: (-near[name], *_rank(judged[name], name in central)))
    return Answer(
        words,
        unknown,
        any(all(_has(texts[name], word) for word in words) for name in near),
        len(order),
        dict(Counter(str(judged[name]["verdict"]).partition(":")[0] for name in order).most_common()),
        [_claim(judged[name]) for name in order[:SHOWN]],
        _short(words),
        [{"n": n, "name": found[n - 1][0], "text": found[n - 1][1]} for n in _best(sections, counts, heads)],
        [_system(each, judged) for each in listed.values() if any(_named(each.name, word) for word in words)],
        [
            _question(QUESTIONS[n], judged)
            for n in _best(titles, counts, titles) or _best(answers, counts, titles)
        ],
        _arena(words),
    )


def _searched(
    given: Sequence[str], texts: Sequence[str], spoken: Collection[str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words that occur in some text, and the others; spoken: whole words to suggest."""
    words = tuple(dict.fromkeys(word for word in given if word not in WORDLESS))
    if not words:
        raise UserError(
            "The question has no word to search for. Name a method, a lag or a subject: m2po lag 64."
        )
    known = tuple(word for word in words if any(_has(text, word) for text in texts))
    if not known:
        raise UserError(
            f"Nothing here is about '{words[0]}'.{suggest(words[0], spoken)} All questions "
            "are in docs/questions.md, all claims in: testbed list claims"
        )
    return known, tuple(word for word in words if word not in known)


def _stem(word: str) -> str:
    """Return a word without its ending: clips, clipped and clipping are clip, truncation is truncat."""
    if len(word) > 3 and word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    word = re.sub(r"(?<=[a-z]{3})(iz|at)(ation|ion)$", r"\1", word)
    bare = re.sub(r"(?<=[a-z]{3})(ness|ing|ed|e)$", "", re.sub(r"ness$", "", word))
    return bare[:-1] if re.search(r"([bdgmnprt])\1$", bare) and bare != word else bare


def _plain(text: str) -> str:
    """Return the stems of a text's words, a space around each."""
    return f" {' '.join(_stem(word) for word in re.findall(r'[a-z0-9²³]+', text.lower()))} "


@functools.cache
def _forms(word: str) -> tuple[str, ...]:
    """Return the word and those of the same meaning as plain text."""
    kin = next((group for group in KIN if _stem(word) in map(_stem, group)), {word})
    return tuple(_plain(each) for each in kin)


def _has(plain: str, word: str) -> bool:
    """Return whether a plain text has the whole word, another form of it, or a synonym."""
    return any(form in plain for form in _forms(word))


def _weight(word: str, texts: Collection[str]) -> float:
    """Return log((1 + N) / (1 + n)) for a word that n of N texts have."""
    return math.log((1 + len(texts)) / (1 + sum(_has(text, word) for text in texts)))


def _nearest(texts: Mapping[Any, str], weight: Mapping[str, float]) -> dict[Any, float]:
    """Return the summed word weights of texts with all words, else with half of the weight or the most."""
    score = {key: sum(w for word, w in weight.items() if _has(text, word)) for key, text in texts.items()}
    whole, most = sum(weight.values()), max(score.values())
    least = most if most >= whole * (1 - 1e-9) else min(whole / 2, most)
    return {key: s for key, s in score.items() if s > 0 and s >= least * (1 - 1e-9)}


def _best(texts: Mapping[int, str], weight: Mapping[str, float], titles: Mapping[int, str]) -> list[int]:
    """Return the FINDINGS keys of the best matching texts, titles first."""
    near = _nearest(texts, weight)
    said = {key: sum(w for word, w in weight.items() if _has(titles[key], word)) for key in near}
    return sorted(near, key=lambda key: (-said[key], -near[key], key))[:FINDINGS]


def _short(words: Sequence[str]) -> list[dict[str, Any]]:
    """Return the short answer whose question has most of the words, if question and answer have them all."""
    rows = [(q.replace("lag of", "lag"), q, said, more) for q, said, more in findings_page.in_short()]
    near = [row for row in rows if all(_has(_plain(f"{row[0]} {row[2]}"), word) for word in words)]
    score = {row: sum(_has(_plain(row[0]), word) for word in words) for row in near}
    best = max(near, key=lambda row: score[row], default=None)
    if best is None or not score[best]:
        return []
    return [{"name": best[1], "answer": best[2], "findings": best[3]}]


def _named(system: str, word: str) -> bool:
    """Return whether a system's name has this uncommon word as a whole: GRPO does not match RGR-GRPO."""
    return not any(word in group for group in KIN) and bool(
        re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", system.lower())
    )


def _rank(row: Row, central: bool) -> tuple[bool, bool, float]:
    """Return the sort key: central claims first, then decided ones, then by evidence."""
    open_ = row["verdict"] in OPEN or str(row["verdict"]).startswith("invalid")
    return (not central, open_, -float(row["e"] or 0))


def _claim(row: Row) -> dict[str, Any]:
    kept = ("verdict", "effect", "low", "high", "asks", "n", "kind", "experiment", "gates", "note")
    return {"name": row["claim"], "tolerance": row["tolerance"], **{name: row[name] for name in kept}}


def _question(asked: Question, judged: Mapping[str, Row]) -> dict[str, Any]:
    answer = asked.text(question_list.stored().get(asked.n, {}), judged)
    return {"n": asked.n, "name": asked.title, "answer": re.split(r"(?<=\.) ", answer)[0]}


def _system(system: System, judged: Mapping[str, Row]) -> dict[str, Any]:
    central = {claim: judged[claim]["verdict"] for claim in system.central if claim in judged}
    return {"name": system.name, "says": system.says, "status": status(system, judged), "central": central}


def _arena(words: Sequence[str]) -> list[dict[str, Any]]:
    """Return the arena's rows of the named arms and lags, by task and lag, best final value first.

    GRPO is omitted beside other arms: their gains are measured against it. Without a named
    arm, return the BEST arms of every task at the lags.
    """
    frame = table.load()
    lags = {int(word.removeprefix("lag-")) for word in words if re.fullmatch(r"lag-\d+", word)}
    arms = {name for name in frame["arm"].unique() if name.replace("_", "-") in words}
    frame = frame[frame["lag"].isin(lags) if lags else frame["lag"] > 0]
    if frame.empty or not (arms or lags):
        return []
    if arms:
        found = table.summary(frame[frame["arm"].isin(arms | {"grpo"})])
        rows = found[found["arm"].isin(arms - {"grpo"} or arms)]
    else:
        rows = table.summary(frame).groupby(["task", "lag"], sort=False).head(BEST)
    kept = ["task", "lag", "arm", "rate", "knob", "final", "gain", "gain_low", "gain_high"]
    return table.records(rows[kept])


def gains(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return, per arm, the number of tasks and lags where its interval is above or below tuned GRPO."""
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
    """Return the first line: the words searched for, and the number of claims found."""
    words = " ".join(found.words)
    if not found.total:
        return f"No claim is about: {words}."
    verdicts = ", ".join(f"{number} {verdict}" for verdict, number in found.verdicts.items())
    claims = f"{found.total} claim{'s' * (found.total > 1)} ({verdicts})"
    return f"{claims} on: {words}." if found.complete else f"No claim has all of: {words}. Nearest: {claims}."


def in_words(row: Mapping[str, Any]) -> str:
    """Return a claim in one line: effect with interval, verdict, name, kind of evidence and size."""
    size = f", n = {row['n']:.0f}" if row["n"] else ""
    return f"{in_brief(row)}: {row['name']} ({row['kind']}{size})"
