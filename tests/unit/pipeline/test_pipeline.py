"""The pipeline simulator: clocks and versions by hand, rules that bind, closed forms, the same bits."""

import itertools
import math
from dataclasses import replace

import numba
import numpy as np
import pytest
from scipy import stats
from support.refusals import refuses

from envs.kernels import philox
from testbed.errors import UserError
from testbed.pipeline import closed_forms, pipeline_draws
from testbed.pipeline.design import Design, _ranges, check, from_toml, from_words, to_words
from testbed.pipeline.kernel import _count
from testbed.pipeline.records import LAGS
from testbed.pipeline.simulate import VALUES, simulate, simulate_one, trace_rows

FIXED = Design(
    slots=8, batch=8, group=2, tau_0=0.5, length="fixed", length_mean=10, train_time=3.0, queue_rule="block"
)
"""A batch takes 5 s to generate and 3 s to train: every number below can be worked out by hand."""
LOGNORMAL = Design(slots=240, batch=240, train_time=15, queue_rule="drop-oldest")
SYNCHRONOUS = {"admission": "capacity", "eta": 0, "barrier": True}
LAG, MEMBER, LENGTH = "lag_sample", 1, 2


def replications(design, **how):
    return simulate_one(design, **{"replicas": 4, "batches": 300} | how)


# By hand: fixed lengths, no randomness.


def test_synchronous_training_takes_the_sum_of_both_times_and_has_no_lag():
    found = replications(replace(FIXED, **SYNCHRONOUS, sync_time=1.0))
    assert found.mean("period") == pytest.approx(5 + 3 + 1, rel=1e-12)
    assert found.mean("lag_largest") == 0
    assert found.mean("trainer_busy") == pytest.approx(3 / 9)
    assert found.mean("slots_busy") == pytest.approx(5 / 9)


def test_synchronous_training_takes_every_response_generated_since_the_warm_up():
    found = replications(replace(LOGNORMAL, **SYNCHRONOUS), batches=20)
    np.testing.assert_allclose(found.value_R["length_bias"], 0, atol=1e-12)


def test_where_no_response_finishes_generated_ones_have_no_mean_length():
    found = replications(Design(batch=16, group=4), batches=5)
    assert np.isnan(found.value_R["length_generated"]).all()
    assert np.isnan(found.value_R["length_bias"]).all()


def test_decoding_takes_its_time_again_after_a_pause_where_a_token_alone_takes_none():
    design = replace(FIXED, **SYNCHRONOUS, tau_0=0.0, tau_1=0.0625)  # 8 sequences: 0.5 s per token
    found = replications(design)
    assert found.mean("period") == pytest.approx(5 + 3, rel=1e-12)
    assert found.mean("slots_busy") == pytest.approx(5 / 8)


def test_one_step_off_hides_the_shorter_side_and_is_one_batch_behind():
    found = replications(replace(FIXED, admission="capacity", eta=1, barrier=True))
    assert found.mean("period") == pytest.approx(5, rel=1e-12)
    assert found.mean("lag_sample") == found.mean("lag_largest") == 1
    slow = replications(
        replace(FIXED, admission="capacity", eta=1, barrier=True, train_time=7.0, sync_time=1.0)
    )
    assert slow.mean("period") == pytest.approx(8, rel=1e-12)


def test_the_newest_weights_that_wait_for_a_transfer_set_out_when_it_ends():
    # Batches of equal responses, short or long: several are trained during one transfer, or none.
    design = replace(FIXED, group=8, length="empirical", lengths=(4, 30), correlation=1.0, train_time=0.7,
                     sync_time=5.3, sync_blocking=False)  # fmt: skip
    row_BK, _, _ = trace_rows(design, 60)
    ended_J = np.cumsum(0.5 * row_BK[::8, LENGTH])  # training is faster than any batch
    arrived, versions, version = [0.0], [0], 0
    while version < 60:
        waiting = int((ended_J + 0.7 <= arrived[-1]).sum())
        newest = max(waiting, version + 1)
        arrived.append(max(arrived[-1], ended_J[newest - 1] + 0.7) + 5.3)
        versions.append(version := newest)
    began_J = np.append(0.0, ended_J[:-1])
    version_J = np.array(versions)[np.searchsorted(arrived, began_J, side="right") - 1]
    assert row_BK[::8, 3].tolist() == version_J.tolist()
    assert {0, 1, 2, 3} <= set(np.diff(version_J))


