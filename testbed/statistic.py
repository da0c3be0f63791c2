"""Batch statistics: what an objective computes from all sequences before it weighs one token.

A batch that is split into micro-batches, or over processes, must give every part the statistic of the
whole. So an objective states its statistic in two steps: `pool` gives values per part, which are joined
along the last axis, and `solve` turns the joined values, in any order, into the statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.batch import Batch
from testbed.errors import UserError
from testbed.objectives import objective


@dataclass(frozen=True)
class BatchStatistic:
    """pool(logp_BT, batch, **hyper) -> [..., C, K]; solve(pool, **hyper) -> [...]; both without gradient.

    C channels, K values; a part that has fewer than another pads with what `solve` ignores. A statistic
    of several numbers has them on a last axis.
    """

    pool: Callable[..., Tensor]
    solve: Callable[..., Tensor]

    def __call__(self, logp_BT: Tensor, batch: Batch, **hyper: Any) -> Tensor:
        """Return the statistic of the whole batch: the one the batch carries, or its own."""
        if batch.statistic is not None:
            return batch.statistic
        return self.solve(self.pool(logp_BT.detach(), batch, **hyper), **hyper)


def shared_statistic(name: str, parts: Sequence[tuple[Tensor, Batch]], **hyper: Any) -> Tensor:
    """Return the statistic of a batch from its parts (logp_BT, batch); put it into each part's `statistic`.

    Across processes: all_gather the pools, join them along the last axis, solve.
    Raises UserError for an objective that has no batch statistic.
    """
    entry = objective[name]
    statistic = entry.promises.get("statistic")
    if statistic is None:
        raise UserError(f"objective '{name}' has no batch statistic; its parts can be computed as they are.")
    chosen = {**entry.defaults, **hyper}
    pools = [statistic.pool(logp_BT.detach(), part, **chosen) for logp_BT, part in parts]
    solved: Tensor = statistic.solve(torch.cat(pools, dim=-1), **chosen)
    return solved
