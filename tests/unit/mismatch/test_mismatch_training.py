"""Engine mismatch in training: it changes the sampler; without learning its distribution is constant."""

import dataclasses

import numpy as np
import pytest
import torch
from support.quick import quick
from support.refusals import refuses
from support.small_runs import SUMS, cell_rows, differing

from testbed.config.run import Run, grid
from testbed.execution.preflight import check_arguments
from testbed.mismatch import Draw, engine, mismatch
from testbed.policies.tabular_policy import TabularPolicy
from testbed.staleness import build_source
from testbed.training.loop import train, train_pack
from testbed.worlds.build_world import build_world
from testbed.worlds.world import BehaviorWeights

TREE = Run(task="tree", prompts=4, group=4, steps=8, learning_rate=1.0, log_every=1)
CHAIN = dataclasses.replace(TREE, task="chain")
TOY = dataclasses.replace(
    SUMS, task_args=(("digits", 3), ("modulus", 3)), policy_args=(("heads", 2), ("layers", 4), ("width", 8)),
    steps=4, learning_rate=1e-2,
)  # fmt: skip
VISIBLE = {
    "temperature": {"temperature": 1.5}, "top-p": {"p": 0.5}, "top-k": {"k": 2},
    "logit-noise": {"sigma": 0.5}, "layer-noise": {"sigma": 0.3, "matrices": "all"},
    "skip-layers": {"ratio": 0.5}, "fp8-tensor": {"matrices": "all"},
    "fp8-block": {"block": 2, "matrices": "all"}, "int8": {"matrices": "all"},
}  # fmt: skip
"""Hyperparameters at which worlds this small notice the engine."""
NEEDS = {name: mismatch[name].promises.get("needs", ()) for name in mismatch}
OF_TABLES = [n for n in mismatch if not NEEDS[n] and mismatch[n].promises["level"] != "none"]
OF_TOYS = [n for n in mismatch if "past" not in NEEDS[n] and mismatch[n].promises["level"] != "none"]


def with_engine(run, name, **hyper):
    chosen = {**VISIBLE.get(name, {}), **hyper}
    return dataclasses.replace(run, mismatch=name, mismatch_args=tuple(sorted(chosen.items())))


def is_stochastic(name):
    return bool(mismatch[name].promises.get("stochastic"))


def uneven(world, seed=0):
    """Weights at which no law is uniform."""
    theta = world.initial()
    generator = torch.Generator().manual_seed(seed)
    spread = torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
    return theta + spread if hasattr(world.policy, "logits") else 3 * theta


@pytest.fixture
def uneven_start(monkeypatch):
    """Tables start at random logits: a uniform one hides what roundings and temperatures do."""
    monkeypatch.setattr(
        TabularPolicy,
        "initial",
        lambda self, seeds: torch.stack(
            [torch.from_numpy(np.random.default_rng(seed).standard_normal(self.parameters)) for seed in seeds]
        ),
    )


IGNORED = {"mismatch", "mismatch_args"}
AGES = {"staleness/age_mean_token", "staleness/age_max_token"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "run"),
    [
        pytest.param(name, run, id=f"{name}-{run.task}")
        for name in mismatch
        for run in (TREE, CHAIN, TOY)
        if mismatch[name].promises["identity"] and not (NEEDS[name] and run.policy == "tabular")
    ],
)
def test_an_engine_at_its_identity_trains_bit_for_bit_like_no_mismatch(run, name, uneven_start):
    neutral = dataclasses.replace(
        run, lag=2, mismatch=name, mismatch_args=tuple(sorted(mismatch[name].promises["identity"].items()))
    )
    assert set(differing(train(dataclasses.replace(run, lag=2)), train(neutral))) <= IGNORED


@pytest.mark.parametrize(
    ("run", "name"),
    [(TREE, n) for n in OF_TABLES] + [(TOY, n) for n in OF_TOYS],
    ids=lambda x: getattr(x, "task", x),
)
def test_every_engine_changes_what_is_generated_and_the_weights_say_by_how_much(run, name, uneven_start):
    off, on = (
        train(dataclasses.replace(run, steps=1)),
        train(with_engine(dataclasses.replace(run, steps=1), name)),
    )
    assert off["rollout_corr/ess_kish_sequence_raw"][0] == pytest.approx(1.0, abs=1e-5)
    assert on["rollout_corr/kl_mu_pi_k2"][0] > 1e-9


# Learning rate 0: any drift is mismatch


@pytest.mark.parametrize("name", quick({"logit-noise", "int8"}, OF_TABLES))
def test_where_nothing_learns_the_exact_ratio_law_stands_still(name, uneven_start):
    run = dataclasses.replace(with_engine(TREE, name), learning_rate=0.0, lag=3)
    laws = {key: value for key, value in train(run).items()
            if key.startswith(("exact/kl", "exact/chi2", "exact/ess"))}  # fmt: skip
    if name == "logit-noise":  # drawn anew for every batch
        assert np.ptp(laws["exact/kl_mu_pi"]) > 1e-3
        return
    for key, value in laws.items():
        assert (value == value[0]).all(), key
    assert laws["exact/kl_mu_pi"][0] > 1e-7


