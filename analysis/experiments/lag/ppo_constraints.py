"""PPO-max: which constraint keeps PPO with a critic alive when each batch is used four times?"""

from dataclasses import replace

import pandas as pd

from analysis.experiments.rewards.turn_training import GAME
from analysis.lab import Evidence, Experiment, Part, Plot, Stop, arms, happens_mostly, median_exceeds
from testbed.config.run import Arguments, Run

SOURCE = "Zheng et al. (2023), Secrets of RLHF I, arXiv:2307.04964"
FULL: dict[str, float | bool | int] = {"eps": 0.2, "kl": 0.05, "normalize": True, "passes": 4}
OPEN = 0.999
"""A clip range that only cuts ratios below a thousandth and above two."""
ARMS: dict[str, Arguments] = {
    "all": tuple(FULL.items()),
    "no clip": tuple((FULL | {"eps": OPEN}).items()),
    "no kl": tuple((FULL | {"kl": 0.0}).items()),
    "no normalization": tuple((FULL | {"normalize": False}).items()),
    "none": tuple((FULL | {"eps": OPEN, "kl": 0.0, "normalize": False}).items()),
}
LARGE = replace(GAME, lag=0, learning_rate=3e-2, steps=160)
KEYS = ("recipe_args.eps", "recipe_args.kl", "recipe_args.normalize")
LESS = 0.05


def cells() -> tuple[Run, ...]:
    """PPO with all three constraints, without each, and without any."""
    return tuple(replace(LARGE, recipe_args=given, seed=0) for given in ARMS.values())


EXPERIMENT = Experiment(
    "ppo-constraints",
    question="Which of PPO's constraints keeps training with a critic alive?",
    source=SOURCE,
    differs=(
        "a transformer of 4,000 weights that guesses numbers, a reward without a model, a large "
        "learning rate; "
        "rewards are 0 and 1, so that their normalization and clipping, the value clip and a critic "
        "that learns "
        "beforehand are left out"
    ),
    cells=cells,
    stop=Stop(block=8, cap=32, begun_with=16),
    keys=(*KEYS, "seed"),
    metrics=("accuracy", "best", "start", "collapsed", "val/kl_start_k3"),
    margins={"accuracy that counts as lost": LESS},
    figure=Plot(
        "distribution",
        x="recipe_args.eps: clip range",
        y="accuracy: final accuracy",
        arm=("recipe_args.kl: KL penalty", "recipe_args.normalize: normalized advantages"),
    ),
    systems={
        "Secrets of RLHF I (PPO-max)": Part(
            "clip, KL penalty and normalized advantages; not reward and value clipping, nor ten times "
            "the steps"
        )
    },
)


def _by_arm(table: pd.DataFrame, value: str) -> pd.DataFrame:
    where = {name: {key: dict(given)[key.partition(".")[2]] for key in KEYS} for name, given in ARMS.items()}
    return arms(table, value, where)


@EXPERIMENT.claim()
def policy_constraints_decide(table: pd.DataFrame) -> Evidence:
    """Without clip, KL and normalization PPO ends lower than with all three, by 0.05 in the median."""
    found = _by_arm(table, "accuracy")
    return median_exceeds(
        found["all"] - found["none"], LESS, "median loss of accuracy without any constraint"
    )


@EXPERIMENT.claim()
def the_clip_decides_alone(table: pd.DataFrame) -> Evidence:
    """Without the clip alone PPO ends lower than with all three, by 0.05 in the median."""
    found = _by_arm(table, "accuracy")
    return median_exceeds(found["all"] - found["no clip"], LESS, "median loss of accuracy without the clip")


@EXPERIMENT.claim()
def constrained_ppo_does_not_collapse(table: pd.DataFrame) -> Evidence:
    """With all three constraints PPO does not collapse on more than half of all seeds."""
    lost = _by_arm(table, "collapsed") > 0.5
    return happens_mostly(~lost["all"], "share of seeds on which all constraints together survived")