@pytest.mark.parametrize(("rule", "wave"), [("drop-newest", 4), ("drop-oldest", 7), ("block", 2)])
def test_a_queue_holds_its_batch_and_not_one_group_more(rule, wave):
    # Groups of two come in waves of four every 5 s; four are trained in 18 s, and the queue holds four.
    design = replace(FIXED, train_time=18.0, queue=1, queue_rule=rule)
    row_BK, time_B, _ = trace_rows(design, 3)
    assert time_B[::8].tolist() == [5, 23, 41]
    assert (row_BK[16:, 0] // 4 == wave).all()
    if rule != "block":  # eight responses of 5 s, of which 18 s take eight
        assert replications(design).mean("drop_rate") == pytest.approx(1 - 5 / 18, rel=0.01)
    if rule == "block":  # seven slots are taken anew before the fourth group is complete, the eighth waits
        assert replications(design).mean("most_ahead") == 8 + 7


def test_mini_batches_of_one_generation_have_lags_zero_to_n_minus_one():
    found = replications(replace(FIXED, **SYNCHRONOUS, updates=4))
    assert found.sample_K[:5] == pytest.approx([0.25, 0.25, 0.25, 0.25, 0])
    assert found.group_K[:5] == pytest.approx([0.25, 0.25, 0.25, 0.25, 0])
    assert found.mean("lag_token") == pytest.approx(1.5)
    alone = replications(replace(FIXED, **SYNCHRONOUS, updates=8))  # each response of a group in its own
    assert alone.sample_K[:9] == pytest.approx([1 / 8] * 8 + [0])


def test_tokens_in_flight_change_version_where_the_weights_arrived():
    # Weights arrive 3 + 1 s after a batch of 5 s began: 8 of its 10 tokens are one version old, 2 are new.
    design = replace(FIXED, sync_time=1.0, sync_blocking=False, in_flight=True)
    found, late = simulate([design, replace(design, in_flight=False)])
    assert found.token_K[:3] == pytest.approx([0.2, 0.8, 0], abs=1e-9)
    assert found.mean("lag_token") == pytest.approx(0.8)
    assert late.mean("lag_token") == late.mean(LAG) == found.mean(LAG) == 1
    start_N, end_N = trace_rows(design, 40)[0][8:, 3:5].T
    assert (end_N == start_N + 1).all()


def test_periodic_asynchrony_trains_pieces_as_they_come_and_stays_on_policy():
    whole = replace(LOGNORMAL, slots=64, admission="capacity", eta=0, queue_rule="block", train_time=60)
    found, streamed = simulate([whole, replace(whole, pieces=30)], batches=100)
    assert streamed.mean("lag_largest") == 0
    assert 1.3 < found.mean("period") / streamed.mean("period") < 2


def test_a_counter_gives_two_doubles_of_two_words_each():
    words = philox(70, 0, 0, 2, 5)
    made = [(high << 32 | low) >> 11 for high, low in (words[:2], words[2:])]
    assert pipeline_draws.uniforms.py_func(70, 2, 5) == tuple(x / 2**53 for x in made)


def test_lags_beyond_a_histogram_count_in_its_last_bin():
    count_K = np.zeros(LAGS)
    for lag in (-1, LAGS - 2, LAGS + 5):
        _count.py_func(count_K, lag, 1.0)
    assert count_K[[0, LAGS - 2, LAGS - 1]].tolist() == [1, 1, 1]


def test_closed_forms_by_hand():
    """Lengths are rounded to the nearest token; with load 2 and a queue of 2 batches, 1/2 + (4 + 2 - 1)/4."""
    design = Design(slots=8, batch=8, group=2, length_mean=2.0, sigma=0.5, max_length=3)
    score = [(math.log(x) - math.log(2.0) + 0.5**2 / 2) / 0.5 for x in (1.5, 2.5)]
    assert closed_forms.moments(design).mean == pytest.approx(3 - stats.norm.cdf(score).sum(), rel=1e-12)
    score = [(math.log(x) - math.log(4.0)) / 0.5 for x in (1.5, 2.5)]  # sigma spreads, the group shares it
    alike = replace(design, length_mean=4.0 * math.exp(0.125), correlation=1.0)
    assert closed_forms.moments(alike).longest == pytest.approx(3 - stats.norm.cdf(score).sum(), abs=1e-3)
    for mean, length in ((2.49, 2), (2.5, 3), (0.2, 1), (9.0, 4)):
        still = replace(design, length="fixed", length_mean=mean, max_length=4)
        for each in (still, replace(still, length="lognormal", sigma=0.0)):
            assert [*vars(closed_forms.moments(each)).values()] == [length, length**2] * 2 + [length]
    late = replace(FIXED, train_time=10.0, queue=2, queue_rule="drop-oldest")
    forms = [getattr(closed_forms, name) for name in ("load", "sample_lag", "token_lag", "streaming_period")]
    for each, wanted in ((FIXED, [0.6, 1.6, 1.6, 5]), (replace(FIXED, train_time=5.0), [1, 2, 2, 5]),
                         (replace(FIXED, slots=16), [1.2, 2 / 1.2 + 4.2 / 2.4, math.nan, 3]),
                         (late, [2, 1.75, math.nan, 10])):  # fmt: skip
        assert [form(each) for form in forms] == pytest.approx(wanted, rel=1e-12, nan_ok=True)
    assert closed_forms.train_time(replace(FIXED, train_token_time=0.1)) == pytest.approx(3 + 0.1 * 8 * 10)
    # Of 12 slots 10 decode where the tool takes a fifth of 0.1 + 0.02 x 10 / 2 s for each of 10 tokens.
    tools = replace(FIXED, slots=12, engines=2, tau_0=0.1, tau_1=0.02, tool_time=0.6)
    span = 10 * (0.1 + 0.02 * 10 / 2)
    assert closed_forms.generation_time(replace(tools, tool_time=span / 5)) == pytest.approx(
        8 * span * 1.2 / 12
    )
    assert closed_forms.rapid_saving(tools, 4) == pytest.approx(0.1 * 10 * (1 - 1 / 4))


def test_moments_are_those_of_all_batches_enumerated():
    lengths = (1, 2, 5, 5)
    design = replace(
        LOGNORMAL, length="empirical", lengths=(1, 2, 5, 8), max_length=5, correlation=0.0, group=3, batch=6
    )
    batch_NB = np.array(list(itertools.product(lengths, repeat=6)))
    first_N, longest_N = batch_NB[:, 0], batch_NB[:, :3].max(axis=1)
    expected = {"mean": first_N, "square": first_N**2, "longest": longest_N, "cross": first_N * longest_N}
    found = vars(closed_forms.moments(design))
    for name, value_N in {**expected, "batch": batch_NB.max(axis=1)}.items():
        assert found[name] == pytest.approx(value_N.mean(), rel=1e-12), name
    mean, square, cross = (expected[name].mean() for name in ("mean", "square", "cross"))
    design = replace(design, slots=20, engines=2, tau_0=0.1, tau_1=0.01, train_time=0.05, sync_time=0.3)
    u = 0.05 / (6 / 20 * mean * (0.1 + 0.01 * 20 / 2))
    for in_flight in (False, True):
        lag = 20 / 6 * (cross - in_flight * square / 2) / mean**2 + u
        assert closed_forms.token_lag(replace(design, in_flight=in_flight)) == pytest.approx(lag, rel=1e-12)
    barrier = 0.1 * batch_NB.max(axis=1).mean() + 0.01 * 6 * mean / 2
    assert closed_forms.synchronous_period(design) == pytest.approx(barrier + 0.05 + 0.3, rel=1e-12)
    assert closed_forms.one_step_off_period(design) == pytest.approx(barrier + 0.3, rel=1e-12)
    late = replace(design, train_time=99.0)
    assert closed_forms.one_step_off_period(late) == pytest.approx(99.3, rel=1e-12)
    # Both of a pair are short with chance 1/4 + asin(correlation) / 2 pi.
    for correlation in (0.0, 0.3, 0.6, 0.9, 1.0):
        pair = replace(design, lengths=(1, 3), group=2, correlation=correlation)
        expected = 3 - 2 * (0.25 + math.asin(correlation) / (2 * math.pi))
        assert closed_forms.moments(pair).longest == pytest.approx(expected, rel=1e-3), correlation
    # Both of a pair are as long as each other at correlation 1: no longest one, E[L longest] = E[L^2].
    same = closed_forms.moments(pair)
    assert (same.mean, same.longest, same.square, same.cross) == pytest.approx((2, 2, 5, 5), rel=1e-12)


@pytest.mark.skipif(numba.config.NUMBA_NUM_THREADS < 2, reason="one thread is all there is")
def test_the_same_seed_gives_the_same_bits_for_any_number_of_threads():
    designs = [replace(LOGNORMAL, train_time=t, in_flight=True) for t in (10, 25)]
    one = simulate(designs, replicas=3, batches=20)
    numba.set_num_threads(2)
    try:
        two = simulate(designs, replicas=3, batches=20)
    finally:
        numba.set_num_threads(1)
    for a, b in zip(one, two, strict=True):
        assert all((a.value_R[name] == b.value_R[name]).all() for name in VALUES)
        assert (a.token_K == b.token_K).all()
    other = simulate(designs, replicas=3, batches=20, seed=1)
    assert other[0].mean(LAG) != one[0].mean(LAG)


# Closed forms within 3 %: the gap plus 4 standard errors.


def off_by(found, name, expected):
    return abs(found.mean(name) / expected - 1) + 4 * found.stderr(name) / expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("slots", "train_time", "in_flight"),
    [(120, 4.0, True), (240, 4.0, False), (480, 4.0, False), (120, 12.0, False), (480, 12.0, True)],
)
def test_lag_and_period_when_the_generator_is_the_bottleneck(slots, train_time, in_flight):
    # drop-oldest with room for 4 batches, which u < 1 hardly fills; from u = 0.85 on, q = 1 loses 3 %
    share = 240 / slots
    design = replace(LOGNORMAL, slots=slots, train_time=train_time * share, in_flight=in_flight, queue=4)
    found = replications(design, batches=600)
    assert off_by(found, "period", closed_forms.streaming_period(design)) < 0.03
    assert off_by(found, LAG, closed_forms.sample_lag(design)) < 0.03
    assert off_by(found, "lag_token", closed_forms.token_lag(design)) < 0.03


