"""Where AsymRE's training on a fixed mu ends, over its baseline: value and support of the limit."""

import numpy as np
import pandas as pd

from analysis.lab import Experiment, Plot
from analysis.tables.committed import Table
from envs.arrays import Floats
from testbed.exact import flows

NAME = "asymre-phase"
MU = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
"""The five-armed bandit of the limits: its behavior policy."""
REWARD = np.array([0.0, 0.2, 0.5, 0.8, 1.0])
"""Its rewards: the best action is the rarest."""
FAR = 1e7
"""Flow time at which an AsymRE path counts as ended."""


def instances() -> dict[str, tuple[Floats, Floats]]:
    """Return the bandits (mu, R) of the AsymRE figure."""
    return {"best action rare": (MU, REWARD), "uniform mu": (np.full(5, 0.2), REWARD)}


def asymre_phase() -> Table:
    """Return value and support of AsymRE's limit per bandit and delta_v; rows: instance, delta_v.

    For delta_v >= 0 the limit depends on the start: the flow from mu is followed.
    """
    size_N = np.geomspace(1e-4, 1.0, 121)
    rows = []
    for name, (mu_K, reward_K) in instances().items():
        edge = flows.asymre_transition(mu_K, reward_K)
        below_N = np.sort(np.concatenate([-size_N, edge * np.array([1 + 1e-4, 1 - 1e-4])]))
        for delta_v in [*below_N, 0.0, *size_N[size_N <= 0.1][::4]]:
            if delta_v < 0:
                limit_K = flows.asymre_limit(mu_K, reward_K, delta_v)
            else:
                drift = flows.linear_drift(flows.asymre_drift(mu_K, reward_K, delta_v))
                limit_K = np.round(flows.flow(drift, mu_K, np.array([0.0, FAR])).pi_TA[-1], 9)
            rows.append((name, delta_v, limit_K @ reward_K, int((limit_K > 0).sum()), mu_K @ reward_K, edge))
    frame = pd.DataFrame(rows, columns=["instance", "delta_v", "value", "support", "value_mu", "transition"])
    return Table.of(NAME, frame, {"bandits": list(instances()), "limit": "closed form below 0, flow above"})


EXPERIMENT = Experiment(
    NAME,
    question="At which baseline does AsymRE's limit collapse onto one action?",
    source="Arnal et al. (2025), AsymRE, arXiv:2506.20520",
    differs="two bandits of five arms, closed form below a baseline of 0 and the flow above",
    compute=asymre_phase,
    keys=("instance", "delta_v"),
    metrics=("value", "support", "value_mu", "transition"),
    figure=Plot(
        "curves by arm",
        x="delta_v: δV",
        y="value: value of the limit",
        arm=("instance: bandit",),
        log="x",
        also=({"y": "support: actions left"},),
    ),
)
