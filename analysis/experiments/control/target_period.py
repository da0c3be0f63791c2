"""Target networks: the spectral radius of a refresh by period and step size, and sampled runs."""

import numpy as np

from analysis.lab import Experiment, Frame, Groups, Keys, Plot, ask, combinations, level, of_keys
from envs.mdps import BAIRD_FEATURES
from testbed.exact.value_learning import baird_star

NAME = "target-period"
SEEDS, UPDATES, PARTS, DISCOUNT = 24, 6000, 20, 0.99
"""Seeds; updates between rescalings of the values, against overflow; number of rescalings; discount."""
STEPS, PERIODS = (0.02, 0.05, 0.1), (1, 3, 10, 30, 100, 300)
CLEAR = 0.005
"""Distance of the radius from 1, per refresh, beyond which a sampled run must agree with it."""


def make(key_R: Keys) -> Frame:
    """Return the exact radius of a refresh and the sampled growth of values per refresh, on Baird's star.

    Growth: exp of the mean log growth of the largest |V|, over 120,000 updates. Rewards are 0, so rescaling
    the values changes nothing.
    """
    from analysis.kernels.linear_td import sampled_td

    # The usual start on the star: one large weight (Sutton & Barto 2018, section 11.2).
    star, start_F = baird_star(DISCOUNT), np.ones(8)
    start_F[6] = 10.0
    frame, key_N = combinations(key_R, step=STEPS, period=PERIODS)
    step_N, period_N = frame["step"].to_numpy(), frame["period"].to_numpy()
    weight_NF, log_N = np.broadcast_to(start_F, (len(key_N), len(start_F))), np.zeros(len(key_N))
    for part in range(PARTS):
        size_N = np.abs(weight_NF @ BAIRD_FEATURES.T).max(-1)
        weight_NF = sampled_td(
            BAIRD_FEATURES, np.full(7, 1 / 7), np.eye(7)[[6] * 7], np.zeros(7), DISCOUNT,
            key_N + np.uint64(part), steps=UPDATES, every=UPDATES, step_size=step_N, inner=period_N,
            start_F=weight_NF / size_N[:, None],
        )[0]  # fmt: skip
        log_N += np.log(np.maximum(np.abs(weight_NF @ BAIRD_FEATURES.T).max(-1), 1e-300))
    growth_N = np.exp(log_N * period_N / (PARTS * UPDATES))
    radii = {(s, k): star.target_radius(s, k) for s in STEPS for k in PERIODS}
    radius_N = [radii[pair] for pair in zip(step_N.tolist(), period_N.tolist(), strict=True)]
    return frame.assign(radius=radius_N, growth=growth_N)


EXPERIMENT = Experiment(
    question="Does the radius of a refresh say which periods of a target network converge?",
    source="Fellows, Smith & Whiteson (2023), Why target networks stabilise temporal difference methods",
    differs="Baird's star, linear",
    compute=of_keys(NAME, make, SEEDS, {"updates": PARTS * UPDATES, "discount": DISCOUNT}),
    keys=("run", "step", "period", "seed"), metrics=("radius", "growth"),
    margins={"distance of the radius from 1 that is predicted": CLEAR},
    figure=Plot(
        "curves by arm", x="period: updates per refresh", y="growth: growth of values per refresh",
        arm=("step: step size",), log="x",
        says="Shows the factor by which values grow from one refresh of a target network to the next, below "
        "1 where they shrink, against updates per refresh (log axis), for sampled linear TD on Baird's "
        "star; a line for each step size.",
    ),
    systems=("Why target networks stabilise TD",),
)  # fmt: skip


def growth_on_the_side_of_the_radius(table: Frame) -> Groups:
    """Return the log growth per refresh times the sign of radius - 1, for pairs with a radius clear of 1."""
    logs = table.assign(growth=np.log(table["growth"]))
    groups: Groups = {}
    for (step, period), part in table.groupby(["step", "period"]):
        radius = float(part["radius"].iloc[0])
        if abs(radius - 1.0) > CLEAR:
            growth_N = level(logs, "growth", {"step": step, "period": period})[""]
            groups[f"step {step:g}, period {period}"] = np.sign(radius - 1) * growth_N
    return groups


ask(EXPERIMENT, "sampled-td-goes-where-the-radius-points", "On Baird's star sampled TD with a target network "
    "grows at the eight pairs of step size and period whose radius is above 1.005, and shrinks at the nine "
    "where it is below 0.995; one pair between is not asked.",
    outcome=growth_on_the_side_of_the_radius)  # fmt: skip
