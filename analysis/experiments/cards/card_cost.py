"""Part 4 of a report card: seconds of every objective's loss and gradient, relative to ppo_clip's."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

import pandas as pd

from analysis.kernels.on_use import Tensor, torch
from analysis.lab import Experiment
from analysis.tables.committed import Table
from testbed.objectives import objective

NAME = "card-cost"
AGAINST = "ppo_clip"
ROWS, WIDTH, GROUP = 256, 128, 8
ROUNDS = 12
"""Repetitions of both timings in turn; the shortest counts, as load only adds time."""


def cost_row(name: str, rounds: int = ROUNDS) -> dict[str, float]:
    """Return seconds of loss and backward pass over ppo_clip's, for 256 answers of up to 128 tokens."""
    one, other = (_timer(objective[each].function) for each in (name, AGAINST))
    # The first pair warms up.
    pairs = [(one(), other()) for _ in range(rounds)][1:]
    mine, theirs = ([min(pair[who][part] for pair in pairs) for part in (0, 1)] for who in (0, 1))
    return {"forward": mine[0] / theirs[0], "backward": mine[1] / theirs[1], "both": sum(mine) / sum(theirs)}


def _timer(function: Callable[..., Tensor]) -> Callable[[], tuple[float, float]]:
    """Return a function that runs a loss and its backward pass once and returns the CPU seconds of each."""
    logp, batch = _batch()

    def run() -> tuple[float, float]:
        leaf = logp.clone().requires_grad_()
        began = time.thread_time()
        loss = function(leaf, batch)
        total = loss[batch.mask_BT].sum()
        between = time.thread_time()
        total.backward()
        return between - began, time.thread_time() - between

    return run


def _batch() -> tuple[Any, Any]:
    from testbed.data.batch import Batch

    draw = torch.Generator().manual_seed(0)
    shape = (ROWS, WIDTH)
    mu = -torch.rand(shape, generator=draw) - 0.5
    logp, anchor, ref = (mu + 0.05 * torch.randn(shape, generator=draw) for _ in range(3))
    reward_B = torch.randint(0, 2, (ROWS,), generator=draw).float()
    length_B = torch.randint(WIDTH // 2, WIDTH + 1, (ROWS, 1), generator=draw)
    mask = torch.arange(WIDTH) < length_B
    turn = (torch.arange(WIDTH) // 32).expand(shape).clone()
    group_B = torch.arange(ROWS) // GROUP
    adv_BT = (2 * reward_B - 1)[:, None].expand(shape).clone()
    zeros_B = torch.zeros_like(group_B)
    return logp, Batch(mu, adv_BT, mask, reward_B, group_B, anchor, ref, turn, None, zeros_B)


def cost_table(names: Iterable[str] | None = None) -> Table:
    """Return the table of the named objectives, by default of all registered ones."""
    rows = [{"objective": name, **cost_row(name)} for name in (objective if names is None else names)]
    about = {"batch": f"{ROWS} answers of up to {WIDTH} tokens, groups of {GROUP}, float32", "rounds": ROUNDS}
    return Table.of(NAME, pd.DataFrame(rows), about)


EXPERIMENT = Experiment(
    question="How much time do every objective's loss and gradient take, against ppo_clip's?",
    source="this project", differs="a stopwatch: other machines give other digits", compute=cost_table,
    keys=("objective",), metrics=("forward", "backward", "both"),
)  # fmt: skip
