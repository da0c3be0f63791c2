"""Training a model of a million weights on another engine's rollouts: their cost, and corrections.

GRPO clips pi over the trainer's log-probabilities at the generating weights, so its clip handles only
staleness and a correction's weight only the engine's mismatch. Engines that record log-probabilities before
temperature or top-p (`raw`) are left out: they record the trainer's, so that every correction is 1.
"""

import itertools
from dataclasses import replace

from analysis.arena.foretold_runs import MODELS, SIZES
from analysis.experiments.real.known_model import AREA, ESS, MARGIN
from analysis.lab import Experiment, Frame, Stop, Tuned, ask, strips
from analysis.sweeps.tuning import at_rates
from analysis.tables.cell_table import arms_of
from analysis.worlds.hf_bases import make
from testbed.config.run import Run

LAGS = (0, 16)
END, DRIFT = "accuracy", "mean rollout_corr/kl_mu_pi_k3"
METRICS = (END, "rise accuracy", "last accuracy", AREA, "collapsed", ESS, DRIFT, "mean actor/clip_share")
KEYS = ("mismatch", "mismatch_args", "recipe", "lag")
ENGINES = {
    "the trainer": Run(),
    "top-p": Run(mismatch="top-p", mismatch_args=(("p", 0.9),)),
    "temperature": Run(mismatch="temperature", mismatch_args=(("temperature", 0.7),)),
    "int8": Run(mismatch="int8"),
    "bfloat16": Run(mismatch="bf16"),
}
ALIKE = ("int8", "bfloat16")
"""Engines that run without a correction only: their effect is small."""
CORRECTIONS = {"no correction": "grpo", "TIS": "tis", "MIS": "mis", "IcePop": "icepop"}
"""Recipes at the defaults of training stacks; GRPO does not read the engine's log-probabilities."""
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)
SUMS = MODELS["running-sum"]
CALLED = {run.mismatch: name for name, run in ENGINES.items()}


def written_by(base: Run, engine: Run, recipe: str, lag: int) -> Run:
    """Return a run of a recipe on the engine's rollouts."""
    written = replace(base, mismatch=engine.mismatch, mismatch_args=engine.mismatch_args)
    return replace(written, recipe=recipe, lag=lag, anchor="snapshot")


def arms() -> tuple[Run, ...]:
    """Return the arms of a model of a million weights, at both lags."""
    base = SUMS.run(**SIZES)
    pairs = [
        (engine, recipe)
        for name, engine in ENGINES.items()
        for recipe in CORRECTIONS.values()
        if recipe == "grpo" or name not in ("the trainer", *ALIKE)
    ]
    return tuple(written_by(base, *pair, lag) for lag, pair in itertools.product(LAGS, pairs))


def named(table: Frame) -> Frame:
    """Return the table with engines and corrections in words."""
    said = {recipe: name for name, recipe in CORRECTIONS.items()}
    called = table["mismatch"].map(CALLED) + ", " + table["recipe"].map(said)
    return table.assign(called=called.replace("the trainer, no correction", "the trainer itself"))


ENGINE_RATES = Experiment(
    "engine-rates",
    question="Which learning rate suits a model of a million weights on another engine's rollouts, by lag?",
    source="design of this project: rates are chosen before arms are compared",
    prepare=lambda: make([SUMS]), cells=lambda: at_rates(arms(), RATES, seeds=2),
    keys=(*KEYS, "learning_rate", "seed"), metrics=(END, "last accuracy", AREA, DRIFT),
)  # fmt: skip
AT_A_LAG = Experiment(
    "engines-at-a-lag",
    question="What do rollouts of another engine cost a model from outside, fresh and 16 steps old?",
    source="mismatch reports of training stacks; TIS, MIS and IcePop at their defaults",
    differs="a model of a million weights on running sums of ten digits; 144 steps of 12 responses; emulated "
    "engines; each arm at its best of five rates, corrections at their defaults",
    prepare=lambda: make([SUMS]), cells=arms, tuned=Tuned(table="engine-rates"),
    stop=Stop(block=8, cap=32, first=600, fresh=6000), keys=(*KEYS, "seed"), metrics=METRICS,
    margins={"accuracy that counts": MARGIN},
    figure=strips(f"{END}: final accuracy", "Shows final accuracy of a model of a million weights after 144 "
        "steps of running sums, by the engine of its rollouts and by their correction.",
        y="called: rollouts and correction", of=named, panel="lag", panel_label="lag"),
)  # fmt: skip
AS_TABLED = arms_of(ENGINES, ENGINES.values(), ("mismatch", "mismatch_args"))


LITTLE = "ends less than 0.05 below its own rollouts on those of {engine}, uncorrected, in the median."
GAINS = "ends 0.05 higher on rollouts of {engine} with {correction} than uncorrected, in the median."
for _name, _engine, _correction, _lag in (
    ("top-p-rollouts-cost-grpo-little-at-lag-0", "top-p", "no correction", 0),
    ("tis-gains-on-top-p-rollouts-at-lag-0", "top-p", "TIS", 0),
    ("mis-gains-on-top-p-rollouts-at-lag-0", "top-p", "MIS", 0),
    ("icepop-gains-on-top-p-rollouts-at-lag-0", "top-p", "IcePop", 0),
    ("top-p-rollouts-cost-grpo-little-at-lag-16", "top-p", "no correction", 16),
    ("tis-gains-on-top-p-rollouts-at-lag-16", "top-p", "TIS", 16),
    ("mis-gains-on-top-p-rollouts-at-lag-16", "top-p", "MIS", 16),
    ("icepop-gains-on-top-p-rollouts-at-lag-16", "top-p", "IcePop", 16),
    ("temperature-rollouts-cost-grpo-little-at-lag-0", "temperature", "no correction", 0),
    ("tis-gains-on-temperature-rollouts-at-lag-0", "temperature", "TIS", 0),
    ("mis-gains-on-temperature-rollouts-at-lag-0", "temperature", "MIS", 0),
    ("icepop-gains-on-temperature-rollouts-at-lag-0", "temperature", "IcePop", 0),
    ("temperature-rollouts-cost-grpo-little-at-lag-16", "temperature", "no correction", 16),
    ("tis-gains-on-temperature-rollouts-at-lag-16", "temperature", "TIS", 16),
    ("mis-gains-on-temperature-rollouts-at-lag-16", "temperature", "MIS", 16),
    ("icepop-gains-on-temperature-rollouts-at-lag-16", "temperature", "IcePop", 16),
    ("int8-rollouts-cost-grpo-little-at-lag-0", "int8", "no correction", 0),
    ("int8-rollouts-cost-grpo-little-at-lag-16", "int8", "no correction", 16),
    ("bfloat16-rollouts-cost-grpo-little-at-lag-0", "bfloat16", "no correction", 0),
    ("bfloat16-rollouts-cost-grpo-little-at-lag-16", "bfloat16", "no correction", 16),
):
    _bare = {**AS_TABLED[_engine], "recipe": "grpo", "lag": _lag}
    _costs = _correction == "no correction"
    ask(AT_A_LAG, _name,
        f"At lag {_lag} GRPO " + (LITTLE if _costs else GAINS).format(engine=_engine, correction=_correction),
        _bare if _costs else {**_bare, "recipe": CORRECTIONS[_correction]},
        {**AS_TABLED["the trainer"], "recipe": "grpo", "lag": _lag} if _costs else _bare,
        -MARGIN if _costs else MARGIN, END)  # fmt: skip
