"""Does a larger model tolerate older data? The arena's sums with 7 thousand to 10 million weights."""

from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.arena.tasks import TASKS
from analysis.lab import Experiment, Frame, Plot, Stop, Tuned
from analysis.sweeps.tuning import at_rates, rates_around
from analysis.tables.cell_table import arms_of
from testbed.config.run import Run

OLD, MARGIN = 64, 0.05
"""Lag in optimizer steps; margin of accuracy."""
END, AREA = "accuracy", "mean accuracy"
CLIP, DRIFT = "mean actor/clip_share", "mean rollout_corr/kl_mu_pi_k3"
CENTER = {16: 1e-3, 56: 1e-3, 208: 3e-4, 656: 1e-4}
"""Width -> the middle of five rates half a decade apart. Pilots of one seed set the first three."""
WEIGHTS = {width: 24 * width**2 + 50 * width for width in CENTER}
"""Two blocks of 12 width^2; 50 rows or columns of embeddings, positions and head."""
SIZES_SAID = ("7 thousand", "78 thousand", "a million", "10 million")
SAID = dict(zip(map(str, WEIGHTS.values()), SIZES_SAID, strict=True))
JUDGED = (16, 56, 208)
"""Widths that fresh seeds judge, on a CPU; all four were tuned on a GPU."""
LEAST, MOST = min(JUDGED), max(JUDGED)
COMMON = 3e-4
"""Learning rate at which clip shares are compared."""
ARMS = {
    "GRPO": Run(recipe="grpo", recipe_args=(("eps_high", 0.2), ("eps_low", 0.2))),
    "GRPO, wide clip": Run(recipe="grpo", recipe_args=(("eps_high", 3.0), ("eps_low", 0.9))),
    "VCPO": Run(recipe="vcpo", recipe_args=(("cap", 8),)),
}
GRPO, WIDE, VCPO = arms_of(ARMS, ARMS.values(), ("recipe", "recipe_args")).values()
TRIED = sorted({rate for center in CENTER.values() for rate in rates_around(center, 2, 2)})
CALLED = ("fresh data", *ARMS)
KEYS = ("policy_args", "recipe", "recipe_args", "lag")


def sized(width: int, arm: Run, lag: int) -> Run:
    """Return the arena's run on sums of sixteen digits, at a width."""
    base = replace(TASKS["sums"], policy_args=(("width", width),), lag=lag)
    return replace(base, recipe=arm.recipe, recipe_args=arm.recipe_args)


def arms(width: int) -> tuple[Run, ...]:
    """Return GRPO on fresh data, where its clip does nothing, and three recipes at lag 64."""
    return (sized(width, ARMS["GRPO"], 0), *(sized(width, arm, OLD) for arm in ARMS.values()))


def at_every_rate() -> tuple[Run, ...]:
    """Every arm at five rates around the middle of its width's, on 2 tuning seeds."""
    return tuple(
        replace(run, device="cuda")
        for width, rate in CENTER.items()
        for run in at_rates(arms(width), rates_around(rate, 2, 2))
    )


def weighed(table: Frame) -> Frame:
    """Return the table with the number of weights and the labels of arms."""
    width = table["policy_args"].str.removeprefix("width=").astype(int)
    called = pd.Series("fresh data", index=table.index)
    for name, columns in zip(ARMS, (GRPO, WIDE, VCPO), strict=True):
        here = (table[list(columns)] == pd.Series(columns)).all(axis=1) & (table["lag"] == OLD)
        called[here] = name
    return table.assign(weights=width.map(WEIGHTS), called=called)


def at(width: int) -> dict[str, str]:
    """Return the column that identifies a width."""
    return {"policy_args": f"width={width}"}


RATES = Experiment(
    "size-rates",
    question="Which learning rate suits a recipe on data 64 steps old, by the model's size?",
    source="design of this project: rates are chosen before arms are compared",
    cells=at_every_rate, keys=(*KEYS, "learning_rate", "seed"),
    metrics=(END, "last accuracy", AREA, CLIP, DRIFT),
    figure=Plot(
        "final by setting", x="learning_rate: learning rate", y=f"{END}: final accuracy", of=weighed,
        arm=("called: ",), panel="weights", panel_label="weights:",
        names={
            **{size: f"{said} weights" for size, said in SAID.items()},
            **{f"{rate:g}": f"{1.02 * rate:.0e}".replace("e-0", "e-") for rate in TRIED},
        },
        log="x",
    ),
)  # fmt: skip

