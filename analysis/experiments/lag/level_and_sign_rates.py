"""Learning rates for recipes by level of their ratios and by what they do with signs; for nothing else."""

from collections.abc import Iterable
from dataclasses import replace

from analysis.lab import Experiment
from analysis.sweeps.base_runs import SMALL
from analysis.sweeps.tuning import at_rates
from testbed.config.run import Arguments, Run, grid

NAME = "level-and-sign-rates"
KEYS = ("task_args", "recipe", "recipe_args", "staleness", "lag")
SHORT, LONG, YOUNG, OLD = 12, 32, 16, 64
COPY = {
    length: replace(SMALL, task="copy", task_args=(("digits", length),), teacher_noise=noise, steps=200)
    for length, noise in ((SHORT, 0.22), (LONG, 0.09))
}
"""Copying so many digits modulo 8: whatever the length, the base model is right on 6 %."""
RECIPES: dict[str, tuple[str, Arguments]] = {
    "GRPO": ("grpo", ()),
    "CISPO": ("cispo", ()),
    "MinPRO": ("minpro", ()),
    "CTPO": ("ctpo", ()),
    "GSPO": ("gspo", ()),
    "Hölder, annealed": ("holder", ()),
    "Hölder, p = 2": ("holder", (("end", 2), ("start", 2))),
    "Hölder, p = 0": ("holder", (("end", 0), ("start", 0))),
    "Hölder, p = -2": ("holder", (("end", -2), ("start", -2))),
    "SAPO": ("sapo", ()),
    "MHPO": ("mhpo", ()),
    "MHPO, open above": ("mhpo", (("lam_pos", 1000),)),
    "MHPO, open below": ("mhpo", (("lam_neg", 1000),)),
    "GBPO": ("gbpo", ()),
}
"""Recipe and arguments of what is compared on old, short responses."""
AT_YOUNG = ("GRPO", "CISPO", "MinPRO", "GSPO", "SAPO", "MHPO", "GBPO")
AT_LONG = ("GRPO", "CISPO", "MinPRO", "CTPO")
"""Those that are compared on young data, and on long responses."""
SLOW = ("ctpo", "gspo", "gbpo")
SIGNED = replace(SMALL, steps=300)
SIGNS = ("grpo", "dapo", "bapo", "cispo", "dispo")
BASELINES = {"positives": 0.0, "0.25": 0.25, "TOPR": 0.5, "0.75": 0.75}
"""What TOPR takes from rewards of 0 and 1; 0.5 is the source's reading of them as -1 and +1."""


def level_cells() -> tuple[Run, ...]:
    """Return a cell per arm of `ratio-level`."""

    def at(length: int, lag: int, names: Iterable[str]) -> list[Run]:
        arms = (RECIPES[name] for name in names)
        return [replace(COPY[length], recipe=name, recipe_args=args, lag=lag) for name, args in arms]

    return (*at(SHORT, YOUNG, AT_YOUNG), *at(SHORT, OLD, RECIPES), *at(LONG, OLD, AT_LONG))


def sign_cells() -> tuple[Run, ...]:
    """Return a cell per arm of `signs-in-training`."""
    topr = [replace(SIGNED, recipe="topr", recipe_args=(("baseline", b),)) for b in BASELINES.values()]
    naive = [replace(SIGNED, recipe=name) for name in ("reinforce", "importance")]
    best_of_k = replace(SIGNED, recipe="max_at_k", recipe_args=(("k", 4),))
    return (
        *(cell for run in (SIGNED, best_of_k) for cell in grid(run, lag=[0, YOUNG])),
        *grid(SIGNED, recipe=SIGNS, lag=[OLD]),
        *grid(SIGNED, recipe=("grpo", "bapo"), staleness=["replay", "partial"]),
        *(replace(run, staleness="offline") for run in (*topr, *naive)),
        *(replace(run, lag=2 * OLD) for run in (topr[0], topr[2], naive[0])),
    )


def cells() -> tuple[Run, ...]:
    """Every arm of both experiments at three rates, those that clip much at a fourth, 2 seeds for tuning."""
    arms = dict.fromkeys((*level_cells(), *sign_cells()))
    rates = (1e-3, 3e-3, 1e-2)
    most = {run: (*rates, 3e-2) if run.recipe in SLOW else rates for run in arms}
    return tuple(cell for run in arms for cell in at_rates([run], most[run]))


EXPERIMENT = Experiment(
    NAME,
    question="Which learning rate suits each recipe by response length, lag and kind of old data?",
    source="own design: rates are chosen before they are compared",
    cells=cells,
    keys=(*KEYS, "learning_rate", "seed"),
    metrics=("accuracy", "area", "collapsed"),
)