@pytest.mark.parametrize("name", quick({"int8", "layer-noise", "logit-noise"}, OF_TOYS))
def test_a_deterministic_engine_gives_a_response_the_same_law_in_every_batch(name):
    world = build_world((with_engine(TOY, name),))
    theta = uneven(world)
    rollout = world.generate(theta, 2)
    behavior = world.generation.sliced(1)
    same, other = behavior.logp(theta, rollout, 2), behavior.logp(theta, rollout, 3)
    torch.testing.assert_close(same, rollout.logp_mu_RBT, rtol=0, atol=5e-6)
    redrawn = is_stochastic(name) and name != "layer-noise"
    assert torch.allclose(other, same, atol=5e-6) == (not redrawn)


@pytest.mark.slow
@pytest.mark.parametrize("run", [TREE, CHAIN], ids=["tree", "chain"])
@pytest.mark.parametrize("name", OF_TABLES)
def test_an_engine_draws_the_same_whoever_else_is_in_the_pack(run, name, uneven_start):
    short = with_engine(dataclasses.replace(run, steps=4), name)
    cells = grid(short, recipe=["grpo", "importance"], lag=[2], seed=[0, 4])
    packed = train_pack(cells)
    for index in (1, 2):
        assert differing(cell_rows(packed, index, len(cells)), train(cells[index])) == []


@pytest.mark.parametrize("name", [n for n in OF_TOYS if is_stochastic(n)])
def test_a_toy_engine_draws_the_same_whoever_else_is_in_the_pack(name):
    cells = grid(with_engine(TOY, name), lag=[0, 2], seed=[0, 4])
    world, alone = build_world(cells), build_world(cells[3:])
    theta = uneven(world)
    together = world.generate(theta, 3).rows(slice(3, 4))
    single = alone.generate(theta[3:], 3)
    assert torch.equal(together.token_RBT, single.token_RBT)
    torch.testing.assert_close(together.logp_mu_RBT, single.logp_mu_RBT, rtol=0, atol=5e-6)


