"""Engines with other weights at full precision: skipped layers, noise per layer, older parts."""

import re

import numpy as np
import torch
from torch import Tensor

from testbed.errors import UserError
from testbed.mismatch import Draw, SamplerEngine, by_matrix, mismatch
from testbed.policies.policy import Layout

LAYER = re.compile(r"(?:^|\.)(?:layers|h)\.(\d+)\.")
RESIDUAL = re.compile(r"\.(?:out|down|o_proj|down_proj|c_proj)(?:\.weight|\.bias)?$")
"""Names of a block's contributions to the residual stream: without them the block is the identity. Toy
transformer, Llama, Qwen and GPT-2."""


def layer_of(name: str) -> int | None:
    """Return the number of the block that a weight belongs to, None outside the blocks."""
    found = LAYER.search(name)
    return int(found[1]) if found else None


@mismatch(
    "skip-layers",
    source="Nested-ReFT, arXiv:2508.10123 (abstract; which layers may be skipped is not stated: here all)",
    identity={"ratio": 0.0}, stochastic=True, needs=("layers",),
)  # fmt: skip
def skip_layers(*, ratio: float = 0.25, redraw: bool = True) -> SamplerEngine:
    """mu is the policy without round(ratio L) of its L blocks, drawn anew for every batch.

    All sets of that many blocks are equally likely; a ratio above 0 that skips none is refused. redraw=False
    keeps one set for the whole run. At most 1 / (1 - ratio) times the tokens per second, if blocks take all
    the decoding time.
    """
    if not 0 <= ratio <= 1:
        raise UserError(f"ratio is {ratio}, the share of skipped layers; expected 0 to 1.")

    def weights(theta_RP: Tensor, layout: Layout, draw: Draw) -> Tensor:
        layers = 1 + max((n for name in layout if (n := layer_of(name)) is not None), default=-1)
        if layers == 0 or not any(RESIDUAL.search(name) for name in layout):
            raise UserError(
                "skip-layers needs a transformer with known blocks (toy, Llama, Qwen, GPT-2); this "
                f"policy has {', '.join(list(layout)[:3])}."
            )
        count = skipped(ratio, layers)
        if count == 0:
            return theta_RP
        skipped_RK = torch.from_numpy(drawn_layers(draw, layers, count, redraw)).to(theta_RP.device)
        parts = []
        sizes = [int(np.prod(shape)) for shape in layout.values()]
        for name, part in zip(layout, theta_RP.split(sizes, -1), strict=True):
            layer = layer_of(name)
            if layer is not None and RESIDUAL.search(name):
                part = torch.where(skipped_RK[:, layer, None], torch.zeros_like(part), part)
            parts.append(part)
        return torch.cat(parts, -1)

    return SamplerEngine("skip-layers", weights)


def skipped(ratio: float, layers: int) -> int:
    """Return round(ratio L), the number of skipped layers; raise UserError if a ratio above 0 skips none."""
    count = round(ratio * layers)
    if ratio > 0 and count == 0:
        raise UserError(
            f"ratio {ratio:g} of {layers} layers skips none, so that the engine would be the policy itself; "
            f"give a ratio of {1 / layers:g} or more, or a deeper policy."
        )
    return count


def drawn_layers(draw: Draw, layers: int, count: int, redraw: bool = True) -> np.ndarray:
    """Return the skipped layers of this batch, bool [R, L], `count` in each row."""
    uniform_RK = draw.of_batch(redraw).uniform("skip-layers", 0, 1, layers)[:, 0]
    rank_RK = uniform_RK.argsort(-1, kind="stable").argsort(-1)
    skipped: np.ndarray = rank_RK < count
    return skipped


@mismatch(
    "layer-noise",
    source="stand-in for ALP, arXiv:2603.19470: there noise is on hidden states and on the numerator's side",
    identity={"sigma": 0.0},
    stochastic=True,
)
def layer_noise(
    *, sigma: float = 0.01, scales: tuple[float, ...] = (), redraw: bool = False, matrices: str = "linear"
) -> SamplerEngine:
    """W_mu = W + sigma scale_l rms(W) N(0, 1), fixed for the run; redraw=True draws anew for every batch.

    scales: one factor per block; blocks past its end and weights outside blocks have 1. (1, 0, 0) perturbs
    only the first of three blocks, and what is outside.
    """
    if not sigma >= 0:
        raise UserError(f"sigma is {sigma}, a standard deviation relative to the weights; expected >= 0.")

    def weights(theta_RP: Tensor, layout: Layout, draw: Draw) -> Tensor:
        if sigma == 0:
            return theta_RP
        stream = draw.of_batch(redraw)

        def change(name: str, w_RIJ: Tensor) -> Tensor:
            layer = layer_of(name)
            scale = scales[layer] if layer is not None and layer < len(scales) else 1.0
            noise_RIJ = stream.normal(f"layer-noise/{name}", 0, w_RIJ)
            rms_R11 = w_RIJ.detach().square().mean((-2, -1), keepdim=True).sqrt()
            return w_RIJ + sigma * scale * rms_R11 * noise_RIJ

        return by_matrix(theta_RP, layout, matrices, change)

    return SamplerEngine("layer-noise", weights)


@mismatch(
    "stale-copy",
    source="weight synchronization that misses tensors; landscape of rollout-trainer mismatch reports",
    needs=("past",),
)
def stale_copy(*, matrices: str = "all", age: int = 1) -> SamplerEngine:
    """theta_mu = an older version's weights on the chosen matrices, `draw.past_RP`; the rest is current.

    "linear" keeps embeddings, head and vectors current; "all" makes every matrix older. A wholly older
    version would be lag, not mismatch. age: optimizer steps by which it is older, in training.
    """
    if age < 1:
        raise UserError(f"age is {age}, the optimizer steps by which the copy is older; expected at least 1.")

    def weights(theta_RP: Tensor, layout: Layout, draw: Draw) -> Tensor:
        if draw.past_RP is None or draw.past_RP.shape != theta_RP.shape:
            given = None if draw.past_RP is None else tuple(draw.past_RP.shape)
            raise UserError(f"stale-copy reads past_RP, which is {given}; expected {tuple(theta_RP.shape)}.")
        found: list[Tensor] = []

        def note(_name: str, w_RIJ: Tensor) -> Tensor:
            found.append(w_RIJ)
            return w_RIJ

        by_matrix(draw.past_RP, layout, matrices, note)
        past = iter(found)
        return by_matrix(theta_RP, layout, matrices, lambda _name, _w_RIJ: next(past))

    return SamplerEngine("stale-copy", weights, past=age)
