"""Does a larger model tolerate older data? Qwen2 of 250 thousand to 3 million weights."""

from dataclasses import replace
from functools import partial
from itertools import chain

import pandas as pd

from analysis.arena.foretold_runs import SIZES as SHORT
from analysis.lab import Experiment, Frame, Plot, Stop, Tuned, ask
from analysis.sweeps.tuning import at_rates, best_arguments
from analysis.tables.committed import load_committed
from analysis.worlds.hf_bases import Made, make
from testbed.config.run import Arguments, Run

OLD, MARGIN, SHARE = 64, 0.05, 0.1
"""Lag in optimizer steps; margins of accuracy and of shares of it."""
END, AREA = "accuracy", "mean accuracy"
CLIP, DRIFT = "mean actor/clip_share", "mean rollout_corr/kl_mu_pi_k3"
MODELS = {
    weights: Made(f"qwen2-{name}-running-sum-10", "running-sum", (("digits", 10),), "qwen2", 0.3, *taught)
    for weights, name, *taught in (
        (253_120, "250k", 600, 112),
        (1_008_000, "1m", 300, 224),
        (2_956_800, "3m", 400, 384),
    )
}
"""Two layers, by weights: name, steps of teaching, width. All are right on 3 %, as often as their teacher."""
SMALL, MIDDLE, LARGE = MODELS
WEIGHTS = {str(model.folder): weights for weights, model in MODELS.items()}
SAID = {f"{SMALL}": "250 thousand", f"{MIDDLE}": "a million", f"{LARGE}": "3 million"}
GRID = (3.75e-5, 7.5e-5, 1.5e-4, 3e-4, 6e-4)
NARROW: Arguments = (("eps_high", 0.2), ("eps_low", 0.2))
KNOBS: dict[str, tuple[Arguments, ...]] = {
    "grpo": (
        NARROW,
        *((("eps_high", high), ("eps_low", low)) for high, low in ((1, 0.5), (3, 0.9), (10, 0.99))),
    ),
    "reinforce": ((),),
    "importance": ((("cap", 2),), (("cap", 8),)),
}
"""Arguments tried for a recipe, beside its rate; REINFORCE is "importance" without its weights."""
CALLED = {
    ("grpo", 0): "fresh data", ("grpo", OLD): "GRPO", ("reinforce", OLD): "REINFORCE",
    ("importance", OLD): "with importance weights",
}  # fmt: skip
"""Name of an arm, by recipe and lag; on fresh data a clip does nothing."""
KEYS = ("model", "recipe", "recipe_args", "lag")


def each(weights: int, recipe: str, lag: int, arguments: Arguments) -> Run:
    """Return a run of a model: 144 steps of 12 responses."""
    return replace(MODELS[weights].run(**SHORT), recipe=recipe, recipe_args=arguments, lag=lag)


def at_every_setting() -> tuple[Run, ...]:
    """Every arm at five rates an octave apart and its knob's values, on 2 tuning seeds, by size."""
    runs = (
        each(weights, recipe, lag, arguments)
        for weights in MODELS
        for recipe, lag in CALLED
        for arguments in (KNOBS[recipe] if lag else (NARROW,))
    )
    return at_rates(runs, GRID, seeds=2)


def arms() -> tuple[Run, ...]:
    """Return GRPO on fresh data and three recipes at lag 64, each with its knob's best value, by size."""
    best = best_arguments(
        load_committed([RATES.name])[RATES.name].frame,
        ("model", "recipe", "lag"),
        END,
        chain(*KNOBS.values()),
    )
    return tuple(
        each(weights, recipe, lag, best[str(model.folder), recipe, lag])
        for weights, model in MODELS.items()
        for recipe, lag in CALLED
    )


def weighed(table: Frame) -> Frame:
    """Return the table with the number of weights and the labels of arms."""
    called = [CALLED[arm] for arm in zip(table["recipe"], table["lag"], strict=True)]
    return table.assign(weights=table["model"].map(WEIGHTS), called=called)


def best_clips(table: Frame) -> Frame:
    """Return tuning runs with each arm's best value of its knob at each rate, for the figure."""
    by = ["weights", "called", "learning_rate"]
    medians = weighed(table).groupby([*by, "recipe_args"], as_index=False)[END].median()
    return medians.groupby(by, as_index=False)[END].max()


RATES = Experiment(
    "size-rates",
    question="Which learning rate, clip and cap suit a recipe on data 64 steps old, by the model's size?",
    source="design of this project: settings are chosen before arms are compared",
    prepare=partial(make, MODELS.values()), cells=at_every_setting,
    keys=(*KEYS, "learning_rate", "seed"), metrics=(END, "last accuracy", AREA, CLIP, DRIFT),
    figure=Plot(
        "final by setting", x="learning_rate: learning rate (1e-5)", y=f"{END}: final accuracy",
        of=best_clips, arm=("called: ",), panel="weights", panel_label="weights:", log="x",
        names={
            **{size: f"{said} weights" for size, said in SAID.items()},
            **{f"{rate:g}": f"{1e5 * rate:g}" for rate in GRID},
        },
    ),
)  # fmt: skip

