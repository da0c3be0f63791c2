"""PPO with a million environments: its outer loop as stochastic optimization, step size against noise."""

import numpy as np

from analysis.lab import Experiment, Frame, Groups, Keys, Plot, Rows, combinations, difference, of_keys
from envs.mdps import garnet
from testbed.offline import tabular_offline
from testbed.offline.improvement import outer_loop

NAME = "outer-loop"
SEEDS, ITERATIONS, LAST = 128, 40, 10
STEPS, EPISODES = (1.0, 10**0.5, 10.0, 10**1.5), (10, 100, 1000)
WRITTEN = tuple(float(f"{step:.5g}") for step in STEPS)
"""Step sizes as written in the table, with five digits."""
HIGHER, ALIKE = 0.01, 0.03
"""Margins, as shares of the optimum's lead over the uniform policy."""


def make(key_R: Keys) -> Rows:
    """Return the height of the plateau: the mean score of the last 10 of 40 outer steps. Each seed is a
    random world, in which the uniform policy scores 0 and the optimum 1.
    """
    for seed, key in enumerate(key_R):
        # A seed has the same number in both runs, but another key, so that its world is another.
        drawn = int(np.random.default_rng(key).integers(2**31))
        world = garnet(states=8, discount=0.9, seed=drawn, horizon=12)
        best_1SA = tabular_offline.greedy(tabular_offline.optimal_q(world))
        low, high = (float(world.value(pi_SA)) for pi_SA in (np.full_like(best_1SA[0], 0.25), best_1SA[0]))
        for episodes in EPISODES:
            frame, key_N = combinations(key_R[seed : seed + 1], episodes=[episodes], step=STEPS)
            value_KN = outer_loop(
                world, key_N, episodes=episodes, iterations=ITERATIONS, step_size=frame["step"].to_numpy()
            )
            yield frame.assign(seed=seed, plateau=(value_KN[-LAST:].mean(0) - low) / (high - low))


EXPERIMENT = Experiment(
    question="Is the plateau of PPO's outer loop set by its step size over the root of its samples?",
    source="PPO with a million environments; only a summary of the paper was read",
    differs="exact KL-regularized outer steps on random tables; 10 to 1000 episodes a step",
    compute=of_keys(NAME, make, SEEDS, {"iterations": ITERATIONS}),
    keys=("run", "episodes", "step", "seed"),
    metrics=("plateau",),
    margins={"score that counts as higher": HIGHER, "difference that counts as alike": ALIKE},
    figure=Plot(
        "final by setting", x="step: outer step size", y="plateau: plateau (1 the optimum)",
        arm=("episodes",),
        says="Shows the mean score (0 the uniform policy, 1 the optimum) of the last 10 of 40 exact "
        "KL-regularized policy steps, against the size of a step, in random tables of 8 states; the arms "
        "differ in the number of episodes from which each step estimates its advantages.",
    ),
    systems=("PPO with 1M environments",),
)  # fmt: skip


EXPERIMENT.claim(
    "too-large-an-outer-step-plateaus-low",
    "With 10, 100 and 1000 episodes a step the outer step size 31.6 plateaus lower than 1 by 0.01.",
).compare("plateau", {"step": STEPS[0]}, {"step": WRITTEN[-1]}, by=HIGHER, over={"episodes": EPISODES})


EXPERIMENT.claim(
    "more-parallel-episodes-raise-the-plateau",
    "At every outer step size from 3.2 on, 1000 episodes plateau higher than 10 by 0.01.",
).compare("plateau", {"episodes": 1000}, {"episodes": 10}, by=HIGHER, over={"step": WRITTEN[1:]})


def apart(table: Frame) -> Groups:
    """Return the plateau with more episodes minus that with 10 at equal step / sqrt(episodes), by unit."""
    groups: Groups = {}
    for start in (0, 1):
        for more in (1, 2):
            first, second = ({"episodes": EPISODES[i], "step": WRITTEN[start + i]} for i in (more, 0))
            found = difference(table, "plateau", first, second)
            groups |= {f"{run} {EPISODES[more]} ratio {start}": x_N for run, x_N in found.items()}
    return groups


EXPERIMENT.claim(
    "the-plateau-depends-on-step-over-root-samples",
    "Where step / sqrt(episodes) is 0.32, or 1, plateaus of 10, 100 and 1000 episodes agree within 0.03.",
).equal(apart, within=ALIKE)
