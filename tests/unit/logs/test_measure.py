"""Numbers of a log against the same numbers added up token by token, in plain Python."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from testbed.diagnostics.tail_indices import Estimated, Flat, TooFew
from testbed.errors import UserError
from testbed.logs import measure
from testbed.logs.log_tensors import Tokens, ages, tensors
from testbed.logs.measure import age_rows, by_step, ratio_numbers, split, tails
from testbed.logs.record import Log, LoggedSequence

INF, NAN = math.inf, math.nan


def one(step, sample, mask, mu, pi, anchor=None, version=None, **fields):
    lists = {"logp_mu": mu, "logp_pi": pi, "logp_anchor": anchor}
    lists = {name: None if value is None else np.array(value, dtype=float) for name, value in lists.items()}
    version = None if version is None else np.array(version)
    return LoggedSequence(step, sample, sample[0], np.array(mask, bool), version=version, **lists, **fields)


SOUND = (
    one(0, "a1", [1, 0, 1, 1], [-1, -9, -2, -0.5], [-0.5, -1, -2.25, -1.5], [-0.75, -9, -2, -1], [3, 9, 4, 4],
        reward=1.0, trainer_version=5), one(0, "a2", [1], [-3], [-1], [-2.5], [2], trainer_version=5),
    one(2, "b1", [1, 1], [-1, -2], [-1.5, -2.5], [-1, -2.25], [5, 3], reward=3.0, trainer_version=6),
    one(0, "b2", [0, 1, 1], [-7, -1, -1], [-1, -1.25, -0.25], [0, -1, -0.5], [9, 5, 3], reward=-2.0,
        trainer_version=6),
)  # fmt: skip
HOSTILE = (
    one(0, "c1", [1, 1, 1], [-1, -1, -1], [-INF, -2, -0.5], [-1, -1, -1]),
    one(0, "c2", [1, 1, 1], [-1, -INF, -1], [-2, -1, -0.25], [-INF, -1, -1]),
    one(0, "c3", [1, 1, 1], [NAN, -1, -1], [-2, -1.75, NAN], [-1, -1, -1]),
    one(0, "c4", [1, 1], [-INF, -1], [-INF, -1.5]),
    one(0, "c5", [0, 1], [-1, NAN], [-1, -1]),
)


def shares(weights):
    """Return Kish's, perplexity's and the largest weight's effective share of N."""
    total = sum(weights)
    if not weights or total == 0:
        return NAN, NAN, NAN
    p = [w / total for w in weights]
    entropy = -sum(x * math.log(x) for x in p if x > 0)
    n = len(p)
    return 1 / sum(x * x for x in p) / n, math.exp(entropy) / n, 1 / max(p) / n


def mean(values):
    return sum(values) / len(values) if values else NAN


def kl(rho):
    logs = [math.log(r) for r in rho]
    return {
        "mu_pi_k1": mean([-x for x in logs]), "mu_pi_k2": mean([x * x / 2 for x in logs]),
        "mu_pi_k3": mean([r - 1 - x for r, x in zip(rho, logs, strict=True)]),
        "pi_mu_k1": mean([r * x for r, x in zip(rho, logs, strict=True)]),
        "pi_mu_k2": mean([r * x * x / 2 for r, x in zip(rho, logs, strict=True)]),
        "pi_mu_k3": mean([r * x - r + 1 for r, x in zip(rho, logs, strict=True)]),
    }  # fmt: skip


def log_ratios(sequence):
    """Return log pi - log mu by token, None where a token is masked or lacks one of the two."""
    rows = zip(sequence.mask, sequence.logp_pi.tolist(), sequence.logp_mu.tolist(), strict=True)
    return [None if not chosen or pi != pi or mu != mu else pi - mu for chosen, pi, mu in rows]


def reference(sequences):
    rows = [[x for x in log_ratios(one) if x is not None] for one in sequences]
    prefixes = [sum(row[: n + 1]) for row in rows for n in range(len(row))]
    levels = {
        "token": [x for row in rows for x in row if abs(x) < INF],
        "prefix": [x for x in prefixes if x < INF],
        "sequence": [sum(row) for row in rows if row and sum(row) < INF],
    }
    found = {}
    for level, logs in levels.items():
        raw = [math.exp(x) for x in logs]
        for name, weights in (("raw", raw), ("clamped", [min(w, 2.0) for w in raw])):
            for how, share in zip(("kish", "perplexity", "max"), shares(weights), strict=True):
                found[f"ess_{how}_{level}_{name}"] = share
        if level != "prefix":
            for label, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)):
                found[f"log_rho_{level}_{label}"] = sorted(logs)[math.ceil(q * len(logs)) - 1]
    rho = [math.exp(x) for x in levels["token"]]
    found |= {f"kl_{name}": value for name, value in kl(rho).items()}
    found |= {
        "ess_floor_token": 1 / len(rho), "ess_floor": 1 / len(levels["sequence"]),
        "nonfinite": sum(len(row) for row in rows) - len(rho),
        "chi2_token": mean([r * r - 1 for r in rho]), "rollout_is_mean": mean([min(r, 2.0) for r in rho]),
        "chi2_sequence": mean([math.exp(2 * x) - 1 for x in levels["sequence"]]),
    }  # fmt: skip
    return {f"rollout_corr/{name}": value for name, value in found.items()} | {
        "token_mult_prob_error": mean([math.exp(abs(x)) for x in levels["token"]]),
        "sequences": len(rows), "tokens": sum(map(len, rows)),
    }  # fmt: skip


