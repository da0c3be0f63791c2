"""Small cells of every kind of world, and comparisons of what they logged, for tests of schedules."""

from dataclasses import replace

import numpy as np
import torch

from testbed.config.run import Run
from testbed.training.loop import train
from testbed.worlds import build_world as worlds

SMALL = Run(task="bandit", steps=12, prompts=4, group=4, learning_rate=0.5, log_every=1)
LENGTHS = replace(
    SMALL, task="tree", task_args=(("task", "length"), ("task_args", "digits=2 modulus=2 limit=6")),
    recipe="reinforce", learning_rate=1.0,
)  # fmt: skip
TOY = Run(
    task="length", task_args=(("digits", 2), ("limit", 5), ("modulus", 2)), policy="toy",
    policy_args=(("heads", 2), ("layers", 1), ("width", 8)), steps=6, prompts=4, group=4, learning_rate=3e-3,
    optimizer="adam", log_every=1, evaluation_prompts=4,
)  # fmt: skip
SUMS = replace(TOY, task="running-sum", task_args=(("digits", 2), ("modulus", 2)))
CHAIN = replace(SMALL, task="chain", learning_rate=1.0)
TREE = replace(SMALL, task="tree", learning_rate=1.0)
WORLDS = {"bandit": SMALL, "tree": LENGTHS, "toy": TOY}
SETTINGS = ("cell", "staleness", "staleness_args", "age_limit", "too_old", "lag")


def moving(world, steps: int, seed: int = 0):
    """Yield (step, weights) of weights that move by noise."""
    generator = torch.Generator().manual_seed(seed)
    theta = world.initial()
    for step in range(steps):
        yield step, theta
        theta = theta + 0.2 * torch.randn(theta.shape, generator=generator, dtype=theta.dtype)


def with_schedule(run: Run, name: str, limit: int = -1, too_old: str = "drop", **arguments: object) -> Run:
    """Return the run under a schedule and an age limit."""
    pairs = tuple(sorted(arguments.items()))
    return replace(run, staleness=name, staleness_args=pairs, age_limit=limit, too_old=too_old, lag=0)


def differing(left: dict, right: dict, *, shared: bool = False) -> list[str]:
    """Return the columns that differ in a bit, the settings of staleness aside.

    shared: leave out columns that one table lacks, as what a schedule measures of itself; else they differ.
    """
    both = left.keys() & right.keys()
    names = [name for name in left | right if name not in SETTINGS and (name in both or not shared)]
    assert len(names) > 40, "the tables share too few columns to say anything"
    return [name for name in names if name not in both or not _same(left[name], right[name])]


def cell_rows(table: dict, index: int, cells: int) -> dict:
    """Return the rows of one cell of a pack's table."""
    rows = len(table["step"]) // cells
    return {name: column[index * rows : (index + 1) * rows] for name, column in table.items()}


def _same(left: object, right: object) -> bool:
    a, b = np.asarray(left), np.asarray(right)
    return np.array_equal(a, b, equal_nan=np.issubdtype(a.dtype, np.floating))


def watched(run: Run, patch) -> tuple[dict, list, list]:
    """Train a run; return its table, the weights before every update, and the rollouts it learned from."""
    weights, rollouts = [], []
    kind = worlds.TabularRuns if run.policy == "tabular" else worlds.TokenRuns

    class Spy(kind):
        def logp(self, theta_RP, rollout):
            if theta_RP.requires_grad:
                weights.append(theta_RP.detach().clone())
                rollouts.append(rollout)
            return super().logp(theta_RP, rollout)

    with patch.context() as within:
        within.setattr(worlds, kind.__name__, Spy)
        table = train(run)
    return table, weights, rollouts


def misremembered(run: Run, weights: list[torch.Tensor], rollout) -> float:
    """Return the largest distance of a recorded log-probability from that of its version's weights."""
    world = worlds.build_world((run,))
    worst = 0.0
    for version in rollout.version_RBT[rollout.mask_RBT].unique().tolist():
        found_RBT = world.logp(weights[version], rollout)
        here_RBT = rollout.mask_RBT & (rollout.version_RBT == version)
        worst = max(worst, float((found_RBT - rollout.logp_mu_RBT)[here_RBT].abs().max()))
    return worst


def with_what_it_reads(run: Run, name: str) -> Run:
    """Return a run of the recipe with the critic, the teacher or the prefixes that it cannot do without."""
    run = replace(run, recipe=name)
    if name == "ppo":
        return replace(run, critic="table" if run.policy == "tabular" else "head")
    if name == "opd":
        return replace(run, teacher="noisy")
    if name == "tree_opo":
        return replace(run, prefix="teacher", prefix_args=(("distribution", "staged"), ("tokens", 1)))
    return run
