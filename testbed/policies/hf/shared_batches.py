"""Share every batch of one model among processes: each takes some prompts, and all gather the results.

A loss reads the weights only through log-probabilities. So every rank computes them for its prompts, all
ranks gather them, every rank takes the loss over the whole batch, and the gradients of the ranks' shares add
up to the whole batch's. Computations across sequences (M2PO's mask, BAPO's bounds, ESS, statistics of groups
and batches) therefore see the same data as with one process, and no objective depends on ranks. Every rank
holds weights, optimizer and versions: data parallelism only.

Sums run in another order than with one process: log-probabilities differ by at most the policy's
LOGP_TOLERANCE, weights by at most WEIGHT_TOLERANCE after a step of Adam on the same batch.
"""

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from testbed.errors import UserError
from testbed.policies.policy import Distribution, Drawn, Policy, Reweighted

WEIGHT_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Largest difference between a gradient of several ranks and of one, relative to its largest entry."""


def checked_ranks(ranks: object) -> int:
    """Return the number of processes that share a batch; UserError unless it is a whole number >= 1."""
    if isinstance(ranks, bool) or not isinstance(ranks, int) or ranks < 1:
        raise UserError(f"ranks is {ranks!r}, expected how many processes share every batch, at least 1.")
    return ranks


class Ranks:
    """The processes that run the same pack, seen from one of them.

    A launcher such as `accelerate launch` or torchrun connects them through RANK, WORLD_SIZE, MASTER_ADDR and
    MASTER_PORT.

    Raises UserError if this process runs alone, or their number differs.
    """

    def __init__(self, ranks: int, device: torch.device) -> None:
        if not dist.is_initialized():
            self._join(ranks, device)
        self.rank, self.ranks, self.device = dist.get_rank(), dist.get_world_size(), device
        if self.ranks != ranks:
            raise UserError(f"ranks is {ranks}, but {self.ranks} processes were started; make them equal.")

    @staticmethod
    def _join(ranks: int, device: torch.device) -> None:
        if int(os.environ.get("WORLD_SIZE", "1")) != ranks:
            raise UserError(
                f"ranks is {ranks}, but {os.environ.get('WORLD_SIZE', 'one')} process was started. Sweeps of "
                f"this bench start the others themselves; start your script with `torchrun "
                f"--nproc-per-node {ranks}`, or on GPUs with `accelerate launch --num_processes {ranks}`."
            )
        own = torch.cuda.device_count() if device.type == "cuda" else 0
        if own:
            torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % own)
        # NCCL needs a device per rank; gloo carries the rest.
        dist.init_process_group("nccl" if own >= ranks else "gloo")

    def share(self, items: int) -> slice:
        """Return this rank's share of the items: contiguous, nearly equal, maybe empty."""
        return slice(items * self.rank // self.ranks, items * (self.rank + 1) // self.ranks)

    def total(self, value: Tensor) -> Tensor:
        """Return the sum over ranks, with equal bits in each."""
        whole = value.to(self.device, torch.int64 if value.dtype == torch.bool else value.dtype).contiguous()
        # The sum is written into its argument, which may be the caller's.
        whole = whole.clone() if whole is value else whole
        dist.all_reduce(whole)
        return whole.to(value.dtype)

    def of_first(self, compute: Callable[[], np.ndarray], size: int) -> np.ndarray:
        """Return the first rank's result, float64 [size]; the others wait for it."""
        # The others add zeros, so that the sum is the first rank's result.
        value = torch.zeros(size, dtype=torch.float64)
        if self.rank == 0:
            value = torch.from_numpy(np.asarray(compute(), dtype=np.float64))
        return self.total(value).cpu().numpy()


class _Together(torch.autograd.Function):
    """Gather values from all ranks; only the local slice carries gradient."""

    @staticmethod
    def forward(ctx: Any, theta_RP: Tensor, ranks: Ranks, values: Callable[[Tensor], Tensor]) -> Tensor:
        wanted = ctx.needs_input_grad[0]
        with torch.set_grad_enabled(wanted):
            ctx.leaf_RP = theta_RP.detach().requires_grad_(wanted)
            ctx.own, ctx.ranks = values(ctx.leaf_RP), ranks
        return ranks.total(ctx.own.detach())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_RBT: Tensor) -> tuple[Tensor, None, None]:
        grad_RP = torch.zeros_like(ctx.leaf_RP)
        if ctx.own.requires_grad:  # a rank without a share has no gradient
            (grad_RP,) = torch.autograd.grad(ctx.own, ctx.leaf_RP, grad_RBT)
        return ctx.ranks.total(grad_RP), None, None


