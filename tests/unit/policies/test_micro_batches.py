"""Micro-batches: memory that does not grow with the batch, and a gradient that is the whole batch's."""

import re
import weakref
from dataclasses import replace

import numpy as np
import pytest
import torch
from support import tiny_models
from support.quick import quick
from support.refusals import refuses
from support.small_runs import SUMS

from testbed.errors import UserError
from testbed.losses.aggregate import AGGREGATIONS, aggregate
from testbed.objectives import objective
from testbed.policies.hf import causal_model
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.hf.micro_batches import MICRO, Part, checked_micro_tokens, lengths, parts, refusing
from testbed.training.loop import train

TASK = tiny_models.Echo()
N, GROUP = 6, 4
B = N * GROUP
BATCH_WIDE = sorted(name for name in objective if objective[name].promises["scope"] in ("batch", "group"))
# float64 all through: GPT-2 has no norm that drops to float32.
EXACT = {"rtol": 1e-9, "atol": 1e-12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_models.write_model(tmp_path_factory.mktemp("m") / "gpt2", tiny_models.CONFIGS["gpt2"]())


@pytest.fixture(scope="module")
def whole(folder):
    return HuggingFacePolicy(folder, TASK, dtype="float64", temperature=2.0)


@pytest.fixture(scope="module")
def rollout(whole):
    return tiny_models.moved_rollout(whole, N, GROUP)


def gradient(policy, rollout, loss):
    theta_RP, prompt_RNQ, token_RBT, batch = rollout
    leaf_RP = theta_RP.clone().requires_grad_()
    logp_RBT = policy.logp(leaf_RP, prompt_RNQ, token_RBT, batch.mask_BT)
    return torch.autograd.grad(loss(logp_RBT, batch).sum(), leaf_RP)[0]


@pytest.fixture(scope="module")
def small(folder):
    return HuggingFacePolicy(folder, TASK, dtype="float64", temperature=2.0, micro_tokens=40)


@pytest.mark.parametrize("name", quick({"m2po", "bapo", "self_normalized"}, BATCH_WIDE))
def test_gradient_of_an_objective_that_looks_across_sequences_is_that_of_one_big_batch(
    name, whole, small, rollout
):
    def loss(logp_RBT, batch):
        return aggregate(objective[name].function(logp_RBT, batch), batch.mask_BT, "token_mean")

    expected_RP = gradient(whole, rollout, loss)
    torch.testing.assert_close(gradient(small, rollout, loss), expected_RP, **EXACT)
    assert expected_RP.isfinite().all()


@pytest.mark.parametrize("mode", sorted(AGGREGATIONS))
def test_every_aggregation_keeps_the_denominator_of_the_whole_batch(mode, whole, small, rollout):
    def loss(logp_RBT, batch):
        return aggregate(-logp_RBT.exp() * batch.adv_BT, batch.mask_BT, mode)

    expected_RP = gradient(whole, rollout, loss)
    torch.testing.assert_close(gradient(small, rollout, loss), expected_RP, **EXACT)
    assert expected_RP.norm() > 1e-6


def test_log_probabilities_entropy_and_score_norm_are_those_of_one_big_batch(whole, small, rollout):
    theta_RP, prompt_RNQ, token_RBT, batch = rollout
    for name in ("logp", "entropy", "score_norm"):
        given = (theta_RP, prompt_RNQ, token_RBT, batch.mask_BT)
        torch.testing.assert_close(getattr(small, name)(*given), getattr(whole, name)(*given), **EXACT)


@pytest.mark.parametrize("most", [40, 12])
def test_no_pass_holds_more_than_micro_tokens(folder, rollout, most, monkeypatch):
    seen = []
    run = causal_model.CausalModel.run_responses

    def spy(self, weights, prompt_NQ, real_NQ, token_BT, group):
        seen.append(len(prompt_NQ) * int(real_NQ.any(0).sum()) + token_BT.numel())
        return run(self, weights, prompt_NQ, real_NQ, token_BT, group)

    policy = HuggingFacePolicy(folder, TASK, dtype="float64", micro_tokens=most)
    monkeypatch.setattr(causal_model.CausalModel, "run_responses", spy)
    gradient(policy, rollout, lambda logp_RBT, batch: logp_RBT)
    assert max(seen) <= most
    assert len(seen) > 2 * B // most


def test_parts_cover_every_sequence_once_and_cut_only_groups_that_are_too_large():
    """And each part is as large as it may be: the next group would not have fitted in."""
    prompt_N, response_B = [5, 3, 9, 2], [4, 1, 2, 3, 9, 9, 9, 9, 1, 1, 1, 1]

    def held(first, last):
        rows = response_B[first * 3 : last * 3]
        return (last - first) * (max(prompt_N[first:last]) + 3 * max(rows))

    for most in (1, 7, 15, 30, 60, 64, 144, 1000):  # 64 holds the first two groups exactly, 144 all of them
        found = parts(prompt_N, response_B, most)
        rows = [b for part in found for b in range(part.rows.start, part.rows.stop)]
        assert rows == list(range(12))
        for part in found:
            prompts = part.prompts.stop - part.prompts.start
            assert part.rows.stop - part.rows.start == prompts * part.group
            assert prompts == 1 or part.group == 3
            longest = max(response_B[part.rows])
            assert prompts * (max(prompt_N[part.prompts]) + part.group * longest) <= most or part.group == 1
            whole, last = part.group == 3, part.prompts.stop
            assert not whole or last == 4 or held(part.prompts.start, last + 1) > most
            assert whole or held(part.prompts.start, last) > most
    assert len(parts(prompt_N, response_B, 0)) == 1


def test_a_part_without_gradient_costs_no_second_pass(small, rollout, monkeypatch):
    theta_RP, prompt_RNQ, token_RBT, batch = rollout
    leaf_RP = theta_RP.clone().requires_grad_()
    logp_RBT = small.logp(leaf_RP, prompt_RNQ, token_RBT, batch.mask_BT)
    monkeypatch.setattr(HuggingFacePolicy, "_part", lambda *_: pytest.fail("ran again"))
    (grad_RP,) = torch.autograd.grad((0.0 * logp_RBT).sum(), leaf_RP)
    assert (grad_RP == 0).all()


@pytest.mark.parametrize("when", ["forward", "backward"])
def test_running_out_of_memory_names_the_largest_micro_batch_that_fits(folder, rollout, when, monkeypatch):
    part = HuggingFacePolicy._part

    def narrow(self, rows, theta_P, prompt_NQ, token_BT, mask_BT, group):
        if prompt_NQ.numel() + token_BT.numel() > 24 and (when == "forward") != torch.is_grad_enabled():
            raise torch.OutOfMemoryError("CUDA out of memory")
        return part(self, rows, theta_P, prompt_NQ, token_BT, mask_BT, group)

    policy = HuggingFacePolicy(folder, TASK, micro_tokens=80)
    monkeypatch.setattr(HuggingFacePolicy, "_part", narrow)
    with pytest.raises(
        UserError,
        match="ran out at 80 tokens in one pass; 20 fit just now.*micro_tokens=20 .*TESTBED_MICRO_TOKENS=20 ",
    ):
        gradient(policy, (rollout[0].float(), *rollout[1:]), lambda logp_RBT, batch: logp_RBT)


def test_micro_tokens_are_a_count_and_the_machine_s_go_first(monkeypatch):
    for given in (-1, 2.5, True, "8"):
        assert refuses("", checked_micro_tokens, given) == (
            f"micro_tokens is {given!r}, expected the most tokens that one forward and backward pass may "
            f"hold, as "
            "8192; 0 takes the whole batch at once."
        )
    assert [checked_micro_tokens(given) for given in (0, 7)] == [0, 7]
    monkeypatch.setenv(MICRO, "12")
    assert [checked_micro_tokens(given) for given in (0, 7)] == [12, 12]
    for here in ("many", "0", "-3"):
        monkeypatch.setenv(MICRO, here)
        assert (
            refuses("", checked_micro_tokens, 7)
            == f"{MICRO} is '{here}', expected a number of tokens, as 8192."
        )


def test_what_fits_is_found_by_halves_and_other_errors_stay():
    tried = []

    def attempt(most, error):
        def run(tokens):
            tried.append(tokens)
            if tokens > most:
                raise error

        return run

    ends = (
        MemoryError(),
        torch.OutOfMemoryError("x"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: y"),
    )
    for error in ends:
        for most, told in (
            (9, "5 fit just now: set policy_args.micro_tokens=5 or less, or TESTBED_MICRO_TOKENS=5 and "
            "give the same "
                "command again to go on from a checkpoint"),
            (1, "1 fit just now"), (0, "not even one sequence fits: take shorter responses, LoRA, or a "
            "smaller model"),
        ):  # fmt: skip
            with pytest.raises(UserError) as said, refusing(20, attempt(most, error)):
                raise error
            assert str(said.value).startswith(f"Memory ran out at 20 tokens in one pass; {told}")
            assert told.startswith("1") or str(said.value).endswith(f"{told}.")
    assert tried[:6] == [10, 5, 10, 5, 2, 1]
    for error in (ValueError("x"), RuntimeError("shapes"), KeyboardInterrupt()):
        with pytest.raises(type(error)), refusing(20, attempt(0, error)):
            raise error
    with pytest.raises(RuntimeError, match="shapes"), refusing(20, attempt(0, RuntimeError("shapes"))):
        raise MemoryError


def test_what_a_failed_pass_held_is_free_before_a_smaller_one_is_tried():
    held = []

    def failed():
        activation = torch.ones(3)
        held.append(weakref.ref(activation))
        raise MemoryError

    with pytest.raises(UserError, match="5 fit just now"), refusing(10, lambda _: held[0]() and failed()):
        failed()
    assert len(held) == 1


def test_a_batch_below_the_limit_runs_out_at_its_own_tokens(folder, rollout, monkeypatch):
    """Padding that no pass holds does not count."""
    theta_RP, prompt_RNQ, token_RBT, batch = rollout
    wide_RNQ = torch.cat([torch.full((1, N, 50), TASK.pad_token), prompt_RNQ], dim=2)
    longest = int((prompt_RNQ != TASK.pad_token).sum(-1).max())
    tokens = N * longest + B * int(lengths(batch.mask_BT[0]).max())

    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(HuggingFacePolicy, "_part", full)
    for micro_tokens in (0, 9999):
        policy = HuggingFacePolicy(folder, TASK, dtype="float64", micro_tokens=micro_tokens)
        with pytest.raises(UserError, match=f"Memory ran out at {tokens} tokens in one pass; not even one"):
            policy.logp(theta_RP, wide_RNQ, token_RBT, batch.mask_BT)


def test_a_length_is_the_place_behind_the_last_counted_token():
    mask_BT = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1], [1, 0, 0, 0]]).bool()
    assert lengths(mask_BT).tolist() == [3, 0, 4, 1]
    assert parts([3, 3], [0, 0], 6) == [Part(slice(0, 2), slice(0, 2), 1)]
    assert parts([5], [0, 0, 0], 4) == [Part(slice(0, 1), slice(n, n + 1), 1) for n in range(3)]


