"""GRPO with and without its clip, and REINFORCE, on SmolLM2-135M-Instruct and data 32 optimizer steps old."""

from dataclasses import replace

import pandas as pd

from analysis.experiments.real.known_model import AREA, BASE, ESS, MARGIN, prepare
from analysis.lab import Experiment, Plot, Stop
from analysis.tables.cell_table import arms_of
from testbed.config.run import Run, grid

LAG, LAST = 32, "last accuracy"
LOST = 0.1
"""Final accuracy below which a run has collapsed; SmolLM2 begins at about 0.3. Set before the runs."""
PARTS = {
    "REINFORCE": Run(recipe="reinforce"),
    "open": Run(recipe="grpo", recipe_args=(("eps_high", 1e6), ("eps_low", 1.0))),
    "GRPO": Run(recipe="grpo"),
}
"""Open: GRPO's importance weights, standardized advantages and mean over tokens, its ratio unbounded."""
PLAIN, OPEN, CLIPPED = arms_of(PARTS, PARTS.values(), ("recipe", "recipe_args")).values()


def named(table: pd.DataFrame) -> pd.Series:
    """Return the arm of each row in words."""
    bounded = (table["recipe_args"] == CLIPPED["recipe_args"]).map(
        {True: "GRPO, clip 0.2", False: "GRPO, no clip"}
    )
    return bounded.where(table["recipe"] == "grpo", "REINFORCE")


def cells() -> tuple[Run, ...]:
    """Three recipes at 3e-4 and lag 32: 56 steps of 4 x 8 responses."""
    base = replace(
        BASE,
        policy_args=(*BASE.policy_args, ("attention", "eager")),
        lag=LAG,
        steps=56,
        log_every=11,
        evaluation_prompts=16,
    )
    arms = (replace(base, recipe=arm.recipe, recipe_args=arm.recipe_args) for arm in PARTS.values())
    return tuple(run for arm in arms for run in grid(arm, seed=range(8)))


EXPERIMENT = Experiment(
    question="Is it the clip of GRPO that keeps a language model that people know from failing on old data?",
    source="this project; SmolLM2-135M-Instruct, Apache-2.0",
    differs=(
        "56 steps, one rate, tuned for no arm, bfloat16 adapters, one task; the runs of GRPO and REINFORCE "
        "were known when the third arm was designed"
    ),
    prepare=prepare,
    cells=cells,
    stop=Stop(block=10, cap=40, first=200, fresh=2000),
    keys=("recipe", "recipe_args", "seed"),
    metrics=("accuracy", LAST, AREA, ESS, "mean actor/clip_share", "mean rollout_corr/kl_mu_pi_k3"),
    margins={"accuracy that counts": MARGIN, "accuracy of a collapsed run": LOST},
    figure=Plot(
        "strips",
        x=f"{LAST}: held-out accuracy after 56 steps",
        y="recipe: ",
        of=lambda table: table.assign(recipe=named(table)),
        also=({"x": f"{ESS}: mean sequence ESS"},),
    ),
)

EXPERIMENT.claim(
    "reinforce-fails-on-smollm2-on-old-data",
    "At lag 32 and rate 3e-4 REINFORCE is below an accuracy of 0.1 after 56 steps, in the median.",
).compare(LAST, PLAIN, by=LOST, below=True)

EXPERIMENT.claim(
    "grpo-without-its-clip-keeps-smollm2-on-old-data",
    "At lag 32 and rate 3e-4 GRPO without its clip is 0.05 above REINFORCE after 56 steps, in the median.",
).compare(LAST, OPEN, PLAIN, by=MARGIN)

EXPERIMENT.claim(
    "a-clip-helps-smollm2-on-old-data",
    "At lag 32 and rate 3e-4 GRPO is 0.05 above GRPO without its clip after 56 steps, in the median.",
).compare(LAST, CLIPPED, OPEN, by=MARGIN)
