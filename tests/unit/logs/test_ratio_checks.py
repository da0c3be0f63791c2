"""The likely cause of wrong ratios is named, and healthy logs, stale ones too, raise no alarm."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from support.sampled_logs import sampled

from testbed.logs.ratio_checks import (
    Mean,
    RatioTests,
    _cause,
    _edges,
    _mean,
    _middles,
    _ratio,
    _shifted,
    _together,
    _unskewed,
    findings,
)  # fmt: skip
from testbed.logs.ratio_checks import tested as estimates
from testbed.logs.record import Log, LoggedSequence
from testbed.logs.sanity_checks import verdict

CAUSES = {
    "top-p": "top-p, top-k or min-p", "top-k": "top-p, top-k or min-p", "temperature": "temperature in one",
    "swapped": "mu and pi look swapped", "late": "one token behind log mu",
    "early": "one token before log mu",
    "prompt": "mask may begin a token early", "bfloat16": "Precision: every log mu is a bfloat16 number",
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_of_wrong_ratios_is_named(cause):
    for seed in range(3):
        log = sampled(cause, stale=0.3 if cause == "swapped" else 0.05, seed=seed, many=192)
        assert CAUSES[cause] in (findings(log) or ["nothing"])[0]
        assert verdict(log).startswith("Look at the log-probabilities")


@pytest.mark.parametrize("stale", [0.0, 0.1, 0.3])
@pytest.mark.parametrize(("fault", "cut"), [("top-p", 0.8), ("top-p", 0.95), ("top-k", 5), ("top-k", 10)])
def test_a_truncated_sampler_is_told_on_zipf_like_states_at_any_staleness(fault, cut, stale):
    """Skewed ratios a hundred errors from 1 count too, and staleness is not read as a temperature."""
    found = findings(sampled(fault, stale=stale, cut=cut, states="zipf", many=128, longest=40))
    assert "top-p, top-k or min-p" in (found or ["nothing"])[0]


@pytest.mark.slow
@pytest.mark.parametrize("stale", [0.0, 0.1, 0.6, 4.0])
def test_a_healthy_log_however_stale_raises_no_alarm(stale):
    """Nominal rate 1e-4 a log: an alarm in 60 logs has probability .006 at it."""
    assert [seed for seed in range(60) if findings(sampled(stale=stale, seed=seed))] == []


def test_a_null_value_is_rejected_at_its_share_of_the_false_alarms():
    assert [Mean(1.0, 0.1, p).rejected for p in (2.4e-5, 2.6e-5)] == [True, False]


def test_a_rejected_mean_within_rounding_of_1_is_no_finding():
    """Sixty times its error from 1, but nearer than .002; not asked where every ratio is."""
    for shift, told in ((0.0018, False), (-0.0018, False), (0.0022, True), (-0.0022, True)):
        log = log_of([np.full(4, np.log1p(shift)) + 3e-4 * (-1) ** n for n in range(60)])
        half = replace(log.sequences[0], logp_pi=None)  # which counts nowhere
        assert estimates(log).token.rejected
        assert bool([x for x in findings(Log("made", (*log.sequences, half))) if "token ratio" in x]) == told


def test_skewness_to_the_right_weakens_a_mean_that_is_low_and_never_hides_it():
    """Hall (1992): x + g x^2 / 3 + g^2 x^3 / 27 + g / 6n at g = 2, n = 100, by hand."""
    assert _unskewed(-0.3, 2.0, 100) == pytest.approx(0.3 - 0.06 + 0.004 - 1 / 300)
    assert _unskewed(0.3, 2.0, 100) == 0.3
    far = [_unskewed(-effect, 2.0, 100) for effect in (1.0, 2.0, 3.0, 10.0)]
    assert far == sorted(far)


def test_the_mean_its_error_and_its_p_value_are_clustered_by_sequence():
    """Against the definitions: sums of sequences, Hall's t, degrees of freedom by shares of the variance."""
    random = np.random.default_rng(3)
    rows = [0.5 * random.gamma(2, size=n) - 0.9 for n in random.integers(1, 6, 120)]
    sums, tokens = [sum(row) for row in rows], sum(len(row) for row in rows)
    for null in (0.0, 1.0):
        found = _mean(rows, null)
        center = sum(sums) / 120
        square = [(x - center) ** 2 for x in sums]
        spread = math.sqrt(sum(square) / 119)
        freedom = sum(square) ** 2 / sum(x * x for x in square) - 1
        skewness = sum((x - center) ** 3 for x in sums) / spread**3 / 120
        assert 20 < freedom < 100
        at = math.sqrt(120) * _unskewed(center / spread, skewness, 120)
        wanted = (null + sum(sums) / tokens, spread * math.sqrt(120) / tokens, 2 * stats.t.sf(at, freedom))
        assert (found.value, found.error, found.p) == pytest.approx(wanted)


