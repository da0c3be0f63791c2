"""Engine mismatch: differences between the generating engine and the trainer at equal weights.

`mismatch` registers makers of engines with their citation and promises, which contract tests check (without
any: level "weights", support "full", no identity):

level:     "none", "weights" (mu is the policy at other weights), "distribution" (mu is another distribution
           on the same next-token logits) or "forward" (mu is another forward pass of the same weights).
support:   "full": mu > 0 wherever pi > 0, so pi/mu is finite and E_mu[pi/mu] = 1. "partial": mu is 0 on some
           tokens of pi. In generation pi/mu of these tokens is infinite but never seen; in training, with the
           truncated distribution in place of pi, mu/pi is infinite and pi/mu is 0.
identity:  hyperparameters at which the engine returns its input itself; None if there are none.
stochastic: the engine draws random numbers from a counter-based stream.
needs:     () or more of "layers", for engines that act inside a transformer, and "past", for engines that
           read older weights.

Example: the engine of a rollout in FP8 that samples at top-p 0.95.

>>> from testbed.mismatch import compose, engine
>>> compose(engine("fp8-block"), engine("top-p", p=0.95)).name
'fp8-block+top-p'
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from envs.streams import uniforms
from testbed import rng
from testbed.config.run import Scalar
from testbed.errors import UserError
from testbed.policies.policy import Layout, Policy
from testbed.registry import Registry

LARGEST_UNIFORM = 1.0 - 2.0**-53
SMALLEST_UNIFORM = 2.0**-54


@dataclass(frozen=True)
class Draw:
    """Random numbers of a stochastic engine, and its inputs besides the weights.

    seeds: one per replica R. step: the batch. ticks: decoding positions per batch; tick t of batch `step` has
    the counter step * ticks + t. past_RP: weights of an older version. part: place of an engine in a
    composition; each place has a separate stream. slices: rows per seed; draws per sequence are split among
    them, draws `shared` by the whole batch are equal in all.
    """

    seeds: tuple[int, ...]
    step: int = 0
    ticks: int = 1
    past_RP: Tensor | None = None
    part: int = 0
    slices: int = 1
    shared: bool = False

    def of_batch(self, redraw: bool) -> "Draw":
        """Return the stream of numbers drawn once per batch, or once per run if not `redraw`."""
        return replace(self, step=self.step if redraw else 0, ticks=1, shared=True)

    def uniform(self, purpose: str, tick: int, places: int, width: int) -> np.ndarray:
        """Return uniforms in [0, 1), [R, places, width]; they depend on seed, purpose and counter alone."""
        key_R = rng.keys(self.seeds, f"mismatch/{self.part}/{purpose}")
        # Slices share out the numbers of the whole batch, so that cutting it changes none of them.
        count, counter = (1, self.slices) if not self.shared else (self.slices, 1)
        drawn = uniforms(key_R, self.step * self.ticks + tick, places * counter, width)
        return drawn.repeat(count, axis=0).reshape(len(key_R) * self.slices, places, width)

    def normal(self, purpose: str, tick: int, like_RMV: Tensor) -> Tensor:
        """Return standard normals by inverse CDF; shape, device and type as `like_RMV`."""
        uniform = self.uniform(purpose, tick, *like_RMV.shape[1:]).clip(SMALLEST_UNIFORM, LARGEST_UNIFORM)
        normal: Tensor = torch.special.ndtri(torch.from_numpy(uniform))
        return normal.to(like_RMV)


Weights = Callable[[Tensor, Layout, Draw], Tensor]
"""(theta_RP, layout, draw) -> theta_RP of the behavior engine; gradients pass straight through roundings."""

Distribution = Callable[[Tensor, Draw, int], Tensor]
"""(log_pi [R, places, V], draw, tick) -> log mu of the same shape, normalized over V; -inf where mu is 0."""


Forward = Callable[[Policy, Draw], Policy]
"""(policy, draw) -> a policy with another forward pass in `sample` and `logp`."""


@dataclass(frozen=True)
class SamplerEngine:
    """An engine: its changes to weights, then to the forward pass and the next-token distribution.

    None changes nothing.

    fresh: the distribution draws separate noise for each sequence. past: optimizer steps by which
    `draw.past_RP` is older than the weights; 0 for engines that read none. raw: recorded log mu is that
    before `distribution` changes it.
    """

    name: str
    weights: Weights | None = None
    distribution: Distribution | None = None
    fresh: bool = False
    forward: Forward | None = None
    past: int = 0
    raw: bool = False


mismatch = Registry("mismatch", "testbed.mismatch", level="weights", support="full", identity=None)


def engine(name: str, **hyper: Scalar) -> SamplerEngine:
    """Return a registered engine, or several composed if "+" joins names: "fp8-block+fp8-activations".

    A hyperparameter is passed to every engine among them that has it.

    Raises UserError for an unknown name, hyperparameter or value.
    """
    parts = [mismatch[part] for part in name.split("+")]
    if len(parts) == 1:
        made: SamplerEngine = parts[0].bind(**hyper)()
        return made
    known = {argument for part in parts for argument in part.defaults}
    if strange := sorted(set(hyper) - known):
        raise UserError(f"'{name}' has no hyperparameter '{strange[0]}'. It has: {', '.join(sorted(known))}.")
    own = [{key: hyper[key] for key in part.defaults if key in hyper} for part in parts]
    return compose(*(part.bind(**given)() for part, given in zip(parts, own, strict=True)))


def compose(*engines: SamplerEngine) -> SamplerEngine:
    """Return the engine that changes weights, then forward passes, then distributions, in the given order."""
    changes = [(part, e.weights) for part, e in enumerate(engines) if e.weights is not None]
    outputs = [(part, e.distribution) for part, e in enumerate(engines) if e.distribution is not None]
    passes = [(part, e.forward) for part, e in enumerate(engines) if e.forward is not None]

    def weights(theta_RP: Tensor, layout: Layout, draw: Draw) -> Tensor:
        for part, change in changes:
            theta_RP = change(theta_RP, layout, replace(draw, part=part))
        return theta_RP

    def distribution(log_pi_RMV: Tensor, draw: Draw, tick: int) -> Tensor:
        for part, change in outputs:
            log_pi_RMV = change(log_pi_RMV, replace(draw, part=part), tick)
        return log_pi_RMV

    def forward(policy: Policy, draw: Draw) -> Policy:
        for part, change in passes:
            policy = change(policy, replace(draw, part=part))
        return policy

    return SamplerEngine(
        name="+".join(e.name for e in engines) or "off",
        weights=weights if changes else None,
        distribution=distribution if outputs else None,
        fresh=any(e.fresh for e in engines),
        forward=forward if passes else None,
        past=max((e.past for e in engines), default=0),
        raw=any(e.raw for e in engines),
    )


Change = Callable[[str, Tensor], Tensor]
"""(name, matrix [R, rows, columns]) -> the changed matrix."""

WHICH = ("linear", "all")
NOT_LINEAR = ("embed", "head", "wte", "wpe")


def by_matrix(theta_RP: Tensor, layout: Layout, which: str, change: Change) -> Tensor:
    """Return theta with `change` applied to each matrix; vectors (norms, biases) are unchanged.

    which: "linear" omits embeddings and the head, the default of low-precision rollouts; "all" uses every
    matrix. Rows are outputs in the toy transformer, in Llama and Qwen; GPT-2 stores the transpose.

    Raises UserError for another `which` and for a layout that does not fit theta.
    """
    if which not in WHICH:
        raise UserError(f"matrices is '{which}'; expected {' or '.join(WHICH)}.")
    sizes = [int(np.prod(shape)) for shape in layout.values()]
    if sum(sizes) != theta_RP.shape[-1]:
        raise UserError(f"theta has {theta_RP.shape[-1]} weights, but its layout describes {sum(sizes)}.")
    parts = []
    for (name, shape), part in zip(layout.items(), theta_RP.split(sizes, -1), strict=True):
        skipped = len(shape) != 2 or (which == "linear" and any(word in name for word in NOT_LINEAR))
        parts.append(part if skipped else change(name, part.unflatten(-1, shape)).flatten(-2))
    return torch.cat(parts, -1)


@mismatch("off", source="the trainer itself", level="none", identity={})
def off() -> SamplerEngine:
    """mu = pi: no mismatch."""
    return SamplerEngine("off")


@mismatch("raw", source="vLLM's logprobs_mode=raw_logprobs", level="none", identity={})
def raw() -> SamplerEngine:
    """Record log pi before temperature, top-p or noise of the joined engines: "temperature+raw".

    Alone it changes nothing. Without it log mu is that of the sampled distribution ("processed").
    """
    return SamplerEngine("raw", raw=True)
