"""The compiled loops against plain Python, bit for bit, and against the exact law.

The numpy stream and the compiled stream are the same stream.
"""

import subprocess
import sys

import numpy as np
import pytest
from references import reference_mdp as reference
from support.small_mdps import SMALL, bare, policies, softmax

from envs import kernels, streams
from envs.logged_bandit import bandit
from envs.tables import running_sums
from testbed import rng

KEYS = np.array([0, 1, 2**63 + 5], dtype=np.uint64)
ALMOST_ONE = 1.0 - 2.0**-53


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [((0, 0, 0, 0), 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
     ((0xFFFFFFFF,) * 4, 0xFFFFFFFFFFFFFFFF, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
     ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), 0x299F31D0A4093822,
      "d16cfe09 94fdcceb 5001e420 24126ea1")],
)  # fmt: skip
def test_philox_gives_the_known_answers_of_random123(counter, key, expected):
    assert " ".join(f"{int(word):08x}" for word in kernels.philox(*counter, np.uint64(key))) == expected
    assert " ".join(f"{word:08x}" for word in reference.philox(counter, key)) == expected


def test_uniforms_are_the_first_double_of_counter_token_sequence_step_zero():
    uniform_RBT = kernels.uniforms(KEYS, 7, 2, 3)
    assert uniform_RBT.shape == (3, 2, 3)
    for (r, b, t), uniform in np.ndenumerate(uniform_RBT):
        assert uniform == reference.pair(t, b, 7, 0, int(KEYS[r]))[0]
        assert 0.0 <= uniform < 1.0


@pytest.mark.parametrize("name", SMALL)
def test_simulated_episodes_are_those_of_plain_python(name):
    world = SMALL[name]
    pi_RSA = policies(world, 3)
    start_RN = world.start(kernels.uniforms(KEYS, 99, 6, 1)[..., 0])
    episodes = world.simulate(pi_RSA, start_RN, 4, KEYS, 5)
    for r, key in enumerate(KEYS):
        expected = reference.simulate(
            bare(world), pi_RSA[r], start_RN[r], 4, int(key), 5, world.noise, world.noise_std
        )
        for b, steps in enumerate(expected):
            length = len(steps)
            assert episodes.mask_RBT[r, b].tolist() == [t < length for t in range(world.horizon)]
            state_T, action_T, reward_T = (np.array(column) for column in zip(*steps, strict=True))
            assert np.array_equal(episodes.state_RBT[r, b, :length], state_T)
            assert np.array_equal(episodes.action_RBT[r, b, :length], action_T)
            assert episodes.reward_RBT[r, b, :length] == pytest.approx(reward_T, rel=1e-12, abs=1e-12)
            assert not episodes.state_RBT[r, b, length:].any()
            assert not episodes.action_RBT[r, b, length:].any()
            assert not episodes.reward_RBT[r, b, length:].any()


DIGEST = """
import hashlib, numba, numpy as np
from envs import kernels
from envs.catalog import make
world, keys = make("garnet", noise_std=0.5), np.arange(5, dtype=np.uint64)
weights = np.random.default_rng(0).random((2, 5, world.states, world.actions))
pi, mu = weights / weights.sum(axis=-1, keepdims=True)
for threads in (1, 2, 3):
    numba.set_num_threads(threads)
    start = world.start(kernels.uniforms(keys, 0, 7, 1)[..., 0])
    episodes = world.simulate(pi, start, 3, keys, 2)
    logp = kernels.gather_logp(np.log(pi), episodes.state_RBT, episodes.action_RBT)
    score = kernels.scatter_score(episodes.state_RBT, episodes.action_RBT, episodes.reward_RBT, pi)
    exact = world.divergence(pi, mu)
    arrays = [*vars(episodes).values(), logp, score, *vars(exact).values()]
    arrays += [world.value(pi), world.gradient(pi), world.occupancy(pi)]
    print(hashlib.sha256(b"".join(np.ascontiguousarray(a).tobytes() for a in arrays)).hexdigest())
"""


