"""The event loop, response by response, against the same pipeline in plain Python."""

import math
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from scipy import stats

from envs.kernels import philox
from testbed.errors import UserError
from testbed.pipeline import heap, kernel, pipeline_draws, simulate
from testbed.pipeline.design import Design
from testbed.pipeline.records import LAGS, SUMS
from testbed.pipeline.simulate import VALUES, keys, trace_rows, warm_up


@pytest.fixture
def uncompiled(monkeypatch):
    """Run the loop as Python: compiling it takes half a minute."""
    for module in (heap, pipeline_draws, kernel, simulate):
        for name, loop in list(vars(module).items()):
            if isinstance(loop, Dispatcher) and loop is not philox:
                monkeypatch.setattr(module, name, loop.py_func)
    for name in ("run_many", "run_traced"):
        monkeypatch.setattr(simulate, name, on_records(getattr(simulate, name)))
    with np.errstate(over="ignore"):
        yield


def on_records(loop):
    return lambda *given: loop(*(x.view(np.recarray) if x.dtype.names else x for x in map(np.asarray, given)))


def uniforms(index, purpose, key):
    a, b, c, d = (int(word) for word in philox(index, 0, 0, purpose, key))
    return [((high << 32 | low) >> 11) / 2**53 for high, low in ((a, b), (c, d))]


def normal(index, purpose, key):
    first, second = uniforms(index, purpose, key)
    return math.sqrt(-2 * math.log(1 - first)) * math.cos(2 * math.pi * second)


