"""What a log's log-probabilities, versions, groups and temperatures make one suspect, word by word."""

from dataclasses import replace

import numpy as np
import pytest
from support.sampled_logs import sampled

from testbed.logs import sanity_checks
from testbed.logs.record import Log, LoggedSequence
from testbed.logs.row_checks import repeated
from testbed.logs.sanity_checks import (
    SPREADS,
    _groups,
    _rounding,
    _slopes,
    ambiguous,
    serious,
    suspicions,
    verdict,
)

INF, NAN = np.inf, np.nan


def of(mask, mu=None, pi=None, anchor=None, version=None, group="g", **fields):
    lists = {"logp_mu": mu, "logp_pi": pi, "logp_anchor": anchor}
    lists = {name: None if value is None else np.array(value, dtype=float) for name, value in lists.items()}
    version = None if version is None else np.array(version)
    return LoggedSequence(0, "a", group, np.array(mask, bool), version=version, **lists, **fields)


LEFT_OUT = "they are left out, also of the weights of their sequences."
CUT = "left out of token metrics. Tokens cut by top-k or top-p in one engine alone, or an underflow."
PLACED = "prompt or tool tokens with a placeholder, which the mask should leave out."


def test_all_suspicions_about_a_log_in_their_order_and_words():
    log = Log("made", (
        of([1, 1, 1, 1, 0], [0, 0, -1, NAN, NAN], [-0.11, -0.1, 0, -1, 5], [0.5, 0.001, 0.0011, NAN, 9],
           [3, 3, 1, 3, 9], trainer_version=8, temperature=0.7),
        of([0, 1, 1], [0, -2, -INF], [-9, -INF, -INF], version=[7, 4, 4], trainer_version=6, temperature=1.0),
        of([1], [-2], [0.002], version=[4], temperature=0.5),
        of([1, 1], None, [NAN, -2], version=[1, 1], group="h"),
        of([], [], [], version=np.zeros(0, int), group="h", trainer_version=0),
    ))  # fmt: skip
    assert suspicions(log) == [
        "1 of 7 tokens under the mask have log mu = 0 where the other is below -0.1: " + PLACED,
        "1 of 7 tokens under the mask have log pi = 0 where the other is below -0.1: " + PLACED,
        "1 of 9 tokens have log pi > 0, which is impossible for a log-probability.",
        "2 of 4 tokens have log anchor > 0, which is impossible for a log-probability.",
        "1 of 7 tokens have no log mu: " + LEFT_OUT, "1 of 7 tokens have log mu = -inf: " + CUT,
        "1 of 9 tokens have no log pi: " + LEFT_OUT, "2 of 9 tokens have log pi = -inf: " + CUT,
        "1 of 4 tokens have no log anchor: " + LEFT_OUT,
        "1 of 4 sequences have tokens of several weights versions: their sequence ratio is not the "
        "importance weight of any single policy.",
        "Ages are counted from the newest version in each step's batch, because the trainer's version is "
        "unknown: ages are lower bounds.",
        "2 sequences come from weights newer than the trainer's: versions are numbered differently.",
        "Sampled at temperature 0.5, 0.7: either both log-probabilities must include it, or neither.",
    ]  # fmt: skip
    placed = suspicions(Log("made", (of([1, 1], [-1, -2], [0, 0]),)))
    assert (
        placed[0] == "2 of 2 tokens under the mask have log pi = 0 where the other is below -0.1: " + PLACED
    )
    sound = of([1], [-1.0], [-1.1], version=[2], trainer_version=2, temperature=1.0)
    assert suspicions(Log("made", (sound, replace(sound, version=None)))) == []


@pytest.mark.parametrize(
    ("sizes", "more"),
    [((2, 2, 4), 1), ((2, 2, 3), 0), ((1, 1, 9), 0), ((4, 4, 8, 9, 4), 2), ((6, 2, 2, 6), 0), ((5,), 0)],
)
def test_groups_of_twice_the_usual_size_are_counted(sizes, more):
    log = Log("made", tuple(of([1], group=str(n)) for n, size in enumerate(sizes) for _ in range(size)))
    said = [
        f"{more} of {len(sizes)} groups have twice the usual {int(np.median(sizes))} sequences or more: a "
        "prompt that came twice in a step cannot be told from one larger group."
    ]
    assert _groups(log) == said * (more > 0)


