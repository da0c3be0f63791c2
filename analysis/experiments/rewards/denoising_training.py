"""GRPO on a proxy over denoising steps, with averaged ratios or GRPO-Guard's normalized ones; both tuned."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from analysis.kernels.on_use import torch
from analysis.kernels.step_ratios import log_ratios
from analysis.lab import Experiment, Frame, Groups, Plot, Rows, Seeds, of_seeds, runs_of
from analysis.worlds.pilots import Grid, TunedArms, ask, asks, inside
from envs.arrays import Floats
from testbed.rng import generator

NAME = "denoising-training"
SEEDS, PILOTS, FRESH, STEPS, DIMS, BATCH, PASSES, BATCHES, EVERY = 32, 16, 680_000, 8, 1024, 32, 4, 60, 6
SIGMA_T = np.linspace(1.0, 0.1, STEPS)
BEND = 0.05
"""Decrease of the gold reward with the squared sideways distance."""
MARGIN, OFTEN = 0.05, 0.05
"""Margins: gold as a share of the proxy's or the other arm's; shares of clipped samples. Pre-set."""
RATES, BOUNDS = (tuple(2.0**i for i in range(*ends)) for ends in ((-13, -4), (-15, -3)))
GRID: Grid = {"rate": RATES, "bound": BOUNDS}
STARTS = tuple({"rate": 2.0**i, "bound": 2.0**j} for i, j in ((-10, -7), (-8, -10), (-7, -13)))
RATIOS: dict[str, Grid] = {"averaged": GRID, "normalized": GRID}


def trained(
    seeds: Seeds, ratio: str, rate: float, bound: float
) -> Iterator[tuple[int, Floats, Floats, Floats, Floats]]:
    """Yield batch, proxy, gold, and the shares of A > 0 clipped above, A < 0 below, at the last step, [R].

    The policy is a drift for each step; a sample is the sum of its steps. Proxy: along (e1 + e2) / sqrt 2.
    Gold: along e1, minus BEND / 2 times the squared sideways distance. Both are evaluated at the mean sample.
    """
    from testbed.data.batch import Batch
    from testbed.objectives.clipped.ppo_clip import ppo_clip
    from testbed.policies.optimizers import Adam

    R, sigma_T = len(seeds), torch.from_numpy(SIGMA_T)
    rngs = [generator(int(seed) + FRESH, NAME) for seed in seeds]
    drift_RX = torch.zeros(R, STEPS * DIMS, dtype=torch.float64)
    optimizer, rate_R = Adam(drift_RX), torch.full((R,), rate, dtype=torch.float64)
    shape = (R, BATCH, STEPS)
    for batch in range(1, BATCHES + 1):
        noise = torch.from_numpy(np.stack([rng.normal(size=(BATCH, STEPS, DIMS)) for rng in rngs]))
        noisy_RB = (sigma_T * noise[..., :2].sum(-1)).sum(-1)
        # The proxy's mean and scale cancel in the advantage.
        adv_RB = (noisy_RB - noisy_RB.mean(-1, keepdim=True)) / noisy_RB.std(-1, keepdim=True)
        given = Batch(
            torch.zeros(shape, dtype=torch.float64), adv_RB[..., None].expand(shape),
            torch.ones(shape, dtype=torch.bool), noisy_RB, torch.zeros(R, BATCH, dtype=torch.int64),
        )  # fmt: skip
        before_RX = drift_RX
        for _ in range(PASSES):
            leaf_RX = drift_RX.detach().requires_grad_()
            shift_RTD = (leaf_RX - before_RX).view(R, STEPS, DIMS)
            log_RBT = log_ratios(noise, shift_RTD, sigma_T, normalize=ratio == "normalized")
            loss_R = ppo_clip(log_RBT, given, eps_low=bound, eps_high=bound).mean((1, 2))
            (grad_RX,) = torch.autograd.grad(loss_R.sum(), leaf_RX)
            drift_RX = optimizer.step(drift_RX, grad_RX, rate_R)
        good_RB, last_RB = adv_RB > 0, log_RBT.detach()[..., -1].exp()
        above_R = ((last_RB > 1 + bound) & good_RB).sum(-1) / good_RB.sum(-1)
        below_R = ((last_RB < 1 - bound) & ~good_RB).sum(-1) / (~good_RB).sum(-1)
        far_RD = drift_RX.view(R, STEPS, DIMS).sum(1).numpy()
        gold_R = far_RD[:, 0] - BEND / 2 * (far_RD[:, 1:] ** 2).sum(-1)
        yield batch, far_RD[:, :2].sum(-1) / np.sqrt(2), gold_R, above_R.numpy(), below_R.numpy()


def final(seeds: Seeds, arm: str, rate: float, bound: float) -> Groups:
    """Return the gold reward after the last batch, [R]."""
    *_, (_, _, gold_R, _, _) = trained(seeds, arm, rate, bound)
    return {"gold": gold_R}


TUNED = TunedArms(RATIOS, final, "gold", PILOTS, starts=dict.fromkeys(RATIOS, STARTS))


def rows(seeds: Seeds) -> Rows:
    """Return the curves of training by kind of ratio, each at its best rate and bound on pilot seeds."""
    for ratio in RATIOS:
        knobs, end = TUNED.setting(ratio)
        for batch, *values in trained(seeds, ratio, **knobs):
            if batch % EVERY == 0:
                named = dict(zip(("proxy", "gold", "above", "below"), values, strict=True))
                said = {"arm": ratio, **knobs, "at end": int(end)}
                yield pd.DataFrame({"seed": seeds, **said, "batch": batch, **named})


EXPERIMENT = Experiment(
    question="Does normalizing the ratios of denoising steps end the over-optimization of a proxy?",
    source="GRPO-Guard (2025), arXiv:2510.22319",
    differs="Gaussian steps of 1,024 dimensions with a drift each in place of a diffusion model; an "
    "artificial gold reward, which still rises at the last of 60 batches: nothing is over-optimized; "
    "normalized ratios already give all steps gradients of one size, so steps are not reweighted",
    compute=of_seeds(NAME, rows, SEEDS, {"steps": STEPS, "dims": DIMS, "passes": PASSES, "pilots": PILOTS}),
    keys=("run", "seed", "arm", "batch"),
    metrics=("rate", "bound", "at end", "proxy", "gold", "above", "below"),
    margins={"gold reward over the proxy's": MARGIN, "share of hits": OFTEN},
    figure=Plot(
        "curves by arm", x="batch", y="gold", arm=("arm",), y_label="gold reward",
        says="Shows the true reward along training on a proxy by GRPO with a clip, where Gaussian denoising "
        "steps of 1,024 dimensions stand for a diffusion model; the log-ratio of a step is averaged over "
        "dimensions (averaged), or also centered and scaled alike at all steps (normalized), each at its "
        "best rate and clip bound.",
    ),
    systems={"GRPO-Guard": "the proxy is never over-optimized"},
)  # fmt: skip


def _hits(table: Frame, value: str = "below - above") -> Groups:
    """Lower clip's share minus the upper's with averaged ratios, mean over training, by run."""
    rows_ = table[table["arm"] == "averaged"]
    hits: Any = rows_.eval(value)
    mean = rows_.assign(hits=hits).groupby(["run", "seed"])["hits"].mean()
    return {run: mean[run].to_numpy() for run in runs_of(table)}


def _upper(table: Frame) -> Groups:
    """Minus the upper clip's share with averaged ratios, mean over training, by run."""
    return _hits(table, "-above")