def test_a_mean_needs_twenty_sequences_that_carry_it():
    alike = [np.array([1.0]), np.array([-1.0])] * 15
    assert _mean(alike[:19], 0.0) is None
    assert _mean(alike[:20], 0.0).value == 0
    idle = [np.zeros(1)] * 30
    assert _mean([*alike[:20], *idle], 0.0).error == pytest.approx(math.sqrt(20 / 49 * 50) / 50)
    assert _mean([*alike[:18], *idle], 0.0) is None  # 18 carry it
    for huge, there in ((2e75, False), (math.inf, False), (math.nan, False), (0.5e75, True)):
        assert (_mean([*alike[:20], *[np.array([x]) for x in (huge, -huge)] * 20], 0.0) is not None) == there
    for shift, p in ((0.0019, 1.0), (0.0021, 0.0), (-0.0021, 0.0)):  # beyond MATERIAL, without any spread
        assert _mean([np.full(4, shift)] * 20, 1.0) == Mean(pytest.approx(1 + shift), 0.0, p)


def log_of(rows, **fields):
    mu = [np.full(len(row), -3.0) for row in rows]
    return Log("made", tuple(
        LoggedSequence(0, str(n), "g", np.ones(len(row), bool), logp_mu=one, logp_pi=one + row, **fields)
        for n, (one, row) in enumerate(zip(mu, rows, strict=True))
    ))  # fmt: skip


def test_four_means_are_of_the_ratios_under_the_mask():
    log = sampled(stale=0.1)
    rows = [one.logp_pi - one.logp_mu for one in log.sequences]
    every, found = np.concatenate(rows), estimates(log)
    assert found.token == _mean([np.expm1(row) for row in rows], 1.0)
    assert found.token.value == pytest.approx(np.exp(every).mean())
    assert found.sequence == _mean([np.expm1(row.sum(keepdims=True)) for row in rows], 1.0)
    assert found.sequence.value == pytest.approx(np.mean([np.exp(row.sum()) for row in rows]))
    assert found.log_ratio == _mean(rows, 0.0)
    assert found.inverse == _mean([np.expm1(-row) for row in rows], 1.0)
    # Masked tokens, mu = 0, and sequences without one of the two count nowhere; pi = 0 has ratio 0.
    more = [
        replace(one, mask=np.append(one.mask, [False, True, True]), advantage=None,
                logp_mu=np.append(one.logp_mu, [-9.0, -np.inf, np.nan]),
                logp_pi=np.append(one.logp_pi, [-1.0, -1.0, -1.0])) for one in log.sequences
    ]  # fmt: skip
    more += [replace(log.sequences[0], logp_mu=None), replace(log.sequences[0], logp_pi=None)]
    more += [replace(log.sequences[0], logp_mu=np.full(len(rows[0]), -np.inf))]
    assert estimates(Log("made", tuple(more))) == found
    never = estimates(log_of([*rows, np.array([-np.inf])]))
    zero = _mean([*(np.expm1(row) for row in rows), np.array([-1.0])], 1.0)
    assert vars(never.token) == pytest.approx(vars(zero), rel=1e-12)
    assert (never.log_ratio, never.inverse) == (None, None)


def test_ratios_that_spread_too_far_are_not_tested():
    """One nat squared, four where no ratio is much above 1."""
    up, down = np.tile([1.0, -1.0], 10), np.tile([0.0, -1.0], 10)
    for factor, row, there in ((0.99, up, True), (1.01, up, False), (3.99, down, True), (4.01, down, False)):
        assert (_ratio([factor * row] * 20) is not None) == there
    few = np.where(np.arange(1000) < 990, 0.0, 0.11)  # at 1 in 100 the quantile is between the two
    assert _ratio([np.append(few, np.tile(-3.0, 100))] * 20) is not None
    assert _ratio([]) is _ratio([np.array([-np.inf])] * 30) is _ratio([np.array([0.0, np.inf])] * 30) is None


RISING = np.linspace(-5, -1, 400)
FLAT, HIGH, LOW = (Mean(value, 0.01, 0.0) for value in (1.0, 1.5, 0.8))
TOP, ONE = "top-p, top-k or min-p in the sampler alone", "A temperature in one engine alone"
SWAPPED, ELSE = "mu and pi look swapped", "log mu is not from the sampling distribution"


