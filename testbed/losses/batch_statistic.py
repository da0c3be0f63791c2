"""Batch statistics: numbers that an objective computes from all sequences before it weighs one token.

Every micro-batch or process must use the statistic of the whole batch. An objective therefore defines it in
two steps: `pool` gives values per part, which are joined along the last axis; `solve` turns the joined
values, in any order, into the statistic.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

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
