"""Families of sources: every arm is found in its table once, and claims read the arm that they name."""

from pathlib import Path

import pandas as pd
import pytest

from analysis.experiment import EXPERIMENTS
from analysis.experiments.rewards import proxy_training
from analysis.experiments.teachers import teacher_training
from analysis.judging.comparisons import arm
from paper_figs import base, families, run

DATA = Path(__file__).parents[2] / "paper_figs/data"


def proxies() -> pd.DataFrame:
    return pd.read_csv(DATA / "proxy-training.csv")


@pytest.mark.parametrize("module", [proxy_training, teacher_training])
def test_the_arms_of_a_family_share_the_table_without_overlap(module):
    name = module.EXPERIMENT.name
    table = pd.read_csv(DATA / f"{name}.csv")
    table["row"] = range(len(table))
    rows = [set(arm(table, "row", where)) for where in module.WHERE.values()]
    assert set(map(len, rows)) == {table["seed"].nunique()}
    assert set.union(*rows) == set(table["row"])
    assert len(table) == sum(map(len, rows))


@pytest.mark.parametrize(
    ("claim", "name"),
    [
        ("one-reward-model-loses-gold-in-training", "single"),
        ("ensembles-keep-their-gold-in-training", "worst"),
        ("p3o-earns-more-than-ppo", "p3o"),
        ("resets-end-above-dpo", "reset"),
    ],
)
def test_a_claim_about_proxies_follows_the_arm_it_names(claim, name):
    table, check = proxies(), EXPERIMENTS["proxy-training"].claims[claim].function
    before, moved = check(table).effect, table.copy()
    rows = pd.Series(True, index=table.index)
    for column, wanted in proxy_training.WHERE[name].items():
        rows &= table[column] == wanted
    moved.loc[rows, ["accuracy", "val/proxy"]] -= 1.0
    assert check(moved).effect != pytest.approx(before)
    others = table.copy()
    others.loc[others["verifier"] == "lenient", ["accuracy", "best", "val/proxy"]] -= 1.0
    assert check(others).effect == pytest.approx(before)


def test_a_family_is_drawn_with_a_row_per_arm():
    with run.style():
        axes = base.draw("proxy-training", proxies()).axes
    assert [len(ax.get_yticklabels()) for ax in axes] == [len(families.PROXY_NAMES)] * 2