@pytest.mark.parametrize(
    ("token", "k1", "inverse", "quarters", "said"),
    [(LOW, None, None, (-0.4, -0.3, -0.2, 0.0), TOP), (LOW, None, None, (-0.4, -0.3, -0.2, 0.019), TOP),
     (LOW, None, None, (-0.4, -0.3, -0.2, 0.021), ELSE), (LOW, None, None, (0.1, -0.3, -0.2, -0.1), ELSE),
     (HIGH, None, None, (-0.4, -0.3, -0.2, 0.0), ELSE), (None, None, None, (-0.4, -0.3, -0.2, 0.0), ELSE),
     (HIGH, None, None, (-0.4, 0, 0, 0.3), ONE), (HIGH, None, None, (0.4, 0, 0, -0.3), ONE),
     (None, None, None, (-0.4, 0, 0, 0.3), ONE), (HIGH, None, None, (-0.4, 0, 0, 0.019), ELSE),
     (HIGH, None, None, (0.019, 0, 0, -0.3), ELSE), (HIGH, None, None, (0.4, 0, 0, 0.3), ELSE),
     (HIGH, Mean(0.1, 0.01, 0.0), Mean(1.0, 0.1, 0.5), (0.4, 0, 0, 0.3), SWAPPED),
     (HIGH, Mean(0.1, 0.01, 0.0), Mean(1.0, 0.1, 0.0), (0.4, 0, 0, 0.3), ELSE),
     (HIGH, Mean(-0.1, 0.01, 0.0), Mean(1.0, 0.1, 0.5), (0.4, 0, 0, 0.3), ELSE),
     (HIGH, Mean(0.1, 0.01, 0.0), None, (0.4, 0, 0, 0.3), ELSE),
     (HIGH, None, Mean(1.0, 0.1, 0.5), (0.4, 0, 0, 0.3), ELSE)],
)  # fmt: skip
def test_each_cause_has_its_pattern_of_quarters_and_means(token, k1, inverse, quarters, said):
    pairs = [(RISING[:200], (RISING + np.repeat(quarters, 100))[:200]),
             (RISING[200:], (RISING + np.repeat(quarters, 100))[200:]),
             (np.array([-9.0, -np.inf]), np.array([-np.inf, -9.0]))]  # fmt: skip
    assert _cause(RatioTests(token, None, k1, inverse), pairs).startswith(said)


def test_noise_in_one_of_the_two_is_no_temperature():
    """Then the quarters by that one tilt alone: those by the other do not cross."""
    noise = np.tile([-0.5, 0.5, 0.5, -0.5], 100)
    for mu, pi in ((RISING, RISING + 8 * noise), (RISING + 8 * noise, RISING)):
        assert _cause(RatioTests(HIGH, None, None, None), [(mu, pi)]).startswith(ELSE)


def test_a_precision_is_told_only_where_it_explains_the_ratio():
    bfloat, other = np.tile([-1.5, -0.75], 50), np.linspace(-2, -1, 100)
    for value, told in ((1.019, True), (0.981, True), (1.021, False), (0.979, False)):
        for pair, name in (((bfloat, other), "mu"), ((other, bfloat), "pi")):
            said = _cause(RatioTests(Mean(value, 0.01, 0.0), None, None, None), [pair])
            assert (said == f"Precision: every log {name} is a bfloat16 number") == told
    whole = np.tile([-1.0, -2.0], 50)
    assert not _cause(RatioTests(FLAT, None, None, None), [(whole, other)]).startswith("Precision")
    assert _middles(np.arange(9.0), np.array([8, 7, 6, 5, 4, 3, 2, 1, 0])) == [7.0, 4.5, 2.5, 0.5]
    assert _middles(np.arange(3.0), np.arange(3)) == [0, 1, 2]


def test_an_edge_of_zeros_in_most_sequences_is_a_mask_off_by_one():
    """Both exactly 0, in more than half of twenty, and in less than a tenth of the tokens between the
    ends."""
    for place, name, where in ((0, "first", "begin a token early"), (-1, "last", "end a token late")):
        row = np.full(12, -1.0)
        zero, inner = row.copy(), row.copy()
        zero[place] = inner[place] = inner[3] = 0.0
        for pairs, told in (
            ([(zero, zero)] * 11 + [(row, row)] * 9, 11), ([(zero, zero)] * 10 + [(row, row)] * 10, 0),
            ([(zero, zero)] * 19 + [(zero[:1], zero[:1])], 0), ([(zero, row)] * 20, 0),
            ([(row, zero)] * 20, 0), ([(inner, inner)] * 20, 0),
            ([(inner, inner)] * 19 + [(zero, zero)], 19 + 1), ([(zero[[0, -1]], zero[[0, -1]])] * 20, 20),
            ([(0 * row[:3], 0 * row[:3])] * 20, 0),
        ):  # fmt: skip
            many = sum(len(pair[0]) > 1 for pair in pairs)
            said = [
                f"The mask may {where}: both log-probabilities are exactly 0 at the {name} masked token of "
                f"{told} of {many} sequences. Prompt tokens or padding are in the mask, or the policy is "
                "certain of that token."
            ]
            assert _edges([(*pair, None, None) for pair in pairs]) == said * (told > 0)


