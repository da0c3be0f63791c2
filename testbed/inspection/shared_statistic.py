"""Compute a batch statistic from parts, for micro-batches and processes that must share it."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import UserError
from testbed.objectives import objective


def shared_statistic(name: str, parts: Sequence[tuple[Tensor, Batch]], **hyper: Any) -> Tensor:
    """Return a batch's statistic from its parts (logp_BT, batch); set it as each part's `statistic`.

    Across processes: all_gather the pools, join them along the last axis, solve.
    Raises UserError for an objective without a batch statistic.
    """
    entry = objective[name]
    statistic = entry.promises.get("statistic")
    if statistic is None:
        raise UserError(f"objective '{name}' has no batch statistic; its parts can be computed as they are.")
    chosen = {**entry.defaults, **hyper}
    pools = [statistic.pool(logp_BT.detach(), part, **chosen) for logp_BT, part in parts]
    solved: Tensor = statistic.solve(torch.cat(pools, dim=-1), **chosen)
    return solved
