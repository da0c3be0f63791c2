"""Rows whose parts do not belong together are named in the first line, and healthy ones are not."""

import math
from dataclasses import replace

import numpy as np
import pytest
from support.sampled_logs import sampled

from testbed.logs.record import Log
from testbed.logs.row_checks import (
    copied,
    correlation,
    disordered,
    far_at_age_0,
    not_per_token,
    repeated,
    unrelated,
    wrong_advantages,
)
from testbed.logs.sanity_checks import suspicions, verdict

SOUND = sampled(many=128)
"""Groups of four sequences of 12 to 24 tokens, advantages equal to rewards of 1 and -1."""


def changed(log=SOUND, **how):
    """The log with fields of every sequence computed from it."""
    return Log(
        "made",
        tuple(replace(one, **{name: make(one) for name, make in how.items()}) for one in log.sequences),
    )


def rolled(field, log=SOUND):
    """The log with a field of the next sequence of the group of four, as long as the mask."""
    rows = list(log.sequences)
    others = [rows[n // 4 * 4 + (n + 1) % 4] for n in range(len(rows))]
    return Log(
        "made",
        tuple(
            replace(one, **{field: np.resize(getattr(other, field), len(one.mask))})
            for one, other in zip(rows, others, strict=True)
        ),
    )


def aged(age, log=SOUND):
    return changed(log, trainer_version=lambda _: 9, version=lambda one: np.full(len(one.mask), 9 - age))


FIRST = "Look at the log-probabilities: "
SAID = {
    "losses": (
        changed(logp_mu=lambda one: -one.logp_mu, logp_pi=lambda one: -one.logp_pi),
        FIRST + "2358 of 2372 tokens have log mu > 0, which is impossible for a log-probability. They look "
        "like losses, -log p.",
    ),
    "probabilities": (
        changed(logp_pi=lambda one: np.exp(one.logp_pi)),
        FIRST + "2366 of 2372 tokens have log pi > 0, which is impossible for a log-probability. They look "
        "like probabilities without the logarithm.",
    ),
    "means": (
        changed(logp_mu=lambda one: np.full_like(one.logp_mu, one.logp_mu.mean())),
        FIRST + "log mu is the same at all tokens of a sequence: a mean or sum, not one per token.",
    ),
    "sums": (
        changed(logp_pi=lambda one: one.logp_pi.cumsum()),
        FIRST + "log pi never rises along a sequence: sums up to the token, not one per token.",
    ),
    "order": (
        rolled("logp_pi"),
        FIRST + "log pi is that of another response of the group in 128 of 128 sequences: the responses "
        "stand in different orders.",
    ),
    "copy": (
        aged(3, changed(logp_pi=lambda one: one.logp_mu)),
        FIRST + "log pi equals log mu at every token, but the weights of pi are 3 versions newer or more: "
        "one is a copy of the other, or the weights never changed.",
    ),
    "base 2": (
        changed(logp_mu=lambda one: one.logp_mu / math.log(2)),
        FIRST + "log mu looks like a logarithm of base 2, 1.44 times the other: ",
    ),
    "base 10": (
        changed(logp_pi=lambda one: one.logp_pi / math.log(10)),
        FIRST + "log pi looks like a logarithm of base 10, 0.43 times the other: ",
    ),
    "placeholder": (
        changed(logp_pi=lambda one: np.append(one.logp_pi[:-1], 0.0)),
        FIRST + "124 of 2372 tokens under the mask have log pi = 0 where the other is below -0.1: ",
    ),
    "two tokens": (
        changed(logp_pi=lambda one: np.roll(one.logp_pi, 2)),
        FIRST + "log pi stands 2 tokens behind log mu: ",
    ),
    "reversed": (
        changed(logp_pi=lambda one: one.logp_pi[::-1]),
        "Undecided: log mu and log pi hardly go together, token by token (correlation ",
    ),
    "sign": (
        changed(advantage=lambda one: -one.advantage),
        "Look at the advantages: within groups they fall where rewards rise (mean correlation -1.00): the "
        "sign may be reversed.",
    ),
    "another's": (
        rolled("advantage"),
        "Look at the advantages: within groups they hardly rise with rewards (mean ",
    ),
}


@pytest.mark.parametrize("fault", SAID)
def test_the_first_line_names_what_does_not_belong_together(fault):
    log, told = SAID[fault]
    assert verdict(log, ["ess"]).startswith(told)
    assert any(told.split(": ", 1)[1][:40] in one for one in suspicions(log))


def test_a_mask_that_holds_the_prompt_is_told_where_ratios_are_wrong():
    noise = -np.random.default_rng(0).exponential(3, (128, 4)) - 0.4
    rows = []
    for n, one in enumerate(SOUND.sequences):
        asked, answer = np.arange(4), np.full(len(one.mask), 7)
        rows.append(
            replace(
                one,
                prompt=asked,
                token=np.append(asked, answer),
                mask=np.ones(len(answer) + 4, bool),
                logp_mu=np.append(noise[n], one.logp_mu),
                logp_pi=np.append(noise[n] + 0.3, one.logp_pi),
                advantage=None,
            )
        )
    told = "The mask holds the prompt: the masked tokens of 128 sequences begin with it: the mean "
    assert verdict(Log("made", tuple(rows))).startswith(FIRST + told)
    repeats = [replace(one, logp_mu=one.logp_pi) for one in rows]  # a task may ask to repeat the prompt
    assert verdict(Log("made", tuple(repeats))).startswith("Healthy")
    short = [replace(one, prompt=one.prompt[:2]) for one in rows]
    assert "holds the prompt" not in verdict(Log("made", tuple(short)))


def test_copies_count_only_where_no_sampler_draws_them_twice():
    rows = SOUND.sequences
    told = "3 of 131 sequences are copies of another one of their step, in every log-probability: ESS and "
    assert repeated(Log("made", (*rows, *rows[:2], rows[1])))[0].startswith(told)
    assert repeated(Log("made", (*rows, replace(rows[0], step=77)))) == []  # a replayed one
    assert repeated(Log("made", (*rows, replace(rows[0], logp_pi=rows[0].logp_pi - 0.1)))) == []
    likely = replace(rows[0], logp_mu=rows[0].logp_mu * 19.9 / -rows[0].logp_mu.sum())
    rare = replace(rows[0], logp_mu=rows[0].logp_mu * 20.1 / -rows[0].logp_mu.sum())
    assert [len(repeated(Log("made", (one, one)))) for one in (likely, rare)] == [0, 1]


def test_a_large_kl_at_age_0_is_noted_and_at_others_not():
    for stale, age, told in ((0.3, 0, True), (0.05, 0, False), (0.3, 1, False)):
        log = aged(age, sampled(stale=stale, many=128))
        assert bool(far_at_age_0(log)) == told
    x = np.concatenate([one.logp_pi - one.logp_mu for one in sampled(stale=0.3, many=128).sequences])
    kl = (np.exp(x) - 1 - x).mean()
    found = far_at_age_0(aged(0, sampled(stale=0.3, many=128)))
    assert found[0].startswith(f"Tokens of age 0 have a KL of {kl:.2g} nats each, ")


def test_what_is_too_little_or_not_known_is_not_judged():
    few = [Log("made", SAID[fault][0].sequences[:19]) for fault in ("means", "sums", "order", "copy", "sign")]
    for log in few:
        assert (
            not_per_token(log) + disordered(log) + unrelated(log) + copied(log) + wrong_advantages(log) == []
        )
    copy = changed(logp_pi=lambda one: one.logp_mu)
    one, *others = aged(3, copy).sequences
    for log in (copy, aged(0, copy), Log("made", (replace(one, version=None), *others))):
        assert copied(log) == []
    lost = changed(SAID["means"][0], logp_mu=lambda one: one.logp_mu * math.nan)
    assert not_per_token(lost) == []
    certain = changed(logp_mu=lambda one: 0 * one.logp_mu, logp_pi=lambda one: 0 * one.logp_pi)
    assert not_per_token(certain) == []
    assert math.isnan(correlation(np.zeros(50), np.arange(50.0)))
    assert math.isnan(correlation(np.arange(7.0), np.arange(7.0)))
    level = changed(advantage=lambda one: 0 * one.advantage)
    huge = changed(advantage=lambda one: 1e300 * one.advantage, reward=lambda one: 1e300 * one.reward)
    for log in (level, huge, changed(reward=lambda _: 1.0), changed(reward=lambda _: None)):
        assert wrong_advantages(log) == []
    critic = changed(advantage=lambda one: one.advantage * 0.3 + np.linspace(-1, 1, len(one.mask)))
    assert wrong_advantages(critic) == []
    unknown = changed(advantage=lambda one: one.advantage * math.nan)
    assert wrong_advantages(unknown) == []


@pytest.mark.parametrize("stale", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("shape", [{}, {"longest": 3}, {"many": 400, "longest": 6}, {"states": "zipf"}])
def test_healthy_logs_of_many_shapes_raise_none_of_these(stale, shape):
    log = aged(2, sampled(stale=stale, **{"many": 128, **shape}))
    log = log if stale else aged(0, log)
    for check in (not_per_token, disordered, unrelated, copied, wrong_advantages, repeated, far_at_age_0):
        assert check(log) == [], check.__name__