def test_a_run_that_met_the_end_of_memory_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    """The same command, with smaller micro-batches on this machine, ends as it would have."""
    folder = tiny_models.write_model(tmp_path / "m", tiny_models.CONFIGS["llama"]())
    run = replace(SUMS, policy="hf", policy_args=(), model=str(folder), learning_rate=1e-3)
    expected = train(run)
    monkeypatch.setenv("TESTBED_CHECKPOINT", str(tmp_path / "kept"))
    monkeypatch.setenv("TESTBED_CHECKPOINT_EVERY", "2")
    part, steps = HuggingFacePolicy._part, []

    def narrow(self, rows, theta_P, prompt_NQ, token_BT, mask_BT, group):
        if len(steps) >= 5 and token_BT.numel() > 16:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return part(self, rows, theta_P, prompt_NQ, token_BT, mask_BT, group)

    monkeypatch.setattr(HuggingFacePolicy, "_part", narrow)
    with pytest.raises(UserError, match=r"Memory ran out.*TESTBED_MICRO_TOKENS=(\d+)") as told:
        train(run, lambda done, _total: steps.append(done))
    assert len(steps) == 5
    monkeypatch.setenv("TESTBED_MICRO_TOKENS", re.search(r"TOKENS=(\d+)", str(told.value))[1])
    resumed = []
    found = train(run, lambda done, _total: resumed.append(done))
    assert resumed[0] == 5
    np.testing.assert_allclose(found["actor/grad_norm"], expected["actor/grad_norm"], rtol=1e-4)
    assert found["reward/mean"].tolist() == expected["reward/mean"].tolist()
