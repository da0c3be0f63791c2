"""Entropy and value along OAPL's path on a fixed mu."""

import numpy as np
import pandas as pd

from analysis.experiments.weights.asymre_phase import MU, REWARD
from analysis.lab import Experiment, Plot
from analysis.tables.committed import Table
from testbed.exact import flows

NAME = "oapl-path"
BETAS = (1e-3, 0.1, 1.0)


def oapl_path() -> Table:
    """Return entropy and value along OAPL's gradient flow from pi = mu, beta1 = 1, per beta2 and time."""
    time_T = np.concatenate([[0.0], np.geomspace(0.1, 1e6, 240)])
    frames = []
    for beta2 in BETAS:
        drift = flows.residual_drift(MU, flows.oapl_advantage(MU, REWARD, 1.0), beta2)
        path = flows.flow(drift, MU, time_T)
        columns = {"beta2": beta2, "time": time_T, "entropy": path.entropy_T, "value": path.pi_TA @ REWARD}
        frames.append(pd.DataFrame(columns))
    about = {
        "beta1": 1.0,
        "mu": MU.tolist(),
        "reward": REWARD.tolist(),
        "loss": "exact expectation, fixed mu",
    }
    return Table.of(NAME, pd.concat(frames, ignore_index=True), about)


EXPERIMENT = Experiment(
    NAME,
    question="Does OAPL pass through a collapsed policy on its way to its minimizer?",
    source="Ritter et al. (2026), OAPL, arXiv:2602.19362",
    differs="a bandit of five arms and the gradient flow of the exact expectation",
    compute=oapl_path,
    keys=("beta2", "time"),
    metrics=("entropy", "value"),
    figure=Plot(
        "curves by arm",
        x="time: flow time",
        y="entropy: entropy (nats)",
        arm=("beta2: β₂",),
        log="xy",
        of=lambda table: table[table["time"] > 0],
        also=({"y": "value: value", "log": "x"},),
    ),
)
