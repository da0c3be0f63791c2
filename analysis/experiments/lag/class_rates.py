"""Learning rates for recipes on old data, by clip, sign, passes and length; its seeds serve nothing else."""

from collections.abc import Iterable
from dataclasses import replace

from analysis.lab import Experiment, Recipes
from analysis.sweeps.base_runs import SMALL
from analysis.sweeps.tuning import at_rates
from testbed.config.run import Run

NAME = "class-rates"
KEYS = ("task", "task_args", "recipe", "recipe_args", "anchor", "staleness", "lag", "steps")
LITE = replace(SMALL, prompts=4, steps=300)
"""SMALL with half the prompts."""
CLIPS: Recipes = {
    "REC, 0.2": ("rec", ()),
    "REC, 0.6 and 2": ("rec", (("eps_high", 2), ("eps_low", 0.6))),
    "REC, 2": ("rec", (("eps_high", 2), ("eps_low", 2))),
    "RED-drop": ("red", (("how", "drop"),)),
    "RED-weight": ("red", ()),
    "GRPO": ("grpo", ()),
}
"""REC by its bounds below and above 1; a bound of 2 below cuts nothing."""
CLIP_LAGS = (16, 64)
NEGATIVES: Recipes = {
    "TOPR": ("topr", (("baseline", 0.5),)),
    "naive REINFORCE": ("topr", (("baseline", 0.5), ("low", 1))),
    "positives alone": ("topr", (("baseline", 0),)),
    "importance sampling": ("importance", ()),
}
BASELINES: Recipes = {f"TOPR, {c:+g}": ("topr", (("baseline", 0.5 + c / 2),)) for c in (-0.5, 0.25, 0.5)}
"""Baselines that TOPR takes from rewards of -1 and +1, of 0 without a word."""
TOPR_LAG = 128
PASSES: Recipes = {
    "GRPO": ("grpo", ()),
    "GRPO x4": ("sfpo", (("alpha", 1), ("fast", 3))),
    "GRPO x16": ("sfpo", (("alpha", 1), ("fast", 15))),
    "SFPO, 1 fast": ("sfpo", (("alpha", 0.8), ("fast", 1))),
    "SFPO, 3 fast": ("sfpo", (("alpha", 0.8), ("fast", 3))),
    "SFPO, 5 fast": ("sfpo", (("alpha", 0.8), ("fast", 5))),
    "SFPO, alpha 0.25": ("sfpo", (("alpha", 0.25), ("fast", 3))),
    "R2VPO x4": ("r2vpo", (("passes", 4),)),
    "R2VPO x16": ("r2vpo", (("passes", 16),)),
}
"""SFPO with alpha 1 pulls nothing back: it is GRPO with so many passes."""
ON_OLD_DATA = ("GRPO", "GRPO x4", "R2VPO x4")
PASS_STEPS, PASS_LAG = 150, 64
REGIMES: dict[str, dict[str, float]] = {
    "none": {},
    "right, above 1": {"eps_high_pos": 100},
    "right, below 1": {"eps_low_pos": 1},
    "wrong, above 1": {"eps_high_neg": 100},
    "wrong, below 1": {"eps_low_neg": 1},
}
"""The bound of DISPO that is open; the others cut every ratio to 1."""
FREE = replace(LITE, task="length", task_args=(), teacher_noise=0.2, recipe="dispo", lag=64)
SYNC: Recipes = {"OAPL": ("oapl", ()), "sequence IS": ("vcpo", (("ess_reference", 0),))}
SYNC_STEPS = 800
SYNC_LAGS = {"OAPL": (1, 16, 64, 400), "sequence IS": (1, 64, 400)}
SHORT, LONG, VERY_OLD = 12, 48, 256
COPY = {
    length: replace(LITE, task="copy", task_args=(("digits", length),), teacher_noise=noise, steps=320)
    for length, noise in ((SHORT, 0.22), (LONG, 0.06))
}
"""Copying so many digits modulo 8."""
LEVELS: Recipes = {name: (name.lower(), ()) for name in ("GRPO", "CISPO", "MinPRO")}


def arms(base: Run, recipes: Recipes, names: Iterable[str] = ()) -> tuple[Run, ...]:
    """Return the base with each of the named recipes, or with all."""
    chosen = (recipes[name] for name in tuple(names) or recipes)
    return tuple(replace(base, recipe=recipe, recipe_args=args) for recipe, args in chosen)


def clip_cells() -> tuple[Run, ...]:
    """Return a cell per arm of `clip-width`."""
    return tuple(run for lag in CLIP_LAGS for run in arms(replace(LITE, lag=lag), CLIPS))


def topr_cells() -> tuple[Run, ...]:
    """Return a cell per arm of `negatives-at-lag-128`: recipes and baselines there, recipes offline."""
    old, offline = replace(LITE, lag=TOPR_LAG), replace(LITE, staleness="offline")
    return (*arms(old, {**NEGATIVES, **BASELINES}), *arms(offline, NEGATIVES))


def pass_cells() -> tuple[Run, ...]:
    """Return a cell per arm of `passes`."""
    base = replace(LITE, steps=PASS_STEPS, log_every=5)
    return (*arms(base, PASSES), *arms(replace(base, lag=PASS_LAG), PASSES, ON_OLD_DATA))


def regime_cells() -> tuple[Run, ...]:
    """Return a cell per arm of `collapse-by-regime`."""
    closed = dict.fromkeys(("eps_low_pos", "eps_high_pos", "eps_low_neg", "eps_high_neg"), 0.0)
    return tuple(
        replace(FREE, recipe_args=tuple(sorted({**closed, **opened}.items()))) for opened in REGIMES.values()
    )


def sync_cells() -> tuple[Run, ...]:
    """Return a cell per arm of `lag-400`."""
    return tuple(
        run
        for name, lags in SYNC_LAGS.items()
        for lag in lags
        for run in arms(replace(LITE, lag=lag, steps=SYNC_STEPS), SYNC, [name])
    )


def level_cells() -> tuple[Run, ...]:
    """Return a cell per arm of `long-old-data`."""
    return tuple(run for base in COPY.values() for run in arms(replace(base, lag=VERY_OLD), LEVELS))


def rates(run: Run) -> tuple[float, ...]:
    """Return the rates that an arm is tried at: smaller ones for many passes and for many steps."""
    if {("passes", 16), ("fast", 15)} & set(run.recipe_args):
        return (3e-4, 1e-3, 3e-3)
    return (*((3e-4,) if run.steps == SYNC_STEPS else ()), 1e-3, 3e-3, 1e-2)


def cells() -> tuple[Run, ...]:
    """Every arm at three rates, 2 seeds for tuning."""
    every = dict.fromkeys(
        (*clip_cells(), *topr_cells(), *pass_cells(), *regime_cells(), *sync_cells(), *level_cells())
    )
    return tuple(cell for run in every for cell in at_rates([run], rates(run)))


EXPERIMENT = Experiment(
    NAME,
    question="Which learning rate suits each recipe by its clip, its passes, and the age and length of data?",
    source="own design: rates are chosen before they are compared",
    cells=cells,
    keys=(*KEYS, "learning_rate", "seed"),
    metrics=("accuracy", "area", "collapsed", "rollouts_to 0.8", "val/entropy", "val/response_length"),
)
