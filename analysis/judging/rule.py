"""The decision rule: which claims are decided, so that at most 5 % of the decided are expected to be wrong.

A claim's e-value is half the largest of its words (analysis.judging.e_values). A set R of m claims is decided
where each has an e-value of at least m / (alpha |R|): e-BH, valid under any dependence between claims that
share seeds, arms and tables, at any stopping time of any of them. Source: Wang and Ramdas (2022), theorem 2.
The bound holds for every self-consistent R (their section 4). So the threshold may stay on a coarse ladder,
and one new claim changes one verdict.

A decided claim also needs a replication whose fresh seeds by themselves point the same way, e > 1.
"""

from collections.abc import Iterable, Mapping

from analysis.judging.e_values import NONE, SMALLER, UNDECIDED, WORDS, Evidence

ALPHA = 0.05
"""Largest expected share of wrong claims among the decided ones, over all claims on tables."""
LADDER = (70, 80, 100, 120, 150, 200, 300, 500, 1000, 2000, 5000, 10_000, 100_000)
"""Thresholds on the e-value of a word. The smallest is that of all claims ever asked: retiring some of them
when their numbers are known must not lower it for the others (docs/theory/verdicts.md)."""
USUAL = 70.0
"""Threshold for which a design is planned: that of a page on which 57 % of claims are decided."""
FIRST_RUN = 100.0
"""e-value of any word at which the first run of a claim stops."""
ENOUGH = 200.0
"""A replication stops where both runs together have this e-value, and its fresh seeds point the same way."""
WORTH_A_REPLICATION = 3.0
"""e-value of a first run below which a claim gets no replication."""


def threshold(e_values: Iterable[float], m: int, alpha: float = ALPHA) -> float:
    """Return the smallest step T of the ladder at which at least 2 m / (alpha T) of m claims have e >= T.

    e_values: of the words that claims would earn, at most one per claim. Returns inf if no step is
    self-consistent.
    """
    found = list(e_values)
    for step in LADDER:
        # A claim's own e-value is half its word's, so step / 2 stands for m / (alpha |R|).
        if sum(e >= step for e in found) >= max(1, 2 * m / (alpha * step)):
            return float(step)
    return float("inf")


def leaning(evidence: Evidence) -> tuple[str, float]:
    """Return the word with the largest e-value, and that e-value; "undecided", 0 where there is none.

    Only words to which a fresh run points by itself (e > 1) are eligible, so one run alone decides nothing.
    An effect above 0 and below the margin is also within it. Where the former has an e-value of ENOUGH, it is
    the word, as "no difference" would hide the direction.
    """
    eligible = _repeated(evidence.e, evidence.runs[1].e if evidence.runs else {})
    if not eligible:
        return UNDECIDED, 0.0
    word = max((each for each in WORDS if each in eligible), key=lambda each: eligible[each])
    if word == NONE and eligible.get(SMALLER, 0.0) >= ENOUGH:
        word = SMALLER
    return word, eligible[word]


def half(evidence: Evidence) -> tuple[str, float]:
    """Return the half word with the largest e-value, and that e-value; "", 0 if fresh seeds confirm none."""
    eligible = _repeated(evidence.half, evidence.runs[1].half if evidence.runs else {})
    word = max(eligible, key=lambda each: eligible[each], default="")
    return word, eligible.get(word, 0.0)


def _repeated(e: Mapping[str, float], fresh: Mapping[str, float]) -> dict[str, float]:
    return {word: value for word, value in e.items() if fresh.get(word, 0.0) > 1}


def strongest(evidence: Evidence) -> float:
    """Return the largest e-value of any word; 0 without one."""
    return max(evidence.e.values(), default=0.0)


def verdict(at: float, *said: tuple[str, float]) -> str:
    """Return the first word of (word, e-value) whose e-value reaches the threshold, else "undecided"."""
    return next((word for word, e in said if e >= at), UNDECIDED)
