"""Bugs planted in teachers and guides."""

from __future__ import annotations

from mutants.mutant import Mutant

TEACHERS, GUIDES = "testbed/teachers/__init__.py", "testbed/teachers/guides.py"
TESTS = "tests/unit/teachers/test_teachers.py"

MUTANTS = (
    Mutant("teacher-misses-the-solution", TEACHERS, "return self.world.with_solutions(rollout) if self.solution else rollout", "return rollout", TESTS),
    Mutant("guide-replaces-one-too-few", GUIDES, ">= rollout.group - count", "> rollout.group - count", TESTS),
    Mutant("guide-own-success-as-new", GUIDES, "                getattr(other, name)[r, (n + 1) * rollout.group - 1] = value\n", "                getattr(other, name)[r, n * rollout.group] = value\n", TESTS),
)  # fmt: skip
