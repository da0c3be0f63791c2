"""Replayed Q-learning and actor-critics, step by step against the same learners in plain Python."""

import math

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from support.offline_world import BEST, KEYS, WORLD
from support.refusals import refuses
from support.small_mdps import SMALL

from analysis.kernels import linear_td as linear
from envs.logged_data import collect
from testbed.offline import replay_control, replay_loops
from testbed.offline.replay_control import _buffer, replay_actor_critic, replay_q

MASK = 2**64 - 1


@pytest.fixture(autouse=True)
def uncompiled(request, monkeypatch):
    """Run the loops as Python, except in slow tests: compiling them takes 17 s."""
    if request.node.get_closest_marker("slow") is None:
        for name, loop in list(vars(replay_loops).items()):
            for module in (replay_loops, replay_control):
                if isinstance(loop, Dispatcher) and hasattr(module, name):
                    monkeypatch.setattr(module, name, loop.py_func)
        with np.errstate(over="ignore"):
            yield
    else:
        yield


class Draws:
    """SplitMix64 of a mixed key, as Steele, Lea and Flood (2014) print it."""

    def __init__(self, key):
        self.at = self.mixed(int(key))

    @staticmethod
    def mixed(word):
        word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & MASK
        word = (word ^ (word >> 27)) * 0x94D049BB133111EB & MASK
        return word ^ (word >> 31)

    def uniform(self):
        self.at = (self.at + 0x9E3779B97F4A7C15) & MASK
        return (self.mixed(self.at) >> 11) / 2**53

    def index(self, law):
        left = self.uniform()
        for a, p in enumerate(law[:-1]):
            left -= p
            if left < 0:
                return a
        return len(law) - 1

    def step(self, tables, x):
        """Return next state, reward and the index among successors."""
        u, k = self.uniform(), 0
        while u >= tables.cumulative_XK[x, k]:
            k += 1
        then, paid = tables.next_XK[x, k], tables.reward_X[x]
        if tables.noise == 1:
            paid = float(self.uniform() < paid)
        elif tables.noise == 2:
            radius = math.sqrt(-2 * math.log(1 - self.uniform()))
            paid += tables.noise_std_X[x] * radius * math.cos(2 * math.pi * self.uniform())
        return then, paid + tables.bonus_S[then], k

    def place(self, size):
        return int(self.uniform() * size)


def law_of(q, epsilon, temperature):
    if temperature:
        mass = [math.exp((x - max(q)) / temperature) for x in q]
        return [m / sum(mass) for m in mass]
    best = list(q).index(max(q))
    return [epsilon / len(q) + (a == best) * (1 - epsilon) for a in range(len(q))]


def worth_of(q, temperature):
    return temperature * math.log(sum(math.exp(x / temperature) for x in q)) if temperature else max(q)


