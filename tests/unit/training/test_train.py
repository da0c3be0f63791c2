"""The training loop: one loop, every world, exact lag, identities that leave nothing to chance."""

import dataclasses

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.small_runs import LENGTHS, SUMS, cell_rows, differing, with_what_it_reads

from testbed.config.run import Run, grid
from testbed.execution.packs import plan
from testbed.policies.optimizers import OPTIMIZERS
from testbed.recipes import recipe
from testbed.training.loop import mask_nonfinite_replicas, train, train_pack
from testbed.training.recorder import Recorder
from testbed.training.update import State, Trainer, clip_norm, finite_rows
from testbed.worlds import build_world as worlds

BANDIT = Run(task="bandit", steps=12, prompts=4, group=4, learning_rate=0.5, log_every=1)
CHAIN = dataclasses.replace(BANDIT, task="chain")
TREE = dataclasses.replace(BANDIT, task="tree")
TOY = dataclasses.replace(SUMS, steps=5, group=8)
WORLDS = {"bandit": BANDIT, "chain": CHAIN, "tree": TREE, "toy": TOY}
every_world = pytest.mark.parametrize("run", WORLDS.values(), ids=WORLDS)


@pytest.fixture(scope="module")
def hub_run(tmp_path_factory):
    """A cell on a Hugging Face model of a few thousand random weights."""
    from testbed.policies.hf.tiny_model import save_random_model, save_tokenizer
    from testbed.worlds.task_registry import build_task

    folder = tmp_path_factory.mktemp("model")
    task = build_task(TOY.task, **dict(TOY.task_args))
    save_tokenizer(folder, task)
    save_random_model(folder, task, seed=0, width=16, layers=1)
    return dataclasses.replace(TOY, policy="hf", policy_args=(), model=str(folder))


def test_the_same_loop_recipes_and_lag_train_a_hugging_face_model(hub_run):
    for name in ("reinforce", "grpo", "gspo", "m2po", "vcpo"):
        table = train(dataclasses.replace(hub_run, recipe=name, lag=2, steps=4))
        assert np.isfinite(table["actor/grad_norm"]).all()
        assert np.max(table["actor/grad_norm"]) > 0
    again = train(dataclasses.replace(hub_run, recipe=name, lag=2, steps=4))
    assert differing(table, again) == []


def test_a_hugging_face_model_that_does_not_learn_has_ratio_one_within_tolerance(hub_run):
    table = train(dataclasses.replace(hub_run, learning_rate=0.0, lag=3))
    assert np.abs(table["rollout_corr/log_rho_token_p999"]).max() <= 1e-5


def refusal(run):
    """Return what a world says that cannot feed the run's recipe; "" where it can."""
    if run.prefix != "off" and run.task in ("bandit", "chain"):
        return "continues responses of tokens"
    return "no teacher" if recipe[run.recipe].bind()().demonstrations and run.policy == "tabular" else ""


@pytest.mark.slow
@every_world
def test_every_recipe_learns_in_every_world_without_a_non_finite_number(run):
    every = [with_what_it_reads(dataclasses.replace(run, lag=2), name) for name in sorted(recipe)]
    fed = [cell for cell in every if not refusal(cell)]
    for cell in set(every) - set(fed):
        refuses(refusal(cell), train, cell)
    for pack in plan(fed):
        table = train_pack(pack.cells)
        assert len(table["step"]) == run.steps * len(pack.cells)
        for index, cell in enumerate(pack.cells):
            norm = cell_rows(table, index, len(pack.cells))["actor/grad_norm"]
            assert np.isfinite(norm).all(), cell.recipe
            assert np.max(norm) > 0, cell.recipe
        assert not np.any(table["diverged"])