class Pipeline:
    """One pipeline as its Design is documented; `rows` has what is trained from batch `warm` on."""

    def __init__(self, design, key, warm, last):
        self.d, self.key, self.rows, self.groups, self.done = design, key, [], [], []
        self.now = self.clock = self.busy = self.decoded = self.began = 0.0
        self.version = self.trained = self.piece = self.started = self.dropped = self.consumed = 0
        self.queue, self.decoding, self.tools, self.gone, self.arrivals = [], [], [], [], []
        self.train_end = self.pause_end = self.arrive_at = math.inf
        self.coming, self.next, self.wave_end, self.ahead = 0, 0, 0, 0
        self.open = None
        self.swap(0)
        measuring = False
        while True:
            if not measuring and self.trained >= warm:
                measuring, self.began, self.busy, self.decoded = True, self.now, 0.0, 0.0
                self.rows, self.groups, self.gone, self.done = [], [], [], []
            if self.trained >= last:
                break
            self.feed()
            self.fill()
            published = self.version // design.updates
            self.ahead = max(self.ahead, self.started - self.dropped - (published + 1) * design.batch)
            self.step()
        self.seconds = self.now - self.began

    def swap(self, version):
        d = self.d
        self.arrivals.append((self.clock, version))
        self.version, published, inside = version, version // d.updates, self.started - self.dropped
        self.limit = {
            "none": math.inf,
            "capacity": (d.eta + published + 1) * d.batch,
            "threshold": max(inside, self.consumed + int((1 + d.threshold) * d.sync_every * d.batch)),
            "attempts": math.ceil(d.max_lag / d.group) * d.group + (published + d.sync_every) * d.batch,
        }[d.admission]

    def fill(self):
        d = self.d
        running = len(self.decoding) + len(self.tools)
        if d.barrier and self.started >= self.wave_end and not running:
            self.wave_end = self.started + d.batch
        while len(self.decoding) + len(self.tools) < d.slots:
            blocked = d.queue_rule == "block" and len(self.queue) >= d.queue * d.batch / d.group
            if self.stopped() or blocked:
                return
            if self.started - self.dropped >= self.limit or (d.barrier and self.started >= self.wave_end):
                return
            if self.started % d.group == 0:
                number = self.started // d.group
                score = normal(number, 1, self.key) if d.correlation else 0.0
                self.open = SimpleNamespace(number=number, oldest=self.version, score=score, ended=[])
            tokens, place = self.length(), {"group": self.open, "member": self.started % d.group}
            end = self.clock + tokens
            one = SimpleNamespace(**place, tokens=tokens, first=self.version, began=self.clock, end=end)
            self.decoding.append(one)
            self.started += 1

    def length(self):
        d = self.d
        own = normal(self.started, 0, self.key)
        score = math.sqrt(d.correlation) * self.open.score + math.sqrt(1 - d.correlation) * own
        if d.length == "empirical":
            tokens = sorted(d.lengths)[int(stats.norm.cdf(score) * len(d.lengths))]
        else:
            tokens = math.floor(d.length_mean * math.exp(d.sigma * score - d.sigma**2 / 2) + 0.5)
        return max(1, min(tokens, d.max_length))

    def stopped(self):
        return self.pause_end < math.inf or (self.d.pools == "colocated" and self.train_end < math.inf)

    def too_old(self, group):
        oldest = group.oldest if self.d.age_of == "first" else min(one.last for one in group.ended)
        return self.d.max_age is not None and (
            (self.trained + 1) * self.d.updates - 1 - oldest > self.d.max_age
        )

    def drop(self, group):
        self.dropped += self.d.group
        self.gone.append(group)

    def feed(self):
        d, count = self.d, self.d.batch // self.d.group // self.d.pieces
        if self.train_end < math.inf or self.pause_end < math.inf:
            return
        for group in [each for each in self.queue if self.too_old(each)]:
            self.queue.remove(group)
            self.drop(group)
        if len(self.queue) < count:
            return
        taken = [self.queue.pop(-1 if d.order == "lifo" else 0) for _ in range(count)]
        for place, group in enumerate(taken):
            first = (self.piece * count + place) * d.group
            self.groups.append(self.trained * d.updates + first * d.updates // d.batch - group.oldest)
            for k, one in enumerate(sorted(group.ended, key=lambda one: one.member)):
                used = self.trained * d.updates + (first + k) * d.updates // d.batch
                self.rows.append((one, used, self.trained, self.now))
        tokens = sum(one.tokens for group in taken for one in group.ended)
        self.consumed += count * d.group
        self.piece_began = self.now
        self.train_end = self.now + d.train_time / d.pieces + d.train_token_time * tokens

    def step(self):
        d, tau = self.d, self.d.tau_0 + self.d.tau_1 * len(self.decoding) / self.d.engines
        nearest = sorted(self.decoding, key=lambda one: one.end)
        assert all(a.end < b.end for a, b in pairwise(nearest[:2])), "who ends first is not defined"
        decode = math.inf
        if nearest and not self.stopped():
            decode = self.now + (nearest[0].end - self.clock) * tau
        tool = min((time for time, _ in self.tools), default=math.inf)
        arrive = min(self.pause_end, self.arrive_at)
        when = min(self.train_end, arrive, decode, tool)
        if when == math.inf:
            raise UserError("The pipeline stops")
        if not self.stopped():
            self.decoded += len(self.decoding) * (when - self.now)
            self.clock += (when - self.now) / tau
        self.now = when
        if when == self.train_end:
            self.end_piece()
        elif when == arrive:
            self.pause_end = self.arrive_at = math.inf
            self.swap(self.coming)
            if self.next > self.coming:
                self.coming, self.arrive_at = self.next, self.now + d.sync_time
        elif when == decode:
            one = nearest[0]
            self.clock = one.end
            self.decoding.remove(one)
            one.last = self.version if d.in_flight else one.first
            if d.tool_time:
                number = one.group.number * d.group + one.member
                self.tools.append(
                    (self.now - d.tool_time * math.log(1 - uniforms(number, 2, self.key)[0]), one)
                )
            else:
                self.finish(one)
        else:
            self.tools.remove(found := min(self.tools, key=lambda pair: pair[0]))
            self.finish(found[1])

    def finish(self, one):
        self.done.append(one)
        one.group.ended.append(one)
        if len(one.group.ended) < self.d.group:
            return
        full = self.d.queue_rule != "block" and len(self.queue) >= math.floor(
            self.d.queue * self.d.batch / self.d.group
        )
        if self.too_old(one.group) or (full and self.d.queue_rule == "drop-newest"):
            self.drop(one.group)
            return
        if full:
            self.drop(self.queue.pop(0))
        self.queue.append(one.group)

    def end_piece(self):
        d, self.busy, self.train_end = self.d, self.busy + self.now - self.piece_began, math.inf
        self.piece = (self.piece + 1) % d.pieces
        if self.piece:
            return
        self.trained += 1
        if self.trained % d.sync_every:
            return
        version = self.trained * d.updates
        if not d.sync_time:
            self.swap(version)
        elif d.sync_blocking:
            self.coming, self.pause_end = version, self.now + d.sync_time
        elif self.arrive_at < math.inf:
            self.next = version
        else:
            self.coming, self.arrive_at = version, self.now + d.sync_time

    def token_lags(self, one, used):
        """Yield lags with their numbers of tokens."""
        if not self.d.in_flight or one.last == one.first:
            yield used - one.first, one.tokens
            return
        ends = [clock for clock, _ in self.arrivals[1:]] + [math.inf]
        for (begins, version), ends_at in zip(self.arrivals, ends, strict=True):
            if (tokens := min(ends_at, one.end) - max(begins, one.began)) > 0:
                yield used - version, tokens

    def shares(self, lags):
        """Return lags' shares, from pairs of lag and weight."""
        found = np.zeros(LAGS)
        for lag, weight in lags:
            found[min(lag, LAGS - 1)] += weight
        return found

    def values(self, batches):
        d, rows = self.d, len(self.rows)
        tokens = sum(one.tokens for one, *_ in self.rows)
        lag_N = [used - one.first for one, used, *_ in self.rows]
        made = [one.tokens for one in self.done]
        per_token = [pair for one, used, *_ in self.rows for pair in self.token_lags(one, used)]
        gone = d.group * len(self.gone)
        values = {
            "period": self.seconds / batches, "samples_per_s": rows / self.seconds,
            "tokens_per_s": tokens / self.seconds, "lag_sample": np.mean(lag_N),
            "lag_token": sum(lag * many for lag, many in per_token) / tokens,
            "lag_group": np.mean(self.groups), "lag_largest": max(lag_N),
            "trainer_busy": self.busy / self.seconds, "slots_busy": self.decoded / (d.slots * self.seconds),
            "drop_rate": gone / (gone + rows), "length_trained": tokens / rows,
            "length_generated": np.mean(made), "length_bias": tokens / rows / np.mean(made) - 1,
            "most_ahead": self.ahead, "simulated": self.started,
        }  # fmt: skip
        whole = ((lag, 1) for lag in lag_N), ((lag, 1) for lag in self.groups)
        return values, [self.shares(pairs) for pairs in (per_token, *whole)]


BASE = Design(
    slots=6, batch=8, group=2, tau_0=2e-5, length_mean=350_000, max_length=10**7, sigma=0.6, train_time=9.0,
    queue=1.5,
)  # fmt: skip
"""Lengths so large that no two responses end at once, where it would not be defined who ends first."""
LOGGED = (40, 1300, 999, 71, 523, 211)
DESIGNS = {
    "plain": {}, "fast trainer": {"train_time": 0.3, "slots": 9, "engines": 2, "tau_1": 8e-6},
    "barrier": {"admission": "capacity", "eta": 1, "barrier": True, "slots": 5, "group": 4},
    "barrier, tools": {"admission": "capacity", "eta": 1, "barrier": True, "slots": 9, "tool_time": 30.0},
    "capacity": {"admission": "capacity", "eta": 2, "queue": 3.0, "updates": 4, "max_age": 7, "slots": 12},
    "threshold": {"admission": "threshold", "threshold": 0.4, "sync_every": 2, "queue": 2.0, "slots": 14},
    "threshold 0": {"admission": "threshold", "train_time": 20.0},
    "attempts": {"admission": "attempts", "max_lag": 5, "updates": 2, "sync_every": 2, "sync_time": 2.5,
                 "queue": 4.0, "slots": 20, "train_time": 2.0},
    "drop-oldest": {"queue_rule": "drop-oldest", "train_time": 30.0, "updates": 2, "slots": 11},
    "drop-newest": {"queue_rule": "drop-newest", "train_time": 30.0, "order": "lifo"},
    "tokens cost": {"train_token_time": 1e-6, "slots": 9, "order": "lifo", "queue": 3.0},
    "too old": {"max_age": 1, "slots": 24, "correlation": 0.5, "sigma": 0.9, "train_time": 4.0, "queue": 2.0},
    "too old for the last update": {"max_age": 2, "updates": 2, "slots": 24, "train_time": 4.0, "queue": 2.0},
    "too old at its end": {"max_age": 1, "age_of": "last", "in_flight": True, "slots": 24, "train_time": 4.0},
    "sync blocks": {"sync_time": 3.0, "in_flight": True, "updates": 2, "sync_every": 2, "slots": 13},
    "sync free": {"sync_time": 11.0, "sync_blocking": False, "in_flight": True, "train_time": 1.0},
    "slow sync": {"sync_time": 40.0, "sync_blocking": False, "train_time": 2.0, "slots": 13},
    "colocated": {"pools": "colocated", "in_flight": True, "slots": 12, "pieces": 2, "updates": 2,
                  "train_time": 5.0},
    "tools": {"tool_time": 8.0, "slots": 10, "pieces": 4, "in_flight": True, "correlation": 0.9},
    "logged": {"length": "empirical", "lengths": LOGGED, "correlation": 0.2, "slots": 1, "tau_0": 0.01,
               "max_length": 1100, "train_time": 2.0},
    "one after another": {"slots": 1, "max_length": 400_000, "tau_1": 1e-6, "group": 1, "correlation": 1.0},
}  # fmt: skip


@pytest.mark.usefixtures("uncompiled")
@pytest.mark.parametrize("name", DESIGNS)
def test_every_response_and_number_is_that_of_a_plain_pipeline(name):
    design = replace(BASE, **DESIGNS[name])
    row_BK, time_B, from_start = trace_rows(design, 10, seed=5)
    plain = Pipeline(design, keys(5, 1)[0], 0, 10)
    assert row_BK.tolist() == [
        [one.group.number, one.member, one.tokens, one.first, one.last, used, batch]
        for one, used, batch, _ in plain.rows
    ]
    np.testing.assert_allclose(time_B, [now for *_, now in plain.rows], rtol=1e-9)
    same(from_start, [plain], 10)
    warm = warm_up(design)
    assert warm == 10 + math.ceil(2 * design.queue) + math.ceil(8 * design.slots / 8) + 2 * design.eta
    replicas = 2 if name == "plain" else 1
    others = [replace(design, lengths=(7, 5))] if design.lengths else []  # before it in the table of lengths
    *_, found = simulate.simulate([*others, design], replicas=replicas, batches=4, seed=7)
    same(found, [Pipeline(design, key, warm, warm + 4) for key in keys(7, replicas)], 4)


def same(found, plains, batches):
    values, shares = zip(*(plain.values(batches) for plain in plains), strict=True)
    assert set(values[0]) == set(VALUES) == set(found.value_R)
    for name in VALUES:
        wanted = [each[name] for each in values]
        np.testing.assert_allclose(found.value_R[name], wanted, rtol=1e-9, atol=1e-9, err_msg=name)
        assert found.row()[name] == pytest.approx(np.mean(wanted))
    for share_K, parts in zip(
        (found.token_K, found.sample_K, found.group_K), zip(*shares, strict=True), strict=True
    ):
        np.testing.assert_allclose(share_K, sum(parts) / sum(parts).sum(), atol=1e-9)


@pytest.mark.parametrize(
    ("stuck", "kind", "words"),
    [(1.0, UserError, r"trainer waits for 4 responses \(queue=1.5, admission=attempts, max_age=3\)"),
     (2.0, RuntimeError, "More groups are open than a pipeline can have")],
)  # fmt: skip
def test_a_pipeline_that_cannot_go_on_says_what_it_waits_for(stuck, kind, words):
    sums_R = np.zeros(2, SUMS)
    sums_R["stuck"][1] = stuck
    design = replace(BASE, admission="attempts", max_age=3, pieces=2)
    with pytest.raises(kind, match=words):
        simulate._report(design, sums_R, np.ones((2, 3, LAGS)), 1)


def test_more_replications_leave_the_keys_of_the_first_ones():
    assert keys(7, 2).tolist() == np.random.SeedSequence(7).generate_state(5, np.uint64)[:2].tolist()


def test_a_heap_gives_its_items_by_their_keys():
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 7, 12):
        key_K, item_K, key = np.empty(size), np.empty(size, np.int64), rng.permutation(size) * 1.5
        for n in range(size):
            heap.push.py_func(key_K, item_K, n, key[n], 10 * n)
        popped = [heap.pop.py_func(key_K, item_K, left) for left in range(size, 0, -1)]
        assert popped == (10 * np.argsort(key)).tolist()
