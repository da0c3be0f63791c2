"""Schedules of equal mean lag: the figure's table is exact, and the claims about it can fail."""

import dataclasses

import numpy as np
import pandas as pd
import pytest
from support.deciding import word

from analysis.experiments.lag import lag_anatomy, lag_schedules
from analysis.tables.committed import load_committed
from testbed.config.run import Run
from testbed.training.loop import train

SEEDS = 16
NOISE = np.linspace(-0.01, 0.01, SEEDS)
SCHEDULED = lag_schedules.EXPERIMENT.claims


def decide(evidence):
    return word(evidence)


@pytest.fixture(scope="module")
def path():
    return lag_anatomy.trained_path([8, 9], steps=40)


def test_the_path_is_the_one_that_training_walks(path):
    tree, policies = path
    run = Run(task="tree", recipe="grpo", prompts=16, group=8, learning_rate=3.0, steps=40, log_every=1)
    table = train(dataclasses.replace(run, seed=9))
    np.testing.assert_array_equal(tree.value(policies[1]), table["exact/value"])
    lagged = lag_anatomy.second_moments(tree, policies, 39, 5)
    assert lagged[:, 0] == pytest.approx(1, abs=1e-12)
    # Off the path, by hand: sum over responses of pi^2 / mu.
    from testbed.mismatch.ratio_distribution import tree_responses

    state, token, mask = tree_responses(tree)
    pi, mu = (np.where(mask, policies[0, step][state, token], 1.0).prod(-1) for step in (39, 36))
    assert lagged[0, 3] == pytest.approx((pi**2 / mu).sum() / len(tree.prompt_NQ), rel=1e-12)


def test_the_law_of_log_ratios_has_mean_ratio_one_and_the_second_moment(path):
    tree, policies = path
    share = np.array([0.5, 0, 0, 0.25, 0, 0.25])
    found = lag_anatomy.log_ratio_shares(tree, policies, [20, 39], share)
    center = (lag_anatomy.EDGES[1:] + lag_anatomy.EDGES[:-1]) / 2
    assert found.sum() == pytest.approx(1, abs=1e-12)
    # A bin is 0.005 nats wide, so that a ratio is known to 0.25% and a square to 0.5%.
    assert found @ np.exp(center) == pytest.approx(1, abs=2.6e-3)
    second = np.mean([lag_anatomy.second_moments(tree, policies, step, 6) @ share for step in (20, 39)])
    assert found @ np.exp(2 * center) == pytest.approx(second, rel=5.2e-3)


def test_every_row_of_the_figure_has_the_mean_lag_of_its_column():
    for row in lag_anatomy.SCHEDULES:
        for lag in lag_anatomy.LAGS:
            assert lag_anatomy.age_distribution(row, lag).mean == pytest.approx(lag, abs=1e-9)


def test_the_committed_table_is_about_these_laws():
    table = load_committed(["lag-anatomy"])["lag-anatomy"].frame
    assert set(table["schedule"]) == set(lag_anatomy.SCHEDULES)
    line = table[table["what"] == "coherent"]
    for row, lag, y in zip(line["schedule"], line["lag"], line["y"], strict=True):
        assert y == pytest.approx(1 + lag_anatomy.age_distribution(row, lag).variance / lag**2, rel=1e-4)
    ages = table[table["what"] == "age"]
    for row, rows in ages.groupby("schedule"):
        law = lag_anatomy.age_distribution(str(row), max(lag_anatomy.LAGS))
        assert rows["x"].tolist() == law.age_K.tolist()
        assert rows["y"].to_numpy() == pytest.approx(law.share_K, rel=1e-4)
    chi2 = table[table["what"] == "chi2"]
    assert (chi2.groupby(["schedule", "lag"])["seed"].nunique() >= len(lag_anatomy.SEEDS)).all()
    assert (chi2["y"] > 0).all()


# Claims


def path_table(ratio):
    rows = [
        {"what": "chi2", "schedule": name, "lag": 4, "seed": seed, "x": 4, "y": 0.01 * scale}
        for seed in range(SEEDS)
        for name, scale in (("exact", 1.0), ("geometric", ratio + NOISE[seed]))
    ]
    line = {"what": "coherent", "schedule": "geometric", "lag": 4, "seed": -1, "x": 4, "y": 2.2}
    return pd.DataFrame([*rows, line])


def test_drift_along_a_line_is_told_from_a_random_walk():
    for ratio, verdict in ((2.2, "supported"), (1.6, "undecided"), (1.0, "refuted")):
        found = lag_anatomy.grpo_drifts_along_a_line(path_table(ratio))
        assert decide(found) == verdict
        assert found.n == SEEDS
    assert lag_anatomy.grpo_drifts_along_a_line(path_table(2.2)).effect == pytest.approx(2.2)


def sweep_table(geometric=0.0, periodic=0.0, ess=0.0):
    """Cells whose geometric ones gain, at lag 16 with grpo, and whose periodic ones lose there."""
    rows = []
    for recipe in ("reinforce", "grpo"):
        for lag in (4, 16):
            for seed in range(2 * SEEDS):
                moved = recipe == "grpo" and lag == 16
                noise = NOISE[seed % SEEDS] * (1 + moved) * (-1) ** np.arange(4)
                gain = moved * np.array([0.0, geometric, -periodic, 0.0])
                loss = moved * np.array([0.0, -ess, 0.0, 0.0])
                for index, name in enumerate(("exact", "geometric", "periodic", "uniform")):
                    key = {"recipe": recipe, "lag": lag, "seed": seed, "staleness": name}
                    value = 0.5 + gain[index] + noise[index]
                    share = 0.9 + loss[index] + noise[index]
                    rows.append({**key, "mean exact/value": value, "mean exact/ess_kish_sequence": share})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("check", "argument"),
    [
        (SCHEDULED["spread-ages-lower-ess-in-training"].function, "ess"),
        (SCHEDULED["spread-ages-learn-faster"].function, "geometric"),
        (SCHEDULED["periodic-ages-hold-the-clip-back"].function, "periodic"),
    ],
)
def test_claims_about_training_read_their_own_cells_and_seeds(check, argument):
    for size, verdict in ((0.1, "supported"), (0.0, "undecided"), (-0.1, "refuted")):
        found = check(sweep_table(**{argument: size}))
        assert decide(found) == verdict
        assert found.n == SEEDS
        assert found.effect == pytest.approx(size, abs=1e-9)
    others = {"ess": 0.1, "geometric": 0.1, "periodic": 0.1} | {argument: 0.0}
    assert decide(check(sweep_table(**others))) == "undecided"
    # The claim made after a look is judged on seeds that were not looked at.
    table = sweep_table(**{argument: 0.1})
    later = table["seed"] >= SEEDS
    assert check(table[later if argument == "periodic" else ~later]).n == SEEDS
    assert check(table[~later if argument == "periodic" else later]).n == 0


def test_growth_under_one_delay_is_the_root_of_its_equation():
    law = lag_schedules.laws()["exact"]
    g = lag_schedules.growth_rate(law, 0.1)
    assert g == pytest.approx(1 + 0.1 * g**-4, rel=1e-12)
    assert lag_schedules.simulated_growth(law, 0.1) == pytest.approx(g, rel=1e-12)
