"""Bugs planted in teachers and guides."""

from mutants.mutant import Mutant

TEACHERS, GUIDES = "testbed/teachers/__init__.py", "testbed/teachers/guides.py"
TESTS = "tests/unit/teachers/test_teachers.py"
PRIVATE, ALIGNED = (
    "analysis/experiments/teachers/private_networks.py",
    "analysis/worlds/aligned_groups.py",
)
SPENT, PULLED = "tests/experiments/test_private_networks.py", "tests/experiments/test_group_alignment.py"

ARMS, CHOSEN = "analysis/worlds/tuned_training.py", "tests/experiments/test_expert_help.py"

MUTANTS = (
    Mutant("teacher-misses-the-solution", TEACHERS, "return self.world.with_solutions(rollout) if self.solution else rollout", "return rollout", TESTS),
    Mutant("guide-replaces-one-too-few", GUIDES, ">= rollout.group - count", "> rollout.group - count", TESTS),
    Mutant("guide-own-success-as-new", GUIDES, "                getattr(other, name)[r, (n + 1) * rollout.group - 1] = value\n", "                getattr(other, name)[r, n * rollout.group] = value\n", TESTS),
    Mutant("private-record-unclipped", PRIVATE, "(CLIP / norm_RB1.clamp(min=CLIP))", "CLIP", SPENT),
    Mutant("private-sample-counts-twice", PRIVATE, "+ (k * k - k) / (2 * sigma**2)", "+ (k * k - k) / sigma**2", SPENT),
    Mutant("private-multiplier-overspends", PRIVATE, "(middle, high) if spent(middle) > EPSILON else (low, middle)", "(middle, high) if spent(middle) > 2 * EPSILON else (low, middle)", SPENT),
    Mutant("alignment-pulls-failures-up", ALIGNED, "pull_XGG.sum(-1) - pull_XGG.sum(-2)", "pull_XGG.sum(-1) + pull_XGG.sum(-2)", PULLED),
    Mutant("expert-arms-grow-inward", ARMS, "(1 if value == max(values) else -1)", "(-1 if value == max(values) else 1)", CHOSEN),
    Mutant("expert-arms-pass-every-end", ARMS, "way.whole and best[1] in", "best[1] in", CHOSEN),
    Mutant("expert-arms-stop-at-the-first-rates", ARMS, "rate * BEYOND if rate == max(rates)", "rate if rate == max(rates)", CHOSEN),
    Mutant("alignment-of-half-the-pairs", ALIGNED, "(1 - won_XG[..., None, :])", "1", PULLED),
)  # fmt: skip