@every_world
def test_lag_zero_is_bit_identical_to_a_trainer_without_any_lag_machinery(run):
    weights = []

    class Spy(OPTIMIZERS[run.optimizer]):
        def step(self, theta_RP, grad_RP, learning_rate_R):
            weights.append(super().step(theta_RP, grad_RP, learning_rate_R))
            return weights[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(OPTIMIZERS, run.optimizer, Spy)
        train(run)
    world = worlds.build_world((run,))
    theta = world.initial()
    optimizer = OPTIMIZERS[run.optimizer](theta)
    trainer = Trainer.of((run,), world, theta)
    for step in range(run.steps):
        update = trainer.first_pass(theta, world.generate(theta, step), step)
        rate = theta.new_tensor([run.learning_rate])
        theta = optimizer.step(theta, update.grad_RP, rate)
        assert torch.equal(theta, weights[step])


@every_world
def test_samples_come_from_the_weights_of_exactly_lag_steps_before(run):
    run = dataclasses.replace(run, lag=3)
    generated, updated = [], []
    world_class = worlds.TabularRuns if run.policy == "tabular" else worlds.TokenRuns

    class Spy(world_class):
        def generate(self, theta_XP, step, slices=1):
            generated.append(theta_XP.clone())
            return super().generate(theta_XP, step, slices)

        def logp(self, theta_RP, rollout):
            updated.append(theta_RP.detach().clone())
            return super().logp(theta_RP, rollout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worlds, world_class.__name__, Spy)
        train(run)
    for step in range(run.steps):
        assert torch.equal(generated[step], updated[max(step - 3, 0)])
    assert not torch.equal(updated[0], updated[-1])


@every_world
def test_with_learning_rate_zero_the_ratio_is_one_within_the_documented_tolerance(run):
    table = train(dataclasses.replace(run, learning_rate=0.0, lag=4))
    tolerance = 1e-12 if run.policy == "tabular" else 5e-6
    for label in ("p50", "p999"):
        assert np.abs(table[f"rollout_corr/log_rho_token_{label}"]).max() <= tolerance
    np.testing.assert_allclose(table["rollout_corr/ess_kish_sequence_raw"], 1.0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("run", [BANDIT, CHAIN, TREE], ids=["bandit", "chain", "tree"])
def test_tabular_cells_do_not_see_who_else_is_in_their_pack(run):
    cells = grid(run, recipe=["grpo", "vcpo", "m2po"], lag=[0, 3], seed=[0, 1])
    packed = train_pack(cells)
    for index, cell in enumerate(cells):
        assert differing(cell_rows(packed, index, len(cells)), train(cell)) == []


def test_toy_cells_agree_with_their_solitary_run_to_rounding():
    cells = grid(TOY, lag=[0, 2], seed=[0, 1], recipe=["grpo", "cispo"])  # arms interleaved
    packed = train_pack(cells)
    for index, cell in enumerate(cells):
        alone = train(cell)
        together = cell_rows(packed, index, len(cells))
        np.testing.assert_allclose(together["reward/mean"], alone["reward/mean"], atol=1e-6)
        np.testing.assert_allclose(together["actor/grad_norm"], alone["actor/grad_norm"], rtol=1e-3)


@every_world
def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(run):
    first, again = train(run), train(run)
    other = train(dataclasses.replace(run, seed=5))
    assert differing(first, again) == []
    assert not np.array_equal(first["reward/mean"], other["reward/mean"])


def test_cells_of_equal_seed_answer_the_same_prompts_whatever_their_recipe_and_lag():
    world = worlds.build_world(grid(TOY, recipe=["grpo", "gspo"], lag=[0, 9]))
    rollout = world.generate(world.initial(), 3)
    assert (rollout.prompt_RNQ == rollout.prompt_RNQ[:1]).all()
    assert (rollout.token_RBT == rollout.token_RBT[:1]).all()


def test_on_policy_the_sampled_gradient_points_along_the_exact_one():
    run = dataclasses.replace(BANDIT, recipe="reinforce", steps=1, prompts=512, group=64)
    table = train(run)
    # 32,768 samples: the angle's standard error is far below the margin (cosine 0.999 at worst seen 0.9998).
    assert table["exact/grad_cosine"][0] > 0.999
    big = dataclasses.replace(CHAIN, recipe="reinforce", steps=1, prompts=512, group=64)
    assert train(big)["exact/grad_cosine"][0] > 0.99


@pytest.mark.parametrize("run", [BANDIT, CHAIN], ids=["bandit", "chain"])
def test_exact_and_sampled_ess_agree_when_the_sample_is_large_enough(run):
    run = dataclasses.replace(run, recipe="reinforce", steps=4, lag=3, prompts=512, group=32)
    table = train(run)
    exact, sampled = table["exact/ess_kish_sequence"][-1], table["rollout_corr/ess_kish_sequence_raw"][-1]
    assert exact < 0.999
    # N = 16,384 and exact share s: the plug-in's relative error is below 5 % at 5 standard errors here.
    assert sampled == pytest.approx(exact, rel=0.05)


def test_a_replica_that_diverges_is_recorded_frozen_and_leaves_the_others_alone():
    cells = grid(dataclasses.replace(BANDIT, recipe="reinforce"), learning_rate=[0.5, float("inf")])
    table = train_pack(cells)
    fine, lost = (cell_rows(table, index, 2) for index in (0, 1))
    assert not fine["diverged"].any()
    assert lost["diverged"][-1] == 1
    alone = train(cells[0])
    assert np.array_equal(fine["exact/value"], alone["exact/value"])


@pytest.mark.parametrize("run", [BANDIT, LENGTHS, TOY], ids=["bandit", "lengths", "toy"])
def test_a_row_holds_the_numbers_of_its_step_and_the_counts_since_the_row_before(run, monkeypatch):
    run, seen, add = dataclasses.replace(run, steps=6, lag=2, group=4, log_every=2), [], Recorder.add
    monkeypatch.setattr(Recorder, "add", lambda self, *given: (seen.append(given), add(self, *given)))
    table = train(run)
    assert table["step"].tolist() == [0, 2, 4, 5]
    assert table["rollouts"].tolist() == [16, 48, 80, 96]
    counts = np.stack(table["rollout_corr/log_rho_sequence_histogram"])
    assert counts.sum(-1).tolist() == [16, 32, 32, 16]
    for row, step in enumerate(table["step"]):
        _, state, _, rollout, update = seen[step]
        mask, lengths = rollout.mask_RBT[0], rollout.mask_RBT[0].sum(-1).double()
        expected = {
            "reward/mean": rollout.reward_RB[0].double().mean(),
            "response_length/mean": lengths.mean(),
            "actor/entropy": worlds.build_world((run,)).entropy(state.theta_RP, rollout)[0][mask].mean(),
            "actor/grad_norm": update.grad_RP[0].double().square().sum().sqrt(),
            "actor/learning_rate": run.learning_rate,
            "staleness/age_mean_token": min(step, 2),
            "staleness/age_max_token": min(step, 2),
            "diverged": 0.0,
        }
        found = {name: float(table[name][row]) for name in expected}
        assert found == pytest.approx({name: float(value) for name, value in expected.items()}, rel=1e-5)


def test_a_row_holds_the_worlds_counts_which_are_rollouts_too():
    stored = (("ask", 16), ("attempts", 4), ("tokens", 2))
    table = train(dataclasses.replace(LENGTHS, steps=3, prefix="stored", prefix_args=stored))
    assert (table["rollouts"] - table["prefix/attempts"]).tolist() == [16, 32, 48]
    assert table["prefix/attempts"][-1] > 0


def test_gradient_clipping_bounds_the_norm_and_keeps_the_direction():
    gradient_RP = torch.tensor([[3.0, 4.0], [0.3, 0.4]])
    torch.testing.assert_close(clip_norm(gradient_RP, 1.0), torch.tensor([[0.6, 0.8], [0.3, 0.4]]))
    assert clip_norm(gradient_RP, 0.0) is gradient_RP


def test_the_step_size_of_vcpo_falls_with_the_square_root_of_the_ess():
    run = dataclasses.replace(BANDIT, recipe="vcpo", lag=6)
    table = train(run)
    expected = run.learning_rate * np.sqrt(np.minimum(1, table["rollout_corr/ess_kish_sequence_raw"]))
    np.testing.assert_allclose(table["actor/learning_rate"], expected, rtol=1e-12)
    assert table["actor/learning_rate"][-1] < run.learning_rate


def test_one_log_probability_that_is_not_finite_masks_its_replica_alone():
    world = worlds.build_world(grid(CHAIN, seed=[0, 1]))
    rollout = world.generate(world.initial(), 0)
    mu = rollout.logp_mu_RBT.clone()
    mu[1, 2, 0] = -np.inf
    broken = dataclasses.replace(rollout, logp_mu_RBT=mu)
    masked, state = mask_nonfinite_replicas(broken, State.start(world.initial()))
    assert state.alive_R.tolist() == [True, False]
    assert torch.equal(masked.logp_mu_RBT[0], rollout.logp_mu_RBT[0])
    assert not masked.logp_mu_RBT[1].any()


def test_rows_with_a_number_that_is_not_finite_are_told():
    inf, nan = torch.inf, torch.nan
    rows = torch.tensor([[1.0, 2.0], [1.0, inf], [1.0, -inf], [nan, 1.0], [inf, -inf], [3e38, 3e38]])
    assert finite_rows(rows).tolist() == [True, False, False, False, False, True]


def test_rollouts_count_the_greedy_and_the_reference_responses():
    for name, extra in (("grpo", 0), ("remax", 1)):
        table = train(dataclasses.replace(BANDIT, recipe=name, steps=3))
        assert table["rollouts"].tolist() == [(16 + 4 * extra) * (step + 1) for step in range(3)]