@pytest.mark.slow
def test_lag_and_period_when_the_trainer_is_the_bottleneck():
    for u, queue in ((1.1, 2), (1.5, 2), (2.0, 2)):
        design = replace(LOGNORMAL, train_time=20 * u, queue=queue)
        found = replications(design, batches=600)
        assert off_by(found, "period", closed_forms.streaming_period(design)) < 0.03
        assert off_by(found, LAG, closed_forms.sample_lag(design)) < 0.03


@pytest.mark.slow
def test_synchronous_and_one_step_off_periods_with_stragglers():
    design = replace(LOGNORMAL, **SYNCHRONOUS, tau_1=0.0001, sync_time=2.0)
    assert off_by(replications(design, batches=800), "period", closed_forms.synchronous_period(design)) < 0.02
    for train_time in (5.0, 150.0):
        ahead = replace(design, eta=1, train_time=train_time, queue_rule="block")
        found = replications(ahead, batches=800)
        assert off_by(found, "period", closed_forms.one_step_off_period(ahead)) < 0.02


REFUSED = {
    "queue=0.5": "queue=0.5 holds 128 responses, a batch needs 256: the trainer would never start. Give "
    "queue=1 or more.",
    "max_age=6 updates=4 sync_every=2": "max_age=6 is below the smallest possible age 7 of the last update "
    "before a weight sync (updates=4 x sync_every=2 - 1): no response could be young enough. Give max_age=7 "
    "or more, or fewer updates between syncs.",
    "batch=100": "batch=100 is not a multiple of group=8: whole groups are trained. Change one.",
    "admission=capacity eta=1 sync_every=4": "eta=1 admits 2 batches before a weight sync, sync_every=4 "
    "needs 4: the trainer would starve. Give eta=3 or more.",
    "pieces=7": "pieces=7 does not divide the 32 groups of a batch. Change one.",
    "tau_0=0": "tau_0=0 and tau_1=0: decoding takes no time. Give one of them.",
    "length=empirical": "length=empirical needs lengths=a,b,c of at least 1 token each.",
    "length=empirical lengths=3,0": "length=empirical needs lengths=a,b,c of at least 1 token each.",
    "lengths=3": "lengths is given, but length=lognormal does not read it. Give length=empirical.",
    "updates=7 engines=512 slots=0": "slots=0: expected at least 1.",
    "updates=7 engines=512": "updates=7 does not divide batch=256. Change one.\n"
    "engines=512 exceeds slots=256: every engine needs a slot.",
    "slots=4000001": "slots=4000001: at most 4000000 are simulated; scale slots and batch down.",
    "sigma=nan": "sigma=nan: expected a finite number.", "tau_0=inf": "tau_0=inf: expected a finite number.",
    "correlation=1.01": "correlation=1.01: expected 0 to 1.",
    "quue=2 slots=many": "'quue=2': unknown field 'quue'. Did you mean 'queue'?\n"
    "'slots=many': expected a whole number.",
    "pools=collocated": "pools=collocated: expected one of split, colocated. Did you mean 'colocated'?",
    "slots=3 slots=4": "'slots=4': 'slots' is given twice.",
    "slots": "'slots': expected field=value, as slots=64.",
    "in_flight=yes": "'in_flight=yes': expected true or false.", "sigma=a": "'sigma=a': expected a number.",
    "lengths=3,b": "'lengths=3,b': expected a whole number.",
    "batch=none": "'batch=none': expected a whole number.",
}  # fmt: skip