SIZES = Experiment(
    "model-size",
    question="Does a model of more weights lose less to data 64 steps old?",
    source="Asynchronous RLHF (Noukhovitch et al. 2024), arXiv:2410.18252: larger policies bear older data",
    differs="Qwen2 models of two layers of which only the width changes, taught running sums of ten digits "
    "until right on 3 %; 144 steps of 12 responses; each arm at its best of five rates, GRPO of four clips, "
    "importance weights of two caps",
    prepare=partial(make, MODELS.values()), cells=arms, tuned=Tuned(table=RATES.name),
    stop=Stop(block=8, cap=32, first=900, fresh=9000), keys=(*KEYS, "seed"),
    metrics=(END, "rise accuracy", "last accuracy", AREA, "collapsed", CLIP, DRIFT),
    margins={"accuracy that counts": MARGIN, "share kept": SHARE},
    figure=Plot(
        "final by setting", x="weights: weights of the model", y=f"{END}: final accuracy", of=weighed,
        arm=("called: ",), names=SAID, log="x",
        also=({"y": f"{AREA}: mean accuracy over training"}, {"y": f"{DRIFT}: mean KL of a token (nats)"}),
        says="Drawn: running sums after 144 steps, on fresh data with GRPO and on data 64 steps old, by the "
        "model's size, each arm at its best rate and knob.",
    ),
)  # fmt: skip


def ends(table: Frame, weights: int, recipe: str, lag: int, outcome: str = END) -> pd.Series:
    """Return an outcome of an arm, by seed."""
    here = (table["model"].map(WEIGHTS) == weights) & (table["recipe"] == recipe) & (table["lag"] == lag)
    return table[here].set_index("seed")[outcome]


def lost(table: Frame, weights: int, outcome: str) -> pd.Series:
    """Return what GRPO loses of an outcome to lag 64, by seed."""
    return ends(table, weights, "grpo", 0, outcome) - ends(table, weights, "grpo", OLD, outcome)


def spared(table: Frame, outcome: str) -> pd.Series:
    """Return the loss with a million weights minus that with 3 million, by seed."""
    return (lost(table, MIDDLE, outcome) - lost(table, LARGE, outcome)).dropna()


def kept(table: Frame) -> pd.Series:
    """Return the share of fresh data's accuracy kept with 3 million weights minus that with 250 thousand."""
    # One seed's fresh run may end near 0, so that shares are of the mean over seeds.
    share = {
        weights: ends(table, weights, "grpo", OLD) / ends(table, weights, "grpo", 0).mean()
        for weights in (SMALL, LARGE)
    }
    return (share[LARGE] - share[SMALL]).dropna()


for _name, _words, _outcome in (
    ("three-million-weights-lose-less-to-lag-64-at-the-end", "final accuracy", END),
    ("three-million-weights-lose-less-to-lag-64-on-the-way", "mean accuracy over training", AREA),
):
    ask(SIZES, _name, f"Lag 64 takes 0.05 less of GRPO's {_words} from 3 million weights than from a "
        "million, each at its best rate and clip, in the median over seeds.", by=MARGIN,
        outcome=partial(spared, outcome=_outcome), typical="median")  # fmt: skip
ask(SIZES, "three-million-weights-keep-a-larger-share-at-lag-64", "At lag 64 GRPO keeps a share of fresh "
    "data's mean final accuracy that is 0.1 larger with 3 million weights than with 250 thousand, each at "
    "its best rate and clip, in the median over seeds.", by=SHARE, outcome=kept,
    typical="median")  # fmt: skip
for _name, _recipe, _weights in (
    ("importance-weights-end-above-reinforce-with-250-thousand-weights", "reinforce", SMALL),
    ("importance-weights-end-above-reinforce-with-a-million-weights", "reinforce", MIDDLE),
    ("importance-weights-end-above-reinforce-with-3-million-weights", "reinforce", LARGE),
    ("importance-weights-end-above-grpo-with-250-thousand-weights", "grpo", SMALL),
    ("importance-weights-end-above-grpo-with-a-million-weights", "grpo", MIDDLE),
    ("importance-weights-end-above-grpo-with-3-million-weights", "grpo", LARGE),
):
    _rival = {"reinforce": "REINFORCE without them", "grpo": "GRPO"}[_recipe]
    _at = {"model": str(MODELS[_weights].folder), "lag": OLD}
    ask(SIZES, _name, f"At lag 64 REINFORCE with truncated importance weights ends 0.05 above {_rival} on a "
        f"model of {SAID[str(_weights)]} weights, each at its best rate and knob, in the median.",
        {"recipe": "importance", **_at}, {"recipe": _recipe, **_at}, MARGIN, END)  # fmt: skip
