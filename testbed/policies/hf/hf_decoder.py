"""Sample responses token by token: batches side by side, finished rows leave, weights may change midway."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from envs.tokens.token_task import TokenTask
from testbed.policies.hf.causal_model import CausalModel, Head, Prefix
from testbed.policies.hf.chunked_logp import chunk_rows, logits_logp
from testbed.policies.hf.growing_cache import make_room, select_rows
from testbed.policies.policy import Distribution, Drawn

LEAVE = 0.75
"""Compact the batch once fewer than this share of rows is unfinished: compaction copies the cache."""

Choose: TypeAlias = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""(logits [M, V], rows [M], t) -> token and its log-probability, [M] each."""


@dataclass(frozen=True)
class Reader:
    """Parts of a policy that a sampler needs: model, task, and features to logits / temperature [M, V]."""

    model: CausalModel
    task: TokenTask
    logits: Callable[[Tensor, Head], Tensor]


@dataclass(frozen=True)
class DecodeRequest:
    """Rows of one replica that are written together.

    weights: version -> named weights. path_T: the version that writes each token. row_B: positions of the
    rows in the replica's batch; row b answers prompt b // group. recomputed: True if a change of weights
    discards the cache.
    """

    weights: Callable[[int], dict[str, Tensor]]
    path_T: Sequence[int]
    prompt_NQ: Tensor
    real_NQ: Tensor
    group: int
    row_B: Tensor
    recomputed: bool = False


def split_by_version(whole: DecodeRequest, version_BT: Tensor) -> list[DecodeRequest]:
    """Group the rows of a replica by equal sequences of versions."""
    paths, course_B = version_BT.unique(dim=0, return_inverse=True)
    if len(paths) == 1:
        return [whole]
    found = []
    for c, path_T in enumerate(paths.tolist()):
        row_M = (course_B == c).nonzero()[:, 0].to(whole.row_B.device)
        prompt_M = row_M // whole.group
        alone = replace(whole, prompt_NQ=whole.prompt_NQ[prompt_M], real_NQ=whole.real_NQ[prompt_M], group=1)
        found.append(replace(alone, path_T=path_T, row_B=row_M))
    return found


class Ended(Protocol):
    """(tokens of the rows so far [M, t + 1], rows [M], t) -> True for finished rows, bool [M]."""

    def __call__(self, token_MT: Tensor, row_M: Tensor, t: int) -> Tensor: ...


class Decoder:
    """Write the rows of a request into a replica's token_BT, mask_BT and logp_BT."""

    def __init__(self, reader: Reader, order: DecodeRequest, out: Drawn, ended: Ended) -> None:
        self.reader, self.order, self.out, self.ended = reader, order, out, ended
        self.row_M = order.row_B
        self.prompt_M = torch.arange(len(self.row_M), device=self.row_M.device) // order.group
        self.alive_M, self.alive = torch.ones_like(self.row_M, dtype=torch.bool), len(self.row_M)
        self._use(order.path_T[0])
        self.prefix = self._prompts()
        self.feature_MH = self.prefix.feature_BH

    @property
    def done(self) -> bool:
        return self.alive == 0

    def next_logp(self) -> Tensor:
        """Return the log-probabilities of the next token of every row, [M, V]."""
        return self.reader.logits(self.feature_MH, self.head).log_softmax(-1)

    def draw(self, t: int, choose: Choose, logp_MV: Tensor | None = None) -> None:
        """Write token t of unfinished rows, drawn from the given distribution, or else the model's."""
        # A choice may copy its logits to float64, so it gets a bounded number of rows at a time.
        rows = chunk_rows(self.reader.task.vocabulary, self.row_M.device)
        source_MX = self.feature_MH if logp_MV is None else logp_MV
        parts = [
            choose(self.reader.logits(x, self.head) if logp_MV is None else x, row_M, t)
            for x, row_M in zip(source_MX.split(rows), self.row_M.split(rows), strict=True)
        ]
        token_M, logp_M = (torch.cat([part[i] for part in parts]) for i in range(2))
        token_BT, mask_BT, logp_BT = self.out
        row_M = self.row_M
        if self.alive < len(row_M):
            row_M, token_M, logp_M = (value[self.alive_M] for value in (row_M, token_M, logp_M))
        token_BT[row_M, t] = token_M
        logp_BT[row_M, t] = logp_M.to(logp_BT.dtype)
        mask_BT[row_M, t] = True
        over_M = self.ended(token_BT[row_M, : t + 1], row_M, t)
        if over := int(over_M.sum()):
            self.alive_M = self.alive_M.masked_scatter(self.alive_M, ~over_M)
            self.alive -= over

    def advance(self, t: int) -> None:
        """Read token t, under the weights that write the next one."""
        # Rows of stacked replicas stay: each replica's adapters read an equal share of the rows.
        if self.alive <= LEAVE * len(self.alive_M) and self.reader.model.replicas(self.weights) == 1:
            self._leave()
        version, before = self.order.path_T[t + 1], self.order.path_T[t]
        if version != before:
            self._use(version)
        token_MT = self.out[0][self.row_M, : t + 1]
        again = self.order.recomputed and version != before
        if again:
            self.prefix = self._prompts()
        new = t + 1 if again else 1
        self.feature_MH = self.reader.model.run_tokens(self.weights, self.prefix, token_MT, new)[:, -1]

    def _leave(self) -> None:
        index_M = self.alive_M.nonzero()[:, 0]
        rows = (self.row_M, self.prompt_M, self.alive_M)
        self.row_M, self.prompt_M, self.alive_M = (row_M[index_M] for row_M in rows)
        select_rows(self.prefix.cache, index_M)
        self.prefix = replace(self.prefix, real_BQ=self.prefix.real_BQ[index_M])

    def _use(self, version: int) -> None:
        self.weights = self.order.weights(version)
        self.reader.model.bind(self.weights, list(self.order.path_T).count(version))
        self.head = self.reader.model.head(self.weights, self.reader.task.vocabulary)

    def _prompts(self) -> Prefix:
        order = self.order
        whole = len(self.row_M) == len(order.row_B)
        prompt, real = (order.prompt_NQ, order.real_NQ)
        if not whole:
            prompt, real = prompt[self.prompt_M], real[self.prompt_M]
        prefix = self.reader.model.run_prompts(self.weights, prompt, real, order.group if whole else 1)
        make_room(prefix.cache, len(order.path_T))
        return prefix


