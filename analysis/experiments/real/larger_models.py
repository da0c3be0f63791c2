"""Does the tuned toy LLM predict the effects of stale data on Hugging Face models of a million weights?

A seed has one task, determined by its number, so that a median over seeds covers three tasks. Every recipe
has its own learning rate, chosen at lag 32 on tuning seeds, on the toy model too. At lag 64 all data come
from the first weights. A first run, at lag 64 alone and on 13 seeds, decided nothing; these seeds are others.
The toy's seeds are tuning seeds: their medians are a prediction, judged on real models with other seeds.
"""

from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

from analysis.experiments.real.real_model import ONE_DIGIT
from analysis.judging.auroc import auroc, kendall
from analysis.lab import Experiment, Frame, Plot, Stop, Tuned, ask, asks
from analysis.sweeps.base_runs import TOY
from analysis.sweeps.tuning import RATE, at_rates, best_rates, tuning_seeds
from analysis.tables.cell_table import cell_table
from analysis.tables.committed import Table, load_committed
from analysis.tables.outcomes import DIVERGED
from analysis.worlds.hf_bases import Made, make
from testbed import rng
from testbed.config.run import Run, grid

RECIPES = ("grpo", "tis", "gspo", "cispo", "m2po", "vcpo", "topr", "asymre")
BY, ARM = ("task", "recipe"), ["recipe", "lag"]
OLD = 32
SHORT = (("digits", 2), ("limit", 6), ("modulus", 8))
MODELS = (
    Made("qwen2-1m-running-sum", "running-sum", (("digits", 4),), "qwen2", 0.3, 300, 224),
    Made("gpt-neox-1m-one-digit-sums", "reasoning-gym", ONE_DIGIT, "gpt-neox", 0.25, 900, 256),
    Made("llama-1m-length", "length", SHORT, "llama", 0.55, 300, 224),
)
"""A million weights in two layers each, taught until a fifth to a half of all prompts are answered right."""
SIZES = {"steps": 80, "prompts": 8, "group": 4, "log_every": 10, "evaluation_prompts": 32}
"""80 steps of 32 responses."""
MODEL_RATES = (1.5e-4, 3e-4, 6e-4, 1.2e-3, 2.4e-3)


def rate_cells() -> tuple[Run, ...]:
    """Eight recipes at lag 32 on three models, 5 rates an octave apart, 2 seeds."""
    each = (grid(model.run(**SIZES, lag=OLD), recipe=list(RECIPES)) for model in MODELS)
    return at_rates(chain.from_iterable(each), MODEL_RATES)


RATES_CHOSEN = Experiment(
    "larger-rates",
    question="Which learning rate suits each recipe on old data, on models of a million weights?",
    source="design of this project: rates are chosen before arms are compared",
    prepare=partial(make, MODELS), cells=rate_cells, keys=(*BY, "learning_rate", "seed"),
    metrics=("accuracy", "area", "collapsed"),
)  # fmt: skip


LAGS = (8, OLD, 64)
SHORTER: dict[str, Any] = SIZES | {"steps": max(LAGS)}
"""At the largest lag all data come from the first weights."""
EARLY = 40
"""Steps whose metrics are read as early signs."""
TOY_RATES = (1e-3, 3e-3, 1e-2, 3e-2)
FAST = 1e-2
"""A rate that breaks as many arms at lag 64, on tuning seeds, as the real models' rates do."""
TUNED = "tuned"
KEYS = ("task", "recipe", "lag", "seed")
METRICS = ("accuracy", "best", "start", "collapsed", "collapse_step")
SIGNS = {
    "log10 kl": ("rollout_corr/kl_mu_pi_k3", np.log10),
    "log10 ess": ("rollout_corr/ess_kish_sequence_raw", np.log10),
    "clip share": ("actor/clip_share", None),
    "log10 gradient norm": ("actor/grad_norm", np.log10),
    "hill": ("rollout_corr/tail_hill_sequence", None),
    "entropy": ("actor/entropy", None),
}
"""Early signs: a logged metric, and the scale on which it is averaged."""


