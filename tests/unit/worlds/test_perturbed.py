"""ALP: the trainer's numerator reads noisy hidden states, the sampler does not, and the noise is learned."""

import dataclasses

import numpy as np
import pytest
import torch
from support import tiny_models
from support.refusals import refuses
from support.small_runs import TOY, cell_rows, differing

from testbed.config.run import grid
from testbed.errors import UserError
from testbed.execution.preflight import check_arguments
from testbed.mismatch import Draw
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.toy.toy_transformer import ToyTransformer
from testbed.training.loop import train, train_pack
from testbed.training.update import Trainer
from testbed.worlds.build_world import build_world
from testbed.worlds.loss_noise import MOST_PASSES, Perturbed, check_perturbable, loss_noise_draw, perturb_of
from testbed.worlds.task_registry import build_task

ALP = dataclasses.replace(TOY, recipe="alp", policy_args=(*TOY.policy_args, ("perturb", 0.1)))


def setting(layers=2, sigma=0.5, seeds=(0, 1), dtype=torch.float64):
    """Return a perturbed policy, its weights, and a batch it sampled."""
    task = build_task("length", digits=2, modulus=3, limit=5)
    policy = Perturbed(ToyTransformer(task, width=8, layers=layers, heads=2, dtype=dtype), sigma)
    theta = policy.initial(seeds) * 3
    theta[:, -layers:] = torch.tensor(sigma).log()
    generator = torch.Generator().manual_seed(0)
    prompt = torch.from_numpy(np.stack([task.prompts(np.random.default_rng(0), 3)] * len(seeds)))
    uniform = torch.rand((len(seeds), 12, 5), generator=generator, dtype=torch.float64)
    token, mask, logp = policy.sample(theta, prompt, 4, uniform)
    return policy, theta, (prompt, token, mask), logp


def test_the_sampler_and_everything_but_the_numerator_read_no_noise():
    policy, theta, (prompt, token, mask), logp = setting()
    own = theta[:, :-2]
    torch.testing.assert_close(policy.logp(theta, prompt, token, mask), logp)
    for name in ("logp", "entropy", "score_norm"):
        assert torch.equal(
            getattr(policy, name)(theta, prompt, token, mask),
            getattr(policy.policy, name)(own, prompt, token, mask),
        )
    noisy = policy.loss_logp(theta, prompt, token, mask, Draw((0, 1), 0, 2))
    assert (noisy - logp).abs().max() > 0.01


def test_without_noise_the_numerator_is_the_policy():
    policy, theta, batch, logp = setting()
    theta[:, -2:] = -40
    silent = policy.loss_logp(theta, *batch, Draw((0, 1), 0, 2))
    torch.testing.assert_close(silent, logp, rtol=0, atol=1e-12)


def test_every_layer_has_noise_of_its_own_size():
    policy, theta, batch, _ = setting()
    draw = Draw((0, 1), 0, 2)
    base = policy.loss_logp(theta, *batch, draw)
    for layer in (-2, -1):
        louder = theta.clone()
        louder[:, layer] += 0.5
        assert (policy.loss_logp(louder, *batch, draw) - base).abs().max() > 1e-3


def test_what_a_layer_reads_is_its_hidden_state_plus_sigma_times_standard_normal_noise():
    policy, theta, batch, _ = setting(sigma=0.3, seeds=tuple(range(40)))
    seen = {}

    class Listening(ToyTransformer):
        def with_hidden(self, hidden):
            def listen(layer, x):
                seen[layer] = (hidden(layer, x) - x).detach()
                return x  # unchanged, so that deeper layers differ by their own noise alone

            return super().with_hidden(listen)

    policy.policy.__class__ = Listening
    policy.loss_logp(theta, *batch, Draw(tuple(range(40)), 0, 2))
    for noise in (seen[0], seen[1]):
        n = noise.numel()
        # 6 standard errors: a false alarm in 1e9 seeds, and the seeds are fixed.
        assert abs(float(noise.mean())) < 6 * 0.3 / n**0.5
        assert abs(float(noise.square().mean()) / 0.09 - 1) < 6 * (2 / n) ** 0.5
    shared = (seen[0] * seen[1]).mean()
    assert abs(float(shared)) < 6 * 0.09 / seen[0].numel() ** 0.5


