"""What is easy to get wrong in another stack's files, one test per trap."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from support import made_logs
from support.made_logs import BOTH, sequences

from testbed.errors import UserError
from testbed.logs.log_tensors import ages, tensors
from testbed.logs.measure import _tail, age_rows, by_step, ratio_numbers, split, tails
from testbed.logs.readers import read
from testbed.logs.record import Log, LoggedSequence, made
from testbed.logs.sanity_checks import suspicions

MANY = 400


def one_long(mu, pi, **fields):
    """Return a log of one sequence."""
    mask = fields.pop("mask", np.ones(len(mu), dtype=bool))
    return Log(
        "made", (LoggedSequence(0, "a", "g", mask, logp_mu=np.array(mu), logp_pi=np.array(pi), **fields),)
    )


def drawn(spread=0.1, temperature=1.0, seed=1):
    """Return log mu and log pi of tokens of random laws, pi a little off, read at a temperature."""
    draw = np.random.default_rng(seed)
    logits = 2 * draw.normal(size=(MANY, 20))
    near = logits + spread * draw.normal(size=logits.shape)
    token = draw.integers(0, 20, MANY)

    def logp(x):
        return (x - np.log(np.exp(x).sum(-1, keepdims=True)))[np.arange(MANY), token]

    return logp(logits / temperature), logp(near)


def numbers(log):
    return ratio_numbers(tensors(log))


@pytest.fixture(scope="module")
def truth():
    """log rho of the made sequences' tokens under the mask, sorted."""
    rows = sequences()
    return np.sort(
        np.concatenate(
            [(np.array(r["pi"]) - np.array(r["mu"]))[np.array(r["mask"], dtype=bool)] for r in rows]
        )
    )


@pytest.mark.parametrize("stack", BOTH)
def test_prompt_tokens_with_log_probability_zero_and_padding_count_nowhere(stack, truth, tmp_path):
    BOTH[stack](tmp_path / "log")
    tokens = tensors(read([tmp_path / "log"]))
    found = np.sort(tokens.log_rho_N[tokens.mask_N].numpy())
    np.testing.assert_allclose(found, truth, atol=1e-6)
    assert (tokens.log_rho_N[~tokens.mask_N] == 0).all()


def test_padding_on_the_left_and_on_the_right_are_one_log(tmp_path):
    made_logs.skyrl(tmp_path / "left", left=True)
    made_logs.skyrl(tmp_path / "right", left=False)
    left, right = (read([tmp_path / side]) for side in ("left", "right"))
    for one, other in zip(left.sequences, right.sequences, strict=True):
        for name in ("prompt", "token", "mask", "logp_mu", "logp_pi"):
            np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
        assert one.group == other.group


def test_a_list_of_one_is_a_value_and_a_list_of_one_token_a_sequence(tmp_path):
    row = {
        "token_ids": [[3, 4]], "token_loss_mask": [[0, 1]], "generation_logprobs": [[0.0, -1.0]],
        "prev_logprobs": [[0.0, -1.5]], "input_lengths": [2], "rewards": [1.0], "advantages": [0.5],
    }  # fmt: skip
    flat = {name: value[0] for name, value in row.items()}
    single = {n: v[-1:] if isinstance(v, list) else v for n, v in flat.items()} | {"input_lengths": 1}
    lines = "\n".join(json.dumps(each) for each in (row, flat, single))
    (tmp_path / "train_data_step3.jsonl").write_text(lines)
    for one in read([tmp_path / "train_data_step3.jsonl"]).sequences:
        assert (one.step, one.reward, one.length) == (3, 1.0, 1)
        assert (one.logp_mu.tolist(), one.logp_pi.tolist(), one.advantage.tolist()) == ([-1.0], [-1.5], [0.5])
    del row["token_loss_mask"]
    (tmp_path / "train_data_step3.jsonl").write_text(json.dumps(row))
    with pytest.raises(UserError, match=r"has no token_loss_mask.*Log with a newer NeMo-RL"):
        read([tmp_path / "train_data_step3.jsonl"], "nemo-rl")


