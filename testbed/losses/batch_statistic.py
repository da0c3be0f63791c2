"""Batch statistics: numbers that an objective computes from all sequences before it weighs one token.

Every micro-batch or process must use the statistic of the whole batch. An objective therefore defines it in
two steps: `pool` gives values per part, which are joined along the last axis; `solve` turns the joined
values, in any order, into the statistic.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from testbed.data.batch import Batch


@dataclass(frozen=True)
class BatchStatistic:
    """pool(logp_BT, batch, **hyper) -> [..., C, K]; solve(pool, **hyper) -> [...]; both without gradient.

    C channels, K values. Parts with fewer values pad with values that `solve` ignores. A statistic of several
    numbers has them on its last axis.
    """

    pool: Callable[..., Tensor]
    solve: Callable[..., Tensor]

    def __call__(self, logp_BT: Tensor, batch: Batch, **hyper: Any) -> Tensor:
        """Return the statistic that the batch carries; otherwise compute it from this batch."""
        if batch.statistic is not None:
            return batch.statistic
        return self.solve(self.pool(logp_BT.detach(), batch, **hyper), **hyper)

    def of_parts(self, parts: Iterable[tuple[Tensor, Batch]], **hyper: Any) -> Tensor:
        """Return a batch's statistic from its parts (logp_BT, batch); set it as each part's `statistic`.

        Across processes: all_gather the pools, join them along the last axis, solve.
        """
        pools = [self.pool(logp_BT.detach(), part, **hyper) for logp_BT, part in parts]
        return self.solve(torch.cat(pools, dim=-1), **hyper)
