"""The planted bug that refutes each exact claim: what a claim speaks of is the function that the bug is in.

A test plants every one of them and wants the verdict "refuted", so that no exact claim can stay supported
while the code that it is about is broken. `testbed show` names the functions.
"""

from analysis.planted_bugs import foundations, systems
from analysis.planted_bugs.bug import Bug

__all__ = ["PLANTED", "Bug", "about"]

PLANTED = (*foundations.PLANTED, *systems.PLANTED)


def about(claim: str) -> list[str]:
    """Return the dotted names of the functions in which the bugs of a claim are planted, without repeats."""
    return list(dict.fromkeys(bug.about for bug in PLANTED if bug.claim == claim))