@pytest.mark.parametrize("chunk", [5, 2**17])
@pytest.mark.parametrize("some", [SOUND, HOSTILE, SOUND + HOSTILE], ids=["sound", "hostile", "both"])
def test_every_number_is_that_of_a_sum_token_by_token(some, chunk, monkeypatch):
    monkeypatch.setattr(measure, "CHUNK", chunk)
    found = ratio_numbers(tensors(Log("made", some)))
    assert found == pytest.approx(reference(some), rel=1e-7, abs=1e-12)


def test_steps_are_ascending_and_each_has_its_sequences_alone():
    at_0, at_2 = (SOUND[0], SOUND[1], SOUND[3]), (SOUND[2],)
    wanted = [
        {"step": 0, **reference(at_0), "reward/mean": -0.5, "response_length/mean": 2},
        {"step": 2, **reference(at_2), "reward/mean": 3, "response_length/mean": 2},
    ]
    for found, row in zip(by_step(Log("made", SOUND)), wanted, strict=True):
        assert found == pytest.approx(row, rel=1e-7, abs=1e-12)
    (found,) = by_step(Log("made", (SOUND[1],)))
    assert math.isnan(found["reward/mean"])


def test_an_age_has_the_numbers_of_its_tokens_alone():
    by_age = {}
    for sequence in SOUND:
        for x, version in zip(log_ratios(sequence), sequence.version, strict=True):
            if x is not None:
                by_age.setdefault(sequence.trainer_version - version, []).append(math.exp(x))
    wanted = [
        {"age": age, "tokens": len(rho), "ess_kish_token": shares(rho)[0]}
        | {f"kl_{name}": value for name, value in kl(rho).items() if name.startswith("mu_pi")}
        for age, rho in sorted(by_age.items())
    ]
    assert len(wanted) == 3
    for found, row in zip(age_rows(tensors(Log("made", SOUND))), wanted, strict=True):
        assert found == pytest.approx(row, rel=1e-12)
    lost = replace(SOUND[1], logp_pi=np.array([-INF]), version=np.array([0]))
    assert [row["age"] for row in age_rows(tensors(Log("made", (*SOUND, lost))))] == [1, 2, 3]
    assert age_rows(tensors(Log("made", HOSTILE))) == []


def test_without_the_trainers_version_ages_count_from_the_newest_of_the_step():
    assert [row.tolist() for row in ages(Log("made", SOUND))] == [[2, -4, 1, 1], [3], [1, 3], [-3, 1, 3]]
    bare = Log("made", tuple(replace(one, trainer_version=None) for one in SOUND))
    assert [row.tolist() for row in ages(bare)] == [[6, 0, 5, 5], [7], [0, 2], [0, 4, 6]]
    other = replace(bare, sequences=bare.sequences[::-1])
    assert [row.tolist() for row in ages(other)] == [[0, 4, 6], [0, 2], [7], [6, 0, 5, 5]]
    first = Log("made", tuple(replace(one, trainer_version=0) for one in SOUND))
    assert [row.tolist() for row in ages(first)] == [(-one.version).tolist() for one in SOUND]
    assert ages(Log("made", (*SOUND, HOSTILE[0]))) is None


def test_mismatch_and_staleness_add_up_token_by_token():
    known, lost = SOUND, replace(HOSTILE[1], logp_pi=np.array([-2.0, -1.0, -INF]))
    parts = [(anchor - mu, pi - anchor) for sequence in known
             for chosen, mu, anchor, pi in zip(sequence.mask, sequence.logp_mu, sequence.logp_anchor,
                                               sequence.logp_pi, strict=True) if chosen]  # fmt: skip
    wanted = {
        "tokens": len(parts), "k1": mean([-d - s for d, s in parts]),
        "k1_mismatch": mean([-d for d, _ in parts]), "k1_staleness": mean([-s for _, s in parts]),
        "k2": mean([(d + s) ** 2 / 2 for d, s in parts]), "k2_mismatch": mean([d * d / 2 for d, _ in parts]),
        "k2_staleness": mean([s * s / 2 for _, s in parts]), "k2_cross": mean([d * s for d, s in parts]),
    }  # fmt: skip
    for some in (known, (*known, lost)):  # tokens that lack one of the three count nowhere
        assert split(tensors(Log("made", some))) == pytest.approx(wanted, rel=1e-12)
    assert split(tensors(Log("made", (lost,)))) == {}
    assert split(tensors(Log("made", (*known, HOSTILE[3])))) == {}