def test_numbers_of_sixteen_bits_are_told_with_the_noise_of_their_steps():
    """A number in [2^e, 2^(e+1)) of d digits has steps of 2^(e+1-d); uniform noise has variance step^2 /
    12."""
    both, half, single = [-1.5, -3.0], [-1 - 2.0**-10, -2.5], [-1 - 2.0**-12, -1.5]
    for values, name, noise in (
        (both, "bfloat16", (2.0**-14 + 2.0**-12) / 2 / 24),
        (half, "float16", (2.0**-20 + 2.0**-18) / 2 / 24),
    ):
        said = (
            f"Every log mu is a {name} number: rounding alone adds about {noise:.2g} nats to kl_mu_pi_k2, "
            "and more to sequence ratios by their length."
        )
        idle = [0.0, NAN, -INF]
        assert _rounding(np.array(values * 25 + idle), "log mu") == [said]
        assert _rounding(np.array(values * 24 + values[:1] + idle), "log mu") == []
    odd = (
        single, [*half, *single], [half[0], -70_001.0], [*both, -0.1], [half[0], -1e-9], [half[0], -65504.0],
    )  # fmt: skip
    assert [_rounding(np.array(values * 50), "log mu") for values in odd] == [[]] * 6


def test_rounded_numbers_of_both_policies_are_told_by_their_names(monkeypatch):
    monkeypatch.setattr(sanity_checks, "_rounding", lambda values, label: [f"{label} {values.tolist()}"])
    notes = sanity_checks._notes(Log("made", (of([1, 0, 1], [-1.0, -2.0, -3.0], [-4.0, -5.0, -6.0]),)))
    assert {"log mu [-1.0, -3.0]", "log pi [-4.0, -6.0]"} <= set(notes)


def test_a_spread_is_a_temperature_at_age_0_and_may_be_staleness_elsewhere():
    x = np.linspace(-1, 1, 50)
    y = x**2 - np.mean(x**2)
    x, y = x / x.std(), y / y.std()  # uncorrelated
    more = [0, -9, -INF, -9], [-99, 0, -9, -INF]  # which say nothing of it
    for slope, corr, told in ((1.12, 1, 1), (1.08, 1, 0), (0.9, 1, 1), (0.92, 1, 0), (2, 0.91, 1),
                              (2, 0.89, 0), (2, -0.95, 0)):  # fmt: skip
        mu, pi = x - 5, slope * (corr * x + np.sqrt(1 - corr**2) * y) - 12
        assert _slopes((mu, pi)) == pytest.approx([slope] * told)
        assert _slopes(tuple(map(np.append, (mu, pi), more))) == pytest.approx([slope] * told)
        assert _slopes((mu[1:], pi[1:])) == []
    assert (
        _slopes((np.full(60, -1.0), -np.arange(60.0))) == _slopes((-np.arange(60.0), np.full(60, -1.0))) == []
    )
    wide = of([1] * 50, x - 5, 2 * x - 12, version=[8] * 50)
    equal = replace(wide, logp_pi=x - 5, trainer_version=8)
    for age, alike in ((0, 0), (8, 0), (None, 0), (8, 1)):  # alike: sequences of age 0 without a spread
        aged = replace(wide, trainer_version=None if age is None else 8 + age)
        log = Log("made", (aged, *[equal] * alike))
        said = [SPREADS.format(2)] * (alike == 0)
        assert [one[: len(SPREADS) - 2] for one in serious(log)] == said * (age == 0)
        assert [one[: len(SPREADS) - 2] for one in ambiguous(log)] == said * (age != 0)
        assert verdict(log).startswith(
            "Look at" if age == 0 else "Undecided: log pi" if said else "Undecided: few"
        )


def test_one_line_says_what_is_wrong_or_that_nothing_is():
    few, sound, swapped = sampled(many=10), sampled(), sampled("late")
    lacks = "Undecided: the log lacks log-probabilities of the sampler (mu) or of the trainer (pi)."
    for name in ("logp_mu", "logp_pi"):
        bare = Log("made", (replace(sound.sequences[0], **{name: None}), *sound.sequences[1:]))
        assert verdict(bare) == lacks
    assert serious(Log("made", (of([1]),))) == []
    assert verdict(swapped) == f"Look at the log-probabilities: {serious(swapped)[0]}"
    assert len(serious(swapped)) == 1  # it explains what other checks find
    assert verdict(few, ["ess"]) == (
        "Undecided: fewer than 20 sequences carry the variance of the mean ratio, or log-ratios spread too "
        "far, so that it cannot be tested against 1, and no check found anything."
    )
    assert verdict(sound, ["ess", "kl"]) == (
        "Look at ess: it crossed a limit that peers document; log-probabilities look right."
    )
    twice = Log("made", (*sound.sequences, sound.sequences[0]))
    assert verdict(twice, ["ess"]).endswith("look right. Note: " + repeated(twice)[0])
    assert verdict(sound) == "Healthy: mean ratios are 1 within their errors, and no check found anything."
    hot = Log("made", tuple(replace(one, temperature=0.7) for one in sound.sequences))
    assert verdict(hot).startswith(
        "Healthy: mean ratios are 1 within their errors. Note: Sampled at temperature 0.7"
    )
    equal = [replace(one, logp_pi=one.logp_mu + 1e-7 * (n == 0)) for n, one in enumerate(sound.sequences)]
    assert verdict(Log("made", tuple(equal))).startswith("Healthy"), (
        "rounding in one sequence decides nothing"
    )