@pytest.mark.slow
def test_one_two_and_three_threads_give_the_same_bits(monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", "3")
    done = subprocess.run([sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True)
    digests = done.stdout.split()
    assert len(digests) == 3
    assert len(set(digests)) == 1


def test_an_entry_without_mass_is_never_drawn():
    for mass in (
        [0.0, 0.5, 0.0, 0.5, 0.0],
        [0.1] * 10 + [0.0],
        [1.0, 0.0],
        [0.0, 1.0],
        [0.3, 0.7 - 1e-9, 0.0],
        [0.0] * 20 + [0.5] + [0.0] * 20 + [0.5],  # found by halving, not by counting
    ):
        sums = running_sums(np.array(mass))
        for uniform in (0.0, 0.5, np.nextafter(0.5, 0.0), 0.7, ALMOST_ONE):
            index = kernels._draw(sums[None], 0, uniform)
            assert index == int((sums <= uniform).sum())
            assert mass[index] > 0.0, (mass, uniform)


@pytest.mark.parametrize("arms", [1, 2, 16, 17, 100])
def test_short_rows_are_counted_and_long_rows_searched_with_the_same_result(arms):
    world = bandit(arms=arms, noise="none")
    pi_RSA = policies(world, 3, seed=4)
    pi_RSA[:, :, arms // 2 + 1 :] = 0.0  # no mass at the end, where a search could run over
    pi_RSA /= pi_RSA.sum(axis=-1, keepdims=True)
    episodes = world.simulate(pi_RSA, np.zeros((3, 500), np.int64), 1, KEYS, 0)
    uniform_RB = kernels.uniforms(KEYS, 0, 500, 1)[..., 0]
    for r in range(3):
        expected = np.searchsorted(running_sums(pi_RSA[r, 0]), uniform_RB[r], side="right")
        assert np.array_equal(episodes.action_RBT[r, :, 0], expected)


def test_gathered_log_probabilities_are_those_of_a_log_softmax():
    rng = np.random.default_rng(0)
    logits_RSA = rng.normal(size=(2, 4, 3)) * np.array([1.0, 1e3])[:, None, None]
    state_RBT, action_RBT = rng.integers(4, size=(2, 5, 6)), rng.integers(3, size=(2, 5, 6))
    largest = logits_RSA.max(axis=-1, keepdims=True)
    log_pi_RSA = logits_RSA - largest - np.log(np.exp(logits_RSA - largest).sum(axis=-1, keepdims=True))
    expected_RBT = log_pi_RSA[np.arange(2)[:, None, None], state_RBT, action_RBT]
    assert kernels.gather_logp(logits_RSA, state_RBT, action_RBT) == pytest.approx(expected_RBT, rel=1e-13)


def test_one_replica_alone_gets_the_same_bits_as_among_others():
    rng = np.random.default_rng(2)
    logits_RSA, weight_RBT = rng.normal(size=(3, 4, 3)), rng.normal(size=(3, 5, 6))
    state_RBT, action_RBT = rng.integers(4, size=(3, 5, 6)), rng.integers(3, size=(3, 5, 6))
    logp_RBT = kernels.gather_logp(logits_RSA, state_RBT, action_RBT)
    score_RSA = kernels.scatter_score(state_RBT, action_RBT, weight_RBT, softmax(logits_RSA))
    for r in range(3):
        one = slice(r, r + 1)
        np.testing.assert_array_equal(
            kernels.gather_logp(logits_RSA[one], state_RBT[one], action_RBT[one]), logp_RBT[one]
        )
        alone = kernels.scatter_score(
            state_RBT[one], action_RBT[one], weight_RBT[one], softmax(logits_RSA)[one]
        )
        np.testing.assert_array_equal(alone, score_RSA[one])


def test_scattered_score_is_the_gradient_of_the_weighted_log_probabilities():
    rng = np.random.default_rng(1)
    logits_RSA, weight_RBT = rng.normal(size=(2, 4, 3)), rng.normal(size=(2, 5, 6))
    state_RBT, action_RBT = rng.integers(3, size=(2, 5, 6)), rng.integers(3, size=(2, 5, 6))  # state 3: never
    score_RSA = kernels.scatter_score(state_RBT, action_RBT, weight_RBT, softmax(logits_RSA))
    onehot = np.zeros_like(score_RSA)
    for (r, b, t), weight in np.ndenumerate(weight_RBT):
        s = state_RBT[r, b, t]
        onehot[r, s] -= weight * softmax(logits_RSA)[r, s]
        onehot[r, s, action_RBT[r, b, t]] += weight
    assert score_RSA == pytest.approx(onehot, abs=1e-13)
    assert not score_RSA[:, 3].any()

    def objective(logits):
        return (weight_RBT * kernels.gather_logp(logits, state_RBT, action_RBT)).sum()

    for index in np.ndindex(logits_RSA.shape):
        nudge = np.zeros_like(logits_RSA)
        nudge[index] = 1e-5
        slope = (objective(logits_RSA + nudge) - objective(logits_RSA - nudge)) / 2e-5
        assert score_RSA[index] == pytest.approx(slope, abs=1e-8)


def test_numpy_and_numba_give_the_same_bits():
    keys = rng.keys((0, 1, 7), "sampling")
    for step in (0, 3, 2**31):
        assert np.array_equal(streams.uniforms(keys, step, 5, 9), kernels.uniforms(keys, step, 5, 9))


def test_keys_differ_by_seed_and_by_purpose_and_are_pinned():
    assert rng.key(0, "sampling") != rng.key(1, "sampling")
    assert rng.key(0, "sampling") != rng.key(0, "evaluation")
    assert rng.key(0, "sampling") == 9802809229976155402


def test_generators_are_named_by_purpose_and_step_not_by_call_order():
    first = rng.generator(3, "prompts", step=2).random(4)
    rng.generator(3, "prompts", step=1).random(9)
    assert np.array_equal(first, rng.generator(3, "prompts", step=2).random(4))
    assert not np.array_equal(first, rng.generator(3, "prompts", step=3).random(4))