@pytest.mark.parametrize(("where", "heard"), [("first", [0]), ("last", [1]), ("logits", [2])])
def test_noise_can_be_in_some_layers_or_in_the_logits_alone(where, heard):
    whole, theta, batch, _ = setting()
    policy = Perturbed(whole.policy, 0.5, where)
    assert policy.layers == 1
    seen = {}

    class Listening(ToyTransformer):
        def with_hidden(self, hidden):
            return super().with_hidden(lambda i, x: seen.setdefault(i, hidden(i, x) - x) + x)

    policy.policy = policy.inside = Listening(whole.policy.task, width=8, heads=2, dtype=torch.float64)
    policy.loss_logp(theta[:, :-1], *batch, Draw((0, 1), 0, 1))
    assert [i for i in seen if seen[i].abs().max() > 0] == heard
    noise = seen[heard[0]]
    # 5 standard errors: one false alarm in 2e6 seeds.
    assert noise.std() == pytest.approx(0.5, rel=5 / (2 * noise.numel()) ** 0.5)
    with pytest.raises(UserError, match="perturb_where is 'middle', which is not a layer of this policy"):
        Perturbed(whole.policy, 0.5, "middle")


def test_the_gradient_reaches_the_size_of_the_noise():
    policy, theta, batch, _ = setting(seeds=(0,))
    draw = Draw((0,), 3, 2)
    leaf = theta.clone().requires_grad_()
    (grad,) = torch.autograd.grad(policy.loss_logp(leaf, *batch, draw).sum(), leaf)
    for place in (-1, -2, 5):
        step = torch.zeros_like(theta)
        step[:, place] = 1e-6
        ends = [policy.loss_logp(theta + sign * step, *batch, draw).sum() for sign in (1, -1)]
        torch.testing.assert_close(grad[0, place], (ends[0] - ends[1]) / 2e-6, rtol=1e-5, atol=1e-7)
    assert grad[0, -2:].abs().min() > 1e-6


def test_the_regularizer_is_stationary_at_size_one():
    policy, theta, _, _ = setting(seeds=(0,))
    theta[:, -2:] = 0.0
    leaf = theta.requires_grad_()
    value = policy.penalty(leaf)
    (grad,) = torch.autograd.grad(value.sum(), leaf)
    assert float(value.detach()) == pytest.approx(0.002, abs=1e-12)  # 0.001 for each of two layers
    assert torch.equal(grad, torch.zeros_like(grad))
    quiet = theta.detach().clone()
    quiet[:, -2:] = -1.0
    leaf = quiet.requires_grad_()
    (grad,) = torch.autograd.grad(policy.penalty(leaf).sum(), leaf)
    assert (grad[:, -2:] < 0).all()  # descent makes noise that is too quiet louder
    assert (grad[:, :-2] == 0).all()


def test_noise_depends_on_seed_step_and_pass_alone():
    policy, theta, batch, _ = setting(seeds=(7, 7))
    at = lambda step, turn: policy.loss_logp(theta, *batch, loss_noise_draw((7, 7), 2, step, turn))  # noqa: E731
    assert torch.equal(at(3, 0), at(3, 0))
    drawn = [at(3, 0), at(3, 1), at(4, 0), at(3, MOST_PASSES - 1)]
    for index, one in enumerate(drawn):
        for other in drawn[index + 1 :]:
            assert not torch.equal(one, other)
    refuses("pass 65 over a batch is too many", loss_noise_draw, (7,), 2, 0, MOST_PASSES)


def test_training_learns_weights_and_noise_and_does_not_see_its_pack():
    cells = grid(ALP, seed=[0, 1], lag=[0, 2])
    together = train_pack(cells)
    for index, cell in enumerate(cells):
        assert not differing(cell_rows(together, index, len(cells)), train(cell))
    assert np.max(together["actor/grad_norm"]) > 0
    # On policy the ratio is not 1: its numerator is the perturbed policy's.
    first = np.asarray(train(cells[0])["rollout_corr/log_rho_token_p999"])
    assert first[0] > 1e-3
    plain = train(dataclasses.replace(cells[0], policy_args=TOY.policy_args))
    assert abs(np.asarray(plain["rollout_corr/log_rho_token_p999"])[0]) < 1e-5


def test_the_size_of_the_noise_moves_in_training():
    from testbed.policies import optimizers

    seen = []

    class Spy(optimizers.OPTIMIZERS["adam"]):
        def step(self, theta_RP, grad_RP, learning_rate_R):
            seen.append(super().step(theta_RP, grad_RP, learning_rate_R))
            return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(optimizers.OPTIMIZERS, "adam", Spy)
        train(ALP)
    log_sigma = torch.stack([theta[0, -1] for theta in seen])
    assert (log_sigma.diff().abs() > 1e-5).all()


def test_where_rewards_say_nothing_only_the_regularizer_moves_the_noise():
    world = build_world((ALP,))
    theta = world.initial()
    rollout = world.generate(theta, 0)
    silent = dataclasses.replace(rollout, reward_RB=torch.zeros_like(rollout.reward_RB))
    update = Trainer.of((ALP,), world, theta).first_pass(theta, silent, 0)
    assert (update.grad_RP[:, :-1] == 0).all()
    expected = 2 * 0.001 * 0.1**2 - 2 * 0.001  # d/d log sigma of the regularizer at sigma = 0.1
    assert float(update.grad_RP[0, -1]) == pytest.approx(expected, rel=1e-5)


