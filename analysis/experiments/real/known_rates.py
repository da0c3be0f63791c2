"""Learning rates for four recipes on SmolLM2-135M-Instruct, by lag; its seeds serve nothing else."""

from dataclasses import replace

from analysis.experiments.real.known_model import BASE, prepare
from analysis.lab import Experiment, Plot
from analysis.sweeps.tuning import at_rates
from analysis.tables.cell_table import arms_of
from testbed.config.run import Run

LAGS = (0, 32)
GRID = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
LADDER = {
    "REINFORCE": Run(recipe="reinforce"),
    "with importance weights": Run(recipe="importance", recipe_args=(("level", "token"),)),
    "with standardized advantages": Run(recipe="grpo", recipe_args=(("eps_high", 1e6), ("eps_low", 1.0))),
    "with a clip: GRPO": Run(recipe="grpo"),
}
"""From REINFORCE to GRPO, a part a step; the third also takes GRPO's mean over tokens, and has no clip."""
WORDS = {
    "reinforce": "REINFORCE",
    "importance": "+ importance weights",
    "grpo": "GRPO",
    "level=token": "",
    "eps_high=1000000,eps_low=1": "without its clip",
}
"""Short names of the arms for figures."""
ENDS = ("REINFORCE", "with a clip: GRPO")
"""Arms on fresh data too: there all ratios are 1, so that weights and clip change nothing."""
KEYS = ("recipe", "recipe_args", "lag")


def arms() -> tuple[Run, ...]:
    """Return the four recipes at lag 32, two on fresh data too; 80 steps of 4 x 8 responses."""
    base = replace(
        BASE,
        policy_args=(("lora", 8), ("dtype", "float32")),
        device="cuda",
        steps=80,
        log_every=10,
        evaluation_prompts=64,
    )
    return tuple(
        replace(base, recipe=arm.recipe, recipe_args=arm.recipe_args, lag=lag)
        for lag in LAGS
        for name, arm in LADDER.items()
        if lag == max(LAGS) or name in ENDS
    )


def cells() -> tuple[Run, ...]:
    """Every arm at five rates half a decade apart, on 3 tuning seeds."""
    return at_rates(arms(), GRID, seeds=3)


EXPERIMENT = Experiment(
    question="Which learning rate suits REINFORCE, GRPO and what lies between on SmolLM2, by lag?",
    source="own design: rates are chosen before they are compared",
    prepare=prepare,
    cells=cells,
    keys=(*KEYS, "learning_rate", "seed"),
    metrics=("accuracy", "last accuracy", "mean accuracy", "mean rollout_corr/kl_mu_pi_k3"),
    figure=Plot(
        "final by setting",
        x="learning_rate: learning rate",
        y="accuracy: final held-out accuracy",
        arm=("recipe: ", "recipe_args: "),
        panel="lag",
        panel_label="lag",
        names=WORDS,
        log="x",
    ),
)

NAMES = arms_of(LADDER, LADDER.values(), ("recipe", "recipe_args"))
"""The arms as columns of a table tell them."""