def learned_q(world, key, feature, weight, *, steps, every, batch, capacity, logged, chosen):
    """Return weights and rewards earned, every `every` steps; logged: (pair, reward, next, going, last) from
    a log."""
    tables, actions, draws = world.tables, world.actions, Draws(key)
    weight, memory = np.array(weight), list(logged)
    initial, target, counted, summed = weight.copy(), weight.copy(), {}, {}
    for x, paid, then, going, _ in logged:
        counted.setdefault(x, []).append(then if going else None)
        summed[x] = summed.get(x, 0.0) + paid

    def q_of(w, s):
        return [float(feature[s, a] @ w) for a in range(actions)]

    def trajectory(place, log_pi):
        first = end = place
        while first > max(0, len(memory) - capacity) and not memory[first - 1][4]:
            first -= 1
        while end + 1 < len(memory) and not memory[end][4]:
            end += 1
        return sum(log_pi[memory[n][0]] for n in range(first, end + 1)) / (end + 1 - first)

    def drawn():
        size = min(len(memory), capacity)
        place = len(memory) - size + draws.place(size)
        if not chosen["on_policy"]:
            return memory[place]
        laws = [
            law_of(q_of(weight, s), chosen["epsilon"], chosen["temperature"]) for s in range(world.states)
        ]
        log_pi = [math.log(p) for law in laws for p in law]
        for _ in range(63):
            if draws.uniform() < math.exp(chosen["on_policy"] * trajectory(place, log_pi)):
                return memory[place]
            place = len(memory) - size + draws.place(size)
        return memory[place]

    s, time, credit, done, found, earned = draws.index(tables.start_S), 0, 0.0, 0, [], []
    for step in range(steps):
        x = s * actions + draws.index(law_of(q_of(weight, s), chosen["epsilon"], chosen["temperature"]))
        then, paid, _ = draws.step(tables, x)
        going, time = not tables.terminal_S[then], time + 1
        last = not going or time == tables.horizon
        memory.append((x, paid, then, going, last))
        counted.setdefault(x, []).append(then if going else None)
        summed[x] = summed.get(x, 0.0) + paid
        if step // every == len(earned) and step // every < steps // every:
            earned.append(0.0)
        earned[-1] += paid
        s, time = (draws.index(tables.start_S), 0) if last else (then, time)
        credit += chosen["updates"]
        while credit >= 1:
            if chosen["reset_every"] and done and done % int(chosen["reset_every"]) == 0:
                weight = target = initial.copy()
            if chosen["target_every"] and done % int(chosen["target_every"]) == 0:
                target = weight.copy()
            credit, done, slope = credit - 1, done + 1, np.zeros(len(weight))
            for _ in range(batch):
                x, gain, then, going, _ = drawn()
                if chosen["model_share"] and draws.uniform() < chosen["model_share"]:
                    here = x // actions
                    guess = here * actions + draws.index(
                        law_of(q_of(weight, here), 0.0, chosen["temperature"])
                    )
                    if guess in counted:
                        x, gain = guess, summed[guess] / len(counted[guess])
                        order = [*tables.next_XK[x, : tables.count_X[x]], None]
                        outcomes = sorted(counted[x], key=order.index)
                        then = outcomes[draws.place(len(outcomes))]
                        going = then is not None
                if going:
                    ahead = q_of(target if chosen["target_every"] else weight, then)
                    gain += world.discount * worth_of(ahead, chosen["temperature"])
                phi, bound = feature[x // actions, x % actions], chosen["error_bound"]
                error = gain - phi @ weight
                slope += (min(max(error, -bound), bound) if bound else error) * phi / batch
            weight = weight + chosen["step_size"] * slope
            norm, bound = math.sqrt(weight @ weight), chosen["weight_bound"]
            if bound and norm > bound:
                weight = weight * bound / norm
        if (step + 1) % every == 0:
            found.append(weight)
    return np.stack(found), np.array(earned)


MIX = np.random.default_rng(0).normal(size=(3, 2, 4)) * (np.random.default_rng(1).random((3, 2, 4)) < 0.6)
WAYS = {
    "defaults": {},
    "fractions": {"updates": 0.4, "step_size": 0.5, "epsilon": 1.0, "initial": 2.0},
    "batches": {"updates": 1.5, "batch": 3, "capacity": 7, "epsilon": 0.5},
    "targets": {"updates": 2.0, "target_every": 5.0, "step_size": 0.7, "epsilon": 0.7},
    "soft": {"temperature": 0.5, "updates": 2.0, "model_share": 0.5},
    "models": {"model_share": 0.7, "updates": 2.0, "batch": 2, "epsilon": 0.6, "offline": True},
    "on policy": {"on_policy": 1.5, "updates": 1.0, "epsilon": 0.4, "capacity": 9, "step_size": 0.3},
    "on policy, rarely": {"on_policy": 30.0, "epsilon": 0.1, "temperature": 0.2, "offline": True},
    "bounds": {"weight_bound": 0.8, "error_bound": 0.3, "step_size": 0.9, "updates": 2.0, "epsilon": 0.9},
    "resets": {"reset_every": 7.0, "target_every": 3.0, "updates": 2.0, "step_size": 0.6, "initial": 0.5},
    "features": {"feature_SAF": MIX, "updates": 2.0, "step_size": 0.2, "offline": True, "capacity": 31},
}


@pytest.mark.parametrize("name", ["terminal", "bernoulli", "noise-per-pair"])
@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_replaying_is_the_plain_one_step_by_step(way, name):
    replays_plainly(way, name)


def replays_plainly(way, name):
    world, given = SMALL[name], dict(WAYS[way])
    steps, every, key = 43, 5, np.array([3, 2**63 + 5], np.uint64)
    log = collect(world, np.full((2, 1, 3, 2), 0.5), 4, key) if given.pop("offline", False) else None
    found, earned = replay_q(world, key, steps=steps, every=every, offline=log, **given)
    feature = given.pop("feature_SAF", np.eye(6).reshape(3, 2, 6))
    initial = np.full(feature.shape[-1], given.pop("initial", 0.0))
    batch, capacity = given.pop("batch", 1), given.pop("capacity", None)
    for r in range(2):
        logged = []
        for b, t in np.argwhere(log.mask_RBT[r]) if log else ():
            last = t + 1 == log.mask_RBT.shape[-1] or not log.mask_RBT[r, b, t + 1]
            pair = log.state_RBT[r, b, t] * 2 + log.action_RBT[r, b, t]
            logged.append(
                (pair, log.reward_RBT[r, b, t], log.next_RBT[r, b, t], bool(log.going_RBT[r, b, t]), last)
            )
        plain, paid = learned_q(
            world, key[r], feature, initial, steps=steps, every=every, batch=batch,
            capacity=capacity or 10**9, logged=logged, chosen=replay_loops.Q_SETTINGS | given,
        )  # fmt: skip
        np.testing.assert_allclose(found[r].reshape(8, 6),
        np.einsum("kf,saf->ksa", plain, feature).reshape(8, 6),
                                   rtol=1e-9, atol=1e-12)  # fmt: skip
        np.testing.assert_allclose(earned[r], paid, rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_compiled_loops_do_what_their_python_does():
    for way in WAYS:
        replays_plainly(way, "noise-per-pair")
    for given in ACTORS:
        acts_plainly(given, "bernoulli")


@pytest.mark.slow
def test_plain_replay_finds_the_optimal_values():
    q, _ = replay_q(WORLD, KEYS, steps=20_000, every=20_000, epsilon=0.9, step_size=0.02)
    assert np.abs(q[:, -1] - BEST).max() < BEST.max() / 2


def test_draws_are_those_of_splitmix64():
    """Its first outputs from 1234567, as published with the generator's ports."""
    state = np.array([1234567, 0], np.uint64)
    found = [replay_loops._uniform(state) for _ in range(3)]
    known = (6457827717110365317, 3203168211198807973, 9817491932198370423)
    assert found == [(word >> 11) / 2**53 for word in known]
    assert replay_loops._index(np.array([0.0, 1.0]), 0.0) == 1  # no chance, never drawn
    assert replay_loops._index(np.array([0.25, 0.25, 0.5]), 0.5) == 2


def learned_actor(world, key, *, steps, every, capacity, chosen):
    tables, actions, draws = world.tables, world.actions, Draws(key)
    logits, value = np.zeros((world.states, actions)), np.zeros(world.states)
    memory, found, s, time, credit = [None] * capacity, [], draws.index(tables.start_S), 0, 0.0
    for step in range(steps):
        x = s * actions + draws.index(law_of(logits[s], 0.0, 1.0))
        then, paid, _ = draws.step(tables, x)
        going = not tables.terminal_S[then]
        memory[step % capacity] = x, paid, then, going
        s, time = then, time + 1
        if not going or time == tables.horizon:
            s, time = draws.index(tables.start_S), 0
        credit += chosen["replays"]
        learned = [step % capacity]
        while learned or credit >= 1:
            fresh = bool(learned)
            if not fresh:
                credit -= 1
            at = learned.pop() if fresh else draws.place(min(step + 1, capacity))
            x, paid, then, going = memory[at]
            here, taken = divmod(x, actions)
            law = law_of(logits[here], 0.0, 1.0)
            if not fresh and law[taken] < chosen["reach"]:
                continue
            error = paid + (world.discount * value[then] if going else 0.0) - value[here]
            value[here] += chosen["critic_rate"] * error
            push = chosen["actor_rate"] * error * (chosen["repel"] if not fresh and error <= 0 else 1)
            logits[here] += push * (np.eye(actions)[taken] - law)
        if (step + 1) % every == 0:
            found.append((logits.copy(), value.copy()))
    return found


ACTORS = (
    {}, {"replays": 1.6, "repel": 0.3, "actor_rate": 0.5, "capacity": 7},
    {"replays": 4.0, "reach": 0.45, "critic_rate": 0.3, "actor_rate": 1.0, "repel": 0.0},
)  # fmt: skip


@pytest.mark.parametrize("name", ["terminal", "bernoulli", "noise-per-pair"])
@pytest.mark.parametrize("given", ACTORS)
def test_an_actor_critic_with_replay_is_the_plain_one_step_by_step(given, name):
    acts_plainly(given, name)


def acts_plainly(given, name):
    key, capacity = np.array([3, 8], np.uint64), given.get("capacity")
    logits, value = replay_actor_critic(SMALL[name], key, steps=43, every=5, **given)
    chosen = replay_loops.ACTOR_SETTINGS | {k: v for k, v in given.items() if k != "capacity"}
    for r in range(2):
        plain = learned_actor(SMALL[name], key[r], steps=43, every=5, capacity=capacity or 43, chosen=chosen)
        np.testing.assert_allclose(logits[r], [each for each, _ in plain], rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(value[r], [each for _, each in plain], rtol=1e-9, atol=1e-12)


def test_a_cell_is_a_function_of_its_key_and_settings_alone():
    both, earned = replay_q(WORLD, KEYS, steps=300, every=100, updates=np.array([1.0, 2.0, 0.5, 1.0]))
    alone, _ = replay_q(WORLD, KEYS[2:3], steps=300, every=100, updates=0.5)
    assert (both[2] == alone[0]).all()
    assert (both[0] != both[3]).any()
    assert earned.shape == (4, 3)
    logits, _ = replay_actor_critic(WORLD, KEYS, steps=30, every=30, replays=np.arange(4.0))
    assert (logits[2] == replay_actor_critic(WORLD, KEYS[2:3], steps=30, every=30, replays=2.0)[0][0]).all()
    started, _ = replay_q(
        WORLD, KEYS[:2], steps=1, every=1, updates=0.0, initial=np.arange(16.0).reshape(2, 8)
    )
    assert started.reshape(2, 8).tolist() == np.arange(16.0).reshape(2, 8).tolist()


LOG = collect(WORLD, np.full((4, 1, 4, 2), 0.5), 4, KEYS)
HELD = int(LOG.mask_RBT.sum((-1, -2)).max())


@pytest.mark.parametrize(
    "call",
    [lambda: replay_q(WORLD, KEYS, steps=5, every=5, utd=2.0, x=1),
     lambda: replay_q(WORLD, KEYS, steps=5, every=5, updates=[1.0, 2.0]),
     lambda: replay_q(WORLD, KEYS, steps=5, every=5, updates=-1),
     lambda: replay_q(WORLD, KEYS, steps=5, every=5, batch=0),
     lambda: replay_q(WORLD, KEYS, steps=5, every=6), lambda: replay_q(WORLD, KEYS, steps=5, every=0),
     lambda: replay_q(WORLD, KEYS, steps=5, every=5, feature_SAF=MIX),
     lambda: replay_q(WORLD, KEYS, steps=5, every=5, offline=LOG, capacity=HELD - 1),
     lambda: replay_q(WORLD, KEYS[:3], steps=5, every=5, offline=LOG),
     lambda: replay_actor_critic(WORLD, KEYS, steps=5, every=6),
     lambda: replay_actor_critic(WORLD, KEYS, steps=5, every=0),
     lambda: linear.realizable_features(BEST[None], 9, np.random.default_rng(0)),
     lambda: linear.realizable_features(BEST[None], 0, np.random.default_rng(0))],
)  # fmt: skip
def test_impossible_settings_are_refused(call):
    refuses(".", call)


def test_a_share_above_one_and_a_part_of_an_update_are_refused():
    refuses("epsilon is 1.5, expected a share", replay_q, WORLD, KEYS, steps=5, every=5, epsilon=1.5)
    for name in ("target_every", "reset_every"):  # of a fraction the loop would make never, or 2 of 2.5
        for wrong, said in ((0.5, "0.5"), ([0, 1, 2.5, 4], "2.5")):
            message = f"{name} is {said}, expected a whole number of updates"
            refuses(message, replay_q, WORLD, KEYS, steps=5, every=5, **{name: wrong})


def test_settings_at_their_ends_are_taken():
    full, _ = replay_q(WORLD, KEYS, steps=1, every=1, offline=LOG, capacity=HELD)
    sizes = [_buffer(WORLD, 4, 5, None, log)[0].shape for log in (None, LOG)]
    assert sizes == [(4, 5), (4, 5 + HELD)]  # None keeps everything
    assert full.shape == (4, 1, 4, 2)