def test_a_log_s_tensors_are_its_sequences_end_to_end():
    full = tuple(replace(one, advantage=np.arange(len(one.mask)) + 0.5, reward=2.0) for one in SOUND)
    found = tensors(Log("made", (*full[:3], replace(full[3], logp_mu=np.array([-7, NAN, -1.0])))))
    wanted = {
        "mask_N": [1, 0, 1, 1, 1, 1, 1, 0, 0, 1],
        "log_pi_N": [-0.5, 0, -2.25, -1.5, -1, -1.5, -2.5, 0, 0, -0.25],
        "log_mu_N": [-1, 0, -2, -0.5, -3, -1, -2, 0, 0, -1], "length_B": [4, 1, 2, 3],
        "log_anchor_N": [-0.75, -9, -2, -1, -2.5, -1, -2.25, 0, -1, -0.5],
        "age_N": [2, -4, 1, 1, 3, 1, 3, -3, 1, 3],
        "adv_N": [0.5, 1.5, 2.5, 3.5, 0.5, 0.5, 1.5, 0.5, 1.5, 2.5], "reward_B": [2.0] * 4,
        "group_B": [0, 0, 1, 1],
    }  # fmt: skip
    assert {name: value.tolist() for name, value in vars(found).items()} == wanted
    bare = tensors(Log("made", (SOUND[0], HOSTILE[3])))
    assert [bare.log_anchor_N, bare.adv_N, bare.age_N, bare.reward_B] == [None] * 4
    packed = Tokens(torch.tensor([True]), *(torch.zeros(1) for _ in "ab"), length_B=torch.tensor([0, 1, 0]))
    assert packed.total(torch.tensor([3.0])).tolist() == [0, 3, 0]
    assert [row.tolist() for row in packed.rows(torch.tensor([3.0]))] == [[], [3], []]
    for name, which in (("logp_mu", r"the sampler's .*\(mu\)"), ("logp_pi", r"the trainer's .*\(pi\)")):
        some = (SOUND[0], *(replace(one, **{name: None}) for one in SOUND[:2]))
        with pytest.raises(UserError, match=f"^2 of 3 sequences in the made log lack {which}"):
            tensors(Log("made", some))


def test_the_tail_of_every_level_is_estimated_or_says_why_not(monkeypatch):
    seen = []

    def fitted(weights):
        seen.append(weights.tolist())
        if len(seen) == 4:
            raise UserError("no weights")
        return (
            Flat(3, 2), TooFew(3, 2, 4, 5), Estimated(3, 2, 0.49, 0.0, 0.0, 0.631, 17), None,
            *(Estimated(3, 2, k, 0.0, 0.0, 0.6, 17) for k in (0.5, 0.99, 1.0, 0.6, 0.61)),
        )[len(seen) - 1]  # fmt: skip

    monkeypatch.setattr(measure, "pareto_k", fitted)
    tokens = tensors(Log("made", (SOUND[0], *HOSTILE[:2])))
    found = tails(tokens)
    assert seen == [
        [0.5, -0.25, -1, -1, 0.5, -1, 0.75], [0.5, 0.25, -0.75, -INF, -INF, -INF, -1], [-0.75, -INF],
    ]  # fmt: skip
    assert found == {
        "token": {"outcome": "flat", "n": 3, "says": "the largest weights are equal up to rounding: no tail"},
        "prefix": {"outcome": "too few", "n": 3, "says": "4 distinct weights above the cutoff, 5 are needed"},
        "sequence": {
            "outcome": "estimated", "n": 3, "k": 0.49, "threshold": 0.631, "reliable": True, "required": 17,
            "says": "at most min(1 - 1/log10 n, 0.7) = 0.63; a distribution with this k has finite variance",
        },
    }  # fmt: skip
    assert measure._tail(tokens.log_pi_N) == {"outcome": "undefined", "says": "no weights"}
    said = [measure._tail(tokens.log_pi_N)["says"].split(" min(")[0::1] for _ in range(5)]
    ends = ["infinite variance", "infinite variance", "no mean", "infinite variance", "infinite variance"]
    kinds = ["at most", "above", "above", "at most", "above"]
    assert [(x, rest.partition(" has ")[2]) for x, rest in said] == list(zip(kinds, ends, strict=True))
