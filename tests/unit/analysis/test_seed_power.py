"""Seeds planned beforehand decide as often as was planned."""

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from support.command_line import call, refused
from support.made_sweep import TOY, accuracy, made
from support.refusals import refuses

from analysis.experiment import Stop
from analysis.judging import bets, rule, seed_power
from analysis.judging.e_values import MEAN, MEDIAN, exceeds, stays_below, within
from analysis.judging.needed import _statistic, decides_already, units_to_decide, why_not
from analysis.judging.seed_power import agreeing, bet_seeds, decided
from analysis.kernels.t_test_seeds import t_power, t_seeds
from analysis.pages.systems_page import needs
from testbed.config.run import grid


@pytest.mark.parametrize(("gap", "spread", "alpha"), [(0.5, 1.0, 0.05), (0.91, math.sqrt(2), 0.01)])
def test_a_t_test_has_the_power_of_a_noncentral_f(gap, spread, alpha):
    seeds = t_seeds(gap, spread, alpha, 0.9)
    for n, enough in ((seeds, True), (seeds - 1, False)):
        most = stats.f.ppf(1 - alpha, 1, n - 1)
        both_sides = stats.ncf.sf(most, 1, n - 1, n * (gap / spread) ** 2)
        assert t_power(n, gap, spread, alpha) == pytest.approx(both_sides, abs=1e-6)
        assert (both_sides >= 0.9) == enough


def test_the_textbook_pairs():
    assert t_seeds(0.5, 1.0, 0.05, 0.8) == 34  # Cohen (1988), table 2.4.1 for pairs, by G*Power


def test_a_design_decides_as_often_as_all_orders_say():
    stop, chance, total = Stop(block=4, cap=4), 0.9, 0.0
    for signs in itertools.product([-1.0, 1.0], repeat=8):
        both, fresh = (exceeds(x, 0.0, "", MEDIAN).e["supported"] for x in (signs, signs[4:]))
        total += math.prod(chance if s > 0 else 1 - chance for s in signs) * (both >= 20 and fresh > 1)
    assert decided(chance, stop, at=20) == pytest.approx(total, abs=1e-12)


def test_fresh_seeds_that_point_the_other_way_decide_nothing_however_sure_the_first_run():
    assert bets.shares(50, 14)[0] > 70
    decides = seed_power._with_first_run(40, 40, 70.0)
    assert not decides(24)[10]
    assert decides(24)[16]


def test_the_cap_asked_for_is_the_first_with_which_the_power_is_reached():
    stop = Stop(block=8, cap=8)
    cap = bet_seeds(0.8, stop, 0.8)
    assert decided(0.8, replace(stop, cap=cap)) >= 0.8 > decided(0.8, replace(stop, cap=cap - 8))


@pytest.mark.timeout(60)
def test_a_gap_too_small_for_every_cap_is_answered_in_seconds():
    """It took minutes."""
    assert bet_seeds(agreeing(0.001, 0.1), Stop(block=8, cap=32)) is None
    assert decided(agreeing(0.02, 0.1), Stop(block=8, cap=256)) == pytest.approx(0.415, abs=5e-4)


def test_a_seed_agrees_more_often_the_larger_the_gap():
    assert agreeing(0.0001, 1.0) == pytest.approx(0.5, abs=1e-4)
    assert agreeing(-1.0, 1.0) == pytest.approx(0.8413, abs=1e-4)


@pytest.mark.parametrize("numbers", [(0.0, 1.0), (1.0, 0.0), (1.0, 1.0, 0.9, 0.8)])
def test_what_nothing_can_be_planned_with_is_one_message(numbers):
    refuses(".", t_seeds, *numbers)


def test_a_gap_that_no_number_of_seeds_decides_has_none():
    assert t_seeds(1e-6, 1.0) is None


def asked(capsys, *words):
    return call(capsys, "power", *words)


def test_the_command_plans_for_people_and_machines(capsys):
    code, out, _ = asked(capsys, "--gap", "0.05", "--spread", "0.1", "--json")
    (row,) = json.loads(out)["rows"]
    assert (code, row["seeds (t test)"]) == (0, t_seeds(0.05, 0.1))
    assert row["decided"] == pytest.approx(decided(row["seeds that agree"], Stop(cap=32)), abs=1e-2)
    assert "seeds that agree" in asked(capsys, "--gap", "0.05", "--spread", "0.1")[1]
    for words, message in (
        (["--gap", "0.05"], "Give --gap and --spread, or the results folder"),
        (["--gap", "1", "--spread", "0"], "The spread is 0, expected a number above 0"),
        (["--gap", "1", "--spread", "1", "--cap", "41"], "expected a multiple of block, 8"),
    ):
        assert message in refused(capsys, "power", *words)


GAINS = {"gspo": [0.02, 0.06, 0.04], "m2po": [1e-7, 1e-3, -1e-3], "cispo": [0.1] * 3}
"""What arms of a pilot have more than GRPO, by seed: a gap, hardly one, and the same on all seeds."""


def pilot(folder, recipes):
    cells = grid(TOY, recipe=["grpo", *recipes], lag=[0], seed=range(3))
    return str(
        made(folder, cells, lambda run: accuracy(run) - 0.3 + GAINS.get(run.recipe, [0.0] * 3)[run.seed])
    )