@pytest.mark.parametrize(
    ("run", "name"),
    [(run, n) for run, names in ((TREE, OF_TABLES), (TOY, OF_TOYS)) for n in names if is_stochastic(n)],
    ids=lambda x: getattr(x, "task", x),
)
def test_parts_of_a_batch_get_the_numbers_of_the_whole(run, name):
    world = build_world(grid(with_engine(run, name), seed=[0, 4]))
    theta = uneven(world)
    theta_XP = torch.stack([theta, uneven(world, 1).flip(-1)], 1).flatten(0, 1)
    mixed = world.generate(theta_XP, 3, slices=2)
    for part in range(2):
        alone = world.generate(theta_XP[part::2], 3)
        rows = slice(part * 8, part * 8 + 8)
        assert torch.equal(mixed.token_RBT[:, rows], alone.token_RBT[:, rows])
        torch.testing.assert_close(mixed.logp_mu_RBT[:, rows], alone.logp_mu_RBT[:, rows], rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", OF_TABLES)
def test_the_exact_law_of_a_batch_in_parts_is_that_of_the_engine_in_each(name):
    world = build_world((with_engine(TREE, name),))
    pi = uneven(world)
    mu_XP = torch.cat([uneven(world, 1), uneven(world, 2)])
    mixed = world.truth(pi, pi, 3, BehaviorWeights(mu_XP, slices=2))["exact/kl_mu_pi"]
    parts = [world.truth(pi, pi, 3, BehaviorWeights(mu_XP[[s]]))["exact/kl_mu_pi"] for s in range(2)]
    np.testing.assert_allclose(mixed, sum(parts) / 2, rtol=1e-12)


@pytest.mark.parametrize("name", ["logit-noise", "layer-noise", "temperature", "int8"])
def test_what_is_recorded_is_the_law_that_the_exact_moments_are_of(name):
    """The sampled mean of log mu - log pi is the exact KL: 3 tokens of 16,384 responses."""
    run = dataclasses.replace(with_engine(TREE, name), prompts=256, group=64)
    world = build_world((run,))
    theta = uneven(world)
    rollout = world.generate(theta, 5)
    log_w = (world.logp(theta, rollout) - rollout.logp_mu_RBT).sum(-1)[0].numpy()
    kl = world.truth(theta, theta, 5, BehaviorWeights(theta))["exact/kl_mu_pi"][0]
    # Responses to one prompt share it, so the unit is the prompt: 5.5 standard errors of 256.
    by_prompt = -log_w.reshape(256, 64).mean(-1)
    assert abs(by_prompt.mean() - kl) < 5.5 * by_prompt.std(ddof=1) / 16 + 1e-9


@pytest.mark.parametrize(
    ("run", "name"),
    [(TREE, "stale-copy"), (TOY, "stale-copy"), (TOY, "stale-kv")],
    ids=lambda x: getattr(x, "task", x),
)
@pytest.mark.parametrize("slices", [1, 2])
def test_what_an_engine_keeps_is_older_than_its_weights_by_its_age(run, name, slices, monkeypatch):
    run = dataclasses.replace(run, mismatch=name, mismatch_args=(("age", 3),), steps=8, lag=2)
    if slices > 1:
        run = dataclasses.replace(run, staleness="uniform", staleness_args=(("slices", slices),))
    world, seen = build_world((run,)), []
    theta, own = world.initial(), world.generate
    source = build_source((run,), world, theta)
    monkeypatch.setattr(world, "generate", lambda *given: (seen.append(given), own(*given))[1])
    for step in range(run.steps):
        made = source.batch(theta + step, step)
        weights_XP, _, parts, past_XP = seen[-1]
        assert parts == slices
        version = made.rollout.version_RBT[0, :: made.rollout.token_RBT.shape[1] // slices, 0]
        assert torch.equal(weights_XP, theta + version[:, None])
        assert torch.equal(past_XP, theta + (version - 3).clamp(min=0)[:, None])
        assert torch.equal(made.behavior.past_XP, past_XP)


def test_a_copy_that_missed_everything_is_lag(uneven_start):
    run = dataclasses.replace(TREE, prompts=16, group=16, learning_rate=10.0)
    late = train(with_engine(run, "stale-copy", matrices="all", age=3))
    lagged = train(dataclasses.replace(run, lag=3))
    assert lagged["exact/kl_mu_pi"][-1] > 1e-5
    assert set(differing(late, lagged)) <= IGNORED | AGES


@pytest.mark.slow
@pytest.mark.parametrize("name", ["stale-copy", "stale-kv"])
def test_where_nothing_learns_what_is_stale_is_what_is_new(name):
    still = train(dataclasses.replace(TOY, mismatch=name, learning_rate=0.0))
    assert np.abs(still["rollout_corr/log_rho_token_p999"]).max() < 5e-6
    run = dataclasses.replace(TOY, mismatch=name, mismatch_args=(("age", 2),), learning_rate=0.1, steps=12)
    moving = train(dataclasses.replace(run, task="copy"))
    assert moving["rollout_corr/kl_mu_pi_k2"].max() > 1e-6
    refuses("age is 0, the optimizer steps by which the", engine, name, age=0)


def test_a_slice_that_leaves_takes_its_older_weights_along():
    run = dataclasses.replace(with_engine(TREE, "stale-copy", age=1), staleness="two-point", lag=2, steps=12)
    run = dataclasses.replace(run, staleness_args=(("slices", 4),), age_limit=2, too_old="drop")
    world = build_world((run,))
    source = build_source((run,), world, world.initial())
    lengths = set()
    for step in range(run.steps):
        made = source.batch(world.initial() + step, step)
        if not made.empty:
            older = (made.rollout.version_RBT[0, :: run.group, 0] - 1).clamp(min=0)
            assert torch.equal(made.behavior.past_XP, world.initial() + older[:, None])
            lengths.add(len(older))
    assert len(lengths) > 1


@pytest.mark.parametrize(
    ("run", "name"),
    [(TREE, "skip-layers"), (TREE, "fp8-activations"), (TREE, "fp8-tensor+skip-layers"),
     (dataclasses.replace(TREE, staleness="replay"), "stale-copy"),
     (dataclasses.replace(TOY, policy="hf"), "fp8-activations"), (TREE, "fp8-tensr"), (TREE, "int8+top_p")],
)  # fmt: skip
def test_an_engine_that_a_run_cannot_have_is_refused_before_it_trains(run, name):
    refuses(".", check_arguments, [run, dataclasses.replace(run, mismatch=name)])


def test_layers_of_which_none_would_be_skipped_are_refused_before_training():
    """A quarter of two layers is none: the engine was the policy itself, and no mismatch was measured."""
    run = dataclasses.replace(TOY, policy_args=(), mismatch="skip-layers")
    refuses("ratio 0.25 of 2 layers skips none", check_arguments, [run])
    half = dataclasses.replace(run, mismatch_args=(("ratio", 0.5),))
    deep = dataclasses.replace(run, policy_args=(("layers", 4),))
    check_arguments([half, deep, dataclasses.replace(run, mismatch_args=(("ratio", 0.0),))])


def test_joined_engines_share_an_argument_and_keep_their_own():
    joined = engine("fp8-tensor+temperature+int8", matrices="all", temperature=2.0)
    assert joined.name == "fp8-tensor+temperature+int8"
    world, draw = build_world((TREE,)), Draw((0,))
    theta, layout = uneven(world), {"logits": (world.policy.states, world.policy.actions)}
    once = engine("fp8-tensor", matrices="all").weights(theta, layout, draw)
    twice = engine("int8", matrices="all").weights(once, layout, draw)
    assert torch.equal(joined.weights(theta, layout, draw), twice)
    log_pi = torch.log_softmax(torch.linspace(-1, 1, 4), -1)[None, None]
    assert torch.equal(
        joined.distribution(log_pi, draw, 0),
        engine("temperature", temperature=2.0).distribution(log_pi, draw, 0),
    )
