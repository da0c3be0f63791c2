"""An engine that keeps its cache when weights change: it reads keys and values of older weights."""

import torch
from torch import Tensor

from testbed.errors import UserError
from testbed.mismatch import Draw, SamplerEngine, mismatch
from testbed.policies.policy import Distribution, Drawn, Policy, Reweighted, Rounding
from testbed.policies.toy.decoder import KeyValues, Prompts, next_dist, read_prompts
from testbed.policies.toy.layers import Weights
from testbed.policies.toy.toy_sampler import generate, read
from testbed.policies.toy.toy_transformer import ToyTransformer

SPANS = ("prompt", "all")
OVER_THE_CACHE = "that of every token over its cache"


@mismatch(
    "stale-kv",
    source="a prefix cache that is not reset after an update; PipelineRL keeps it, arXiv:2509.19128",
    level="forward",
    needs=("layers", "past"),
)
def stale_kv(*, span: str = "prompt", age: int = 1) -> SamplerEngine:
    """mu reads earlier tokens' keys and values from an older version, `draw.past_RP`.

    span "prompt": all prompt tokens but the last, as in a prefix cache that outlives an update. "all": also
    all response tokens but the newest, as at the first token after an update in flight. age: optimizer steps
    by which the cache is older than the weights, in training.
    """
    if age < 1:
        raise UserError(f"age is {age}, the optimizer steps by which the cache is older; expected 1 or more.")
    if span not in SPANS:
        raise UserError(f"span is '{span}', expected {' or '.join(SPANS)}.")

    def forward(policy: Policy, draw: Draw) -> StaleCache:
        if not isinstance(policy, ToyTransformer):
            raise UserError(f"stale-kv reads the cache of policy 'toy'; this one is {type(policy).__name__}.")
        if draw.past_RP is None:
            raise UserError("stale-kv reads past_RP, the weights of an older version, which is None.")
        return StaleCache(policy, draw.past_RP, span)

    return SamplerEngine("stale-kv", forward=forward, past=age)


class StaleCache(Reweighted):
    """A toy transformer that samples, and evaluates tokens, over a cache of older weights.

    Other uses of the model would need that cache too, and raise UserError.
    """

    def __init__(self, policy: ToyTransformer, past_RP: Tensor, span: str) -> None:
        super().__init__(policy)
        self.toy, self.past_RP, self.span = policy, past_RP, span

    def with_rounding(self, rounding: Rounding) -> "StaleCache":
        """Return the same policy with rounded inputs of linear layers, also in the past weights."""
        return StaleCache(self.toy.with_rounding(rounding), self.past_RP, self.span)

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
        """Return token_RBT, mask_RBT and logp_RBT as ToyTransformer.sample does."""
        decoder = self._decoder(theta_RP, prompt_RNQ, group, uniform_RBT.shape, "uniform_RBT")
        uniform = uniform_RBT.to(self.device, torch.float64)
        tool = self.toy.tool(self.toy.prompts(theta_RP, prompt_RNQ, group, uniform_RBT.shape))
        return generate(decoder, self.toy.task.end_token, uniform, greedy, distribution, tool)

    @torch.no_grad()
    def logp(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        """Return the log-probabilities that `sample` records for these tokens, [R, B, T]; no gradient."""
        group = token_RBT.shape[1] // where.shape[1]
        decoder = self._decoder(theta_RP, where, group, token_RBT.shape, "token_RBT")
        return read(decoder, token_RBT, mask_RBT)

    def entropy(self, *_: Tensor) -> Tensor:
        self._lacks(OVER_THE_CACHE)

    def score_norm(self, *_: Tensor) -> Tensor:
        self._lacks(OVER_THE_CACHE)

    def log_distribution(self, *_: Tensor) -> Tensor:
        self._lacks(OVER_THE_CACHE)

    def sample_in_flight(self, *_: object) -> Drawn:
        self._lacks("a cache that can change twice")

    def logp_in_flight(self, *_: object) -> Tensor:
        self._lacks("a cache that can change twice")

    def _decoder(
        self, theta_RP: Tensor, prompt_RNQ: Tensor, group: int, shape: torch.Size, name: str
    ) -> "StaleDecoder":
        policy = self.toy
        prompts = policy.prompts(theta_RP, prompt_RNQ, group, shape, name)
        if self.past_RP.shape != theta_RP.shape:
            raise UserError(
                f"past_RP has shape {tuple(self.past_RP.shape)}, expected {tuple(theta_RP.shape)}."
            )
        if prompt_RNQ.shape[2] == 1:
            raise UserError("stale-kv needs prompts of two tokens or more: the last one is always read anew.")
        now, past = policy.weights(theta_RP), policy.weights(self.past_RP)
        everywhere = self.span == "all"
        return StaleDecoder(now, past, policy.heads, policy.temperature, prompts, shape[2], everywhere)


class StaleDecoder:
    """Distributions of the current weights over keys and values of the past ones; see toy.decoder.Decoder.

    The prompt's last token is read like a response's, as token 0: response token t is token t + 1 here.
    """

    def __init__(
        self,
        now: Weights,
        past: Weights,
        heads: int,
        temperature: float,
        prompts: Prompts,
        tokens: int,
        everywhere: bool,
    ) -> None:
        self.now, self.past, self.temperature, self.everywhere = now, past, temperature, everywhere
        token_RNQ = prompts.token_RNQ
        self.length = token_RNQ.shape[2] - 1
        self.last_RB = token_RNQ[..., -1].repeat_interleave(prompts.group, 1)
        before = Prompts(token_RNQ[..., :-1], prompts.first_RN, prompts.group)
        caches = read_prompts(past, heads, before)[1]
        width = 3 * now.embedding.shape[1]
        own = now.embedding.new_empty(len(now.layers), tokens, len(token_RNQ), width, self.last_RB.shape[1])
        self.kept = KeyValues(caches, own)
        self.kept_past = KeyValues(caches, torch.empty_like(own))

    def first(self) -> Tensor:
        """Return the distribution of the first token."""
        return self._next(self.last_RB, 0)

    def after(self, token_RB: Tensor, t: int) -> Tensor:
        """Return the distribution of token t + 1, given token t; called for t = 0, 1, ... in order."""
        return self._next(token_RB, t + 1)

    def _next(self, token_RB: Tensor, t: int) -> Tensor:
        logp_RVB = next_dist(self.now, self.temperature, token_RB, self.length, t, self.kept)
        if self.everywhere:
            # Leave the past weights' entries here for later tokens to read.
            next_dist(self.past, self.temperature, token_RB, self.length, t, self.kept_past)
            self.kept.own[:, t] = self.kept_past.own[:, t]
        return logp_RVB
