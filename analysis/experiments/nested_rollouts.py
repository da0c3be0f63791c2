"""Nested-ReFT: responses that the policy writes with a part of its layers, and what corrects them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd

from analysis.claims import Evidence, exact
from analysis.comparisons import Arm, arms, at_floor, short_of
from analysis.experiment import Experiment, Part, Stop
from analysis.experiments.shared_rates import CORRECTIONS, KEYS, NAME, SKIPPED, nested_cells
from analysis.lab_rates import tuned
from analysis.plot import Plot
from analysis.sequential import median_exceeds, median_within
from testbed.config.run import Run

NESTED = "Nested-ReFT, arXiv:2508.10123 (abstract)"
MARGIN = 0.02
"""Accuracy. Set before the sweep was run."""
ARMS: dict[str, Arm] = {
    "all layers": {"recipe": "rec_oneside", "mismatch": "off"},
    "uncorrected": {"recipe": "rec_oneside", "mismatch": "skip-layers"},
    **{name: {"recipe": name, "mismatch": "skip-layers"} for name in CORRECTIONS},
}


def cells() -> tuple[Run, ...]:
    """Rollouts of all layers, and of three in four with no correction and with three, at their best rates."""
    return tuple(replace(cell, seed=0) for cell in tuned(nested_cells(), NAME, KEYS))


EXPERIMENT = Experiment(
    "nested-rollouts",
    question="Can a policy learn from responses that it wrote without a fourth of its layers?",
    source=NESTED,
    differs=(
        "a transformer of 13,000 weights in 4 layers; one layer, drawn anew for every batch, is "
        "skipped; the source's three mitigations are not stated: TIS, IcePop and "
        "masked sequences here"
    ),
    cells=cells,
    stop=Stop(block=16, cap=16),
    keys=("mismatch", "recipe", "seed"),
    metrics=("accuracy", "best", "collapsed", "mean rollout_corr/kl_mu_pi_k3", "mean reward/mean"),
    margins={"accuracy that counts as equal": MARGIN},
    figure=Plot(
        "distribution",
        x="mismatch",
        y="accuracy",
        arm=("recipe",),
        names={
            "off": "all layers",
            "skip-layers": f"{SKIPPED:.0%} skipped",
            "rec_oneside": "no correction",
        },
        x_label="layers that write",
        y_label="final accuracy",
    ),
    systems={"Nested-ReFT": Part("variance and final accuracy; tokens per second are not measured")},
)


def _kept(table: pd.DataFrame, name: str) -> Evidence:
    """Return the equivalence evidence of final accuracies, paired by seed."""
    found = arms(table, "accuracy", ARMS)
    middle = found.median()
    note = f"{MARGIN:g} less the median change; medians {middle[name]:.3f}, {middle['all layers']:.3f}"
    floored = [name] if at_floor([found[name], found["all layers"]], MARGIN) else []
    return median_within({name: found[name] - found["all layers"]}, MARGIN, note, floored)


def _helps(table: pd.DataFrame, name: str) -> Evidence:
    """Return the evidence about the difference of final accuracies, paired by seed."""
    found = arms(table, "accuracy", ARMS)
    middle = found.median()
    note = f"median gain; medians {middle[name]:.3f}, {middle['uncorrected']:.3f} uncorrected"
    return median_exceeds(found[name] - found["uncorrected"], 0.0, note)


for _name, _with in (
    ("uncorrected", "no correction"),
    ("tis", "TIS"),
    ("icepop", "IcePop"),
    ("sequence_mask_tis", "masked sequences and TIS"),
):
    EXPERIMENT.claim(
        f"skipped-layers-keep-accuracy-with-{_name.replace('_', '-')}",
        statement=(
            f"With one of four layers skipped in rollouts and {_with} the final accuracy is within 0.02 of "
            "that with rollouts of all layers, in the median over seeds."
        ),
    )(partial(_kept, name=_name))
    if _name != "uncorrected":
        EXPERIMENT.claim(
            f"{_name.replace('_', '-')}-helps-where-layers-are-skipped",
            statement=f"There {_with} ends at a higher accuracy than no correction, on most seeds.",
        )(partial(_helps, name=_name))


@EXPERIMENT.claim(
    "variance-grows-with-the-share-of-skipped-layers",
    source=f"{NESTED}: controlled variance",
    statement=(
        "The variance of a response's weighted gradient, by enumeration and averaged over drawn sets of "
        "skipped layers, grows by 1 % and more from a share of 0 to 1/4 to 1/2, in 2 transformers of 4 "
        "layers that are right half of the time."
    ),
)
def variance_grows() -> Evidence:
    """Return by how much variances fall where the share rises, relative to that of all layers."""
    drops, growth = [], []
    for seed in range(2):
        found = _variances(seed, (0.0, 0.25, 0.5))
        drops += [short_of(b / a, 1.01) for a, b in pairwise(found)]
        growth.append([value / found[0] for value in found[1:]])
    quarter, half = np.median(growth, 0)
    return exact(drops, 1e-9, f"relative falls; median variance {quarter:.2f} and {half:.2f} times that of 0")


def _variances(seed: int, ratios: tuple[float, ...]) -> list[float]:
    """Return E_mu |W R d log pi|^2 - |E_pi R d log pi|^2 for each share of layers, averaged over 8 draws."""
    import torch

    from envs.catalog import token_task
    from testbed.mismatch import engine
    from testbed.mismatch.behavior import Behavior
    from testbed.mismatch.report import every_rollout
    from testbed.policies.toy.transformer import ToyTransformer

    task = token_task("running-sum", {"digits": 3, "modulus": 2})
    policy = ToyTransformer(task, width=8, heads=2, layers=4, dtype=torch.float64)
    rollout = every_rollout(task, task.prompts(np.random.default_rng(seed), 1), replicas=1)
    where = rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT
    right_X = rollout.reward_RB[0].nonzero()[:, 0]
    theta_RP = policy.initial((seed,)).requires_grad_()
    learner = torch.optim.Adam([theta_RP], lr=3e-2)
    for _ in range(200):
        log_pi_X = policy.logp(theta_RP, *where).sum(-1)[0, right_X]
        if log_pi_X.exp().sum() >= 0.5:
            break
        learner.zero_grad()
        (-log_pi_X.logsumexp(0)).backward()
        learner.step()
    score = [torch.autograd.grad(each, theta_RP, retain_graph=True)[0][0] for each in log_pi_X]
    score_XP, pi_X = torch.stack(score), log_pi_X.detach().exp()
    found = []
    for ratio in ratios:
        behavior = Behavior(policy, engine("skip-layers", ratio=ratio), (seed,))
        drawn = [behavior.logp(theta_RP.detach(), rollout, step).sum(-1)[0, right_X] for step in range(8)]
        square_X = (pi_X.square() / torch.stack(drawn).exp()).mean(0)
        found.append(float(square_X @ score_XP.square().sum(1) - (pi_X @ score_XP).square().sum()))
    return found
