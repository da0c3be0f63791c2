"""Batch-size invariance: the same samples in 4 or 16 times as many smaller batches, with all else rescaled.

First by plain gradient descent on bandits, then with Adam in the toy LLM, on fresh data and on data of a
fixed age in samples. Margins were set before the tables were made. Worlds, learning rates and passes were
chosen on other seeds, where smaller batches learned faster with Adam at rate / sqrt(c). The toy LLM's batches
are divided into whole groups, so that an advantage means the same in each.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.lab import Experiment, Frame, Groups, Plot, Stop
from analysis.sweeps.base_runs import SMALL
from testbed.config.run import Arguments, Run, grid

PARTS_OF_ALL = (1, 4, 16)
HELD: Arguments = (("decay", 0.8),)
COUPLED = Run(
    task="bandit", task_args=(("contexts", 24),), recipe="decoupled", recipe_args=(("passes", 4),),
    prompts=192, group=8, steps=40, learning_rate=120.0, log_every=2, anchor="recompute",
)  # fmt: skip
"""On-policy PPO on 24 bandits of ten Bernoulli arms, 64 pulls of each per batch; rate and passes come from a
first design with eight bandits. The anchor is the start of the step, so the clip region shrinks with the
batch."""
DECOUPLED = replace(COUPLED, anchor="ewma", anchor_args=HELD)
EWMA = "Hilton, Cobbe & Schulman (2021), Batch size-invariance for policy optimization, arXiv:2110.00641"
SAME = 0.01
"""Largest change of the mean value over training that still counts as invariant: one point."""
VALUE, DECAY = "mean exact/value", "anchor_args.decay"


def descent_cells() -> tuple[Run, ...]:
    """PPO, and PPO-EWMA with a rescaled or fixed decay; three batch sizes, rescaled rates, 32 seeds."""
    from testbed.anchors.rescale import smaller_batches

    arms = [smaller_batches(run, parts) for run in (COUPLED, DECOUPLED) for parts in PARTS_OF_ALL]
    arms += [replace(smaller_batches(DECOUPLED, parts), anchor_args=HELD) for parts in PARTS_OF_ALL[1:]]
    return tuple(cell for arm in arms for cell in grid(arm, seed=range(32)))


def arm_names(table: Frame) -> pd.Series:
    """Return whether a row belongs to PPO, or to PPO-EWMA with the original or the rescaled decay."""
    held = (table[DECAY] == dict(HELD)["decay"]).map({True: "PPO-EWMA, same decay", False: "PPO-EWMA"})
    whole = table["prompts"] == COUPLED.prompts
    return held.mask(whole, "PPO-EWMA").mask(table["anchor"] == COUPLED.anchor, "PPO")


DESCENT = Experiment(
    "batch-invariance",
    question="Does PPO with an averaged anchor learn the same at every batch size?",
    source=EWMA,
    differs="24 bandits of ten arms in place of Procgen; plain gradient descent in place of Adam",
    cells=descent_cells,
    fresh=range(1000, 1032),
    keys=("anchor", "anchor_args.decay", "prompts", "seed"),
    metrics=("mean exact/value", "exact/value", "mean actor/clip_share_last_pass"),
    margins={"change of the mean value over training that counts as invariant": SAME},
    figure=Plot(
        "final by setting",
        x="prompts: prompts per batch, 8 responses each",
        y=f"{VALUE}: mean value over training",
        arm=("arm",),
        of=lambda table: table.assign(arm=arm_names(table)),
        also=({"y": "mean actor/clip_share_last_pass: clipped at the last pass (share)"},),
    ),
    systems={
        "Batch-size invariance (PPO-EWMA)": "whether other hyperparameters can make up for a change of "
        "batch size; not a better use of stale data"
    },
)


def curves(table: Frame) -> Groups:
    """Return PPO-EWMA's mean value at 1/4 and 1/16 of the batch, decay rescaled, minus that at the whole."""
    rows = table[table["anchor"] == "ewma"]
    largest = rows["prompts"] == rows["prompts"].max()
    whole = rows[largest].set_index("seed")[VALUE]
    small = rows[~largest & (rows[DECAY] != rows.loc[largest, DECAY].iloc[0])]
    groups = {}
    for prompts, group in small.groupby("prompts"):
        found = group.set_index("seed")[VALUE]
        groups[f"{prompts} prompts"] = (found - whole).dropna().to_numpy()
    return groups


