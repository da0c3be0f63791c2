"""Bugs planted in which systems of the literature count as judged, and in what the page says of them."""

from __future__ import annotations

from mutants.mutant import Mutant

LIST, PAGE, EXPERIMENT = (
    "analysis/judging/systems.py",
    "analysis/pages/systems_page.py",
    "analysis/experiment.py",
)
TESTS = "tests/experiments/test_systems.py"

MUTANTS = (
    Mutant("systems-judged-without-an-experiment", LIST, '    return "cannot be tried here" if name in OUT_OF_REACH else "not yet tried"', '    return "judged"', TESTS),
    Mutant("systems-a-part-is-the-whole", LIST, "if all(part.what for part in tried.values())", "if False", TESTS),
    Mutant("systems-judged-without-a-claim", LIST, "if not part.claims:", "if False:", TESTS),
    Mutant("systems-judged-though-out-of-reach", LIST, "if system in OUT_OF_REACH:", "if False:", TESTS),
    Mutant("systems-any-name", LIST, "if system not in found:", "if found.setdefault(system, {}) is None:", TESTS),
    Mutant("systems-judged-without-a-verdict", PAGE, "    must_be_judged(part.claims, judged)\n", "    judged = {**dict.fromkeys(part.claims, {}), **judged}\n", TESTS),
    Mutant("systems-page-forgets-the-part", PAGE, '    if each["part"]:', "    if False:", TESTS),
    Mutant("systems-claims-of-others", EXPERIMENT, "claims=part.claims or tuple(self.claims)", "claims=tuple(self.claims)", TESTS),
    Mutant("systems-claims-not-made", EXPERIMENT, "if other := set(part.claims) - set(self.claims):", "if other := set():", TESTS),
    Mutant("systems-verdict-read-beside-its-claim", "analysis/pages/claims_page.py", r'"(?<!\\)\|"', r'"\|"', TESTS),
)  # fmt: skip
