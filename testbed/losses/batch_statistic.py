"""Batch statistics: what an objective computes from all sequences before it weighs one token.

A batch that is split into micro-batches, or over processes, must give every part the statistic of the
whole. So an objective states its statistic in two steps: `pool` gives values per part, which are joined
along the last axis, and `solve` turns the joined values, in any order, into the statistic.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from testbed.data.batch import Batch


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