def test_engines_go_with_it_where_they_can():
    table = train(dataclasses.replace(ALP, mismatch="int8", steps=3))
    assert np.isfinite(table["actor/grad_norm"]).all()
    both = dataclasses.replace(ALP, mismatch="fp8-activations")
    refuses("and so does policy_args.perturb", check_arguments, [both])
    twice = dataclasses.replace(ALP, policy_args=(*ALP.policy_args, ("precision", "bf16")))
    refuses("has perturb and precision", build_world, (twice,))
    with pytest.raises(UserError, match="perturb is -1"):
        build_world((dataclasses.replace(ALP, policy_args=(*TOY.policy_args, ("perturb", -1))),))


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """A perturbed GPT-2 of two layers in float64, its weights, and a batch it sampled."""
    folder = tmp_path_factory.mktemp("m") / "gpt2"
    tiny_models.write_model(folder, tiny_models.CONFIGS["gpt2"]())
    task = tiny_models.Echo()
    policy = Perturbed(HuggingFacePolicy(folder, task, dtype="float64"), 0.5)
    theta = policy.initial([0])
    prompt = torch.from_numpy(task.prompts(np.random.default_rng(0), 3))[None]
    token, mask, logp = policy.sample(theta, prompt, 4, np.random.default_rng(1).random((1, 12, 5)))
    return folder, policy, theta, (prompt, token, mask), logp


def test_a_real_model_reads_noise_in_every_layer_and_samples_without(real):
    _, policy, theta, batch, logp = real
    assert policy.layers == 2
    torch.testing.assert_close(policy.logp(theta, *batch), logp, rtol=0, atol=1e-9)
    draw, silent = Draw((0,), 3, 2), theta.clone()
    silent[:, -2:] = -60
    torch.testing.assert_close(policy.loss_logp(silent, *batch, draw), logp, rtol=0, atol=1e-9)
    one, two = silent.clone(), silent.clone()
    one[:, -2], two[:, -1] = -1.0, -1.0
    noisy = [policy.loss_logp(each, *batch, draw) for each in (one, two, one)]
    assert (noisy[0] - logp).abs()[batch[2]].min() > 1e-6
    assert (noisy[0] - noisy[1]).abs().max() > 0.01
    assert torch.equal(noisy[0], noisy[2])
    other = policy.loss_logp(one, *batch, Draw((0,), 4, 2))
    assert (noisy[0] - other).abs().max() > 0.01
    assert torch.equal(policy.logp(theta, *batch), policy.logp(theta, *batch)), "a hook was left behind"


def test_a_real_model_learns_weights_and_sizes_of_noise_by_their_slopes(real):
    _, policy, theta, batch, _ = real
    draw, leaf = Draw((0,), 3, 2), theta.clone().requires_grad_()
    (grad,) = torch.autograd.grad(policy.loss_logp(leaf, *batch, draw).sum(), leaf)
    generator = torch.Generator().manual_seed(2)
    for part in (slice(0, -2), slice(-2, None)):
        step = torch.zeros_like(theta)
        step[:, part] = torch.randn(step[:, part].shape, generator=generator, dtype=theta.dtype)
        step *= 1e-6 / step.norm()
        ends = [policy.loss_logp(theta + sign * step, *batch, draw).sum() for sign in (1, -1)]
        torch.testing.assert_close((ends[0] - ends[1]) / 2, (grad * step).sum(), rtol=1e-5, atol=1e-12)


def test_alp_trains_a_real_model_and_refuses_what_has_no_places(real):
    folder = real[0]
    run = dataclasses.replace(
        ALP, task="running-sum", task_args=(("digits", 2), ("modulus", 2)), policy="hf", model=str(folder)
    )
    run = dataclasses.replace(run, policy_args=(("perturb", 0.1),), steps=2)
    table = train(run)
    assert np.isfinite(table["actor/grad_norm"]).all()
    assert differing(table, train(run)) == []
    assert not check_arguments([run])
    for more, says in [
        ({"micro_tokens": 8}, "noise in its layers together with micro_tokens"),
        ({"precision": "bf16"}, "has perturb and precision"),
    ]:
        refuses(says, train, dataclasses.replace(run, policy_args=(*run.policy_args, *more.items())))
    shared = type("Shared", (), {"ranks": object()})()
    refuses("has perturb and ranks", check_perturbable, shared, "")


def test_size_and_places_of_the_noise_leave_the_policys_arguments():
    given = {"perturb": 0.1, "perturb_where": "first", "width": 8}
    assert (perturb_of(given), given) == ((0.1, "first"), {"width": 8})
