"""The likely cause of wrong ratios is named, and healthy logs, stale ones too, raise no alarm."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from support.sampled_logs import sampled

from testbed.logs.ratio_checks import Mean, RatioTests, _cause, _edges, _mean, _unskewed, findings
from testbed.logs.ratio_checks import tested as estimates
from testbed.logs.record import Log, LoggedSequence
from testbed.logs.sanity_checks import verdict

CAUSES = {
    "top-p": "top-p, top-k or min-p", "top-k": "top-p, top-k or min-p", "temperature": "temperature in one",
    "swapped": "mu and pi look swapped", "late": "one token behind log mu",
    "early": "one token before log mu",
    "prompt": "mask begins a token early", "bfloat16": "Precision: every log mu is a bfloat16 number",
}  # fmt: skip


@pytest.mark.parametrize("cause", CAUSES)
def test_the_cause_of_wrong_ratios_is_named(cause):
    for seed in range(3):
        log = sampled(cause, stale=0.3 if cause == "swapped" else 0.05, seed=seed, many=192)
        assert CAUSES[cause] in (findings(log) or ["nothing"])[0]
        assert verdict(log).startswith("Look at the log-probabilities")


@pytest.mark.parametrize(("likely", "said"), [(0.0, "top-p, top-k or min-p"), (0.1, "log mu is not from")])
def test_a_truncated_sampler_raises_no_quarter_of_its_tokens(likely, said):
    mu = np.linspace(-5, -1, 400)
    pairs = [(mu, mu + np.repeat([-0.4, -0.3, -0.2, likely], 100))]
    assert _cause(RatioTests(Mean(0.8, 0.01, 0.0), None, None, None), pairs).startswith(said)


@pytest.mark.parametrize("stale", [0.0, 0.1, 0.3])
@pytest.mark.parametrize(("fault", "cut"), [("top-p", 0.8), ("top-p", 0.95), ("top-k", 5), ("top-k", 10)])
def test_a_truncated_sampler_is_told_on_zipf_like_states_at_any_staleness(fault, cut, stale):
    """Skewed ratios a hundred errors from 1 count too, and staleness is not read as a temperature."""
    found = findings(sampled(fault, stale=stale, cut=cut, states="zipf", many=128, longest=40))
    assert "top-p, top-k or min-p" in (found or ["nothing"])[0]


@pytest.mark.slow
@pytest.mark.parametrize("stale", [0.0, 0.05, 0.3, 0.6, 1.0, 2.0, 4.0])
def test_a_healthy_log_however_stale_raises_no_alarm(stale):
    """Nominal rate 1e-4 a log: an alarm in 60 logs has probability .006 at it."""
    assert [seed for seed in range(60) if findings(sampled(stale=stale, seed=seed))] == []


def test_few_heavy_or_constant_ratios_are_undecided_or_told():
    assert estimates(sampled(many=10)).token is None
    assert "Undecided" in verdict(sampled(many=10))
    assert verdict(sampled()).startswith("Healthy")
    assert "Look at ess: it crossed" in verdict(sampled(), ["ess"])
    heavy = sampled(stale=4.0, many=64)
    assert estimates(heavy).sequence is None
    mu = np.full(5, -2.0)
    same = [LoggedSequence(0, str(n), "g", np.ones(5, bool), logp_mu=mu, logp_pi=mu - 0.1) for n in range(30)]
    assert "mean token ratio is 0.9048 ± 0" in findings(Log("made", tuple(same)))[0]


def test_the_error_of_the_mean_is_clustered_by_sequence():
    """Tokens of one sequence that repeat each other add nothing: the error stays."""
    log = sampled(stale=0.3)
    doubled = Log("made", tuple(
        replace(one, mask=np.tile(one.mask, 2), logp_mu=np.tile(one.logp_mu, 2), reward=None,
                logp_pi=np.tile(one.logp_pi, 2), advantage=None) for one in log.sequences))  # fmt: skip
    one, two = estimates(log).token, estimates(doubled).token
    assert (two.value, two.error) == (pytest.approx(one.value), pytest.approx(one.error))
    assert two.p == pytest.approx(one.p)


def test_four_means_are_of_the_ratios_under_the_mask():
    log = sampled(stale=0.1)
    rows = [one.logp_pi - one.logp_mu for one in log.sequences]
    every, found = np.concatenate(rows), estimates(log)
    assert found.token.value == pytest.approx(np.exp(every).mean())
    assert found.sequence.value == pytest.approx(np.mean([np.exp(row.sum()) for row in rows]))
    assert found.log_ratio.value == pytest.approx(every.mean())
    assert found.inverse.value == pytest.approx(np.exp(-every).mean())
    longer = Log("made", tuple(
        replace(one, mask=np.append(one.mask, False), logp_mu=np.append(one.logp_mu, -9.0),
                logp_pi=np.append(one.logp_pi, -1.0), advantage=None) for one in log.sequences))  # fmt: skip
    assert estimates(longer) == found


@pytest.mark.parametrize(("place", "said"), [(0, "begins a token early"), (-1, "ends a token late")])
def test_only_the_tokens_between_the_ends_speak_against_an_edge(place, said):
    row = np.full(3, -1.0)
    row[place] = 0.0
    (found,) = _edges([(row, row)] * 20)
    assert said in found
    assert _edges([(np.zeros(3), np.zeros(3))] * 20) == []


def test_sequences_that_carry_the_spread_are_the_degrees_of_freedom():
    """30 of 40 sums carry nearly all of the spread: t has their degrees of freedom, not those of 40."""
    many, few = np.zeros(40), np.tile([1.0, -1.0], 15)
    many[:30] = few + 0.25
    square = (many - many.mean()) ** 2
    carrying = square.sum() ** 2 / (square**2).sum()
    assert carrying < 35
    found = _mean([np.array([x]) for x in many], 1.0)
    skewness = (((many - many.mean()) / many.std(ddof=1)) ** 3).mean()
    at = np.sqrt(40) * _unskewed(many.mean() / many.std(ddof=1), skewness, 40)
    assert found.p == pytest.approx(2 * stats.t.sf(at, carrying - 1))


@pytest.mark.parametrize(("kept", "flagged"), [(0.5, False), (0.3, True)])
def test_tokens_that_pi_cannot_emit_count_as_ratio_zero(kept, flagged):
    """mu is uniform over four tokens and pi gives `kept` to each of two: the mean ratio is 2 kept."""
    random = np.random.default_rng(11)
    rows = []
    for n in range(200):
        drawn = random.integers(4, size=8)
        rows.append(LoggedSequence(0, str(n), "g", np.ones(8, bool), logp_mu=np.full(8, np.log(0.25)),
                                   logp_pi=np.where(drawn < 2, np.log(kept), -np.inf)))  # fmt: skip
    found = estimates(Log("made", tuple(rows)))
    assert found.token is not None
    assert abs(found.token.value - 2 * kept) < 5 * found.token.error
    assert (found.log_ratio, found.inverse) == (None, None)  # KL(mu || pi) is infinite
    assert bool(findings(Log("made", tuple(rows)))) is flagged


def test_a_null_value_is_rejected_at_its_share_of_the_false_alarms():
    assert [Mean(1.0, 0.1, p).rejected for p in (2.4e-5, 2.6e-5)] == [True, False]


def test_skewness_to_the_right_weakens_a_mean_that_is_low_and_never_hides_it():
    """Hall (1992): x + g x^2 / 3 + g^2 x^3 / 27 + g / 6n at g = 2, n = 100, by hand."""
    assert _unskewed(-0.3, 2.0, 100) == pytest.approx(0.3 - 0.06 + 0.004 - 1 / 300)
    assert _unskewed(0.3, 2.0, 100) == 0.3
    far = [_unskewed(-effect, 2.0, 100) for effect in (1.0, 2.0, 3.0, 10.0)]
    assert far == sorted(far)