def test_ranks_are_joined_and_a_missing_one_is_told(tmp_path):
    made_logs.prime_rl(tmp_path / "log")
    whole = read([tmp_path / "log"])
    assert len(whole.sequences) == len(sequences())
    assert not any("rank" in note for note in whole.notes)
    one = read([tmp_path / "log" / "step_0" / "rank_0.jsonl"])
    assert "step_0: 1 of 2 ranks were given" in " ".join(one.notes)
    (tmp_path / "log" / "step_1" / "rank_0.jsonl").unlink()
    (tmp_path / "log" / "step_0" / "STABLE").unlink()
    told = " ".join(read([tmp_path / "log"]).notes)
    assert "step_1: no file of rank 0" in told
    assert "step_0 has no STABLE marker" in told


def test_train_data_of_a_lost_rank_are_missed(tmp_path):
    made_logs.slime(tmp_path / "log")
    (tmp_path / "log" / "train_0_1.pt").unlink()
    log = read([tmp_path / "log"])
    assert f"{len(sequences()) // 4} of {len(sequences())} samples have no train data" in " ".join(log.notes)
    with pytest.raises(
        UserError, match=r"6 sequences of the slime log have no log-probabilities of the tr.*\(pi\)"
    ):
        tensors(log)


def test_a_temperature_in_one_engine_alone_is_suspected_and_in_both_is_not():
    for temperature, suspected in ((0.6, True), (1.0, False), (1.6, True)):
        mu, pi = drawn(temperature=temperature)
        found = " ".join(suspicions(one_long(mu, pi)))
        assert ("temperature" in found) == suspected
    mu, pi = drawn()
    assert "temperature" not in " ".join(
        suspicions(one_long(mu, -np.random.default_rng(2).exponential(9.0, MANY)))
    )
    assert "Sampled at temperature 0.7" in " ".join(suspicions(one_long(mu, pi, temperature=0.7)))


def test_mixed_versions_are_counted_and_their_ages_kept_apart():
    mu, pi = np.full(6, -1.0), np.array([-1.0, -1.0, -1.0, -0.5, -0.5, -0.5])
    log = one_long(mu, pi, version=np.array([3, 3, 3, 1, 1, 1]), trainer_version=4)
    assert "1 of 1 sequences have tokens of several weights versions" in " ".join(suspicions(log))
    rows = age_rows(tensors(log))
    assert [(row["age"], row["tokens"]) for row in rows] == [(1.0, 3.0), (3.0, 3.0)]
    assert rows[0]["kl_mu_pi_k2"] == 0
    assert rows[1]["kl_mu_pi_k2"] == pytest.approx(0.125)
    mixed = replace(log.sequences[0], trainer_version=None)
    unknown = replace(log, sequences=(mixed, replace(mixed, version=np.full(6, 2))))
    assert [each.tolist() for each in ages(unknown)] == [[0, 0, 0, 2, 2, 2], [1] * 6]
    later = replace(unknown.sequences[0], step=9, version=unknown.sequences[0].version + 50)
    both = made("made", [*unknown.sequences, later])
    assert [max(each) for each in ages(both)] == [2, 1, 2], "each step has a newest version of its own"
    assert "lower bounds" in " ".join(suspicions(unknown))


def test_numbers_of_a_step_and_of_an_age_are_those_of_its_tokens_alone(tmp_path):
    made_logs.own(tmp_path / "log")
    log = read([tmp_path / "log"])
    some = [replace(one, reward=None) if n % 5 == 0 else one for n, one in enumerate(log.sequences)]
    of_step, of_age = {}, {}
    for one in some:
        rewards, lengths, ratios = of_step.setdefault(one.step, ([], [], []))
        rewards += [] if one.reward is None else [one.reward]
        lengths.append(sum(one.mask))
        for pi, mu, version, chosen in zip(one.logp_pi, one.logp_mu, one.version, one.mask, strict=True):
            if chosen:
                ratios.append(np.exp(pi - mu))
                of_age.setdefault((one.step, one.trainer_version - version), []).append(ratios[-1])
    for step, row in zip(sorted(of_step), by_step(replace(log, sequences=tuple(some))), strict=True):
        rewards, lengths, ratios = map(np.array, of_step[step])
        assert (row["step"], row["tokens"], row["sequences"]) == (step, len(ratios), len(lengths))
        assert row["reward/mean"] == pytest.approx(rewards.mean())
        assert row["response_length/mean"] == pytest.approx(lengths.mean())
        assert row["rollout_corr/kl_mu_pi_k3"] == pytest.approx((ratios - 1 - np.log(ratios)).mean())
        ages = age_rows(tensors(log.at(step)))
        assert [row["age"] for row in ages] == sorted(age for at, age in of_age if at == step)
        for row in ages:
            ratios = np.array(of_age[step, row["age"]])
            assert row["tokens"] == len(ratios)
            assert row["ess_kish_token"] == pytest.approx(ratios.mean() ** 2 / (ratios**2).mean())
            assert row["kl_mu_pi_k1"] == pytest.approx(-np.log(ratios).mean())
            assert row["kl_mu_pi_k3"] == pytest.approx((ratios - 1 - np.log(ratios)).mean())


