"""Falls from the peak of a solver and a checker at hot rates: one transformer for both roles, or two."""

from dataclasses import replace

import pandas as pd

from analysis.experiments.rewards.role_training import ROLES, SAME, SOURCE
from analysis.lab import Experiment, Frame, Seeds, ask, of_seeds, strips
from analysis.worlds.edited_training import Arm, sweep

SEEDS, LATER, HOT, CLIFF, OFTEN = 256, 400_000, (3e-3, 4.2e-3, 5.6e-3, 7.5e-3), 0.1, 0.05
"""Seeds of a run, and their offset past those of earlier tables; rates of both arms; a cliff, and the least
share of runs that end with one."""


def falls(seeds: Seeds) -> Frame:
    """Return a row per arm and seed: peak, and fall from it, means over HOT; share of rates with a cliff."""
    runs = {roles: way.arm(0).run for roles, way in ROLES.ways.items()}
    arms = {roles: Arm(replace(run, lag=8, steps=240, log_every=8)) for roles, run in runs.items()}
    metrics = ("accuracy", "best", "mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share")
    each = [s + LATER for s in seeds]
    found = pd.concat([sweep(arms, metrics, dict.fromkeys(arms, rate), each) for rate in HOT])
    found["fall"] = found["best"] - found["accuracy"]
    found["cliffs"] = (found["fall"] > CLIFF).astype(float)
    return found.drop(columns="rate").groupby(["arm", "seed"], as_index=False, sort=False).mean()


FALLS = Experiment(
    "role-falls",
    compute=of_seeds("role-falls", falls, SEEDS),
    keys=("run", "arm", "seed"),
    metrics=(
        *("accuracy", "best", "fall", "cliffs"),
        *("mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share"),
    ),
    question="At high rates and on old data, do roles with separate weights fall further from their peak?",
    source=SOURCE,
    differs="transformers of 4,000 weights, running sums of five digits, GRPO on data 8 steps old, means "
    "over rates of .003 to .0075",
    margins={"accuracy of a fall": SAME, "least share of runs with a cliff": OFTEN},
    figure=strips("fall: fall from the best accuracy", "Shows how far GRPO on data 8 steps old ends below "
        "its best accuracy, means over rates of .003 to .0075, where solver and checker are one transformer "
        "(shared), or each has its own (separate)."),
    systems={"Multi-agent RL for LLM workflows": "falls at lag 8, where runs have them"},
)  # fmt: skip


def falling(table: Frame) -> str:
    """Return "" if at least OFTEN of all runs fall by CLIFF, so that a difference could show."""
    share = table["cliffs"].mean()
    return "" if share >= OFTEN else f"{share:.3f} of the runs end {CLIFF} below their peak"


ask(FALLS, "separate-roles-fall-further-from-their-peak", "From data 8 steps old, on average over rates of "
    ".003 to .0075 for both, separate weights end 0.02 further below their peak than shared ones.",
    "separate", "shared", SAME, "fall", gates={"acts": falling})  # fmt: skip