def write(
    reader: Reader,
    orders: Sequence[Sequence[DecodeRequest]],
    out: Drawn,
    choose: Sequence[Choose],
    ended: Sequence[Ended],
    distribution: Distribution | None = None,
) -> None:
    """Write the requests of every replica into out, [R, B, T].

    orders, choose, ended: one per replica. With a distribution all replicas advance in step, because it needs
    them at once, [R, V, B]; finished rows are zeros in it.
    """
    numbered = [(r, order) for r, some in enumerate(orders) for order in some]
    start = lambda r, order: (r, Decoder(reader, order, (out[0][r], out[1][r], out[2][r]), ended[r]))  # noqa: E731
    try:
        if distribution is None:
            for r, order in numbered:
                _run([start(r, order)], choose, out)
        else:
            _run([start(r, order) for r, order in numbered], choose, out, distribution)
    finally:
        reader.model.unbind()


def _run(
    writers: list[tuple[int, Decoder]],
    choose: Sequence[Choose],
    out: Drawn,
    distribution: Distribution | None = None,
) -> None:
    length = out[0].shape[2]
    for t in range(length):
        logp_RVB = None if distribution is None else distribution(_all_logp(writers, out[0].shape), t)
        for r, writer in writers:
            logp_MV = None if logp_RVB is None else logp_RVB[r].T[writer.row_M]
            writer.draw(t, choose[r], logp_MV)
        writers = [(r, writer) for r, writer in writers if not writer.done]
        if t == length - 1 or not writers:
            return
        for _, writer in writers:
            writer.advance(t)


def _all_logp(writers: Iterable[tuple[int, Decoder]], shape: Sequence[int]) -> Tensor:
    found = [(r, writer.row_M, writer.next_logp()) for r, writer in writers]
    logp_RBV = found[0][2].new_zeros((shape[0], shape[1], found[0][2].shape[1]))
    for r, row_M, logp_MV in found:
        logp_RBV[r, row_M] = logp_MV
    return logp_RBV.transpose(1, 2)


def likeliest(logits_BV: Tensor) -> tuple[Tensor, Tensor]:
    """Return each row's likeliest token and its log-probability, [B]."""
    token_B = logits_BV.argmax(-1)
    return token_B, logits_logp(logits_BV, token_B)


def greedily(logits_MV: Tensor, _row_M: Tensor, _t: int) -> tuple[Tensor, Tensor]:
    """Choose the likeliest token."""
    return likeliest(logits_MV)


def inverse_cdf(logits_BV: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first token whose cumulative probability exceeds the uniform, and its log-probability, [B].

    The sum is float64 and the threshold stays below the total, so a token of probability zero is never drawn.
    A row of NaN gives token 0 and a NaN log-probability, so a diverged policy is recorded and does not crash.
    """
    cumulative_BV = logits_BV.double().softmax(-1).cumsum(-1)
    total_B = cumulative_BV[:, -1]
    threshold_B = torch.minimum(uniform_B * total_B, torch.nextafter(total_B, torch.zeros_like(total_B)))
    token_B = (cumulative_BV <= threshold_B[:, None]).sum(-1)
    return token_B, logits_logp(logits_BV, token_B)


def drawing(uniform_BT: Tensor) -> Choose:
    """Return a choice by inverse CDF from given uniforms [B, T]."""
    return lambda logits_MV, row_M, t: inverse_cdf(logits_MV, uniform_BT[row_M, t])


def reading(token_BT: Tensor) -> Choose:
    """Return a choice of known tokens, [B, T]."""

    def choose(logits_MV: Tensor, row_M: Tensor, t: int) -> tuple[Tensor, Tensor]:
        token_M = token_BT[row_M, t]
        return token_M, logits_logp(logits_MV, token_M)

    return choose


def ended_by(task: TokenTask) -> Ended:
    """Return a function that says if rows have ended: by an end token or a stop string."""

    def ended(token_MT: Tensor, row_M: Tensor, t: int) -> Tensor:
        del row_M, t
        over_M = torch.zeros_like(token_MT[:, 0], dtype=torch.bool)
        for end in task.end_tokens:
            over_M |= token_MT[:, -1] == end
        if task.stops:
            over_M |= torch.from_numpy(task.stopped(token_MT.cpu().numpy())).to(over_M.device)
        return over_M

    return ended


def ended_with(mask_BT: Tensor) -> Ended:
    """Return a function that ends rows where a mask does."""
    longer_BT = torch.cat([mask_BT[:, 1:], torch.zeros_like(mask_BT[:, :1])], dim=1)
    return lambda _, row_M, t: ~longer_BT[row_M, t]