def test_what_a_sample_of_slime_may_lack_or_name_twice(tmp_path):
    """The oldest version of a response counts; without a group it is alone, whatever number it has."""
    made_logs.slime(tmp_path / "log")
    path = tmp_path / "log" / "rollout_0.pt"
    held = torch.load(path, weights_only=True)
    odd = [{"weight_versions": ["7", "5", "7"]}, {"group_index": None}, {"remove_sample": True}]
    odd += [{"reward": {"score": 1.0}}, {"loss_mask": None, "weight_versions": ["default"]}]
    for sample, changed in zip(held["samples"], odd, strict=False):
        sample |= changed
    torch.save(held, path)
    log = read([tmp_path / "log"])
    first, alone, of_two, whole = log.sequences[:4]
    assert [one.sample for one in log.sequences[:4]] == ["0", "1", "3", "4"]
    assert set(first.version) == {5}
    assert (of_two.reward, whole.version, whole.mask.all()) == (None, None, True)
    assert [one.sample for one in log.sequences if one.group == first.group] == ["0", "3"]
    assert [one for one in log.sequences if one.group == alone.group] == [alone]
    said = " ".join(log.notes)
    assert "1 of 24 responses mix weights versions" in said
    assert "1 of 24 sequences have no token under their mask" in said


def test_minus_infinity_counts_as_what_it_is():
    mu, pi = np.array([-1.0, -1.0, -2.0]), np.array([-np.inf, -1.0, -2.0])
    log = made("made", [one_long(mu, pi).sequences[0], one_long(mu, mu).sequences[0]])
    found = numbers(log)
    assert found["rollout_corr/nonfinite"] == 1
    assert found["rollout_corr/ess_kish_sequence_raw"] == pytest.approx(0.5)  # pi = 0: the sequence weighs 0
    assert found["rollout_corr/kl_mu_pi_k3"] == 0
    assert "1 of 6 tokens have log pi = -inf" in " ".join(suspicions(log))
    assert "= -inf" not in " ".join(suspicions(one_long(-pi, mu)))
    never = numbers(one_long(pi, mu))  # mu = 0 where pi > 0: no weight at all
    assert np.isnan(never["rollout_corr/ess_kish_sequence_raw"])
    assert tails(tensors(one_long(pi, mu)))["sequence"]["outcome"] == "undefined"


def test_missing_log_probabilities_leave_the_mask_and_are_counted():
    mu, pi = np.array([np.nan, -1.0]), np.array([-1.0, -1.0])
    assert numbers(one_long(mu, pi))["tokens"] == 1
    assert numbers(one_long(pi, mu))["tokens"] == 1
    assert "1 of 2 tokens have no log mu" in " ".join(suspicions(one_long(mu, pi)))
    assert "1 of 2 tokens have no log pi" in " ".join(suspicions(one_long(pi, mu)))


