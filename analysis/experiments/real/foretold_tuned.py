"""The arena's order of recipes at lag 64, foretold for a model of a million weights with every recipe tuned.

`foretold-arms` ran the arena's settings untuned. FORETOLD was read from the arena's sums at lag 64 before any
of these runs: mean final accuracies, each at its best setting, as shares of fresh data's. The share of TOPR
came from a search that had not left the base model's accuracy; it stands here as it was foretold.
"""

from dataclasses import replace
from functools import partial
from itertools import chain

import pandas as pd

from analysis.arena.foretold_runs import MODELS, SIZES
from analysis.judging.auroc import kendall
from analysis.lab import Experiment, Frame, Plot, Stop, Tuned, ask
from analysis.sweeps.tuning import at_rates, best_arguments
from analysis.tables.committed import load_committed
from analysis.worlds.hf_bases import make
from testbed.config.run import Arguments, Run

LAG, MARGIN, HALF = 64, 0.05, 0.5
MODEL = MODELS["running-sum"]
GRID = (7.5e-5, 1.5e-4, 3e-4, 6e-4, 1.2e-3, 2.4e-3)
CLIPS: tuple[Arguments, ...] = ((("eps_high", 1), ("eps_low", 0.5)), (("eps_high", 3), ("eps_low", 0.9)))
KNOBS: dict[str, tuple[Arguments, ...]] = {
    "importance": ((("cap", 8),), (("cap", 32),)),
    "vcpo": ((("cap", 2),), (("cap", 8),)),
    "minpro": ((("eps_high", 0.1),), (("eps_high", 1),)),
    "gspo": ((("eps_high", 0.04), ("eps_low", 0.03)), (("eps_high", 0.4), ("eps_low", 0.3))),
    "grpo": CLIPS,
    "topr": ((("baseline", 0),), (("baseline", 0.25),)),
}
"""The arena's best value on sums at lag 64, and another that it had tried."""
FORETOLD = {
    "importance": 0.797, "vcpo": 0.626, "minpro": 0.589, "gspo": 0.588, "grpo": 0.338, "topr": 0.003,
}  # fmt: skip
"""Share of fresh data's final accuracy on the arena's sums at lag 64, on 2026-11-27."""
KEYS = ("recipe", "recipe_args", "lag")
END, AREA = "accuracy", "mean accuracy"


def each(recipe: str, lag: int, arguments: Arguments = ()) -> Run:
    """Return a run of the model: 144 steps of 12 responses."""
    return replace(MODEL.run(**SIZES), recipe=recipe, recipe_args=arguments, lag=lag)


def arms() -> tuple[Run, ...]:
    """Return GRPO on fresh data and six recipes at lag 64, each with its knob's best value of the tuning."""
    frame = load_committed([TRIED.name])[TRIED.name].frame
    best = best_arguments(frame, ("recipe", "lag"), END, chain(*KNOBS.values()))
    return (each("grpo", 0, CLIPS[0]), *(each(recipe, LAG, best[recipe, LAG]) for recipe in KNOBS))


def at_every_setting() -> tuple[Run, ...]:
    """Every arm at six rates an octave apart and two values of its knob, on 2 tuning seeds."""
    runs = [each(recipe, LAG, arguments) for recipe, tried in KNOBS.items() for arguments in tried]
    return at_rates([each("grpo", 0, CLIPS[0]), *runs], GRID, seeds=2)


TRIED = Experiment(
    "foretold-rates",
    question="Which learning rate and knob suit six recipes on data 64 steps old, with a million weights?",
    source="design of this project: settings are chosen before arms are compared",
    prepare=partial(make, [MODEL]), cells=at_every_setting,
    keys=(*KEYS, "learning_rate", "seed"), metrics=(END, "last accuracy", AREA),
)  # fmt: skip
TUNED = Experiment(
    "foretold-tuned",
    question="Does the arena foretell how six tuned recipes do on old data with a million weights?",
    source="this project",
    differs="a Qwen2 of a million weights, taught running sums of ten digits; 144 steps of 12 responses; "
    "each arm at its best of six rates and two values of its knob",
    prepare=partial(make, [MODEL]), cells=arms, tuned=Tuned(table=TRIED.name),
    stop=Stop(block=8, cap=32, first=800, fresh=8000), keys=(*KEYS, "seed"),
    metrics=(
        *(END, "rise accuracy", "last accuracy", AREA, "collapsed"),
        *("mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share"),
    ),
    margins={"accuracy that counts": MARGIN, "tau": HALF},
    figure=Plot(
        "scatter", x="foretold: share kept on the arena's sums",
        y="share: share kept by the model", arm=("recipe",),
        of=lambda table: shares(table).rename("share").reset_index().assign(
            foretold=lambda rows: rows["recipe"].map(FORETOLD)
        ),
        says="Drawn: mean final accuracy of a recipe at lag 64 as a share of that on fresh data, on the "
        "model against the arena, every recipe tuned in both.",
    ),
)  # fmt: skip


def shares(table: Frame) -> pd.Series:
    """Return each recipe's mean final accuracy at lag 64 as a share of fresh data's."""
    end = table.groupby(["lag", "recipe"])[END].mean()
    return end[LAG] / end[0, "grpo"]


def taus(table: Frame) -> pd.Series:
    """Return Kendall's tau of the foretold shares and the final accuracies of the recipes, by seed."""
    stale = table[table["lag"] == LAG]
    found = {seed: kendall(rows["recipe"].map(FORETOLD), rows[END]) for seed, rows in stale.groupby("seed")}
    return pd.Series(found, dtype=float).fillna(0.0)


for _name, _goal in (
    ("arena-foretells-the-order-of-tuned-recipes-at-tau-0", 0.0),
    ("arena-foretells-the-order-of-tuned-recipes-at-tau-0.5", HALF),
):
    ask(TUNED, _name, "What six recipes end at on the arena's sums at lag 64 orders them on running sums of "
        f"a million weights, every recipe tuned in both, with Kendall's tau above {_goal:g}, in the median "
        "over seeds.", by=_goal, outcome=taus, typical="median")  # fmt: skip
for _name, _upper, _lower, _words in (
    ("lag-64-costs-tuned-grpo-as-foretold", ("grpo", 0), ("grpo", LAG),
     "GRPO ends 0.05 below GRPO on fresh data"),
    ("tuned-importance-weights-end-above-grpo-as-foretold", ("importance", LAG), ("grpo", LAG),
     "truncated importance weights end 0.05 above GRPO"),
    ("tuned-vcpo-ends-above-grpo-as-foretold", ("vcpo", LAG), ("grpo", LAG), "VCPO ends 0.05 above GRPO"),
    ("tuned-gspo-ends-above-grpo-as-foretold", ("gspo", LAG), ("grpo", LAG), "GSPO ends 0.05 above GRPO"),
    ("tuned-topr-ends-below-grpo-as-foretold", ("grpo", LAG), ("topr", LAG), "TOPR ends 0.05 below GRPO"),
):  # fmt: skip
    ask(TUNED, _name, f"At lag 64 {_words} on running sums of a million weights, each at its best rate and "
        "knob, as the arena foretold, in the median.", {"recipe": _upper[0], "lag": _upper[1]},
        {"recipe": _lower[0], "lag": _lower[1]}, MARGIN, END)  # fmt: skip
