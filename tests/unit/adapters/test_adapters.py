"""Objectives inside TRL's trainer; verl's policy losses are in test_adapters_verl.py."""

import pytest
import torch
from support.refusals import refuses
from support.trl_stub import (
    ACCUMULATION,
    STEPS_PER_GENERATION,
    random_inputs,
    stub_trainer,
    tiny_trainer,
    weights,
)

from testbed.adapters.adapted import Adapted
from testbed.adapters.trl import grpo_trainer, objective_loss
from testbed.losses.aggregate import AGGREGATIONS
from testbed.recipes.composition import Term

trl = pytest.importorskip("trl")

quiet = pytest.mark.filterwarnings("ignore")  # TRL's and datasets' own warnings in a whole training run


def loss_and_gradient(loss, logp):
    (gradient,) = torch.autograd.grad(loss, logp)
    return float(loss.detach()), gradient


def adapted_loss(seed, adapted, aggregation, length=0.0, change=None, **options):
    logp, inputs = random_inputs(seed)
    inputs = change(inputs) if change else inputs
    trainer = stub_trainer(logp, **options)
    return loss_and_gradient(objective_loss(trainer, None, inputs, adapted, aggregation, length), logp)


def trl_loss(seed, change=None, **options):
    logp, inputs = random_inputs(seed)
    inputs = change(inputs) if change else inputs
    return loss_and_gradient(trl.GRPOTrainer._compute_loss(stub_trainer(logp, **options), None, inputs), logp)


def assert_same(ours, theirs):
    assert ours[0] == pytest.approx(theirs[0], rel=1e-9)
    torch.testing.assert_close(ours[1], theirs[1], rtol=1e-9, atol=1e-12)
    assert theirs[1].abs().max() > 1e-4


def truncated(inputs):
    """Two sequences without a token, as mask_truncated_completions leaves them."""
    mask = inputs["completion_mask"].clone()
    mask[[1, 6]] = 0
    return {**inputs, "completion_mask": mask}


def aligned(inputs):
    """TRL keeps no old log-probabilities where no update lies between; without vLLM, no sampler's either."""
    dropped = ("old_per_token_logps", "sampling_per_token_logps", "tool_mask")
    return {k: v for k, v in inputs.items() if k not in dropped}


@pytest.mark.parametrize("change", [None, truncated, aligned], ids=["tools", "truncated", "aligned"])
@pytest.mark.parametrize(
    ("loss_type", "aggregation"), [("dapo", "token_mean"), ("grpo", "sequence_mean"), ("dr_grpo", "constant")]
)
def test_ppo_clip_in_the_adapter_is_trls_own_loss(loss_type, aggregation, change):
    for seed in range(3):
        ours = adapted_loss(seed, Adapted("ppo_clip"), aggregation, change=change)
        assert_same(ours, trl_loss(seed, change, loss_type=loss_type))


@pytest.mark.parametrize(("loss_type", "aggregation"), [("dapo", "token_mean"), ("grpo", "sequence_mean")])
def test_evaluation_accumulates_nothing(loss_type, aggregation):
    ours = adapted_loss(0, Adapted("ppo_clip"), aggregation, training=False)
    assert_same(ours, trl_loss(0, loss_type=loss_type, training=False))
    logp, inputs = random_inputs(0)
    trainer = stub_trainer(logp, training=False)
    objective_loss(trainer, None, inputs, Adapted("ppo_clip"), aggregation, 0.0)
    logged = {split for split, found in trainer._metrics.items() if found["testbed/silent_share"]}
    assert logged == {"eval"}


def test_a_routers_auxiliary_loss_is_added_as_trl_adds_it():
    ours = adapted_loss(0, Adapted("ppo_clip"), "token_mean", aux_loss_enabled=True)
    assert_same(ours, trl_loss(0, loss_type="dapo", aux_loss_enabled=True))


def test_terms_are_added_with_their_coefficient():
    adapted = Adapted("ppo_clip", {}, [Term("kl_penalty", 0.04)])
    theirs = trl_loss(0, beta=0.04, use_bias_correction_kl=False, loss_type="dapo")
    assert_same(adapted_loss(0, adapted, "token_mean"), theirs)


def corrected(inputs):
    ratio = (inputs["old_per_token_logps"] - inputs["sampling_per_token_logps"]).exp().clamp(max=1.2)
    return {**inputs, "importance_sampling_ratio": ratio}


def test_trls_correction_multiplies_an_objective_that_does_not_correct_itself():
    adapted = Adapted("ppo_clip", {}, [Term("kl_penalty", 0.04)])
    options = {"beta": 0.04, "use_bias_correction_kl": False, "use_vllm": True}
    ours = adapted_loss(1, adapted, "sequence_mean", change=corrected)
    assert_same(ours, trl_loss(1, corrected, **options))
    alone = adapted_loss(1, Adapted("tis", {"cap": 1.2}), "sequence_mean")
    assert_same(adapted_loss(1, Adapted("tis", {"cap": 1.2}), "sequence_mean", change=corrected), alone)
    assert_same(alone, trl_loss(1, corrected, use_vllm=True))


def test_tokens_the_sampler_could_not_score_are_an_error_only_where_they_are_read():
    def unscored(inputs):
        logps = inputs["sampling_per_token_logps"].clone()
        logps[0, 0] = torch.nan
        return {**inputs, "sampling_per_token_logps": logps}

    assert_same(
        adapted_loss(2, Adapted("ppo_clip"), "token_mean", change=unscored), trl_loss(2, loss_type="dapo")
    )
    refuses(r"logp_mu_BT has 1 non-finite", adapted_loss, 2, Adapted("cispo"), "token_mean", change=unscored)