DESCENT.claim(
    "ppo-ewma-is-batch-size-invariant",
    "With learning rate and decay rescaled, batches of a 4th and a 16th of the size change PPO-EWMA's mean "
    "value over training by less than 0.01 (of 0.80).",
    source=EWMA,
).equal(curves, within=SAME, typical="mean")


PARTS, BETA = (4, 16), "optimizer_args.beta1"
CURVE = "area"
AVERAGED = replace(
    SMALL, recipe="decoupled", anchor="ewma", anchor_args=HELD, prompts=16, steps=32, log_every=2,
    max_grad_norm=0.0, evaluation_prompts=128,
)  # fmt: skip
"""128 responses per batch, four passes. The gradient's norm is not clipped: it grows as a batch shrinks."""
OLD = replace(AVERAGED, lag=8)
"""Data 1,024 responses old."""
WHOLE = {
    "EWMA": AVERAGED,
    "PPO": replace(AVERAGED, anchor="recompute", anchor_args=()),
    "EWMA, old": OLD,
    "PPO, old": replace(OLD, anchor="behavior", anchor_args=()),
}


OTHERS = {
    "EWMA, same decay": PARTS, "EWMA, same betas": PARTS, "EWMA, same rate": PARTS[:1],
    "EWMA, rate / c": PARTS[:1],
}  # fmt: skip
"""One adjustment is left out or made differently."""
RATE_POWER = {"EWMA, same rate": 0.0, "EWMA, rate / c": 1.0}
"""Power of c by which the rate is divided, where it is not 1/2."""
ARMS = tuple((name, 1) for name in WHOLE) + tuple(
    (name, parts) for name in (*WHOLE, *OTHERS) for parts in OTHERS.get(name, PARTS)
)


def adam_cells() -> tuple[Run, ...]:
    """PPO-EWMA and PPO at three batch sizes on fresh and old data; PPO-EWMA with one adjustment left out."""
    from testbed.anchors.rescale import smaller_batches

    found = []
    for name, parts in ARMS:
        whole = WHOLE.get(name, AVERAGED)
        run = replace(smaller_batches(whole, parts), seed=0)
        if name in RATE_POWER:
            run = replace(run, learning_rate=whole.learning_rate / parts ** RATE_POWER[name])
        kept: dict[str, dict[str, Any]] = {
            "EWMA, same decay": {"anchor_args": HELD},
            "EWMA, same betas": {"optimizer_args": ()},
        }
        found.append(replace(run, **kept.get(name, {})))
    return tuple(found)


ADAM = Experiment(
    "batch-size-with-adam",
    question="With Adam in the toy LLM, does an averaged anchor make PPO indifferent to its batch size?",
    source=EWMA,
    differs="a transformer of 7,000 weights, sums of 6 digits; 4,096 responses; one rate for all; advantages "
    "are standardized in groups, not by an average over batches",
    cells=adam_cells,
    stop=Stop(cap=32, begun_with=24),
    keys=("anchor", "lag", "prompts", DECAY, BETA, "learning_rate", "seed"),
    metrics=("accuracy", CURVE, "collapsed", "mean actor/clip_share_last_pass"),
    margins={"change of the mean accuracy along the run that counts as invariant": SAME},
    figure=Plot(
        "curves by arm",
        x="parts: batches in place of one",
        y=f"{CURVE}: mean accuracy along the run",
        arm=("arm",),
        panel="age",
        log="x",
        of=lambda table: pd.concat(
            rows_of(table, name, parts).assign(
                parts=parts, arm=name.removesuffix(", old"), age="old data" if "old" in name else "fresh data"
            )
            for name, parts in ARMS
        ),
        says="Shows mean accuracy along a run on sums of six digits, by the number of smaller batches that "
        "replace one of 128 responses; the samples in all are equal, fresh or 1,024 responses old; PPO "
        "clips around the policy that wrote the data, EWMA around a moving average of the weights; for "
        "batches c times smaller, Adam's rate is divided by the root of c, and its betas and the average's "
        "decay are adapted, except where the legend says that decay, betas or rate stay or that the rate is "
        "divided by c.",
    ),
    systems={
        "Batch-size invariance (PPO-EWMA)": "from 128 down to 8 responses, where more and smaller steps "
        "still learn faster at rate / sqrt(c); betas become beta^(1/c), as this project reads the source, "
        "whose own formula was not at hand; for plain gradient descent see batch-invariance"
    },
)


