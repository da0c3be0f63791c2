"""The word that a claim's evidence has on its own, for tests of what a claim reads in a table."""

from analysis.judging.e_values import REFUTED, SUPPORTED, UNDECIDED, Evidence

ENOUGH = 20.0
"""E-value that counts: a wrong word then has chance 1/10 at most."""


def agrees(evidence: Evidence) -> bool:
    """Whether the estimate of every cell is on the claim's side."""
    return bool(evidence.cells) and all(cell.agrees for cell in evidence.cells)


def word(evidence: Evidence) -> str:
    """Return the word with the largest e-value where that is enough, whatever fresh seeds say."""
    if evidence.holds is not None:
        return SUPPORTED if evidence.holds else REFUTED
    found = max(evidence.e, key=lambda each: evidence.e[each], default=UNDECIDED)
    return found if evidence.e.get(found, 0.0) >= ENOUGH else UNDECIDED
