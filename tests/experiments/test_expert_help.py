"""Help where a base model is seldom right: how settings are chosen, and that arms are what they say."""

import pytest

from analysis.experiments.experts.expert_help import EXPERTS, IN_ORDER, OTHER
from analysis.worlds import tuned_training
from analysis.worlds.pilots import FLAT, PILOT
from analysis.worlds.tuned_training import PILOTS, RATES, Way, ends, settled
from testbed.config.run import Run

LADDER = (1.0, 2.0, 3.0, 4.0, 5.0)


def peak(monkeypatch, rate: float, value: float):
    """Score every setting by its distance from a best one, in steps of rate and knob."""

    def score(way, at, rates):
        del way
        return {each: -abs(each / rate - 1) - abs(at - value) for each in rates}

    monkeypatch.setattr(tuned_training, "score", score)


@pytest.mark.parametrize("value", LADDER)
def test_the_search_climbs_to_a_best_value_that_is_not_the_middle_one(monkeypatch, value):
    peak(monkeypatch, RATES[2], value)
    found = settled(Way(lambda _: Run(), LADDER))
    assert (found["rate"], found["value"]) == (RATES[2], value)
    assert found["at_end"] == int(value in (LADDER[0], LADDER[-1]))
    assert settled(Way(lambda _: Run(), LADDER, whole=True))["at_end"] == 0


@pytest.mark.parametrize("rate", [RATES[0] / 1.8, RATES[-1] * 1.8])
def test_the_search_goes_to_a_best_rate_beyond_and_one_step_further(monkeypatch, rate):
    peak(monkeypatch, float(f"{rate:.2g}"), 0)
    found = settled(Way(lambda _: Run()))
    assert found["rate"] == float(f"{rate:.2g}")
    assert found["at_end"] == 0


def test_an_end_that_is_hardly_better_is_none():
    way = Way(lambda _: Run())
    assert ends({(1, 0): 0.5, (2, 0): 0.5 - 2 * FLAT}, way) == ["rate"]
    assert ends({(1, 0): 0.5, (2, 0): 0.5 - FLAT / 2}, way) == []


def test_every_arm_has_settings_of_its_ladder():
    assert set(EXPERTS.chosen) == set(EXPERTS.ways)
    for name, way in EXPERTS.ways.items():
        assert EXPERTS.chosen[name]["value"] in way.ladder
        tasks = {OTHER: "styled-sum", IN_ORDER: "sorted"}
        known = next((tasks[stem] for stem in tasks if name.startswith(stem)), "running-sum")
        assert EXPERTS.arm(name).run.task == known


@pytest.mark.slow
def test_pilot_scores_come_again():
    """The settings' file says what a pilot says of the cheapest arm, but for another machine's bits."""
    name = "sft"
    here = tuned_training.score(EXPERTS.ways[name], 0, [EXPERTS.chosen[name]["rate"]])
    assert next(iter(here.values())) == pytest.approx(EXPERTS.chosen[name]["score"], abs=0.05)
    assert (PILOT, PILOTS) == (5_000_000, 32)
