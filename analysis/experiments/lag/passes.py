"""Up to sixteen updates on every batch, by plain reuse, SFPO and R2VPO."""

from dataclasses import replace

from analysis.lab import Experiment, Part, Stop, Tuned, strips
from analysis.sweeps.base_runs import LITE
from analysis.tables.cell_table import arms_of
from testbed.config.run import Run

KEPT = 0.1
"""Smallest gain in the share of tokens that keep a gradient. Set before the sweep was run."""
BASE = replace(LITE, steps=150, log_every=5)
PASSES = {
    "GRPO": replace(BASE, recipe="grpo"),
    "GRPO x4": replace(BASE, recipe="sfpo", recipe_args=(("alpha", 1), ("fast", 3))),
    "GRPO x16": replace(BASE, recipe="sfpo", recipe_args=(("alpha", 1), ("fast", 15))),
    "SFPO, 1 fast": replace(BASE, recipe="sfpo", recipe_args=(("alpha", 0.8), ("fast", 1))),
    "SFPO, 3 fast": replace(BASE, recipe="sfpo", recipe_args=(("alpha", 0.8), ("fast", 3))),
    "SFPO, 5 fast": replace(BASE, recipe="sfpo", recipe_args=(("alpha", 0.8), ("fast", 5))),
    "SFPO, alpha 0.25": replace(BASE, recipe="sfpo", recipe_args=(("alpha", 0.25), ("fast", 3))),
    "R2VPO x4": replace(BASE, recipe="r2vpo", recipe_args=(("passes", 4),)),
    "R2VPO x16": replace(BASE, recipe="r2vpo", recipe_args=(("passes", 16),)),
}
"""With alpha 1 SFPO keeps every fast step, so it equals GRPO with that many passes."""
STALE = {name: replace(PASSES[name], lag=64) for name in ("GRPO", "GRPO x4", "R2VPO x4")}
KEYS = ("recipe", "recipe_args", "lag")
FRESH, OLD = (arms_of(arms, arms.values(), KEYS) for arms in (PASSES, STALE))
DRIFT, CUT, NEEDED = "val/kl_start_k3", "mean actor/clip_share_last_pass", "rollouts_to 0.8"


def cells() -> tuple[Run, ...]:
    """All arms on fresh data and three at lag 64, each at its rate with the largest area under the curve."""
    return (*PASSES.values(), *STALE.values())


def rates(run: Run) -> tuple[float, ...]:
    """Return the learning rates to try for an arm: smaller ones for many passes."""
    return (3e-4, 1e-3, 3e-3) if run in (PASSES["GRPO x16"], PASSES["R2VPO x16"]) else (1e-3, 3e-3, 1e-2)


def drawn(run: Run) -> bool:
    """Return whether to run a seed: all arms share some, and arms of undecided claims have more."""
    open_ = run.lag > 0 and (run.recipe, run.recipe_args) in (("grpo", ()), ("r2vpo", (("passes", 4),)))
    return open_ or run.seed in range(100, 124) or run.seed in range(1000, 1024)


EXPERIMENT = Experiment(
    question="How many rollouts do more updates on every batch save, by whose rule, and what do they cost?",
    source="SFPO, arXiv:2510.04072; R2VPO, arXiv:2601.03320",
    differs="a transformer of 7,000 weights, sums of 6 digits, 150 steps of 32 responses; no entropy "
    "trigger; plain reuse clips around the weights of a batch's first pass, not around its sampler",
    cells=cells,
    tuned=Tuned(rates, "area"),
    drawn=drawn,
    stop=Stop(block=12, cap=96, begun_with=24),
    keys=(*KEYS, "seed"),
    metrics=(
        *("accuracy", "area", "collapsed", "rollouts_to 0.5", NEEDED, "rollouts_to 0.9"),
        *(DRIFT, CUT, "mean actor/learning_rate"),
    ),
    margins={"share of tokens more that keep a gradient": KEPT},
    figure=strips(
        NEEDED,
        "Shows rollouts until an accuracy of 0.8 on fresh sums of six digits, for a "
        "transformer of 7,000 weights; runs that never get there are left out; GRPO makes 1, 4 or 16 updates "
        "on a batch; SFPO makes 1, 3 or 5 fast updates, keeps a share alpha of their change (0.8 where not "
        "named), then makes a slow one; r2VPO penalizes the variance of the ratios instead of clipping and "
        "makes 4 or 16; each arm has its best rate.",
        y="recipe_args",
        where={"lag": 0},
        names={str(arm["recipe_args"]): name for name, arm in FRESH.items()},
        x_label="rollouts to accuracy 0.8, fresh data",
        y_label="updates on a batch",
    ),
    systems={
        "SFPO (Slow-Fast)": Part(claims=("sfpo-*",)),
        "R²VPO": Part(
            "at one lag, a side matter: this project chose its budget and the step of its dual variable, and "
            "GRPO keeps a clip of .2 and one update; the arena tunes both",
            ("r2vpo-*",),
        ),
    },
)

EXPERIMENT.claim(
    "sfpo-3-fast-needs-fewer-rollouts-than-grpo-x4",
    "SFPO, 3 fast needs fewer rollouts than GRPO x4 to accuracy 0.8, on most seeds.",
).happens(NEEDED, FRESH["SFPO, 3 fast"], FRESH["GRPO x4"], times=1)
EXPERIMENT.claim(
    "r2vpo-halves-the-rollouts-of-grpo-at-lag-64",
    "At lag 64, R2VPO x4 needs under half the rollouts of GRPO to accuracy 0.8, on most seeds.",
).happens(NEEDED, OLD["R2VPO x4"], OLD["GRPO"], times=2)
for _name, _rival in (
    ("r2vpo-ends-above-grpo-x4-at-lag-64", "GRPO x4"),
    ("r2vpo-ends-above-grpo-at-lag-64", "GRPO"),
):
    EXPERIMENT.claim(
        _name, f"At lag 64, R2VPO x4 ends with a higher accuracy than {_rival}, on most seeds."
    ).compare("accuracy", OLD["R2VPO x4"], OLD[_rival])
