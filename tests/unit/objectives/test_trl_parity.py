"""TRL's own loss code and ours give the same value and the same gradient, loss type by loss type.

Value and gradient are compared in float64 to 1e-6, on random ragged batches with tool tokens. TRL sums up
micro-batches by itself: the divisor of a token mean comes from the generation batch, and means over
sequences are divided by the number of accumulated micro-batches.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from support.trl_stub import ACCUMULATION, STEPS_PER_GENERATION, batch_of_inputs, random_inputs, stub_trainer

from testbed.losses.aggregate import aggregate
from testbed.objectives import objective

trl = pytest.importorskip("trl")

SEEDS = range(5)


@dataclass(frozen=True)
class Pair:
    """Options of TRL's loss, and the objective and aggregation that say the same here."""

    name: str
    trl: dict[str, Any]
    objective: str
    hyper: dict[str, Any] = field(default_factory=dict)
    how: str = "sequence_mean"
    length: float = 0.0
    penalty: str = ""
    penalty_hyper: dict[str, Any] = field(default_factory=dict)

    @property
    def loss_type(self) -> str:
        return self.trl.get("loss_type", "grpo")


CLIP = {"eps_low": 0.2, "eps_high": 0.28}
HIGHER = {"epsilon_high": 0.28}
WHOLE = {"importance_sampling_level": "sequence"}
NARROW = {**WHOLE, "epsilon_low": 3e-4, "epsilon_high": 4e-4}
LUSPO = {**WHOLE, "loss_type": "luspo", "epsilon_low": 2e-3, "epsilon_high": 2.5e-3}
GSPO_CLIP = {"eps_low": 3e-4, "eps_high": 4e-4}
KL = {"beta": 0.04, "use_bias_correction_kl": False}
STEEP = {"sapo_temperature_pos": 2.0, "sapo_temperature_neg": 4.0}
MEAN = {"how": "constant", "length": 1}
SUM = {"how": "token_sum"}
PAIRS = (
    Pair("grpo", {"loss_type": "grpo", **HIGHER}, "ppo_clip", CLIP),
    Pair("bnpo", {"loss_type": "bnpo"}, "ppo_clip", how="token_mean"),
    Pair("dr_grpo", {"loss_type": "dr_grpo"}, "ppo_clip", how="constant", length=11),
    Pair("dapo", {"loss_type": "dapo", **HIGHER}, "ppo_clip", CLIP, **SUM),
    Pair("two-sided", {"delta": 1.6, **HIGHER}, "two_sided", {**CLIP, "delta": 1.6}),
    Pair("two-sided below the clip", {"delta": 1.1}, "two_sided", {"delta": 1.1}),
    Pair("gspo, wide", WHOLE, "gspo", {"eps_low": 0.2, "eps_high": 0.2}, **MEAN),
    Pair("gspo", NARROW, "gspo", **MEAN),
    Pair("gspo, dapo", {"loss_type": "dapo", **NARROW}, "luspo", GSPO_CLIP, **SUM),
    Pair("gspo, bnpo", {"loss_type": "bnpo", **NARROW}, "gspo", how="length_weighted"),
    Pair("luspo", LUSPO, "luspo", **MEAN),
    Pair("luspo, token ratios", {"loss_type": "luspo"}, "ppo_clip", **MEAN),
    Pair("cispo", {"loss_type": "cispo", "epsilon_high": 5.0}, "cispo@trl", **SUM),
    Pair("cispo, low", {"loss_type": "cispo", "epsilon_high": 1.2}, "cispo@trl", {"eps_high": 1.2}, **SUM),
    # TRL's torch.where makes the temperature a float32.
    Pair("sapo", {"loss_type": "sapo"}, "sapo", {"tau_neg": float(torch.tensor(1.05))}),
    Pair("sapo, steep", {"loss_type": "sapo", **STEEP}, "sapo", {"tau_pos": 2.0, "tau_neg": 4.0}),
    Pair("vespo", {"loss_type": "vespo"}, "vespo@trl", **SUM),
    Pair("kl", KL, "ppo_clip", penalty="kl_penalty"),
    Pair("kl, dapo", {**KL, "loss_type": "dapo"}, "ppo_clip", **SUM, penalty="kl_penalty"),
    Pair("kl, bias corrected", {"beta": 0.04}, "ppo_clip", penalty="kl_penalty@trl"),
    Pair("kl, gspo", {**KL, **NARROW}, "luspo", GSPO_CLIP, penalty="kl_penalty"),
    Pair("opsm", {"off_policy_mask_threshold": 0.1}, "opsm", {"delta": 0.1}),
)


def theirs(pair: Pair, seed: int, **more: Any) -> tuple[float, torch.Tensor]:
    """TRL's loss and its gradient in the per-token log-probabilities."""
    logp, inputs = random_inputs(seed)
    trainer = stub_trainer(logp, **pair.trl, **more)
    loss = trl.GRPOTrainer._compute_loss(trainer, None, inputs)
    return float(loss.detach()), torch.autograd.grad(loss, logp)[0]


def divisor(pair: Pair, inputs: dict[str, torch.Tensor]) -> float:
    """What TRL divides a micro-batch's aggregated loss with."""
    if pair.how == "token_sum":
        return float(inputs["num_items_in_batch"]) * ACCUMULATION / STEPS_PER_GENERATION
    return float(ACCUMULATION)


def ours(pair: Pair, seed: int) -> tuple[float, torch.Tensor]:
    logp, inputs = random_inputs(seed)
    batch = batch_of_inputs(inputs)
    loss_BT = objective[pair.objective].bind(**pair.hyper)(logp, batch)
    if pair.penalty:
        penalty_BT = objective[pair.penalty].bind(**pair.penalty_hyper)(logp, batch)
        loss_BT = loss_BT + pair.trl["beta"] * penalty_BT
    loss = aggregate(loss_BT, batch.mask_BT, pair.how, pair.length) / divisor(pair, inputs)
    return float(loss.detach()), torch.autograd.grad(loss, logp)[0]


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_value_and_gradient_are_trls(pair):
    for seed in SEEDS:
        (value, gradient), (expected, expected_gradient) = ours(pair, seed), theirs(pair, seed)
        assert value == pytest.approx(expected, rel=1e-6, abs=1e-9)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-9)
        assert expected_gradient.abs().max() > 1e-4


def test_every_loss_type_trl_has_is_compared():
    import dataclasses
    import re

    help_text = next(f for f in dataclasses.fields(trl.GRPOConfig) if f.name == "loss_type").metadata["help"]
    supported = help_text.split("Supported values are")[1].split(". ")[0]
    known = set(re.findall(r"'(\w+)'", supported))
    assert len(known) >= 8
    assert known == {pair.loss_type for pair in PAIRS}
