"""Computed tables of two runs: fresh seeds, pairs within a run, slopes within a seed; stacked worlds."""

import numpy as np
import pandas as pd
import pytest
from support.refusals import refuses

from analysis.experiment import EXPERIMENTS
from analysis.judging import claims, replication
from analysis.judging.needed import OPEN
from analysis.judging.verdicts import by_claim
from analysis.sweeps.seeds_and_rates import LEAST_CAP
from analysis.worlds import offline_worlds, preference_worlds
from envs import infinite_horizon


def table(gain):
    """Two arms at two lags; the second arm gains `gain(run)` times the lag, noise is that of the seed."""

    def rows(seeds):
        noise = np.random.default_rng(seeds[0]).normal(size=len(seeds))
        return pd.concat(
            replication.columns(seeds, arm=arm, lag=lag, x=noise + (arm == "b") * lag * gain(seeds))
            for arm in "ab"
            for lag in (1, 2)
        )

    return replication.repeated(rows, 8)


def test_two_runs_judged_as_one_share_no_unit():
    rows = pd.DataFrame({"run": ["first"] * 3 + ["replication"] * 3, "seed": [0, 1, 2] * 2})
    both = claims._both(rows)
    assert set(both["run"]) == {"both"}
    assert both["seed"].is_unique
    fresh = rows.assign(seed=range(6))
    assert claims._both(fresh)["seed"].tolist() == [*range(6)]


def test_differences_pair_within_a_run_and_level():
    found = replication.difference(table(lambda _: 3.0), "x", {"arm": "b"}, {"arm": "a"}, lag=(1, 2))
    assert set(found) == {"lag 1", "lag 2"}
    assert found["lag 2"] == pytest.approx(np.full(16, 6.0))
    (one,) = replication.difference(table(lambda _: 3.0), "x", {"arm": "b"}, {"arm": "a"}, lag=2).values()
    assert list(one) == list(found["lag 2"])


def test_an_arm_of_several_values_is_compared_with_each():
    found = replication.difference(
        table(lambda _: 3.0), "x", {"arm": "b", "lag": 2}, {"arm": "a", "lag": (1, 2)}
    )
    assert set(found) == {"lag 1", "lag 2"}
    assert all(x_N == pytest.approx(np.full(16, 6.0)) for x_N in found.values())


def test_levels_of_both_arms_are_combined():
    lags = {"lag": (1, 2)}
    found = replication.difference(table(lambda _: 3.0), "x", {"arm": "a", **lags}, {"arm": "b", **lags})
    assert len(found) == 2 * 2
    assert found["lag 1, lag 2"] == pytest.approx(np.full(16, -6.0))


def test_a_factor_is_a_difference_of_logarithms():
    positive = table(lambda _: 3.0).assign(x=lambda frame: np.exp(frame["x"]))
    found = replication.difference(positive, "x", {"arm": "b"}, {"arm": "a"}, lag=1, log=True)
    assert found["lag 1" if "lag 1" in found else ""] == pytest.approx(np.full(16, 3.0))


def test_slopes_are_taken_within_each_seed():
    found = replication.slopes(table(lambda _: 3.0), "lag", "x", {"arm": "b"})
    assert all(x_N == pytest.approx(np.full(16, 3.0)) for x_N in found.values())


def test_values_of_stacked_worlds_are_those_of_each_world():
    worlds = offline_worlds.random_worlds((3, 4), states=4, actions=2, branching=2)
    pi = offline_worlds.random_policies((3, 4), 4, 2, "pi")
    each = [infinite_horizon.value(world, p) for world, p in zip(worlds.worlds, pi, strict=True)]
    assert worlds.value(pi) == pytest.approx(each)
    assert worlds.score(worlds.best_RSA) == pytest.approx([1.0, 1.0])
    assert worlds.score(np.full((2, 4, 2), 0.5)) == pytest.approx([0.0, 0.0])
    assert worlds.state_law(pi).sum(-1) == pytest.approx([1.0, 1.0])


def test_a_log_depends_on_the_seeds_and_guesses_only_what_it_lacks():
    worlds = offline_worlds.random_worlds((3, 4), states=4, actions=3, branching=2)
    seen = offline_worlds.some_actions((3, 4), 4, 3, 2, "seen")
    assert (seen.sum(-1) == 2).all()
    counts = worlds.logged(seen / 2, 500, (3, 4), "log")
    again = worlds.logged(seen / 2, 500, (3, 4), "log")
    assert (counts.visit_RSA == again.visit_RSA).all()
    assert counts.visit_RSA.sum((1, 2)) == pytest.approx([500, 500])
    assert not counts.seen_RSA[~seen].any()
    guessed = offline_worlds.guessed_rewards(counts, (3, 4))
    assert (guessed[counts.seen_RSA] == counts.reward_RSA[counts.seen_RSA]).all()
    assert (guessed[~counts.seen_RSA] != 0).all()


def test_the_greedy_policy_has_no_regret_and_the_reference_has():
    world = preference_worlds.linear_world(0)
    greedy = np.eye(6)[world.reward_SA.argmax(-1)]
    with np.errstate(divide="ignore"):
        assert world.regret(np.log(greedy)[None]) == pytest.approx(0.0, abs=1e-12)
    assert world.regret(np.log(world.ref_SA)[None]) > 0.1


def test_a_computed_table_has_the_name_of_the_code_that_makes_its_rows():
    for name, experiment in EXPERIMENTS.items():
        if experiment.compute is not None:
            assert experiment.compute.__name__.isidentifier(), name
            assert experiment.compute.__module__ != "analysis.judging.replication", name


def test_a_new_table_of_too_few_seeds_is_refused_before_it_runs():
    ran = []
    for made in (replication.of_seeds, replication.of_keys):
        refuses("'new' would have 31 seeds a run, too few .* Give it 32", made("new", ran.append, 31))
    assert not ran


FEW = {
    "arena": "16 + 16 of most arms, as its design fixed for all alike; claims of its systems got up to 864",
    "foretold-arms": "20 seeds at lag 64 and 12 at lag 16, fixed before the runs",
    "reward-arms": "its arms of 1,500 steps, whose rule goes on",
}
"""Designs of a fixed size whose open claims have fewer units than 32 + 32."""


def test_no_claim_is_open_for_want_of_a_cap_of_32_and_32():
    assert all(each.stop.cap >= LEAST_CAP for each in EXPERIMENTS.values() if each.stop)
    few = {
        row["experiment"]
        for row in by_claim().values()
        if row["verdict"] in OPEN and row["n"] < 2 * LEAST_CAP and EXPERIMENTS[row["experiment"]].stop is None
    }
    assert few <= set(FEW)
