"""ALP: noise on hidden states in the ratio's numerator, in all layers, some, or on the logits alone."""

from dataclasses import replace
from functools import partial

import pandas as pd

from analysis.experiments.lag.parts_rates import KEYS, NAME, PLACES, alp_cells
from analysis.lab import Arm, Evidence, Experiment, Part, Plot, Stop, arms, median_exceeds, median_stays_below
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

TAIL, SPIKE = "max rollout_corr/log_rho_token_p999", "max rollout_corr/kl_mu_pi_k3"
PLAIN = "layers=4,width=16"
ALL, FIRST, LAST, LOGITS = (f"layers=4,perturb=0.3,perturb_where={where},width=16" for where in PLACES)
ARMS: dict[str, Arm] = {
    "GRPO": {"recipe": "grpo", "policy_args": PLAIN},
    "TIS": {"recipe": "tis", "policy_args": PLAIN},
    "ALP": {"recipe": "alp", "policy_args": ALL},
    "ALP, first half": {"recipe": "alp", "policy_args": FIRST},
    "ALP, last half": {"recipe": "alp", "policy_args": LAST},
    "ALP, logits": {"recipe": "alp", "policy_args": LOGITS},
}


def cells() -> tuple[Run, ...]:
    """GRPO, TIS and ALP in four sets of places, on a noisy engine's rollouts, each at its best rate."""
    return tuple(replace(cell, seed=0) for cell in tuned(alp_cells(), NAME, KEYS))


EXPERIMENT = Experiment(
    "alp-layers",
    question="Does learned noise in all layers keep ratio tails and KL flat on a noisy engine's rollouts?",
    source="ALP (2026), arXiv:2603.19470",
    differs=(
        "a transformer of 13,000 weights in 4 layers; an engine with noise on its weights, and lag 4; the "
        "noise's size starts at 0.3 in every arm and learns at the rate of the weights; rates from three, "
        "0.003 for noise in halves and 0.001 for the rest, so that the rate may be what sets halves apart"
    ),
    cells=cells,
    stop=Stop(block=16, cap=96, begun_with=16),
    keys=("recipe", "policy_args", "seed"),
    metrics=("accuracy", "best", "start", "collapsed", TAIL, SPIKE, "val/entropy"),
    figure=Plot(
        "distribution",
        x="recipe",
        y="accuracy: final accuracy",
        arm=("policy_args: noise",),
        names={
            PLAIN: "no noise",
            ALL: "all layers",
            FIRST: "first half",
            LAST: "last half",
            LOGITS: "logits",
        },
    ),
    systems={"ALP (Adaptive Layerwise Perturbation)": Part()},
)


def _compare(table: pd.DataFrame, metric: str, rival: str) -> Evidence:
    """Return the evidence about ALP in all layers less a rival, paired by seed."""
    found = arms(table, metric, ARMS)
    middle = found.median()
    note = f"median difference; medians {middle['ALP']:.3f} and {middle[rival]:.3f}"
    test = median_exceeds if metric == "accuracy" else median_stays_below
    return test(found["ALP"] - found[rival], 0.0, note)


_RIVALS = {
    "grpo": ("GRPO", "than GRPO"),
    "tis": ("TIS", "than TIS"),
    "first-half": ("ALP, first half", "than with noise in the first half of the layers"),
    "last-half": ("ALP, last half", "than with noise in the last half of the layers"),
    "logits": ("ALP, logits", "than with noise on the logits"),
}
for _metric, _verb, _what in (
    ("accuracy", "ends-above", "ends at a higher accuracy"),
    (TAIL, "has-lighter-tails-than", "has a smaller largest 99.9 % quantile of token log-ratios"),
    (SPIKE, "has-smaller-kl-spikes-than", "has a smaller largest KL from sampler to policy"),
):
    for _name, (_rival, _than) in _RIVALS.items():
        EXPERIMENT.claim(
            f"alp-in-all-layers-{_verb}-{_name}",
            statement=f"On a noisy engine's rollouts ALP in all layers {_what} {_than}, on most seeds.",
        )(partial(_compare, metric=_metric, rival=_rival))