def rows_of(table: Frame, name: str, parts: int) -> Frame:
    whole = WHOLE.get(name, AVERAGED)
    rate = whole.learning_rate / parts ** RATE_POWER.get(name, 0.5)
    wanted = {"anchor": whole.anchor, "prompts": whole.prompts // parts, "lag": whole.lag * parts}
    here = np.isclose(table["learning_rate"], rate, rtol=1e-3)
    for column, value in wanted.items():
        here &= table[column] == value
    if whole.anchor == "ewma":
        here &= np.isclose(table[DECAY], dict(HELD)["decay"]) == (parts == 1 or name == "EWMA, same decay")
    # An argument that a run leaves out is missing in the table.
    return table[here & (table[BETA].isna() == (parts == 1 or name == "EWMA, same betas"))]


def _curve(table: Frame, name: str, parts: int) -> pd.Series:
    """Return the mean accuracy along an arm's run, by seed."""
    return rows_of(table, name, parts).set_index("seed")[CURVE].sort_index()


def changes(table: Frame) -> dict[str, pd.Series]:
    """Return PPO-EWMA's mean accuracy at smaller batches minus that at the whole batch, by seed."""
    whole = _curve(table, "EWMA", 1)
    return {f"1/{parts}": (_curve(table, "EWMA", parts) - whole).dropna() for parts in PARTS}


ADAM.claim(
    "ppo-ewma-with-adams-betas-rescaled-is-batch-size-invariant",
    "In the toy LLM on fresh data, with Adam's rate divided by sqrt(c), and its betas and the average's "
    "decay rescaled, batches of a 4th and a 16th of the size change PPO-EWMA's mean accuracy along the run "
    "by less than 0.01, in the median over seeds.",
).equal(changes, within=SAME)


FEW_ARMS = tuple((name, parts) for name in ("EWMA", "EWMA, same betas") for parts in PARTS)


def few_cells() -> tuple[Run, ...]:
    """PPO-EWMA on 32 and on 8 responses a batch, with Adam's betas rescaled or as they are."""
    return tuple(cell for arm, cell in zip(ARMS, adam_cells(), strict=True) if arm in FEW_ARMS)


BELOW = Experiment(
    "batch-size-below-32",
    question="Where batches are small already, does PPO-EWMA with Adam learn the same from smaller ones?",
    source=EWMA,
    differs="as in batch-size-with-adam",
    cells=few_cells,
    stop=Stop(block=32, cap=1024, first=300, fresh=3000),
    keys=("anchor", "lag", "prompts", DECAY, BETA, "learning_rate", "seed"),
    metrics=("accuracy", CURVE),
    margins={"change of the mean accuracy along the run that counts as invariant": SAME},
    figure=Plot(
        "final by setting",
        x="prompts: prompts per batch, 8 responses each",
        y=f"{CURVE}: mean accuracy along the run",
        arm=("arm",),
        of=lambda table: table.assign(
            arm=table[BETA].isna().map({True: "same betas", False: "betas rescaled"})
        ),
        says="Shows mean accuracy along a run on sums of six digits, by prompts per batch, for as many "
        "samples in all: PPO-EWMA with Adam's rate divided by the root of c and the average's decay "
        "adapted to batches c times smaller, and Adam's betas adapted as well or as they are.",
    ),
    systems={"Batch-size invariance (PPO-EWMA)": "32 and 8 responses a batch, of one run of 4,096"},
)


def quarter(table: Frame) -> pd.Series:
    """Return PPO-EWMA's mean accuracy at 8 responses a batch minus that at 32, by seed."""
    return (_curve(table, "EWMA", 16) - _curve(table, "EWMA", 4)).dropna()


BELOW.claim(
    "ppo-ewma-with-adam-is-invariant-from-32-to-8-responses",
    "In the toy LLM on fresh data, a quarter of 32 responses a batch, with Adam's rate halved and its betas "
    "and the average's decay rescaled, changes PPO-EWMA's mean accuracy along the run by less than 0.01, in "
    "the median over seeds.",
).equal(quarter, within=SAME)
