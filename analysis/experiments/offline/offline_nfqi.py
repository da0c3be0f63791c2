"""Fitted Q shared by two groups with a group-specific part (NFQI), against a policy that ignores groups."""

import numpy as np

from analysis.lab import Floats, Grid, Plot, Seeds, TunedArms, ask
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, random_worlds, two_groups
from testbed.offline.models import nested_fitted_q
from testbed.offline.tabular_offline import greedy

NAME = "offline-nfqi"
SEEDS, PILOTS, FRESH, LOGS, BACKGROUND = 192, 96, 470_000, 8, 4000
SIZES, GAP = (50, 200, 800, 3200), 1.0
"""Logged steps of the small group; deviation of its rewards, which applies to 30 % of them."""
ARMS: dict[str, Grid] = {
    "separate": {},
    "nested": {"ridge": (0.0, *(2.0**i for i in range(-3, 10)))},
    "group-blind": {},
}


def learned(seeds: Seeds, arm: str, steps: int, ridge: float = 0.0) -> dict[str, Floats]:
    """Return the score of each group's greedy policy, mean over 8 logs of a world, [R]."""
    seeds = tuple(seed + FRESH for seed in seeds)
    first = random_worlds(seeds)
    other = [two_groups(w, gap=GAP, share=0.3, seed=s)[1] for w, s in zip(first.worlds, seeds, strict=True)]
    worlds, score_R2 = (first, Worlds.of(tuple(other))), np.zeros((len(seeds), 2))
    mu_RSA = np.full(first.reward_RSA.shape, 0.25)
    for log in range(LOGS):
        many = first.logged(mu_RSA, BACKGROUND, seeds, f"background {log}")
        few = worlds[1].logged(mu_RSA, steps, seeds, f"foreground of {steps}, {log}")
        found = nested_fitted_q(many, few, DISCOUNT, np.inf if arm == "group-blind" else ridge)
        for i, q_RSA in enumerate(found):
            score_R2[:, i] += worlds[i].score(greedy(q_RSA)) / LOGS
    return {"score": score_R2[:, 1], "background": score_R2[:, 0]}


EXPERIMENT = TunedArms(ARMS, learned, "score", PILOTS, {"steps": SIZES}).experiment(
    NAME, SEEDS, ("score", "background"), {"background": BACKGROUND, "logs": LOGS},
    question="Does a policy from a Q that two groups share in part earn more than one blind to the groups?",
    source="Mandyam et al. (2021), Nested policy reinforcement learning (NFQI), arXiv:2110.02879",
    differs="random worlds, tables; a tuned ridge penalty on the groups' difference in place of networks",
    figure=Plot(
        "final by setting", x="steps: logged steps of the small group", y="score: score of its policy",
        arm=("arm: fit",),
        says="Shows the score (0 the uniform policy, 1 the optimum) of a small group's policy against its "
        "logged steps, beside 4,000 of a large group, in random worlds where 30 % of their rewards "
        "differ; separate fits Q to the small group's data, group-blind to all data alike, "
        "nested to all with a penalty on the groups' difference.",
    ),
    systems=("NFQI (nested policy RL)",),
)  # fmt: skip

for _name, _other, _sizes in (
    ("nested-earns-more-than-group-blind", "group-blind", SIZES),
    ("nested-earns-more-than-separate-from-few-steps", "separate", SIZES[:2]),
):
    ask(EXPERIMENT, _name, f"Where rewards of the groups differ, the small group's policy earns more from "
        f"nested than from {_other} fitted Q, at {', '.join(map(str, _sizes))} of its steps.",
        "nested", _other, outcome="score", over={"steps": _sizes})  # fmt: skip
