"""PF-PPO in a toy LLM: which samples of a group to keep when the proxy tells little at middling scores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import special

from analysis.experiments.rewards.reward_filters import ranks
from analysis.lab import Experiment, Plot, Seeds, of_seeds
from analysis.sweeps.base_runs import SMALL
from analysis.tables.cell_table import value_of
from analysis.worlds.edited_training import Arm, Maker, best_rate, gained, trained
from envs.arrays import Floats, Ints

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch
    from testbed.data.rollout import Rollout

NAME = "filtered-training"
KEPT = ("all", "best", "best and worst", "best and random")
SEEDS, NOISE, COUNTED = 16, 0.5, 20
"""Deviation of the proxy where the gold is neither 0 nor 1; first steps whose kept samples give R^2."""
RATES = (3e-3, 1e-2)
MARGIN = 0.02
"""Gold reward, the share of right tokens before the first error. Set before the table was made."""
START = replace(
    SMALL, policy_args=(("heads", 2), ("layers", 1), ("width", 16)), steps=150, log_every=25,
    verifier="steps", recipe="grpo",
)  # fmt: skip


@dataclass
class Tally:
    """Weight, proxy and gold of the samples of the first steps, [3, R, B] a batch."""

    batches: list[Floats] = field(default_factory=list)

    def r2(self) -> list[float]:
        """R^2 of proxy and gold of the kept samples, a number per replica."""
        found = []
        for weight_N, proxy_N, gold_N in np.concatenate(self.batches, axis=-1).swapaxes(0, 1):
            both_22 = np.cov(np.stack([proxy_N, gold_N]), aweights=weight_N)
            found.append(float(both_22[0, 1] ** 2 / max(both_22[0, 0] * both_22[1, 1], 1e-12)))
        return found


def proxy_of(gold_RB: Floats, prompt_RBQ: Ints, token_RBT: Ints) -> Floats:
    """Return a reward model that knows 0 and 1 and errs between, always alike on the same answer, [R, B]."""
    from testbed.worlds.verifiers import fixed_uniform

    flat = (x.reshape(-1, x.shape[-1]) for x in (prompt_RBQ, token_RBT))
    drawn_RB = special.ndtri(np.clip(fixed_uniform(*flat), 1e-9, 1 - 1e-9)).reshape(gold_RB.shape)
    unsure_RB = np.clip(gold_RB + NOISE * drawn_RB, 0.1, 0.9)
    return np.where((gold_RB > 0) & (gold_RB < 1), unsure_RB, gold_RB)


def kept_of(proxy_RNG: Floats, keep: str, rng: np.random.Generator) -> Floats:
    """Return weights of the samples, G over the number kept of a group and 0 for others, [R, N, G]."""
    group = proxy_RNG.shape[-1]
    if keep == "all":
        return np.ones_like(proxy_RNG)
    eye_GG = np.eye(group)
    second = {
        "best": proxy_RNG.argmax(-1),
        "best and worst": proxy_RNG.argmin(-1),
        "best and random": rng.integers(0, group, proxy_RNG.shape[:-1]),
    }[keep]
    return np.asarray(group * (eye_GG[proxy_RNG.argmax(-1)] + eye_GG[second]) / 2)


def filtered(keep: str, tally: Tally) -> Maker:
    """Return what learns from the proxies of the kept samples, less their mean in the whole group."""

    def make(*_: Any) -> Any:
        import torch

        rng = np.random.default_rng(0)

        def change(batch: Batch, rollout: Rollout, _: Tensor, step: int) -> Batch:
            gold_RB = rollout.reward_RB.double().numpy()
            prompt_RBQ = rollout.prompt_RNQ.numpy().repeat(rollout.group, axis=1)
            proxy_RB = proxy_of(gold_RB, prompt_RBQ, rollout.token_RBT.numpy())
            proxy_RNG = proxy_RB.reshape(len(proxy_RB), -1, rollout.group)
            weight_RNG = kept_of(proxy_RNG, keep, rng)
            if step < COUNTED:
                tally.batches.append(np.stack([weight_RNG.reshape(proxy_RB.shape), proxy_RB, gold_RB]))
            adv_RNG = weight_RNG * (proxy_RNG - proxy_RNG.mean(-1, keepdims=True))
            adv_RB1 = torch.from_numpy(adv_RNG.reshape(proxy_RB.shape)).to(batch.adv_BT)[..., None]
            return replace(batch, adv_BT=adv_RB1.expand_as(batch.adv_BT))

        return change

    return make


@cache
def rates() -> dict[str, float]:
    """Return every filter's rate, by gold reward on tuning seeds."""
    return {keep: best_rate(Arm(START, filtered(keep, Tally()), rates=RATES), "val/proxy") for keep in KEPT}


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return R^2 of the samples kept at first, and gold reward and accuracy at the end, by filter."""
    for keep in KEPT:
        tally, runs = Tally(), tuple(replace(START, seed=int(s), learning_rate=rates()[keep]) for s in seeds)
        found = trained(Arm(START, filtered(keep, tally)), runs)
        ends = {
            name: [value_of(cell, metric) for _, cell in found.groupby("cell", sort=False)]
            for name, metric in (("gold", "val/proxy"), ("accuracy", "accuracy"))
        }
        yield pd.DataFrame({"seed": seeds, "kept": keep, "rate": rates()[keep], "r2": tally.r2(), **ends})


EXPERIMENT = Experiment(
    NAME,
    question="In a toy LLM, does R^2 of the kept samples tell which filter ends with the most gold?",
    source="Shen and Zhang (2024), PF-PPO, arXiv:2409.06957",
    differs=(
        "a transformer of 4,000 weights on running sums; a made proxy that is right at 0 and 1 and noisy "
        "between; the group's mean in place of a critic"
    ),
    compute=of_seeds(
        NAME, rows, SEEDS, {"noise": NOISE, "steps": START.steps, "rates": "of 3, each its best"}
    ),
    keys=("run", "seed", "kept"),
    metrics=("rate", "r2", "gold", "accuracy"),
    margins={"gold reward": MARGIN, "rank correlation": 0.0},
    figure=Plot("distribution", x="kept", y="gold", x_label="samples kept of eight", y_label="gold reward"),
    systems=("PF-PPO",),
)

EXPERIMENT.claim(
    "best-and-worst-wins-in-a-toy-llm",
    statement=(
        "Best and worst end with 0.02 more gold reward than best, best and random, and all samples, in the "
        "median."
    ),
)(
    partial(
        gained, by="kept", value="gold", margin=MARGIN,
        pairs=tuple(("best and worst", other) for other in KEPT if other != "best and worst"),
    )
)  # fmt: skip


EXPERIMENT.claim(
    "r2-ranks-the-filters-in-a-toy-llm",
    statement="Over the four filters the rank correlation of R^2 and the final gold reward is positive.",
)(ranks)
