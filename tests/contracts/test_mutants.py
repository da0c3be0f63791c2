"""Planted bugs are only worth something if they can be planted."""

import contextlib
import shlex
from pathlib import Path

from mutants.run import MUTANTS

ROOT = Path(__file__).parents[2]


def test_every_planted_bug_finds_its_place_and_changes_something():
    lost = [mutant.name for mutant in MUTANTS]
    for mutant in MUTANTS:
        with contextlib.suppress(ValueError):
            mutant.planted((ROOT / mutant.file).read_text())
            lost.remove(mutant.name)
    assert lost == []


def test_the_tests_of_every_planted_bug_exist():
    named = {word.partition("::")[0] for mutant in MUTANTS for word in shlex.split(mutant.tests)}
    assert sorted(path for path in named if path.startswith("tests/") and not (ROOT / path).is_file()) == []


def test_two_planted_bugs_never_share_a_name():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
