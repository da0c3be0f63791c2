"""Bugs planted in which systems of the literature count as judged, and in what the page says of them."""

from mutants.mutant import Mutant

LIST, PAGE, EXPERIMENT = (
    "analysis/judging/systems.py",
    "analysis/pages/systems_page.py",
    "analysis/experiment.py",
)
TESTS = "tests/experiments/test_systems.py"

MUTANTS = (
    Mutant("systems-judged-without-a-claim", LIST, "if not part.claims:", "if False:", TESTS),
    Mutant("systems-any-name", LIST, "if system not in found:", "if found.setdefault(system, {}) is None:", TESTS),
    Mutant("systems-claims-of-others", EXPERIMENT, "claims=part.claims or tuple(self.claims)", "claims=tuple(self.claims)", TESTS),
    Mutant("systems-claims-not-made", EXPERIMENT, "if other := set(part.claims) - set(self.claims):", "if other := set():", TESTS),
)  # fmt: skip