@pytest.mark.parametrize("words", REFUSED)
def test_an_impossible_design_is_refused_with_the_numbers_that_conflict(words):
    assert refuses("", from_words, words.split()) == REFUSED[words]


LEAST = {
    1: "slots engines max_length group batch updates pieces sync_every length_mean",
    0: "tau_0 tau_1 sigma tool_time train_time train_token_time correlation queue max_age eta threshold "
    "max_lag sync_time",
}


@pytest.mark.parametrize("least", LEAST)
def test_every_number_is_taken_at_its_least_and_refused_below(least):
    for name in LEAST[least].split():
        low = least - 1 if isinstance(getattr(Design(), name) or 0, int) else least - 0.125
        with pytest.raises(UserError, match=rf"^{name}={low}: expected at least {least}\.") as told:
            check(replace(Design(), **{name: low}))
        assert str(told.value).count("expected at least") == 1
        assert list(_ranges(replace(Design(), **{name: least}))) == []


def test_pairs_of_numbers_are_taken_at_their_limits():
    most = {"slots": 4_000_000, "engines": 4_000_000}
    for given in (
        most, {"queue": 1.0}, {"max_age": 3, "updates": 4}, {"max_age": 7, "updates": 4, "sync_every": 2},
        {"admission": "capacity", "eta": 1, "sync_every": 2}, {"tau_0": 0.0, "tau_1": 1e-9},
        {"length": "empirical", "lengths": (1,)}, {"pieces": 32}, {"updates": 256}, {"correlation": 1.0},
    ):  # fmt: skip
        design = check(replace(Design(), **given))
        assert from_words(to_words(design)) == design
    assert to_words(replace(Design(), lengths=(3, 4), length="empirical", in_flight=True, max_age=None)) == [
        "length=empirical", "lengths=3,4", "in_flight=true",
    ]  # fmt: skip


