"""Gates that a table answers: an unfair comparison fails the gate that is meant for it, a fair one passes."""

import numpy as np
import pandas as pd
import pytest

from analysis.experiment import Experiment
from analysis.judging import gates
from analysis.judging.comparisons import arms, median_exceeds

GOOD, BAD = {"arm": "good"}, {"arm": "bad"}


def table(good, bad, **more):
    rng = np.random.default_rng(20_261)
    rows = [
        {"arm": arm, "lag": 8, "seed": seed, "accuracy": float(np.clip(mean + 0.01 * rng.normal(), 0, 1))}
        for arm, mean in (("good", good), ("bad", bad))
        for seed in range(32)
    ]
    return pd.DataFrame(rows).assign(**more)


def said(frame, say):
    made = Experiment("e", question="Is it?", source="s", compute=table, keys=("arm", "seed"))
    say(made.claim("c", "It is so."))
    return {answer.gate: answer for answer in gates.checked(made.claims["c"], frame)}


def gain(by):
    return lambda claim: claim.compare("accuracy", GOOD, BAD, by=by)


@pytest.mark.parametrize(
    ("holds", "frame", "by"),
    [
        (True, table(0.8, 0.5), 0.1),
        (True, table(0.99, 0.5), 0.1),
        (True, table(0.5, 0.001), 0.1),
        (False, table(0.999, 0.998), 0.0),
        (False, table(0.001, 0.002), 0.1),
        (False, table(0.9, 0.8), 1.6),
        (False, table(0.97, 0.96), 0.05),
    ],
    ids=["room", "up to 1", "from 0", "both at 1", "both at 0", "three times .8", "no room for the gain"],
)
def test_arms_have_headroom(holds, frame, by):
    assert said(frame, gain(by))["headroom"].holds is holds


def test_an_arm_that_is_another_under_a_new_name_did_not_act():
    fair = table(0.8, 0.5)
    same = fair.assign(accuracy=np.tile(fair["accuracy"][:32], 2))
    one_apart = same.assign(accuracy=same["accuracy"] + 0.01 * (same.index < 4))
    assert "acts" not in said(fair, gain(0.1))
    assert "acts" not in said(one_apart, gain(0.0))
    assert not said(same, gain(0.0))["acts"].holds
    assert "acts" not in said(same, lambda claim: claim.equal("accuracy", GOOD, BAD, within=0.1))


def test_arms_that_a_check_reads_by_itself_need_headroom_too():
    def read(frame):
        both = arms(frame, "accuracy", {"good": GOOD, "bad": BAD})
        return median_exceeds(both["good"] - both["bad"], 0.0, "gain")

    assert said(table(0.8, 0.5), lambda claim: claim(read))["headroom"].holds
    failed = said(table(0.999, 0.998), lambda claim: claim(read))["headroom"]
    assert not failed.holds
    assert "all pile up at 1" in failed.why


def test_an_optimum_at_the_edge_of_its_grid_is_not_tuned():
    inside, edge = (said(table(0.8, 0.5, at_edge=at), gain(0.1))["tuned"] for at in (0, 1))
    assert inside.holds
    assert not edge.holds
    assert "first arm" in edge.why


def test_a_lag_is_told_with_the_drift_that_it_caused():
    answer = said(table(0.8, 0.5, kl=0.25, clip_share=0.1), gain(0.1))["drift"]
    assert answer.holds
    assert answer.why == "kl 0.25 to 0.25, clip_share 0.1 to 0.1"
    assert "drift" not in said(table(0.8, 0.5), gain(0.1))