@pytest.mark.parametrize(("index", "moments"), [(0.3, "finite"), (0.6, "infinite"), (1.4, "no mean")])
def test_a_tail_has_the_moments_of_its_index(index, moments):
    """Weights exp(index x) of exponential x have a Pareto tail of that index."""
    found = _tail(index * torch.as_tensor(np.random.default_rng(2).exponential(size=4000)))
    assert found["k"] == pytest.approx(index, abs=0.05)
    assert found["says"].endswith(moments if moments == "no mean" else f"has {moments} variance")


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_rounding_to_sixteen_bits_is_told_with_about_what_it_adds(name):
    mu, _ = drawn()
    rounded = (
        mu.astype(np.float16).astype(float)
        if name == "float16"
        else torch.tensor(mu).bfloat16().double().numpy()
    )
    told = [line for line in suspicions(one_long(rounded, mu)) if "rounding" in line]
    assert len(told) == 1
    assert f"Every log mu is a {name} number" in told[0]
    added = float(told[0].partition("about ")[2].split()[0])
    # The guess has two digits, and takes the error for uniform between neighbors.
    assert added == pytest.approx(float(((rounded - mu) ** 2).mean() / 2), rel=0.07)
    assert not [
        line for line in suspicions(one_long(mu.astype(np.float32).astype(float), mu)) if "rounding" in line
    ]


def test_placeholders_under_the_mask_are_told_and_certainty_is_not():
    mu, pi = np.array([0.0, -1.0, 0.0]), np.array([-3.0, -1.0, -1e-4])
    assert "1 of 3 tokens under the mask have log mu = 0" in " ".join(suspicions(one_long(mu, pi)))
    masked = one_long(mu, pi, mask=np.array([False, True, True]))
    assert "log mu = 0" not in " ".join(suspicions(masked))


def test_the_same_prompt_at_another_step_is_another_group_and_twice_in_one_is_told(tmp_path):
    rows = [
        {"input": "q", "output": "a", "gts": "", "score": 1, "step": step}
        for step in (1, 2)
        for _ in range(4)
    ] + [{"input": p, "output": "a", "gts": "", "score": 1, "step": 2} for p in "xxxxyyyyzzzzzzzz"]
    made_logs._lines(tmp_path / "a.jsonl", rows)
    log = read([tmp_path / "a.jsonl"])
    sizes = {one.group: sum(o.group == one.group for o in log.sequences) for one in log.sequences}
    assert sorted(sizes.values()) == [4, 4, 4, 4, 8]
    assert "1 of 5 groups have twice the usual 4" in " ".join(suspicions(log))


def test_a_last_line_that_was_cut_is_dropped_and_told_and_one_in_the_middle_refused(tmp_path):
    made_logs.own(tmp_path / "log")
    path = tmp_path / "log" / "made.tokens.jsonl"
    whole = path.read_text()
    path.write_text("\n" + whole[:-40] + "\n\n")
    log = read([path])
    assert len(log.sequences) == len(sequences()) - 1
    assert "made.tokens.jsonl is cut short: its last line, 25" in " ".join(log.notes)
    lines = whole.splitlines()
    path.write_text("\n".join([lines[0], lines[1][:-40], *lines[2:]]))
    with pytest.raises(UserError, match="tokens.jsonl:2 is not JSON"):
        read([path])


@pytest.mark.parametrize("stack", ["slime", "skyrl"])
def test_a_torch_file_that_was_cut_is_refused(stack, tmp_path):
    BOTH[stack](tmp_path / "log")
    path = next((tmp_path / "log").glob("*.pt"))
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(UserError, match=r"not a complete torch file.*Was its writer stopped"):
        read([path])


def test_sequences_without_a_token_of_the_policy_are_dropped_and_counted():
    none = LoggedSequence(0, "b", "g", np.zeros(3, dtype=bool))
    log = made("made", [one_long([-1.0], [-1.0]).sequences[0], none])
    assert len(log.sequences) == 1
    assert "1 of 2 sequences have no token under their mask" in log.notes[0]
    with pytest.raises(UserError, match="holds no sequence"):
        made("made", [none])


def test_mismatch_and_staleness_add_up_to_the_whole():
    draw = np.random.default_rng(3)
    mu = -draw.exponential(1.0, 50)
    anchor = mu + 0.1 * draw.normal(size=50)
    pi = anchor + 0.3 * draw.normal(size=50)
    found = split(tensors(one_long(mu, pi, logp_anchor=anchor)))
    assert found["k1_mismatch"] + found["k1_staleness"] == pytest.approx(found["k1"])
    parts = found["k2_mismatch"] + found["k2_staleness"] + found["k2_cross"]
    assert parts == pytest.approx(found["k2"])
    assert found["k2_mismatch"] == pytest.approx(((anchor - mu) ** 2).mean() / 2)
    assert split(tensors(one_long(mu, pi))) == {}
