"""Bugs planted in partial rollouts."""

from mutants.mutant import Mutant

SOURCE, TESTS = "testbed/staleness/partial.py", "tests/unit/staleness/test_partial.py"

MUTANTS = (
    Mutant("partial-version-of-the-start", SOURCE, "version_RBT = version_W[part_T]", "version_RBT = version_W[0 * part_T]", TESTS),
    Mutant("partial-version-off-by-one", SOURCE, "torch.arange(start, now + 1, device=part_T.device)", "torch.arange(start - 1, now, device=part_T.device)", TESTS),
    Mutant("partial-done-too-early", SOURCE, "- 1 == now - start", "- 2 == now - start", TESTS),
    Mutant("partial-done-when-the-shortest-is", SOURCE, ".amax(-1)", ".amin(-1)", TESTS),
    Mutant("partial-groups-come-twice", SOURCE, "== now - start", "<= now - start", TESTS),
    Mutant("partial-same-draws-for-every-batch", SOURCE, "count = start + self.parts - 1", "count = now", TESTS),
    Mutant("partial-newest-first", SOURCE, "line.popleft()", "line.pop()", TESTS),
    Mutant("partial-no-warm-up", SOURCE, "if start > -self.parts:", "if start > -1:", TESTS),
    Mutant("partial-cells-share-a-place", SOURCE, "offset[id(done.rollout)] + done.place", "offset[id(done.rollout)] + 0 * done.place", TESTS),
    Mutant("partial-buffer-never-full", SOURCE, "parts > self.most_versions", "parts > 99 + self.most_versions", TESTS),
)  # fmt: skip
