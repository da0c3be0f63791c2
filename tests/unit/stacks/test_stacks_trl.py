"""What `testbed objectives from trl` composes has the direction of TRL's own gradient."""

import pytest
import torch
from support.trl_stub import batch_of_inputs, random_inputs, stub_trainer

from testbed.recipes.stack_composition import compose, read
from testbed.stacks import stacks

trl = pytest.importorskip("trl")

NARROW = "importance_sampling_level=sequence epsilon=0.0003 epsilon_high=0.0004"
SETTINGS = (
    "", "loss_type=grpo epsilon_high=0.28", "loss_type=bnpo", "loss_type=dr_grpo max_completion_length=11",
    "loss_type=grpo delta=1.6", "loss_type=grpo off_policy_mask_threshold=0.1", f"loss_type=grpo {NARROW}",
    f"loss_type=dapo {NARROW}", f"loss_type=bnpo {NARROW}", f"loss_type=dr_grpo {NARROW}",
    "loss_type=luspo importance_sampling_level=sequence epsilon=0.002 epsilon_high=0.0025", "loss_type=luspo",
    "loss_type=cispo epsilon_high=1.2", "loss_type=sapo sapo_temperature_pos=2 sapo_temperature_neg=4",
    "loss_type=vespo", "beta=0.4", "beta=0.4 use_bias_correction_kl=false",
)  # fmt: skip


def unit(gradient):
    return gradient / gradient.norm()


@pytest.mark.parametrize("words", SETTINGS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_composition_has_the_direction_of_trls_gradient(words, seed):
    given = read(stacks()["trl"], words.split())
    options = {"loss_type": "dapo", **given}
    options["epsilon_low"] = options.pop("epsilon", 0.2)
    options.setdefault("epsilon_high", options["epsilon_low"])
    logp, inputs = random_inputs(seed)
    theirs = trl.GRPOTrainer._compute_loss(stub_trainer(logp, **options), None, inputs)
    (expected,) = torch.autograd.grad(theirs, logp)
    logp, inputs = random_inputs(seed)
    made = compose("trl", words.split()).recipe()
    (found,) = torch.autograd.grad(made.loss(logp, batch_of_inputs(inputs), made.hyper(0, 1)), logp)
    torch.testing.assert_close(unit(found), unit(expected), rtol=1e-6, atol=1e-9)
