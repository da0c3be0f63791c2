"""Twelve recipes on data of every age, each at three learning rates: where it learns, and where it collapses.

The map on which learning rates are chosen. Its seeds are used for nothing else, so that what is claimed of a
tuned recipe is judged on others.
"""

import pandas as pd

from analysis.lab import Experiment, Plot
from analysis.sweeps.base_runs import LAB
from analysis.sweeps.tuning import tuning_seeds
from testbed.config.run import Run, grid

RECIPES = (
    *("reinforce", "grpo", "gspo", "cispo", "sapo", "tis"),
    *("m2po", "minpro", "vcpo", "topr", "asymre", "oapl"),
)
LAGS = (0, 16, 64, 256)
RATES = (3e-4, 1e-3, 3e-3)
SEEDS = tuning_seeds(4)


def cells() -> tuple[Run, ...]:
    """Twelve recipes at four lags and three learning rates, 4 seeds for tuning, 600 steps."""
    return grid(LAB, recipe=list(RECIPES), lag=list(LAGS), learning_rate=list(RATES), seed=list(SEEDS))


def at_best_rate(table: pd.DataFrame) -> pd.DataFrame:
    """Return the median final accuracy of each recipe and lag at the learning rate where it is highest."""
    at_rate = table.groupby(["recipe", "lag", "learning_rate"])["accuracy"].median()
    return at_rate.groupby(["recipe", "lag"]).max().reset_index()


EXPERIMENT = Experiment(
    question="Where in lag and learning rate does each recipe learn, and where does it collapse?",
    source="the recipes' papers; the comparison at a learning rate of one's own is this project's",
    differs="a transformer of 26,000 weights on running sums in place of large language models",
    cells=cells,
    keys=("recipe", "lag", "learning_rate", "seed"),
    metrics=(
        *("accuracy", "best", "start", "area", "collapsed", "collapse_step", "entropy_collapsed"),
        *("steps_to 0.5", "last val/pass@8", "mean actor/clip_share", "known actor/positive_share"),
        *("min rollout_corr/ess_kish_sequence_raw", "mean rollout_corr/kl_mu_pi_k3"),
    ),
    figure=Plot(
        "heat map",
        x="lag: lag (optimizer steps)",
        y="recipe",
        value="accuracy: final accuracy, best rate",
        of=lambda table: at_best_rate(table),
        also=({"value": "collapsed: share collapsed", "of": None, "y": "recipe: "},),
    ),
)
