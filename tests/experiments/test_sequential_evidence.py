"""Evidence that is looked at after every block keeps its level wherever it stops, and must come out twice."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from analysis.experiment import Experiment, Stop
from analysis.judging import claims
from analysis.judging import preregistration as preset
from analysis.judging.claims import Evidence, replicated, verdict
from analysis.judging.comparisons import paired
from analysis.judging.sequential import (
    happens_more_often,
    happens_mostly,
    median_exceeds,
    median_sequence,
    median_stays_below,
    median_within,
    share_sequence,
    wealth_against_a_coin,
)
from analysis.tables import making as tables
from analysis.tables.committed import Table
from testbed.config.run import Run, grid
from testbed.errors import UserError
from testbed.testing.e_process import EProcess

RUNS = 150
LEVEL = 0.05
MOST_WRONG = stats.binom.isf(1e-6, RUNS, LEVEL / 2)
STOP = Stop(block=8, cap=48)


def two_peaks(center, lost=1 / 16):
    """Accuracy differences around a center, but for a share of seeds that collapse."""
    return lambda rng, n: np.where(rng.random(n) < lost, -0.8, rng.normal(center, 0.05, n))


NULL = two_peaks(0.1 + 0.05 * stats.norm.ppf(0.75), lost=1 / 3)
"""A third of all seeds collapses, and the median is 0.1."""


def coin(chance):
    return lambda rng, n: (rng.random(n) < chance).astype(float)


def events(first, second):
    def draw(rng, n):
        return np.stack([rng.random(n) < first, rng.random(n) < second], axis=1).astype(float)

    return draw


LAWS = {
    "median": (
        lambda x: median_exceeds(x, 0.1, ""),
        {"boundary": NULL, "supported": two_peaks(0.3), "refuted": two_peaks(-0.1)},
    ),
    "below": (
        lambda x: median_stays_below(x, 0.1, ""),
        {"boundary": NULL, "supported": two_peaks(-0.2), "refuted": two_peaks(0.3)},
    ),
    "groups": (
        lambda x: median_exceeds({"a": x, "b": x + 0.2}, 0.1, ""),
        {"boundary": NULL, "supported": two_peaks(0.3), "refuted": two_peaks(-0.2)},
    ),
    "within": (
        lambda x: median_within({"a": x}, 0.1, ""),
        {
            "boundary": lambda rng, n: rng.normal(0.1, 0.05, n),
            "supported": lambda rng, n: rng.normal(0.0, 0.05, n),
            "refuted": lambda rng, n: rng.normal(-0.3, 0.05, n),
        },
    ),
    "share": (
        lambda x: happens_mostly(x, ""),
        {"boundary": coin(0.5), "supported": coin(0.9), "refuted": coin(0.1)},
    ),
    "pairs": (
        lambda x: happens_more_often(pd.Series(x[:, 0]), pd.Series(x[:, 1]), ""),
        {"boundary": events(0.5, 0.5), "supported": events(0.95, 0.05), "refuted": events(0.05, 0.95)},
    ),
}


def stopped(evidence, x) -> Evidence:
    """What is found when one stops at the first block that decides."""
    for n in range(STOP.block, STOP.cap + 1, STOP.block):
        found = evidence(x[:n])
        if found.p <= LEVEL:
            break
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_stopping_when_decided_keeps_the_level_and_decides_both_ways(name):
    evidence, laws = LAWS[name]
    rng = np.random.default_rng([5, len(name)])
    for law, draw in laws.items():
        said = []
        for _ in range(RUNS):
            found = stopped(evidence, draw(rng, STOP.cap))
            said.append(verdict(found, found.p, LEVEL))
        if law == "boundary":
            assert max(said.count("supported"), said.count("refuted")) <= MOST_WRONG, said
        else:
            assert said.count(law) >= 0.85 * RUNS, (law, said)


def test_confidence_sequences_hold_what_they_are_of():
    rng = np.random.default_rng(0)
    missed = [0, 0]
    for _ in range(60):
        low, high = median_sequence(rng.normal(0.3, 1, 32))
        missed[0] += not low <= 0.3 <= high
        low, high = share_sequence(coin(0.8)(rng, 32), grid=40)
        missed[1] += not low <= 0.8 <= high
    x_N = coin(0.7)(rng, 20)
    wealth = [np.exp(EProcess(0.5, (0, 1), side).add(x_N).max(initial=0)) for side in ("above", "below")]
    assert wealth_against_a_coin(x_N) == pytest.approx(wealth)
    assert max(missed) <= stats.binom.isf(1e-6, 60, 0.05)
    assert median_sequence([1.0, 2.0]) == (-np.inf, np.inf)
    assert median_sequence(np.full(16, 2.0)) == (2.0, 2.0)
    assert median_sequence(np.arange(32.0))[0] > 3


def test_arms_at_the_floor_are_no_evidence_of_equality():
    x_N = np.zeros(32)
    assert verdict(*[(e := median_within({"a": x_N}, 0.05, "")), e.p]) == "supported"
    assert median_within({"a": x_N}, 0.05, "", ["a"]).p == 1.0


def test_no_units_decide_nothing():
    for found in (
        median_exceeds([], 0.0, ""),
        median_within({"a": []}, 0.1, ""),
        happens_mostly([], ""),
        happens_more_often(pd.Series(dtype=float), pd.Series(dtype=float), ""),
    ):
        assert verdict(found, found.p) == "inconclusive"


def of(effect: float, p: float) -> Evidence:
    return Evidence(effect, effect - 0.1, effect + 0.1, p, 16, "")


def test_only_what_comes_out_twice_is_decided():
    twice = partial(replicated, level=0.01)
    assert twice(of(0.2, 0.01), of(0.1, 0.004), of(0.15, 1e-5)).p == pytest.approx(1e-4)
    assert twice(of(0.2, 0.001), of(0.1, 0.011), of(0.15, 1e-5)).p == 1.0
    assert twice(of(0.2, 0.001), of(-0.1, 0.001), of(0.1, 0.5)).p == 1.0
    both = twice(of(-0.2, 0.001), of(-0.1, 0.001), of(-0.1, 0.5))
    assert verdict(both, both.p) == "refuted"
    assert both.n == 32


BANDIT = Run(task="bandit", recipe="reinforce", prompts=4, group=4, steps=12, learning_rate=1.0, log_every=1)


def experiment(margin: float = 0.02) -> Experiment:
    """Whether a lag of 8 costs value on a bandit, 4 seeds at a time."""
    made = Experiment(
        "small",
        question="Does lag cost value?",
        source="this project",
        cells=lambda: grid(BANDIT, lag=[0, 8], seed=[0]),
        keys=("lag", "seed"),
        metrics=("mean exact/value",),
        stop=Stop(block=4, cap=8, level=0.5),
        margins={"value": margin},
    )

    @made.claim("costs", statement="Lag costs value.")
    def costs(table):
        lost_N = paired(table, "mean exact/value", {"lag": 0}, {"lag": 8})
        return median_exceeds(lost_N, margin, "")

    return made


def test_seeds_come_in_blocks_until_decided_and_then_fresh_ones_do(tmp_path):
    one = experiment()
    table = tables.make(one, root=tmp_path, workers=0)
    seeds = sorted(set(table.frame["seed"]))
    first, again = [s for s in seeds if s < 1000], [s for s in seeds if s >= 1000]
    assert len(first) in (4, 8)
    assert len(again) in (4, 8)
    assert min(first) == 100
    for run in (first, again):
        rows = table.frame[table.frame["seed"].isin(run)]
        assert len(run) == 8 or one.claims["costs"].function(rows).p <= 0.5
    assert table.made["preset"] == preset.design(one)
    assert {"cpu", "threads", "torch"} <= set(table.made["machines"][0])
    found = claims.look(one.claims["costs"], table.frame)
    assert [each.n for each in found.runs] == [len(first), len(again)]
    again_made = tables.make(one, root=tmp_path, workers=0)
    assert again_made.csv == table.csv


def test_what_was_fixed_before_the_runs_stays_written(tmp_path):
    one = experiment()
    written = preset.commit(one, tmp_path)
    assert preset.standing(one, "costs", written) == "pre-set"
    other = experiment(margin=0.5)
    assert preset.commit(other, tmp_path) == written
    assert preset.standing(other, "costs", written) == "changed since"
    assert preset.standing(one, "costs", {}) == "pilot"
    late = {**written, "claims": {}}
    assert preset.standing(one, "costs", late) == "pilot"
    (tmp_path / "small.preset.json").write_text("{")
    with pytest.raises(UserError, match="cannot be read"):
        preset.commit(one, tmp_path)


def test_a_stopping_rule_needs_seeds_to_add():
    with pytest.raises(UserError, match="stopping rule"):
        Experiment(
            "x",
            question="?",
            source="",
            keys=("lag",),
            compute=lambda: Table.of("x", pd.DataFrame()),
            stop=STOP,
        )
