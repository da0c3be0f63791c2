"""The exact value of a sinusoid that sees nothing, against the sum over time of what its state costs."""

import numpy as np
import pytest

from analysis.experiments.experts import searched_sinusoid


@pytest.mark.parametrize(("amplitude", "frequency"), [(0.0, 0.4), (1.2, 0.4), (2.0, 0.3)])
def test_a_sinusoids_value_is_the_sum_of_its_costs(monkeypatch, amplitude, frequency):
    for name, only in (("AMPLITUDES", [amplitude]), ("FREQUENCIES", (frequency,)), ("PHASES", 1)):
        monkeypatch.setattr(searched_sinusoid, name, only)
    world = searched_sinusoid.wake()
    # Means are linear in where the wake starts, which has unit variance in both directions.
    mean_D2, spread_DD, total = np.eye(4)[:, 2:], np.diag([0.1, 0.1, 0.0, 0.0]), 0.0
    for t in range(600):
        angle = frequency * t
        force_12 = amplitude * np.array([[np.cos(angle), np.sin(angle)]])
        second_DD = mean_D2 @ mean_D2.T + spread_DD
        total -= 0.95**t * (
            float((world.state_cost_DD * second_DD).sum()) + 0.05 * float((force_12**2).sum())
        )
        mean_D2 = world.a_DD @ mean_D2 + world.b_DU @ force_12
        spread_DD = world.a_DD @ spread_DD @ world.a_DD.T + 0.1**2 * np.eye(4)
    assert searched_sinusoid.best_sinusoid(world) == pytest.approx(total, rel=1e-9)