def test_a_batch_that_is_masked_away_gives_a_loss_of_zero_with_a_gradient():
    def empty(inputs):
        return {**inputs, "completion_mask": torch.zeros_like(inputs["completion_mask"])}

    value, gradient = adapted_loss(0, Adapted("ppo_clip"), "token_mean", change=empty)
    assert value == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("aggregation", sorted(AGGREGATIONS))
def test_micro_batches_add_up_to_the_whole_update(aggregation):
    # Four micro-batches of a generation batch, two of which make an update, against the update at once.
    logp, inputs = random_inputs(5, rows=8)
    adapted = Adapted("ppo_clip")
    tokens = (inputs["completion_mask"] * inputs["tool_mask"]).sum()
    whole = stub_trainer(
        logp, steps_per_generation=2, gradient_accumulation_steps=1, current_gradient_accumulation_steps=1
    )
    # The generation batch has as many tokens again, in micro-batches of the other update.
    inputs["num_items_in_batch"] = 2 * tokens
    at_once = objective_loss(whole, None, inputs, adapted, aggregation, 0.0)
    total = 0.0
    for rows in (slice(0, 4), slice(4, 8)):
        part = {k: v[rows] if v.ndim else v for k, v in inputs.items()}
        trainer = stub_trainer(logp[rows])
        assert (ACCUMULATION, STEPS_PER_GENERATION) == (2, 4)
        total = total + objective_loss(trainer, None, part, adapted, aggregation, 0.0)
    assert_same(loss_and_gradient(total, logp), loss_and_gradient(at_once, logp))


KL = {"terms": [Term("kl_penalty@trl", 0.5)], "aggregation": "sequence_mean"}


@pytest.mark.slow
@quiet
@pytest.mark.parametrize(
    ("kind", "options", "theirs", "rtol"),
    [({"eps_high": 0.28}, {}, {"epsilon_high": 0.28}, 1e-5),
     (KL, {"beta": 1e-9}, {"beta": 0.5, "loss_type": "grpo"}, 1e-4)],
    ids=["clip", "reference"],
)  # fmt: skip
def test_two_steps_of_training_end_at_the_weights_of_trls_own_loss(kind, options, theirs, rtol, tmp_path):
    ours = tiny_trainer(grpo_trainer("ppo_clip", **kind), tmp_path / "a", max_steps=4, **options)
    peer = tiny_trainer(trl.GRPOTrainer, tmp_path / "b", max_steps=4, **theirs)
    start = weights(ours)
    assert torch.equal(start, weights(peer))
    for trainer in (ours, peer):
        torch.manual_seed(1)
        trainer.train()
    torch.testing.assert_close(weights(ours), weights(peer), rtol=rtol, atol=rtol / 10)
    assert (weights(ours) - start).abs().max() > 0.01


@pytest.mark.slow
@quiet
def test_an_objective_that_compares_answers_of_a_group_trains(tmp_path):
    options = {"steps_per_generation": 1, "per_device_train_batch_size": 8}
    trainer = tiny_trainer(grpo_trainer("pairwise_opmd"), tmp_path, **options)
    start = weights(trainer)
    seen = []
    inner = trainer._compute_loss
    trainer._compute_loss = lambda model, inputs: seen.append(inputs) or inner(model, inputs)
    trainer.train()
    assert (weights(trainer) - start).abs().max() > 0
    for inputs in seen:
        # Shuffled, but the labels still say who answers the same prompt, and what each was paid.
        prompt, group = inputs["prompt_ids"], inputs["testbed_group"]
        same_prompt = (prompt[:, None] == prompt[None]).all(-1)
        assert torch.equal(same_prompt, group[:, None] == group[None])
        paid = [
            float(ids[mask.bool()].sum() % 5)
            for ids, mask in zip(inputs["completion_ids"], inputs["completion_mask"], strict=True)
        ]
        assert inputs["testbed_reward"].tolist() == paid


@quiet
@pytest.mark.parametrize(
    ("made", "options"),
    [(("ppo_clip",), {"delta": 4.0}), (("ppo_clip",), {"loss_type": "sapo"}),
     (("ppo_clip",), {"epsilon_high": 0.28}), (("ppo_clip",), {"beta": 0.1}),
     (("ppo_clip", "kl_penalty"), {}), (("m2po",), {}), (("pairwise_opmd",), {})],
)  # fmt: skip
def test_options_that_contradict_the_objective_are_named(made, options, tmp_path):
    name, *terms = made
    kind = grpo_trainer(name, terms=[Term(term, 0.04) for term in terms])
    refuses(".", tiny_trainer, kind, tmp_path, **options)


def test_names_that_do_not_exist_and_fields_trl_lacks_are_errors_before_any_model():
    refuses("Did you mean 'ppo_clip'", grpo_trainer, "ppo_clop")
    refuses("no hyperparameter 'eps'", grpo_trainer, "ppo_clip", eps=0.1)
    refuses("Unknown aggregation", grpo_trainer, "ppo_clip", aggregation="token_man")
    refuses("turn_ppo reads 'turn'", grpo_trainer, "turn_ppo")
    refuses("is a schedule", grpo_trainer, "ppo_clip", terms=[Term("kl_penalty", lambda step, steps: 1.0)])