asks(EXPERIMENT,
    ("the-upper-clip-never-fires-in-training", "With averaged ratios the upper clip cuts less than 0.05 of "
     "the samples with positive advantages at the last denoising step, in the mean over training.", None,
     None, {"by": -OFTEN, "outcome": _upper}),
    ("the-lower-clip-fires-more-often-in-training", "With averaged ratios the lower clip cuts at the last "
     "denoising step a share of the samples with negative advantages that is 0.05 larger than the share of "
     "positive ones that the upper clip cuts.", None, None, {"by": OFTEN, "outcome": _hits}),
    gates={"tuned": inside()},
)  # fmt: skip


def _at_equal_proxy(table: Frame) -> Groups:
    """Gold of normalized minus averaged ratios at the smaller of both final proxies, over that proxy."""
    found: dict[str, list[float]] = {}
    for (run, _), rows_ in table.groupby(["run", "seed"]):
        course = {name: x.sort_values("batch") for name, x in rows_.groupby("arm")}
        meet = min(x["proxy"].iloc[-1] for x in course.values())
        gold = {name: np.interp(meet, x["proxy"].cummax(), x["gold"]) for name, x in course.items()}
        found.setdefault(str(run), []).append((gold["normalized"] - gold["averaged"]) / meet)
    return {name: np.array(x) for name, x in found.items()}


ask(EXPERIMENT, "normalized-ratios-keep-more-gold-at-equal-proxy", "At the same proxy reward normalized "
    "ratios have more gold reward than averaged ones, by 0.05 of it.", by=MARGIN, outcome=_at_equal_proxy,
    gates={"tuned": inside()})  # fmt: skip
