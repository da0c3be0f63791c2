"""A toy LLM learns from data of one exact lag, with one learning rate for all recipes: accuracy and ESS.

The second experiment reads the tails of sequence ratios in the same runs. The third judges how much accuracy
the oldest data cost REINFORCE and GRPO at that rate.
"""

from analysis.lab import Experiment, Frame, Plot, Stop, ask
from analysis.sweeps.base_runs import TOY
from analysis.tables.committed import Table
from analysis.tables.condensed import STALENESS, condense
from analysis.tables.outcomes import ACCURACY, ESS
from analysis.tables.tails import HISTOGRAM, exceedances
from testbed.config.run import Run, grid

SOURCE = "Zheng et al. (2025), Prosperity before Collapse, arXiv:2510.01161"


def by_lag() -> tuple[Run, ...]:
    """Five recipes at four lags, 2 seeds."""
    return grid(
        TOY, recipe=["reinforce", "grpo", "gspo", "m2po", "vcpo"], lag=[0, 16, 64, 128], seed=range(2)
    )


def curves(rows: Frame) -> Table:
    """Return accuracy and ESS per recipe, lag, seed and step."""
    return condense(rows)["staleness"]


CURVES = Experiment(
    "staleness",
    question="Which recipes hold, and which collapse, as the data that they learn from grow old?",
    source=SOURCE,
    differs="a transformer of 26,000 weights on running sums in place of large language models; one learning "
    "rate for all, so a stress test, not a ranking of methods",
    cells=by_lag, seeds=range(8), from_rows=curves, keys=("recipe", "lag", "seed", "step"), metrics=STALENESS,
    figure=Plot(
        "curves by arm", x="step: optimizer step", y=f"{ACCURACY}: held-out accuracy", arm=("recipe",),
        panel="lag", panel_label="lag", also=({"y": f"{ESS}: sequence ESS (share of N)", "log": "y"},),
        says="Shows recipes that learn from data exactly `lag` optimizer steps old, all at one learning "
        "rate: a stress test, not a ranking; accuracy, and the Kish ESS of sequence ratios as a share of a "
        "step's N sequences; no sample puts it below 1/N; up to step = lag the data come from the start "
        "weights.",
    ),
    see=("token-ess-hides-collapse", "staleness-costs-grpo-accuracy"),
)  # fmt: skip


def histograms(rows: Frame) -> Table:
    """Return the histogram of log sequence ratios per recipe, lag and seed, summed over steps."""
    return condense(rows)["ratio-tails"]


TAILS = Experiment(
    "ratio-tails",
    question="How heavy are the tails of sequence ratios while a recipe learns from stale data?",
    source="this project", runs="staleness", from_rows=histograms, keys=("recipe", "lag", "seed"),
    metrics=(HISTOGRAM, "ratios"),
    figure=Plot(
        "curves by arm", x="log rho: log ρ of a sequence", y="share: P(log ρ ≥ x)", arm=("lag: lag",),
        panel="recipe", log="y", of=lambda table: exceedances(table, ["recipe", "lag", "seed"]),
        says="Shows the share of sampled sequences whose log importance ratio is at least x, from all steps "
        "at which the lag was in full effect; where a curve starts below 1 at the left, the rest are "
        "sequences that the current policy would hardly write any more; no distribution of ratios exceeds "
        "exp(-x) (Markov).",
    ),
)  # fmt: skip


OLD = 128


def fresh_and_old() -> tuple[Run, ...]:
    """REINFORCE and GRPO, on-policy and at lag 128."""
    return grid(TOY, recipe=["reinforce", "grpo"], lag=[0, OLD], seed=[0])


COST = Experiment(
    "staleness-cost",
    question="What do data that are 128 steps old cost, with a clip and without?",
    source=SOURCE,
    differs="a transformer of 26,000 weights on running sums; the learning rate of the stress test",
    cells=fresh_and_old, stop=Stop(), keys=("recipe", "lag", "seed"),
    metrics=("accuracy", "best", "start", "collapsed", "collapse_step"),
    figure=Plot(
        "final by setting", x="lag: lag (optimizer steps)", y="accuracy: final accuracy", arm=("recipe",),
    ),
)  # fmt: skip


PLAIN, CLIPPED = {"recipe": "reinforce"}, {"recipe": "grpo"}

COST.claim(
    "reinforce-collapses-where-grpo-holds",
    "At lag 128, unclipped REINFORCE collapses on more seeds than clipped GRPO does.",
).happens("collapsed", PLAIN, CLIPPED, over={"lag": OLD})
ask(COST, "staleness-costs-grpo-accuracy", "GRPO ends with lower accuracy at lag 128 than on-policy, on most "
    "seeds.", {"lag": 0}, {"lag": OLD}, source=f"{SOURCE}, figure 1", over=CLIPPED)  # fmt: skip
