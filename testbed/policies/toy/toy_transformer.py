"""A small decoder-only transformer with a leading replica axis on its weights.

R models of one shape run as batched matrix products over R independent weight sets; small models run singly
are all overhead. Pre-norm blocks with RMSNorm and ReLU, learned positions, no biases.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import TypeAlias

import torch
from torch import Tensor

from testbed import rng
from testbed.errors import UserError
from testbed.policies.policy import Distribution, Drawn, Layout, Policy, Rounding, TaskShape, Tool
from testbed.policies.token_versions import checked_cache, checked_versions, present
from testbed.policies.toy.attention import Tree, tree_attention
from testbed.policies.toy.decoder import Decoder, Prompts, VersionedDecoder, can_write, write
from testbed.policies.toy.layers import Shape, Weights, embed, finish_block, log_distribution, unrounded
from testbed.policies.toy.recomputed_cache import generate_recomputed
from testbed.policies.toy.toy_sampler import generate, read

LOGP_TOLERANCE = 5e-7
"""Largest difference in nats per token between the sampler's log-probabilities and `logp` at equal weights,
in float32 and at initial weights: sums run in another order. Trained weights make larger logits, where tokens
of log-probability -10 differed by up to 2e-6.
"""


Hidden: TypeAlias = Callable[[int, Tensor], Tensor]
"""(layer, hidden states [R, D, M]) -> the layer's input instead; after the last layer, the logits."""