class InRanks(Reweighted):
    """A policy with batches shared by ranks; every rank calls the same methods in the same order.

    A prompt and its group go to one rank. Given a distribution, every rank writes the whole batch, because a
    distribution needs the whole batch at once.
    """

    def __init__(self, policy: Policy, ranks: Ranks) -> None:
        super().__init__(policy)
        self.ranks: Ranks = ranks

    def logp(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        return self._together(self.policy.logp, theta_RP, where, token_RBT, mask_RBT)

    def logp_entropy(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> None:
        """Return None: ranks gather one kind of number at a time."""

    def entropy(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        return self._together(self.policy.entropy, theta_RP.detach(), where, token_RBT, mask_RBT)

    def score_norm(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        return self._together(self.policy.score_norm, theta_RP.detach(), where, token_RBT, mask_RBT)

    def sample(
        self,
        theta_RP: Tensor,
        prompt_RNQ: Tensor,
        group: int,
        uniform_RBT: Tensor,
        greedy: bool = False,
        distribution: Distribution | None = None,
    ) -> Drawn:
        if distribution is not None:
            return self.policy.sample(theta_RP, prompt_RNQ, group, uniform_RBT, greedy, distribution)
        uniform_RBT = torch.as_tensor(uniform_RBT)
        n, b = self._shares(prompt_RNQ.shape[1], group)

        def own() -> Drawn:
            return self.policy.sample(theta_RP, prompt_RNQ[:, n], group, uniform_RBT[:, b], greedy)

        return self._written(own, b, uniform_RBT.shape)

    def sample_in_flight(
        self,
        theta_RWP: Tensor,
        version_RBT: Tensor,
        prompt_RNQ: Tensor,
        group: int,
        uniform_RBT: Tensor,
        cache: str = "kept",
        distribution: Distribution | None = None,
    ) -> Drawn:
        if distribution is not None:
            given = (version_RBT, prompt_RNQ, group, uniform_RBT, cache, distribution)
            return self.policy.sample_in_flight(theta_RWP, *given)
        uniform_RBT = torch.as_tensor(uniform_RBT)
        n, b = self._shares(prompt_RNQ.shape[1], group)
        version_RBT = version_RBT.expand(-1, uniform_RBT.shape[1], -1)

        def own() -> Drawn:
            return self.policy.sample_in_flight(
                theta_RWP, version_RBT[:, b], prompt_RNQ[:, n], group, uniform_RBT[:, b], cache
            )

        return self._written(own, b, uniform_RBT.shape)

    def logp_in_flight(
        self,
        theta_RWP: Tensor,
        version_RBT: Tensor,
        prompt_RNQ: Tensor,
        token_RBT: Tensor,
        mask_RBT: Tensor,
        cache: str = "kept",
    ) -> Tensor:
        version_RBT = version_RBT.expand(token_RBT.shape)

        def values(theta_RWP: Tensor, where: Tensor, token: Tensor, mask: Tensor) -> Tensor:
            _, b = self._shares(prompt_RNQ.shape[1], token_RBT.shape[1] // prompt_RNQ.shape[1])
            return self.policy.logp_in_flight(theta_RWP, version_RBT[:, b], where, token, mask, cache)

        return self._together(values, theta_RWP.detach(), prompt_RNQ, token_RBT, mask_RBT)

    def _shares(self, prompts: int, group: int) -> tuple[slice, slice]:
        n = self.ranks.share(prompts)
        return n, slice(n.start * group, n.stop * group)

    def _together(
        self,
        method: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor],
        theta: Tensor,
        prompt_RNQ: Tensor,
        token_RBT: Tensor,
        mask_RBT: Tensor,
    ) -> Tensor:
        n, b = self._shares(prompt_RNQ.shape[1], token_RBT.shape[1] // prompt_RNQ.shape[1])
        dtype = torch.promote_types(self.dtype, torch.float32)

        def values(theta: Tensor) -> Tensor:
            whole_RBT = torch.zeros(mask_RBT.shape, dtype=dtype, device=self.device)
            if b.start == b.stop:
                return whole_RBT
            own_RBT = method(theta, prompt_RNQ[:, n], token_RBT[:, b], mask_RBT[:, b])
            rest = (b.start, mask_RBT.shape[1] - b.stop)
            return torch.nn.functional.pad(own_RBT.to(dtype), (0, 0, *rest))

        result: Tensor = _Together.apply(theta, self.ranks, values)
        return result

    def _written(self, write: Callable[[], Drawn], b: slice, shape: torch.Size) -> Drawn:
        token_RBT = torch.zeros(tuple(shape), dtype=torch.int64, device=self.device)
        mask_RBT = torch.zeros_like(token_RBT, dtype=torch.bool)
        wide = torch.promote_types(self.dtype, torch.float32)
        logp_RBT = torch.zeros(tuple(shape), dtype=wide, device=self.device)
        if b.stop > b.start:
            token_RBT[:, b], mask_RBT[:, b], logp_RBT[:, b] = write()
        token_RBT, mask_RBT, logp_RBT = map(self.ranks.total, (token_RBT, mask_RBT, logp_RBT))
        return token_RBT, mask_RBT, logp_RBT
