"""Fitted Q shared by two groups with a group-specific part (NFQI), against a policy that ignores groups."""

import numpy as np

from analysis.lab import Experiment, Plot, Rows, Seeds, ask, columns, of_seeds
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, random_worlds, two_groups
from testbed.offline.models import nested_fitted_q
from testbed.offline.tabular_offline import greedy

NAME = "offline-nfqi"
SEEDS, LOGS, BACKGROUND = 96, 8, 4000
SIZES, GAPS = (50, 200, 800, 3200), (0.0, 1.0)
"""Logged steps of the small group; deviation of its rewards, which applies to 30 % of them (0: none)."""
RIDGES = {50: 5.0, 200: 2.0, 800: 2.0, 3200: 1.0}
"""Best of .1, .2, .5, 1, … 100 for the small group's score at gap 1, on 32 other worlds."""
SAME = 0.02
"""Score that counts as equal, 1 being the optimum's lead over the uniform policy. Set before the table."""


def rows(seeds: Seeds, ridges: dict[int, float] = RIDGES) -> Rows:
    """Return the score of each group's greedy policy, mean over 8 logs of a world, by fit, size and gap."""
    for gap in GAPS:
        first = random_worlds(seeds)
        other = [
            two_groups(w, gap=gap, share=0.3, seed=s)[1] for w, s in zip(first.worlds, seeds, strict=True)
        ]
        worlds = first, Worlds.of(tuple(other))
        mu_RSA = np.full(worlds[0].reward_RSA.shape, 0.25)
        for steps in SIZES:
            for fit, ridge in (("separate", 0.0), ("nested", ridges[steps]), ("group-blind", np.inf)):
                score_R2 = np.zeros((len(seeds), 2))
                for log in range(LOGS):
                    many = worlds[0].logged(mu_RSA, BACKGROUND, seeds, f"background {log}")
                    few = worlds[1].logged(mu_RSA, steps, seeds, f"foreground of {steps}, {log}")
                    found = nested_fitted_q(many, few, DISCOUNT, ridge)
                    for i, q_RSA in enumerate(found):
                        score_R2[:, i] += worlds[i].score(greedy(q_RSA)) / LOGS
                given = {"gap": gap, "steps": steps, "fit": fit}
                yield columns(seeds, **given, score=score_R2[:, 1], background=score_R2[:, 0])


EXPERIMENT = Experiment(
    question="Does a policy from a Q that two groups share in part earn more than one blind to the groups?",
    source="Mandyam et al. (2021), Nested policy reinforcement learning (NFQI), arXiv:2110.02879",
    differs="random worlds, tables; a tuned ridge penalty on the groups' difference in place of networks",
    compute=of_seeds(NAME, rows, SEEDS, {"background": BACKGROUND, "logs": LOGS}),
    keys=("run", "seed", "gap", "steps", "fit"), metrics=("score", "background"),
    margins={"score that counts as equal": SAME},
    figure=Plot(
        "final by setting", x="steps: logged steps of the small group", y="score: score of its policy",
        arm=("gap", "fit"),
        says="Shows the score (0 the uniform policy, 1 the optimum) of a small group's policy against its "
        "logged steps, beside 4,000 of a large group, in random worlds; gap is the deviation by which 30 % "
        "of their rewards differ; separate fits Q to the small group's data, group-blind to all data alike, "
        "nested to all with a penalty on the groups' difference.",
    ),
    systems=("NFQI (nested policy RL)",),
)  # fmt: skip

ask(EXPERIMENT, "nested-earns-more-than-group-blind", "Where rewards of the groups differ, the small group's "
    "policy earns more from nested than from group-blind fitted Q, at 50, 200, 800 and 3200 of its steps.",
    {"fit": "nested"}, {"fit": "group-blind"}, outcome="score",
    over={"gap": 1.0, "steps": SIZES})  # fmt: skip