class ToyTransformer(Policy):
    """softmax(logits / temperature) over V tokens, as a function of flat weights theta_RP.

    A prompt runs once and serves its whole group, in training and in sampling. Prompts end at the same
    position for any padding on the left, and no token sees padding. The temperature belongs to the policy:
    sample, logp and entropy all use it.

    Args:
        task: only its sizes and special tokens are read.
        expansion: hidden units of a feed-forward block per unit of width.
        dtype: float64 is for gradient tests; compiled loops support float32 on the CPU.

    Raises UserError for invalid sizes.
    """

    open_layers = True

    def __init__(
        self,
        task: TaskShape,
        width: int = 32,
        layers: int = 2,
        heads: int = 4,
        expansion: int = 4,
        temperature: float = 1.0,
        device: str | torch.device = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        for name, value in {"width": width, "layers": layers, "heads": heads, "expansion": expansion}.items():
            if value < 1:
                raise UserError(f"{name} must be at least 1, got {value}.")
        if width % heads:
            raise UserError(f"width {width} is not a multiple of heads {heads}; heads share it evenly.")
        if not temperature > 0:
            raise UserError(f"temperature must be positive, got {temperature}; 1 samples the model itself.")
        self.task, self.heads, self.temperature = task, heads, temperature
        self.device, self.dtype = torch.device(device), dtype
        self.rounding: Rounding = unrounded
        self.hidden: Hidden | None = None
        positions = task.prompt_length + task.response_length - 1
        self.shape = Shape(task.vocabulary, positions, width, layers, expansion * width)
        self.parameters = sum(rows * columns for rows, columns in self.shape.matrices().values())

    @property
    def layout(self) -> Layout:
        return self.shape.matrices()

    @property
    def width(self) -> int:
        return self.shape.width

    @property
    def positions(self) -> int:
        return self.task.response_length

    def initial(self, seeds: Sequence[int]) -> Tensor:
        """Return random weights [R, P]; a row depends only on its seed."""
        rows = [self.shape.initial(rng.generator(seed, "toy/initial")) for seed in seeds]
        return torch.stack(rows).to(device=self.device, dtype=self.dtype)

    def with_hidden(self, hidden: Hidden) -> "ToyTransformer":
        """Return this policy with changed hidden states, except in `sample`."""
        changed = copy(self)
        changed.hidden = hidden
        return changed

    def with_rounding(self, rounding: Rounding) -> "ToyTransformer":
        """Return this policy with rounded inputs of its linear layers, except embeddings and head."""
        changed = copy(self)
        changed.rounding = rounding
        return changed

    def weights(self, theta_RP: Tensor) -> Weights:
        """Return flat weights sorted by layer."""
        return self.shape.weights(theta_RP, self.rounding)

    def prompts(
        self, theta_RP: Tensor, prompt_RNQ: Tensor, group: int, shape: torch.Size, name: str = "uniform_RBT"
    ) -> Prompts:
        """Return prompts with the positions of their first tokens.

        Raises UserError unless weights, prompts and the sequences of a shape [R, N * group, T] fit together.
        """
        self._check(theta_RP, prompt_RNQ, shape, name)
        if shape[1] != prompt_RNQ.shape[1] * group:
            raise UserError(
                f"{name} has {shape[1]} sequences, expected {prompt_RNQ.shape[1]} prompts times group "
                f"{group}."
            )
        return Prompts(prompt_RNQ, self._first(prompt_RNQ), group)

    @torch.no_grad()
    def sample(
        self,
        theta_RP: Tensor,
        prompt_RNQ: Tensor,
        group: int,
        uniform_RBT: Tensor,
        greedy: bool = False,
        distribution: Distribution | None = None,
    ) -> Drawn:
        """Return token_RBT, mask_RBT and logp_RBT, drawn by inverse CDF from the given uniforms.

        greedy takes the likeliest token for any uniforms. distribution(log_pi_RVB, t) is that of token t for
        an engine that differs from the policy (testbed/mismatch). Sequence b = n * group + g answers prompt
        n. After the end token: token 0, mask False, logp 0.
        """
        prompts = self.prompts(theta_RP, prompt_RNQ, group, uniform_RBT.shape)
        uniform = uniform_RBT.to(self.device, torch.float64)
        one_RBT = torch.zeros_like(uniform, dtype=torch.int64)
        weights, tool, end = self.weights(theta_RP), self.tool(prompts), self.task.end_token
        if not greedy and distribution is None and tool is None and can_write(weights, self.heads):
            return write(weights, self.heads, self.temperature, prompts, end, uniform)
        decoder = self._decoder({0: weights}, prompts, one_RBT)
        return generate(decoder, end, uniform, greedy, distribution, tool)

    @torch.no_grad()
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
        """`sample` for responses during which the weights change: token_RBT, mask_RBT and logp_RBT.

        Token t of sequence b is predicted by theta_RWP[r, version_RBT[r, b, t]], W versions, oldest first.
        version_RBT never falls along t and broadcasts to [R, B, T]: [R, 1, T] changes all sequences at once.
        cache: treatment of keys and values at a change:

        "recomputed": the prefix is read again, so a token's distribution is that of the policy at its
        version. "kept": they stay as older weights made them (PipelineRL, arXiv:2509.19128), so later
        distributions belong to no version. The version that predicts token t has read token t - 1.

        logp is that of the sampled distribution. Raises UserError for versions that do not fit.
        """
        prompts = self.prompts(theta_RWP[:, 0], prompt_RNQ, group, uniform_RBT.shape)
        uniform, end = uniform_RBT.to(self.device, torch.float64), self.task.end_token
        version_RBT = checked_versions(version_RBT, uniform.shape, theta_RWP.shape[1])
        kept = checked_cache(cache) == "kept"
        if len(present(version_RBT)) == 1:
            alone = theta_RWP[:, present(version_RBT)[0]]
            return self.sample(alone, prompt_RNQ, group, uniform_RBT, distribution=distribution)
        weights = {v: self.weights(theta_RWP[:, v]) for v in present(version_RBT)}
        if kept:
            decoder = self._decoder(weights, prompts, version_RBT)
            return generate(decoder, end, uniform, distribution=distribution, tool=self.tool(prompts))
        decoder_of = lambda v: self._decoder({v: weights[v]}, prompts, version_RBT)  # noqa: E731
        tool = self.tool(prompts)
        return generate_recomputed(decoder_of, version_RBT, end, uniform, distribution, tool)

    def logp_in_flight(
        self,
        theta_RWP: Tensor,
        version_RBT: Tensor,
        prompt_RNQ: Tensor,
        token_RBT: Tensor,
        mask_RBT: Tensor,
        cache: str = "kept",
    ) -> Tensor:
        """Return the log-probabilities [R, B, T] that `sample_in_flight` records for these tokens.

        "recomputed" is differentiable in theta. "kept" is not: the sampler reads it token by token.
        """
        if checked_cache(cache) == "recomputed":
            return super().logp_in_flight(theta_RWP, version_RBT, prompt_RNQ, token_RBT, mask_RBT, cache)
        group = token_RBT.shape[1] // prompt_RNQ.shape[1]
        prompts = self.prompts(theta_RWP[:, 0], prompt_RNQ, group, token_RBT.shape, "token_RBT")
        version_RBT = checked_versions(version_RBT, token_RBT.shape, theta_RWP.shape[1])
        with torch.no_grad():
            weights = {v: self.weights(theta_RWP[:, v]) for v in present(version_RBT)}
            return read(self._decoder(weights, prompts, version_RBT), token_RBT, mask_RBT)

    def logp(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return log pi(token | before), [R, B, T], differentiable in theta; 0 where mask is False."""
        R, N, _ = prompt_RNQ.shape
        logp = self._next_logp(theta_RP, prompt_RNQ, token_RBT)
        token_RNGT = token_RBT.unflatten(1, (N, -1))
        start_RNG = logp[:, :, :N].transpose(1, 2).gather(2, token_RNGT[..., 0])
        next_RX = token_RNGT[..., 1:].transpose(2, 3).reshape(R, 1, -1)
        return _by_response(start_RNG, logp[:, :, N:].gather(1, next_RX)[:, 0], mask_RBT)

    def log_distribution(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor) -> Tensor:
        """Return log pi(. | first t tokens) for t = 0 .. T - 1, [R, B, T, V], differentiable in theta."""
        logp_RVX = self._next_logp(theta_RP, prompt_RNQ, token_RBT)
        return _before_tokens(logp_RVX, prompt_RNQ.shape[1], token_RBT.shape[1])

    @torch.no_grad()
    def entropy(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return the entropy of each token's distribution in nats, [R, B, T]; 0 where mask is False."""
        N = prompt_RNQ.shape[1]
        logp = self._next_logp(theta_RP, prompt_RNQ, token_RBT)
        entropy_RX = torch.special.entr(logp.exp()).sum(1)
        start_RNG = entropy_RX[:, :N, None].expand(-1, -1, token_RBT.shape[1] // N)
        return _by_response(start_RNG, entropy_RX[:, N:], mask_RBT)

    @torch.no_grad()
    def score_norm(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return |d log pi(token) / d logits|^2 = 1 - 2 pi + sum pi^2, [R, B, T]; 0 where mask is False."""
        N = prompt_RNQ.shape[1]
        square_RX = self._next_logp(theta_RP, prompt_RNQ, token_RBT).exp().square().sum(1)
        start_RNG = square_RX[:, :N, None].expand(-1, -1, token_RBT.shape[1] // N)
        square_RBT = _by_response(start_RNG, square_RX[:, N:], mask_RBT)
        pi_RBT = self.logp(theta_RP, prompt_RNQ, token_RBT, mask_RBT).exp()
        return torch.where(mask_RBT, 1 - 2 * pi_RBT + square_RBT, torch.zeros_like(pi_RBT))

    def features(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor) -> Tensor:
        """Return the head's inputs before each token, unit mean square, [R, B, T, M]; differentiable."""
        x, _ = self._states(theta_RP, prompt_RNQ, token_RBT)
        x_RBTM = _before_tokens(x, prompt_RNQ.shape[1], token_RBT.shape[1])
        return torch.nn.functional.rms_norm(x_RBTM, x_RBTM.shape[3:])

    def _next_logp(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor) -> Tensor:
        """log pi(. | before), [R, V, N + N S G]; columns as in `_states`."""
        x, weights = self._states(theta_RP, prompt_RNQ, token_RBT)
        return log_distribution(weights, x, self.temperature, self.hidden)

    def _states(self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor) -> tuple[Tensor, Weights]:
        """Last hidden states [R, M, N + N S G], after each prompt, then after response tokens.

        The last response token predicts nothing: S = T - 1. Responses' columns are ordered as in Tree.
        """
        self._check(theta_RP, prompt_RNQ, token_RBT.shape, "token_RBT")
        N, Q, S = prompt_RNQ.shape[1], prompt_RNQ.shape[2], token_RBT.shape[2] - 1
        G = token_RBT.shape[1] // N
        tree = Tree(N, Q, G, S, self._first(prompt_RNQ))
        response_RNSG = token_RBT[..., :S].unflatten(1, (N, G)).transpose(2, 3)
        token_RM = torch.cat([prompt_RNQ.transpose(1, 2).flatten(1), response_RNSG.flatten(1)], 1)
        time = torch.arange(Q + S, device=self.device)
        time_M = torch.cat([time[:Q].repeat_interleave(N), time[Q:].repeat_interleave(G).repeat(N)])
        weights = self.weights(theta_RP)
        x = embed(weights.embedding, token_RM, self.shape.vocabulary + time_M)
        for i, layer in enumerate(weights.layers):
            x = x if self.hidden is None else self.hidden(i, x)
            attended = tree_attention(layer.read(x), tree, self.heads)
            if i == self.shape.layers - 1:
                # Nothing is predicted inside the prompts: their last tokens' columns come last.
                x, attended = x[:, :, (Q - 1) * N :], attended[:, :, (Q - 1) * N :]
            x = finish_block(x, attended, layer)
        return x, weights

    def tool(self, prompts: Prompts) -> Tool | None:
        """Return the writer at the places of the task's tool; None without a tool."""
        task, tool_T = self.task, self.task.tool_T
        if not any(tool_T):
            return None
        prompt_MQ = prompts.token_RNQ.repeat_interleave(prompts.group, 1).flatten(0, 1).cpu().numpy()

        def answer(token_RBt: Tensor, t: int) -> Tensor | None:
            if not tool_T[t]:
                return None
            token_M = task.tool(prompt_MQ, token_RBt.flatten(0, 1).cpu().numpy())
            return torch.from_numpy(token_M).to(token_RBt.device).view(token_RBt.shape[:2])

        return answer

    def _decoder(self, weights: dict[int, Weights], prompts: Prompts, version_RBT: Tensor) -> Decoder:
        return VersionedDecoder(weights, self.heads, self.temperature, prompts, version_RBT)

    def _first(self, prompt_RNQ: Tensor) -> Tensor:
        """Index of each prompt's first token that is not padding, [R, N]."""
        pad = self.task.pad_token
        if pad is None:
            return prompt_RNQ.new_zeros(prompt_RNQ.shape[:2])
        return (prompt_RNQ == pad).long().cumprod(2).sum(2)

    def _check(self, theta_RP: Tensor, prompt_RNQ: Tensor, shape: torch.Size, name: str) -> None:
        Q, T, P = self.task.prompt_length, self.task.response_length, self.parameters
        R = theta_RP.shape[0]
        if theta_RP.shape != (R, P):
            raise UserError(f"theta_RP has shape {tuple(theta_RP.shape)}, expected [R, P = {P}].")
        if prompt_RNQ.ndim != 3 or prompt_RNQ.shape[0] != R or prompt_RNQ.shape[2] != Q:
            raise UserError(
                f"prompt_RNQ has shape {tuple(prompt_RNQ.shape)}, expected [R = {R}, N, Q = {Q}]."
            )
        if len(shape) != 3 or shape[0] != R or shape[1] % prompt_RNQ.shape[1] or not 1 <= shape[2] <= T:
            raise UserError(
                f"{name} has shape {tuple(shape)}, expected [R = {R}, a multiple of {prompt_RNQ.shape[1]} "
                f"prompts, 1 to T = {T}]."
            )


def _before_tokens(value_RMX: Tensor, prompts: int, responses: int) -> Tensor:
    """Bring columns as of `_states` into the order [R, B, T, M]: what precedes each token of a response."""
    x_RXM, group = value_RMX.transpose(1, 2), responses // prompts
    start_RBM = x_RXM[:, :prompts].repeat_interleave(group, 1)
    later_RBSM = x_RXM[:, prompts:].unflatten(1, (prompts, -1, group)).transpose(2, 3).flatten(1, 2)
    return torch.cat([start_RBM[:, :, None], later_RBSM], 2)


def _by_response(start_RNG: Tensor, next_RX: Tensor, mask_RBT: Tensor) -> Tensor:
    """Bring values of first tokens and of later ones (columns n, s, g) into the order [R, B, T], masked."""
    R, N, G = start_RNG.shape
    next_RNGS = next_RX.reshape(R, N, -1, G).transpose(2, 3)
    value_RBT = torch.cat([start_RNG[..., None], next_RNGS], -1).flatten(1, 2)
    return torch.where(mask_RBT, value_RBT, torch.zeros_like(value_RBT))
