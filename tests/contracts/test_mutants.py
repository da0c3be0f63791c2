"""Planted bugs are only worth something if they can be planted."""

from pathlib import Path

from mutants.run import MUTANTS

ROOT = Path(__file__).parents[2]


def test_every_planted_bug_finds_its_place_and_changes_something():
    lost = [
        mutant.name
        for mutant in MUTANTS
        if mutant.old not in (ROOT / mutant.file).read_text() or mutant.old == mutant.new
    ]
    assert lost == []
