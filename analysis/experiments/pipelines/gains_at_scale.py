"""Gain from splitting a pool by the model's size, where memory decides how many devices hold a copy.

A copy of the model takes m devices, a power of two. A pool that trains and generates in turn, as in
DeepSpeed-Chat, holds the trainer's states beside weights and cache. So its m is large, and every layer of
every token waits for an exchange over all m devices. A separate pool for generation needs a small m.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.lab import Experiment, Floats, Plot, Rows, Seeds, generator, key, of_seeds

if TYPE_CHECKING:
    from testbed.pipeline.design import Design

NAME = "gains-at-scale"
SEEDS, SHEETS = 32, 64
LAYOUTS = ["same", "own", "8 bits"]


@dataclass(frozen=True)
class Size:
    """A model like Llama 3: parameters, layers, bytes of cache per token; devices of the pool."""

    parameters: float
    layers: int
    cache: float
    devices: int


SIZES = {
    "8B": Size(8e9, 32, 131_072, 256),
    "70B": Size(70e9, 80, 327_680, 256),
    "405B": Size(405e9, 126, 516_096, 1024),
}
REPORTED = {"8B": 2.52, "70B": 3.98, "405B": 10.7}
"""Speed-ups reported by the source."""
BANDWIDTH, PEAK, NODE, WITHIN = 3.35e12, 989e12, 8, 10e-6
"""Bytes and operations per second of an H100, devices of a node, seconds of an exchange inside a node."""
STATES, STRETCH = 16, 4
"""Bytes per parameter of weights, gradients and Adam; ratio of the longest response to the mean."""
HOPS = {"fast": (4e-6, 8e-6), "middle": (10e-6, 20e-6), "slow": (20e-6, 40e-6)}
"""Extra seconds of an exchange for every doubling of nodes; not in the source, so drawn."""
MORE = 1.02
"""Ratio of gains that counts as more. Set before the table was made."""


@dataclass(frozen=True)
class Sheet:
    """Unknowns of a run: free bytes of a device, operations per second reached, seconds of an exchange per
    doubling of nodes, responses of a batch, and their mean length.
    """

    memory: float
    flops: float
    hop: float
    batch: int
    length: int

    @classmethod
    def at(cls, u_5: Floats, hop: tuple[float, float]) -> Sheet:
        """Return unknowns at a point of the unit cube; bands of exchanges differ in extra seconds alone."""
        lows, highs = np.array(
            [(60e9, 75e9), (0.3, 0.5), np.log(hop), np.log((512, 1536)), np.log((500, 1500))]
        ).T
        memory, share, *logs = lows + (highs - lows) * u_5
        hop_s, batch, length = np.exp(logs)
        return cls(memory, share * PEAK, hop_s, int(batch), int(length))

    def design(self, size: Size, m: int, width: int, training: int) -> Design:
        """Return the pipeline with copies of m devices and weights of `width` bytes; training 0: one pool."""
        from testbed.pipeline.design import Design

        exchange = (WITHIN if m > 1 else 0.0) + self.hop * math.log2(max(1, m / NODE))
        return Design(
            slots=self.batch,
            engines=(size.devices - training) // m,
            tau_0=width * size.parameters / (m * BANDWIDTH) + 2 * size.layers * exchange,
            tau_1=size.cache * self.length / (m * BANDWIDTH),
            length_mean=self.length,
            max_length=STRETCH * self.length,
            batch=self.batch,
            train_time=8 * size.parameters * self.batch * self.length
            / (self.flops * (training or size.devices)),
            pools="split" if training else "colocated",
            barrier=not training,
            admission="none" if training else "capacity",
        )  # fmt: skip

    def copies(self, size: Size, width: int, states: int) -> Iterator[int]:
        """Yield device counts of a copy that fit `states` bytes a parameter, weights and a batch's cache."""
        for m in (2**k for k in range(11)):
            engines = size.devices // m
            cache = size.cache * STRETCH * self.length * self.batch / max(1, engines)
            if engines and (states + width) * size.parameters + cache <= m * self.memory:
                yield m

    def gains(self, size: Size) -> dict[str, float]:
        """Return speed-ups over one pool, split at the best share, by layout of the generator's copies."""
        from testbed.pipeline import closed_forms

        joint = next(self.copies(size, 2, STATES))
        whole = closed_forms.synchronous_period(self.design(size, joint, 2, 0))
        layouts = {
            "same": (2, [joint]),
            "own": (2, [*self.copies(size, 2, 0)]),
            "8 bits": (1, [*self.copies(size, 1, 0)]),
        }
        return {
            name: whole / min(self.split(size, m, width) for m in choices)
            for name, (width, choices) in layouts.items()
        }

    def split(self, size: Size, m: int, width: int) -> float:
        """Return seconds per batch with separate pools, at the best of 13 shares for training.

        With a larger share generation takes longer and training less, so they are equal at the best share.
        """
        from testbed.pipeline import closed_forms

        def made(share: int) -> Design:
            return self.design(size, m, width, size.devices * share // 16)

        shares = [share for share in range(2, 15) if size.devices * (16 - share) // 16 >= m]
        if not shares:
            return math.inf
        cross = bisect.bisect_left(
            shares,
            True,
            key=lambda x: closed_forms.generation_time(made(x)) >= closed_forms.train_time(made(x)),
        )
        return min(closed_forms.streaming_period(made(x)) for x in shares[max(0, cross - 1) : cross + 1])


def points(seed: int) -> Floats:
    """Return a unit's samples of the unit cube [P, 5]: a random one and a scrambled Sobol net. Each of its
    points is uniform, and together they have less variance.
    """
    from scipy.stats import qmc

    net = qmc.Sobol(5, rng=key(seed, NAME)).random(SHEETS)
    return np.concatenate([generator(seed, NAME).random((1, 5)), net])


def rows(seeds: Seeds) -> Rows:
    """Yield geometric means of speed-ups over a unit's samples, by layout, size and band of exchanges."""
    for seed in seeds:
        frame = pd.DataFrame(
            {"seed": seed, "size": size, "hop": hop, **Sheet.at(u_5, band).gains(SIZES[size])}
            for u_5 in points(seed)
            for hop, band in HOPS.items()
            for size in SIZES
        )
        frame[LAYOUTS] = np.log(frame[LAYOUTS])
        means = frame.groupby(["seed", "size", "hop"], sort=False, as_index=False)[LAYOUTS].mean()
        means[LAYOUTS] = np.exp(means[LAYOUTS])
        yield means


EXPERIMENT = Experiment(
    question="Does what splitting a pool gains grow with the model, because memory spreads it over devices?",
    source="LlamaRL (2025), arXiv:2505.24034: 2.52, 3.98 and 10.7 times as fast at 8B, 70B and 405B",
    differs="closed forms with the data sheet of an H100; memory, efficiency, batch, lengths and the "
    "exchange between nodes are drawn; the slowdown that the source's code adds to its other layout is left "
    "out",
    compute=of_seeds(NAME, rows, SEEDS, {"reported": REPORTED, "sheets": SHEETS}),
    keys=("run", "seed", "size", "hop"), metrics=tuple(LAYOUTS),
    margins={"factor of gains that counts as more": MORE},
    figure=Plot(
        "final by setting", x="hop: exchange between nodes", y="8 bits: speed-up over one pool",
        arm=("size",),
        says="Shows how many times faster batches pass with separate pools for training and generation than "
        "with one pool that does both in turn, for three model sizes, by closed forms with an H100's data "
        "sheet and random batches, lengths and efficiencies; across: 4 to 8 (fast), 10 to 20 (middle) or 20 "
        "to 40 µs more per doubling of nodes; the generator's copies have a number of devices of their own, "
        "and weights of 8 bits.",
    ),
    systems=("LlamaRL",),
)  # fmt: skip

EXPERIMENT.claim(
    "the-gain-of-splitting-grows-with-the-model-where-exchanges-are-slow",
    "In this cost model a split pool, its generator laid out apart in 8 bits, gains 1.02 times more at 405B "
    "than at 70B, and than at 8B, where an exchange takes 20 to 40 µs longer per doubling of nodes.",
).compare("8 bits", {"size": "405B"}, {"size": ("8B", "70B")}, times=MORE, over={"hop": "slow"})

EXPERIMENT.claim(
    "splitting-gains-as-reported-at-405b",
    "In this cost model a split pool, its generator laid out apart in 8 bits, gains the reported 10.7 times "
    "at 405B, in every band of exchanges.",
).compare("8 bits", {"size": "405B"}, times=REPORTED["405B"], over={"hop": HOPS}, null=0.0)