@pytest.mark.parametrize("back", [False, True])
@pytest.mark.parametrize(
    ("token", "prompt", "told"),
    [
        (None, None, True),
        ([5, 5, 5, 1, 2], None, True),
        ([5, 6, 7, 1, 2], None, False),
        ([5, 6, 7, 1, 2], [9, 5, 6, 7], "first"),
        ([5, 6, 7, 1, 2], [5, 6, 7, 9], False),
    ],
)
def test_an_edge_of_several_zeros_is_padding_or_prompt_but_not_a_phrase(token, prompt, told, back):
    """Three of five tokens are more than a tenth, yet none lies between the ends."""
    end = -1 if back else 1
    row = np.array([0.0, 0.0, 0.0, -1.0, -1.0])[::end]
    one = (
        row,
        row,
        None if token is None else np.array(token)[::end],
        None if prompt is None else np.array(prompt),
    )
    found = _edges([one] * 20)
    said = f"The mask may {'end 3 tokens late' if back else 'begin 3 tokens early'}: both"
    assert [text[: len(said)] for text in found] == [said] * (told is True or (told == "first" and not back))


def test_a_shift_by_one_is_where_the_two_correlate():
    x = np.random.default_rng(0).normal(size=62)
    first, second = (x[1:-1], x[:-2]), (x[1:-1], x[2:])
    for pair, shift, side in ((first, 1, "behind"), (second, -1, "before")):
        other = pair[1] - 0.5 * pair[0]
        as_logged, moved = (np.corrcoef(x, y)[0, 1] for x, y in (pair, (x[1:], x[1:])))
        assert _together([pair], 0) == pytest.approx(as_logged)
        assert _together([pair], shift) == pytest.approx(1)
        assert _shifted([pair]) == [
            f"log pi stands one token {side} log mu: their correlation is {as_logged:.2f} as logged and "
            f"{moved:.2f} with log pi moved by {-shift:+d}."
        ]
        assert _together([(pair[0], other)], 0) < 0
    at = [
        _together([(x[:30], y[:30]), (np.append(x[30:], np.inf), np.append(y[30:], 0.0))], 0) for y in (x, -x)
    ]
    assert at == pytest.approx([1, -1])
    assert _together([(x[:49], x[:49])], 0) == _together([(x * 0, x)], 0) == _together([], 0) == 0
    assert _together([(x[:50], x[:50])], 0) == pytest.approx(1)
    assert _together([(x[:50], x[1:51])], -1) == 0.0  # 49 are left
    assert _shifted([(x, x)]) == []
    y = np.random.default_rng(1).normal(size=4000)
    for noise, smooth, told in ((0.73, 0.0, True), (0.77, 0.0, False), (0.0, 0.66, True), (0.0, 0.74, False)):
        z = y[1:] + noise * np.random.default_rng(2).normal(size=3999)  # correlation 1 / sqrt(1 + noise^2)
        for n in range(1, 3999) if smooth else ():
            z[n] = smooth * z[n - 1] + math.sqrt(1 - smooth**2) * y[n]
        assert bool(_shifted([(z[1:], z[:-1] if smooth else y[1:-1])])) == told


def test_what_is_wrong_is_said_with_its_cause_and_numbers():
    rows = [np.array([-0.3, -0.2]) + 0.01 * n for n in (-9, 9, -8, 8) * 10]
    log = log_of(rows)
    found = estimates(log)
    assert findings(log) == [
        f"{_cause(found, [(one.logp_mu, one.logp_pi) for one in log.sequences])}: the mean token ratio is "
        f"{found.token.value:.4g} ± {found.token.error:.2g}, where 1 is expected; the mean sequence ratio is "
        f"{found.sequence.value:.4g} ± {found.sequence.error:.2g}, where 1 is expected."
    ]
    up = log_of([-row for row in rows])
    assert findings(up)[0].endswith(
        f"; the k1 estimate of KL(mu || pi) is {-estimates(up).log_ratio.value:.4g} ± "
        f"{estimates(up).log_ratio.error:.2g}, but a KL is never negative."
    )
    for shift, many in ((0.0009, 0), (0.0012, 1), (0.0021, 3)):  # beyond MATERIAL: nothing, sequences, all
        said = findings(log_of([np.array([shift, shift])] * 30))
        assert len(said) == min(many, 1)
        assert "".join(said).count(" ± ") == many
    bare = replace(log.sequences[0], logp_mu=None)
    assert findings(Log("made", (*log.sequences, bare))) == findings(log)