def test_words_become_a_design(tmp_path):
    words = ["slots=64", "in_flight=true", "lengths=3,4", "length=empirical", "max_age=5", "queue=1.5"]
    design = from_words(words)
    (file := tmp_path / "design.toml").write_text("lengths = [3, 4]\nin_flight = true\nqueue = 1.5\n")
    assert from_toml(file) == [words[2], words[1], words[5]]
    file.write_text("slots = ")
    refuses(f"^{file} is not TOML: Invalid value .*\\.$", from_toml, file)
    gone = tmp_path / "gone.toml"
    assert refuses("", from_toml, gone) == (
        f"{gone} cannot be read: No such file or directory. Expected a TOML file of fields."
    )
    assert from_words(["in_flight=false"], design) == replace(design, in_flight=False)
    assert (design.slots, design.in_flight, design.lengths, design.max_age) == (64, True, (3, 4), 5)
    free = replace(design, max_age=None, correlation=1.0)
    assert from_words(["max_age=none", "correlation=1"], design) == free


def test_replications_differ_and_give_a_standard_error():
    found = replications(LOGNORMAL, batches=20)
    assert len(set(found.value_R[LAG])) == 4
    assert replace(found, value_R={LAG: np.array([1.0, 3.0])}).stderr(LAG) == pytest.approx(1)
    assert math.isnan(replace(found, value_R={LAG: np.array([1.0])}).stderr(LAG))
