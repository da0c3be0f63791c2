"""Answers of free lengths: windows of the longest answer are whole answers, shorter ones save time."""

import pytest

from analysis.worlds.long_answers import EGAE, LONGEST, SLOTS, WHOLE, ticks

pytestmark = pytest.mark.slow
"""Ten seconds of compiling for a millisecond of it."""


def test_the_longest_windows_are_whole_answers_and_short_ones_do_not_wait():
    whole = ticks(3, WHOLE, 30.0, 0.9, SLOTS, 0.5, 5000.0)
    assert ticks(3, EGAE, 30.0, 0.9, LONGEST, 0.5, 5000.0) == whole < 5000
    assert ticks(3, EGAE, 30.0, 0.9, 16, 0.5, 5000.0) < 0.75 * whole


def test_a_clock_stops_at_its_end():
    assert ticks(3, WHOLE, 0.0, 0.9, SLOTS, 0.5, 200.0) == 200.0