def arms(run: Run, lags: tuple[int, ...] = LAGS) -> tuple[Run, ...]:
    """Return eight recipes at every lag, and GRPO on-policy beside them, from one starting run."""
    return (replace(run, recipe="grpo", lag=0), *grid(run, recipe=list(RECIPES), lag=list(lags)))


def toy_cells() -> tuple[Run, ...]:
    """The arms on three tasks, 4 rates, 6 tuning seeds; base models are taught as long as the real ones."""
    found: list[Run] = []
    for model in MODELS:
        toy = replace(TOY, task=model.task, task_args=model.task_args, teacher_noise=model.noise)
        toy = replace(toy, warm_start_steps=model.steps, **SHORTER)
        for run in grid(toy, learning_rate=list(TOY_RATES), seed=list(tuning_seeds(6))):
            found += arms(run)
    return tuple(found)


def signs(early: Frame) -> dict[str, float]:
    """Return the mean of every sign over the rows; 0 where nothing was logged."""
    found = {}
    for sign, (metric, scale) in SIGNS.items():
        value = early[metric][np.isfinite(early[metric])]
        value = value if scale is None else scale(value[value > 0])
        found[sign] = float(value.mean()) if len(value) else 0.0
    return found


def with_signs(name: str, rows: Frame, keys: tuple[str, ...], until: int = EARLY) -> Table:
    """Return one row per cell: outcomes, and the mean of every sign over the first steps."""
    table = cell_table(name, rows, keys, METRICS)
    early = rows[(rows["step"] > 0) & (rows["step"] <= until)].groupby(list(keys))
    seen = pd.DataFrame({key: signs(run) for key, run in early}).T.rename_axis(list(keys))
    return Table.of(name, table.frame.drop(columns=DIVERGED).join(seen, on=list(keys)), table.about)


def toy_table(rows: Frame) -> Table:
    """Return the cells at their recipe's best rate on their task at lag 32, and those at FAST."""
    found = with_signs("larger-toy", rows, (*KEYS, RATE))
    best = best_rates(found.frame[found.frame["lag"] == OLD], BY, "accuracy")
    chosen = found.frame.merge(best[[*BY, RATE]])
    fast = found.frame[found.frame[RATE] == FAST]
    both = pd.concat([chosen.assign(**{TUNED: 1.0}), fast.assign(**{TUNED: 0.0})])
    kept = both.sort_values([TUNED, *KEYS], ignore_index=True)
    return Table.of("larger-toy", kept[[*LARGER_TOY.keys, *LARGER_TOY.metrics]], found.about)


def toy_rows(tuned: bool = True) -> Frame:
    """Return the committed rows at tuned rates, or those at FAST."""
    frame = load_committed(["larger-toy"])["larger-toy"].frame
    return frame[frame[TUNED] == float(tuned)]


LARGER_TOY = Experiment(
    "larger-toy",
    question="How do eight tuned recipes end on the toy LLM where models of a million weights take them too?",
    source="this project", cells=toy_cells, from_rows=toy_table, keys=(TUNED, *KEYS),
    metrics=(RATE, *METRICS, *SIGNS),
)  # fmt: skip


STALE = LAGS[1:]
STOP = Stop(block=24, cap=48, begun_with=24, first=200, fresh=1200)
GOAL, HALF, ALLOWED = 0.8, 0.5, 0.1
"""Tau or AUROC that predicts; tau with three of four pairs in order; accuracy lost. Set before the runs."""
ESS, FORETOLD = "log10 ess", "toy accuracy"


def cells() -> tuple[Run, ...]:
    """Eight recipes at lags 32 and 64, and GRPO on-policy, at tuned rates, on three models."""
    return tuple(cell for model in MODELS for cell in arms(model.run(**SHORTER), STALE))


def drawn(run: Run) -> bool:
    """Return whether a run is on its seed's task, one of the three at random."""
    return MODELS[rng.key(run.seed, "larger-models/task") % len(MODELS)].task == run.task


def from_rows(rows: Frame) -> Table:
    """Return one row per cell with its signs, and the toy's median final accuracy."""
    table = with_signs("larger-models", rows, KEYS)
    foretold = toy_rows().groupby(["task", *ARM])["accuracy"].median().rename(FORETOLD)
    return Table.of(table.name, table.frame.join(foretold, on=["task", *ARM]), table.about)


