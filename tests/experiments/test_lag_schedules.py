"""Schedules of equal mean lag: the figure's table is exact, and the claims about it can fail."""

import numpy as np
import pandas as pd
import pytest
from support.deciding import word

from analysis.experiments.lag import lag_schedules

SEEDS = 16
NOISE = np.linspace(-0.01, 0.01, SEEDS)
SCHEDULED = lag_schedules.EXPERIMENT.claims


def sweep_table(geometric=0.0, periodic=0.0):
    """Cells whose geometric ones gain, at lag 16 with grpo, and whose periodic ones lose there."""
    rows = []
    for recipe in ("reinforce", "grpo"):
        for lag in (4, 16):
            for seed in range(2 * SEEDS):
                moved = recipe == "grpo" and lag == 16
                noise = NOISE[seed % SEEDS] * (1 + moved) * (-1) ** np.arange(4)
                gain = moved * np.array([0.0, geometric, -periodic, 0.0])
                for index, name in enumerate(("exact", "geometric", "periodic", "uniform")):
                    key = {"recipe": recipe, "lag": lag, "seed": seed, "staleness": name}
                    value = 0.5 + gain[index] + noise[index]
                    rows.append({**key, "mean exact/value": value})
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("check", "argument"),
    [(SCHEDULED["spread-ages-learn-faster"].function, "geometric"),
     (SCHEDULED["periodic-ages-hold-the-clip-back"].function, "periodic")],
)  # fmt: skip
def test_claims_about_training_read_their_own_cells_and_seeds(check, argument):
    for size, verdict in ((0.1, "supported"), (0.0, "undecided"), (-0.1, "refuted")):
        found = check(sweep_table(**{argument: size}))
        assert word(found) == verdict
        assert found.n == SEEDS
        assert found.effect == pytest.approx(size, abs=1e-9)
    others = {"geometric": 0.1, "periodic": 0.1} | {argument: 0.0}
    assert word(check(sweep_table(**others))) == "undecided"
    # The claim made after a look is judged on seeds that were not looked at.
    table = sweep_table(**{argument: 0.1})
    later = table["seed"] >= SEEDS
    assert check(table[later if argument == "periodic" else ~later]).n == SEEDS
    assert check(table[~later if argument == "periodic" else later]).n == 0
