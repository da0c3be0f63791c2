"""PPO-max on a reward model: each of its constraints taken away, and ten times the steps with all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.experiments.lag.ppo_controls import CRITIC, LEARNED, clipped
from analysis.lab import Evidence, Experiment, Part, Plot, happens_mostly
from analysis.worlds.edited_training import Arm, gained, swept

if TYPE_CHECKING:
    from torch import Tensor

NAME = "learned-constraints"
SEEDS, LESS = 16, 0.05
"""The margin is accuracy. Set before the table was made."""
FULL: dict[str, Any] = {"eps": 0.2, "kl": 0.05, "normalize": True, "passes": 2}
START = replace(LEARNED, steps=100, log_every=10)


def raw(reward: Tensor) -> Tensor:
    """Return rewards as a model on another scale would give them."""
    return 10 * reward + 5


def without(bend: Any = clipped, critic: Any = CRITIC, **other: Any) -> Arm:
    """Return PPO-max with something else in place of a constraint."""
    return Arm(replace(START, recipe_args=tuple((FULL | other).items()), critic_args=critic), bend=bend)


ARMS: Mapping[str, Arm] = {
    "all": without(),
    "kl": without(kl=0.0),
    "clip": without(eps=0.999),
    "normalized advantages": without(normalize=False),
    "scaled rewards": without(raw),
    "value clip": without(critic=(("first", 20),)),
    "critic's first steps": without(critic=(("clip", 0.2),)),
    "policy": without(eps=0.999, kl=0.0, normalize=False),
    "reward and critic": without(raw, ()),
    "long": replace(without(), run=replace(without().run, steps=1000, log_every=100)),
}
METRICS = ("accuracy", "best", "start", "collapsed", "val/kl_start_k3", "val/proxy")


EXPERIMENT = Experiment(
    NAME,
    question="Which of PPO-max's constraints keep PPO on a reward model alive?",
    source="Zheng et al. (2023), Secrets of RLHF I, arXiv:2307.04964",
    differs=(
        "a transformer of 4,000 weights on six running sums; a reward model linear in right places; a rate "
        "that is large on purpose; rewards are scaled by the base's, not by a running mean"
    ),
    compute=swept(NAME, ARMS, METRICS, SEEDS, {"arm": "what is taken away", "long": "ten times the steps"}),
    keys=("run", "arm", "seed"),
    metrics=("rate", *METRICS),
    margins={"accuracy": LESS},
    figure=Plot("strips", x="accuracy: final accuracy", y="arm: constraint taken away"),
    systems={"Secrets of RLHF I (PPO-max)": Part()},
)


for _name in [*ARMS][1:9]:
    _all = "all constraints of " if _name in ("policy", "reward and critic") else ""
    EXPERIMENT.claim(
        f"ppo-max-loses-without-{_name.replace(chr(39), '').replace(' ', '-')}",
        statement=f"Without {_all}{_name} PPO-max ends 0.05 less accurate on a reward model, in the median.",
    )(partial(gained, value="accuracy", pairs=(("all", _name),), margin=LESS))

EXPERIMENT.claim(
    "policy-constraints-decide-more-than-others",
    statement="Without the policy's constraints it ends lower than without the reward's and critic's.",
)(partial(gained, value="accuracy", pairs=(("reward and critic", "policy"),), margin=0.0))


@EXPERIMENT.claim(
    "ppo-max-holds-for-ten-times-the-steps",
    statement="Over ten times as many steps PPO-max ends above its start, uncollapsed, on most seeds.",
)
def long_runs(table: pd.DataFrame) -> Evidence:
    """Return the evidence of seeds."""
    long = table[table["arm"] == "long"]
    kept = (long["collapsed"] < 0.5) & (long["accuracy"] > long["start"])
    return happens_mostly(kept, "share of seeds")