LARGER_MODELS = Experiment(
    "larger-models",
    question="Does the tuned toy LLM foretell what stale data do to models of a million weights?",
    source="this project",
    differs="models of a million weights, trained here; 64 steps of 32 responses; rates chosen from five",
    prepare=partial(make, MODELS), cells=cells, tuned=Tuned(table="larger-rates"), drawn=drawn,
    from_rows=from_rows, stop=STOP, keys=KEYS, metrics=(*METRICS, *SIGNS, FORETOLD),
    margins={"tau, AUROC to foretell": GOAL, "tau": HALF, "accuracy lost": ALLOWED},
    figure=Plot(
        "scatter", x=f"{FORETOLD}: toy LLM", y="accuracy: Hugging Face model", arm=("recipe",), panel="task",
        of=lambda table: table.groupby(["task", *ARM], as_index=False).median(numeric_only=True),
        says="Drawn: median final accuracies of a recipe at a lag, of the model against the toy LLM.",
    ),
)  # fmt: skip


def taus(table: Frame, lags: tuple[int, ...]) -> pd.Series:
    """Return Kendall's tau-b between the toy's and the models' final accuracy over stale arms, by seed."""
    stale = table[table["lag"].isin(lags)]
    found = {seed: kendall(rows[FORETOLD], rows["accuracy"]) for seed, rows in stale.groupby("seed")}
    return pd.Series(found).fillna(0.0)


def losses(table: Frame) -> pd.Series:
    """Return by seed the AUROC of a small early ESS for ending 0.1 below the same seed's GRPO on-policy."""
    fresh = table[table["lag"] == 0].set_index("seed")["accuracy"]
    stale = table[table["lag"] > 0]
    event = stale["accuracy"] < stale["seed"].map(fresh) - ALLOWED
    found = {seed: auroc(-rows[ESS], event[rows.index]) for seed, rows in stale.groupby("seed")}
    return pd.Series(found, dtype=float).dropna()


for _name, _goal in (
    ("toy-ranks-larger-models-at-tau-0.8", GOAL),
    ("toy-ranks-larger-models-at-tau-0.5", HALF),
    ("toy-ranks-larger-models-at-tau-0", 0.0),
):
    ask(LARGER_MODELS, _name, "At tuned rates the toy LLM's final accuracies rank 16 arms (eight recipes at "
        f"lags 32 and 64) on models of a million weights with Kendall's tau above {_goal:g}, in the median "
        "over seeds of three tasks.", by=_goal, outcome=lambda table: taus(table, STALE))  # fmt: skip
asks(LARGER_MODELS,
    ("toy-ranks-larger-models-at-lag-64", "At lag 64 alone the toy LLM's final accuracies rank the eight "
     "recipes better than chance (Kendall's tau above 0), in the median over seeds of three tasks.", None,
     None, {"outcome": lambda table: taus(table, STALE[-1:])}),
    ("early-ess-ranks-losses-of-larger-models", "On models of a million weights at tuned rates a small ESS "
     "in the first 40 steps ranks arms by whether they end more than 0.1 below GRPO on-policy of the same "
     "seed with an AUROC above 0.8, in the median over seeds of three tasks.", None, None, GOAL, losses,
     {"null": 0.5}),
)  # fmt: skip
for _name, _recipe, _title in (
    ("m2po-ends-above-grpo-on-larger-models", "m2po", "M2PO"),
    ("vcpo-ends-above-grpo-on-larger-models", "vcpo", "VCPO"),
    ("topr-ends-above-grpo-on-larger-models", "topr", "TOPR"),
    ("asymre-ends-above-grpo-on-larger-models", "asymre", "AsymRE"),
):
    ask(LARGER_MODELS, _name, f"On models of a million weights at lag 64 and tuned rates, {_title} ends with "
        "a higher accuracy than GRPO, on most seeds of three tasks.", {"recipe": _recipe}, {"recipe": "grpo"},
        source="this project: so it was on the toy LLM, at lag 256 and tuned rates",
        over={"lag": 64})  # fmt: skip