def test_options_that_read_a_pilot_need_one(capsys):
    for option in ("--by", "--baseline", "--metric"):
        words = ("power", "--gap", "1", "--spread", "1", option, "lag")
        assert f"{option} says how to read a pilot" in refused(capsys, *words)


def test_a_pilot_of_one_seed_is_told_from_seeds_that_agree(capsys, tmp_path):
    folder = str(made(tmp_path / "s", grid(TOY, recipe=["grpo", "m2po"], lag=[0], seed=[0])))
    code, _, err = asked(capsys, folder, "--gap", "0.1")
    assert code == 2
    assert "Left out, because the pilot has one pair of seeds: m2po" in err


@pytest.mark.slow
def test_a_pilot_gives_gap_and_spread_of_every_arm_whose_seeds_differ(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(seed_power, "CAP", 48)
    folder = pilot(tmp_path / "pilot", GAINS)
    code, out, err = asked(capsys, folder, "--json")
    rows = {row["arm"].split()[0]: row for row in json.loads(out)["rows"]}
    assert (code, set(rows)) == (0, {"gspo", "m2po"})
    assert "Left out, because all seeds of the pilot differ by the same amount: cispo" in err
    assert (rows["gspo"]["gap"], rows["gspo"]["spread"]) == (0.04, 0.02)
    assert rows["gspo"]["seeds (t test)"] == t_seeds(0.04, 0.02)
    assert rows["m2po"]["seeds (t test)"] == rows["m2po"]["seeds (bets)"] == "none"
    _, out, _ = asked(capsys, folder, "--gap", "0.1", "--json")
    assert [row["gap"] for row in json.loads(out)["rows"]] == [0.1, 0.1]
    same = pilot(tmp_path / "same", ["cispo"])
    assert "give --gap and --spread, or more seeds" in refused(capsys, "power", same)


@pytest.mark.parametrize(
    ("effect", "asks"), [(0.06, "> 0.05"), (-0.06, "< -0.05"), (0.04, "> 0.05"), (0.01, "within 0.02")]
)
def test_the_units_that_would_decide_a_claim_do_in_four_cases_of_five(effect, asks):
    rng, spread, n = np.random.default_rng(0), 0.1, 100
    half = spread / np.sqrt(n) * stats.t.ppf(0.975, n - 1)
    row = {"verdict": "undecided", "effect": effect, "low": effect - half, "high": effect + half, "n": n}
    units = units_to_decide({**row, "asks": asks})
    sign, margin = asks.split()
    check = {">": exceeds, "<": stays_below}.get(sign, within)
    drawn = [check(rng.normal(effect, spread, units), float(margin), "", MEAN) for _ in range(200)]
    assert 0.7 < np.mean([rule.strongest(each) >= rule.USUAL for each in drawn]) < 0.93


def test_a_decided_claim_and_an_effect_on_a_boundary_need_no_number():
    row = {"verdict": "undecided", "effect": 0.5, "low": 0.4, "high": 0.6, "n": 32, "asks": "> 0.5"}
    assert units_to_decide(row) is None
    assert units_to_decide({**row, "verdict": "supported", "effect": 0.6}) is None
    assert units_to_decide({**row, "effect": 0.55, "high": np.inf}) is None


def test_few_units_are_a_whole_number():
    row = {"verdict": "undecided", "effect": 0.5, "low": 0.2, "high": 0.8, "n": 6, "asks": "> 0"}
    assert str(units_to_decide(row)) == "10"


@pytest.mark.parametrize(
    ("low", "high", "decides"),
    [(-0.030487, -0.0064047, True), (-0.0604, 0.0236, False), (-0.06, -0.018, False), (-0.02, 0.1, True)],
)
def test_a_claim_that_lacks_a_run_by_itself_is_told_apart_from_one_that_lacks_units(low, high, decides):
    row = {"verdict": "margin missed", "effect": -0.018446, "low": low, "high": high, "n": 96}
    row |= {"asks": "> 0.0487902", "experiment": "", "note": ""}
    assert decides_already(row) == decides
    assert (units_to_decide(row) is None) == decides
    assert ("its interval decides already" in needs(row)) == decides


LAW = {"effect": 0.174, "low": 0.146, "high": 0.202, "n": 160, "asks": "< 0.182"}


@pytest.mark.parametrize(
    ("row", "said"),
    [(LAW, "more hours of one core"), (LAW, "at a boundary"),
     ({"effect": 0.5, "low": 0.01, "high": 1, "n": 32, "asks": "> 0.5"}, "2 of 32 pairs differ"),
     ({**LAW, "verdict": "refuted"}, "")],
)  # fmt: skip
def test_an_undecided_claim_says_why_its_seeds_were_not_spent(row, said):
    given = {"experiment": "update-ratio-law", "verdict": "undecided", "note": "share; 2 of 32 pairs differ"}
    reason = why_not({**given, **row})
    assert said in reason
    assert bool(said) == bool(reason)


@pytest.mark.parametrize(("n", "e"), [(4, 2.0), (16, 20.0), (256, 1000.0)])
def test_the_statistic_found_is_the_smallest_at_which_bets_are_worth_it(n, e):
    found = _statistic(n, e)
    assert bets.at_statistic(found, n) >= e
    assert bets.at_statistic(found * 0.999, n) < e
