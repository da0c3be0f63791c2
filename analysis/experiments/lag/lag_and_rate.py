"""Lag and learning rate in a toy LLM, twelve recipes: which product or distance orders what staleness costs.

The standard phase diagram, 12 recipes x 6 lags x 3 rates, in the small shape; 12 seeds to each recipe instead
of 8. A verdict needs two runs of about 20 seeds, so a seed has three recipes, dealt at random, and gives one
number for all their cells: 24 seeds in a run, and every recipe six times in it.

Rates and lags are such that 0.012, 0.04, 0.12, 0.4 and 1.2 are each the product of several pairs. What
staleness costs is accuracy at lag 0 less that at the lag, same recipe, rate and seed, where the former is 0.5
at least: who does not learn on-policy has nothing to lose. Margins are older than all runs but a pilot of two
recipes on a tuning seed, in which the rate alone ordered losses best.
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd

from analysis.experiments.lag.phase_diagram import RECIPES
from analysis.judging.auroc import kendall
from analysis.lab import Experiment, Plot, Stop
from analysis.sweeps.base_runs import SMALL
from analysis.tables.cell_table import cell_table
from analysis.tables.committed import Table
from testbed import rng
from testbed.config.run import Run, grid

LAGS = (0, 4, 12, 40, 120, 400)
RATES = (1e-3, 3e-3, 1e-2)
DEALT = 3
"""Recipes of a seed; four consecutive seeds have all twelve."""
LEARNED = 0.5
EQUAL = (0.012, 0.04, 0.12, 0.4, 1.2)
"""Products of lag and rate that the lowest and the highest rate which have it reach exactly."""
DISTANCE = 0.6
"""Rate times steps of the slowest runs at their end, and of the others earlier."""
MARGIN, GAIN = 0.1, 0.05
LAW = "arXiv:2607.01083: staleness costs what lag times learning rate says; read as runs of equal product"
KL = "mean rollout_corr/kl_mu_pi_k3"
ON_THE_WAY = f"accuracy at {DISTANCE:g} of rate times steps"
KEYS = ("recipe", "lag", "learning_rate", "seed")
METRICS = (
    *("accuracy", "best", "start", "area", "collapsed", "collapse_step", "diverged"),
    *(KL, "min rollout_corr/ess_kish_sequence_raw", "mean actor/clip_share"),
)


def cells() -> tuple[Run, ...]:
    """Twelve recipes at six lags and three learning rates, 600 steps."""
    run = replace(SMALL, steps=600)
    return grid(run, recipe=list(RECIPES), lag=list(LAGS), learning_rate=list(RATES))


def drawn(run: Run) -> bool:
    """Return whether a run's recipe is one of the three of its seed."""
    hands = len(RECIPES) // DEALT
    order = np.random.default_rng(rng.key(run.seed // hands, "lag-and-rate/recipes")).permutation(RECIPES)
    return run.recipe in order[run.seed % hands :: hands]


def from_rows(rows: pd.DataFrame) -> Table:
    """Return the table of the cells, with their accuracy where all rates have gone as far."""
    made = cell_table("lag-and-rate", rows, KEYS, METRICS)
    on_the_way = rows[rows["step"] * rows["learning_rate"] <= DISTANCE + 1e-9].sort_values("step")
    early = on_the_way.fillna({"accuracy": 0.0}).groupby(list(KEYS))["accuracy"].last().rename(ON_THE_WAY)
    return Table.of(made.name, made.frame.join(early, on=list(KEYS)), made.about)


EXPERIMENT = Experiment(
    "lag-and-rate",
    question="Does lag times learning rate, or KL per update, say what stale data cost in a toy LLM?",
    source=LAW,
    differs="a transformer of 7,000 weights with Adam, twelve recipes, 600 steps at every rate",
    cells=cells,
    drawn=drawn,
    from_rows=from_rows,
    stop=Stop(block=24, cap=48, begun_with=24),
    keys=KEYS,
    metrics=(*METRICS, ON_THE_WAY),
    margins={"accuracy that counts as equal": MARGIN, "gain in Kendall's tau": GAIN},
    figure=Plot(
        "curves by arm",
        x="product: lag × rate",
        y="lost: accuracy lost to staleness",
        arm=("rate",),
        panel="recipe",
        log="x",
        of=lambda table: losses(table),
    ),
)


def losses(table: pd.DataFrame, accuracy: str = "accuracy") -> pd.DataFrame:
    """Return the stale cells whose on-policy twin learned, with what they lost and what may foretell it.

    Foretold: product; KL per update: that of the cell of lag 4, a quarter, times the lag; KL: its own mean.
    """
    twin = ["recipe", "learning_rate", "seed"]
    fresh, near = (table[table["lag"] == lag].set_index(twin) for lag in LAGS[:2])
    old = table[table["lag"] > 0].join(fresh[accuracy].rename("fresh"), on=twin)
    old = old.join((near[KL] / LAGS[1]).rename("KL per update"), on=twin)
    old = old[old["fresh"] >= LEARNED]
    return old.assign(
        lost=old["fresh"] - old[accuracy],
        product=(old["lag"] * old["learning_rate"]).round(6),
        **{"KL per update": old["KL per update"] * old["lag"]},
    ).rename(columns={KL: "KL", "learning_rate": "rate"})


def orders(table: pd.DataFrame) -> pd.DataFrame:
    """Return per seed how well each sign orders losses: mean over recipes of Kendall's tau."""
    signs = ("product", "lag", "rate", "KL per update", "KL")
    by_recipe = losses(table).groupby(["seed", "recipe"], sort=False)
    found = {key: {sign: kendall(rows[sign], rows["lost"]) for sign in signs} for key, rows in by_recipe}
    each = pd.DataFrame.from_dict(found, orient="index").rename_axis(["seed", "recipe"])
    return each.dropna().groupby(level="seed").mean().loc[lambda x: sorted(x.index)]


def more_tau(table: pd.DataFrame, one: str, others: tuple[str, ...]) -> dict[str, pd.Series]:
    """Return by how much better one sign orders losses than each of the others, by seed."""
    tau = orders(table)
    return {other: tau[one] - tau[other] for other in others}


for _name, _said, _one, _others, _margin in (
    (
        "lag-times-rate-orders-losses-better-than-lag",
        "lag times rate orders the accuracy lost better, by 0.05, than the lag",
        *("product", ("lag",), GAIN),
    ),
    (
        "lag-times-rate-orders-losses-better-than-rate",
        "lag times rate orders the accuracy lost better, by 0.05, than the rate",
        *("product", ("rate",), GAIN),
    ),
    (
        "kl-per-update-times-lag-orders-losses-better",
        "the lag times KL(mu, pi) per update, of the run at lag 4, orders the accuracy lost better than lag "
        "times rate, and than the rate",
        *("KL per update", ("product", "rate"), 0.0),
    ),
    (
        "kl-to-the-data-orders-losses-better",
        "a run's own mean KL(mu, pi) orders the accuracy lost better than lag times rate, and than the rate",
        *("KL", ("product", "rate"), 0.0),
    ),
):
    EXPERIMENT.claim(
        _name,
        f"Over the stale runs of a recipe, {_said}: by Kendall's tau, mean over a seed's three recipes, on "
        "most seeds.",
    ).compare(partial(more_tau, one=_one, others=_others), by=_margin)


def gaps(lost: pd.DataFrame) -> Iterator[pd.Series]:
    """Yield per product what the highest rate loses more than the lowest of those that have it."""
    for product in EQUAL:
        same = lost[np.isclose(lost["product"], product)]
        wide = same.pivot(index=["seed", "recipe"], columns="rate", values="lost")
        yield wide[wide.columns.max()] - wide[wide.columns.min()]


def apart(table: pd.DataFrame, accuracy: str) -> pd.Series:
    """Return what the highest rate loses more than the lowest at equal products, mean of each seed."""
    found = pd.concat(list(gaps(losses(table, accuracy)))).dropna()
    return found.groupby(level="seed").mean().sort_index()


for _name, _where, _said in (
    ("equal-lag-times-rate-costs-alike", "accuracy", "after 600 steps"),
    ("equal-lag-times-rate-costs-alike-as-far-on", ON_THE_WAY, "where rate times steps is 0.6"),
):
    EXPERIMENT.claim(
        _name,
        f"At equal lag times rate the highest rate loses what the lowest loses, within 0.1, {_said}: mean "
        "over five products and a seed's three recipes, in the median over seeds.",
    ).equal(partial(apart, accuracy=_where), within=MARGIN)


def rise_in_collapses(table: pd.DataFrame) -> dict[str, pd.Series]:
    """Return by how much the share of collapsed runs rises from one zone of products to the next, by seed."""
    old = table[table["lag"] > 0]
    zone = pd.cut(old["lag"] * old["learning_rate"], [0, 0.08, 0.8, np.inf], labels=["low", "middle", "high"])
    share = old["collapsed"].groupby([old["seed"], zone], observed=True).mean().unstack()
    return {f"{a} to {b}": share[b] - share[a] for a, b in (("low", "middle"), ("middle", "high"))}


EXPERIMENT.claim(
    "collapse-grows-with-lag-times-rate",
    "The share of collapsed runs grows from products of lag and rate up to 0.04 to those of 0.12 to 0.4, and "
    "from these to 1.2 and more: the runs of a seed, on most seeds.",
).compare(rise_in_collapses)