SIZES = Experiment(
    "model-size",
    question="Does a model of more weights lose less to data 64 steps old?",
    source="Asynchronous RLHF (Noukhovitch et al. 2024), arXiv:2410.18252: larger policies bear older data",
    differs="the arena's sums, a toy transformer of two layers of which only the width changes; 200 steps "
    "for every size; the base model's learning rate falls with its width, so that all begin right on about "
    "1 %",
    cells=lambda: tuple(run for width in JUDGED for run in arms(width)),
    tuned=Tuned(table="size-rates"), stop=Stop(block=8, cap=32, first=500, fresh=5000), keys=(*KEYS, "seed"),
    metrics=(END, "rise accuracy", "last accuracy", AREA, "collapsed", CLIP, DRIFT),
    margins={"accuracy that counts": MARGIN},
    figure=Plot(
        "final by setting", x="weights: weights of the model", y=f"{END}: final accuracy", of=weighed,
        arm=("called: ",), names=SAID, log="x",
        also=({"y": f"{AREA}: mean accuracy over training"}, {"y": f"{DRIFT}: mean KL of a token (nats)"}),
        says="Shows the arena's sums after 200 steps, on fresh data with GRPO and on data 64 steps old, by "
        "the model's size, each at its best of five rates.",
    ),
)  # fmt: skip


def lost(table: Frame, width: int, outcome: str) -> pd.Series:
    """Return the loss of an outcome to lag 64, for GRPO with a wide clip, by seed."""
    here = table[table["policy_args"] == f"width={width}"]
    fresh = here[here["lag"] == 0].set_index("seed")[outcome]
    old = here[(here["lag"] == OLD) & (here[list(WIDE)] == pd.Series(WIDE)).all(axis=1)]
    return fresh - old.set_index("seed")[outcome]


def spared(table: Frame, outcome: str) -> pd.Series:
    """Return the smallest model's loss minus the largest model's, by seed."""
    return (lost(table, LEAST, outcome) - lost(table, MOST, outcome)).dropna()


_ENDS, _WAY = "final accuracy", "mean accuracy over training"
for _name, _words, _outcome in (
    ("more-weights-lose-less-to-lag-64-at-the-end", _ENDS, END),
    ("more-weights-lose-less-to-lag-64-on-the-way", _WAY, AREA),
):
    SIZES.claim(
        _name,
        f"Lag 64 takes 0.05 less of the {_words} of GRPO, with a clip of 0.9/3, from a million weights "
        "than from seven thousand, each at its best rate, in the median over seeds.",
    ).compare(partial(spared, outcome=_outcome), by=MARGIN, typical="median")
for _name, _words, _outcome, _size, _width in (
    ("vcpo-gains-over-grpo-with-seven-thousand-weights-at-the-end", _ENDS, END, "seven thousand", LEAST),
    ("vcpo-gains-over-grpo-with-a-million-weights-at-the-end", _ENDS, END, "a million", MOST),
    ("vcpo-gains-over-grpo-with-seven-thousand-weights-on-the-way", _WAY, AREA, "seven thousand", LEAST),
    ("vcpo-gains-over-grpo-with-a-million-weights-on-the-way", _WAY, AREA, "a million", MOST),
):
    SIZES.claim(
        _name,
        f"At lag 64 VCPO's {_words} is 0.05 above that of GRPO with a clip of 0.9/3, each at its best rate, "
        f"with {_size} weights, in the median.",
    ).compare(_outcome, {**VCPO, "lag": OLD, **at(_width)}, {**WIDE, "lag": OLD, **at(_width)}, by=MARGIN)

SIZES.claim(
    "a-larger-model-is-clipped-less-at-its-best-rate",
    "At lag 64, each at its best rate, a clip of 0.2 touches a smaller share of the tokens of a million "
    "weights than of seven thousand, in the median.",
).compare(CLIP, {**GRPO, "lag": OLD, **at(MOST)}, {**GRPO, "lag": OLD, **at(LEAST)}, below=True)

CLIPS = Experiment(
    "clip-share-by-size",
    question="Does a clip of 0.2 touch fewer tokens of a larger model at the same rate and lag?",
    source="this project",
    differs="the arena's sums at lag 64 and a learning rate of 3e-4 for every size",
    cells=lambda: tuple(replace(sized(width, ARMS["GRPO"], OLD), learning_rate=COMMON) for width in JUDGED),
    stop=Stop(block=8, cap=32, first=500, fresh=5000), keys=("policy_args", "seed"),
    metrics=(END, "last accuracy", CLIP, DRIFT),
    figure=Plot(
        "final by setting", x="weights: weights of the model", y=f"{CLIP}: share of tokens beyond the clip",
        of=lambda table: table.assign(
            weights=table["policy_args"].str.removeprefix("width=").astype(int).map(WEIGHTS)
        ),
        names=SAID, log="xy", also=({"y": f"{DRIFT}: mean KL of a token (nats)"},),
    ),
)  # fmt: skip
CLIPS.claim(
    "a-larger-model-is-clipped-less-at-one-rate",
    "At lag 64 and a rate of 3e-4 a clip of 0.2 touches a smaller share of the tokens of a million weights "
    "than of seven thousand, in the median.",
).compare(CLIP, at(MOST), at(LEAST), below=True)
