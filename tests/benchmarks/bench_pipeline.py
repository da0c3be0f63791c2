"""Samples per second of the compiled pipeline simulator against a plain Python event loop of the same design.

The peer is our own: a heap of events, one per finished response or batch, with numpy's random numbers; it
is what a discrete-event library written in Python costs at least. Both simulate 240 slots, batches of 240 in
groups of 8, drop-oldest, u = 0.75. A sample is a response started; each is generated, queued, trained and
booked with its lags. Rounds are interleaved, so that a busy machine slows both; seconds are wall clock.

    python tests/benchmarks/bench_pipeline.py [--rounds 5] [--threads 2]
"""

import argparse
import heapq
import os
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable

TARGET = 1e6
BATCHES = 1000
MAP = 1000
"""Designs of the map; 10,000 take ten times as long."""


def peer(batches: int = 150) -> int:
    """Simulate in plain Python; return the responses started. The mean lag is checked against ours."""
    import numpy as np

    slots = batch = 240
    group, train_time, tau = 8, 15.0, 0.02
    rng = np.random.default_rng(0)
    started, version, trained, lag, samples = 0, 0, 0, 0.0, 0
    left: dict[int, list[int]] = {}
    queue: deque[list[int]] = deque()
    events: list[tuple[float, int, int]] = []
    busy = False

    def start(now: float) -> None:
        nonlocal started
        if started % group == 0:
            left[started // group] = []
        length = float(np.clip(np.rint(np.exp(np.log(1000) - 0.125 + 0.5 * rng.standard_normal())), 1, 8192))
        heapq.heappush(events, (now + tau * length, started // group, version))
        started += 1

    for _ in range(slots):
        start(0.0)
    while trained < batches:
        now, number, began = heapq.heappop(events)
        if number < 0:
            busy, trained, version = False, trained + 1, version + 1
        else:
            members = left[number]
            members.append(began)
            start(now)
            if len(members) == group:
                if len(queue) >= 2 * batch // group:
                    queue.popleft()
                queue.append(left.pop(number))
        if not busy and len(queue) >= batch // group:
            busy = True
            for _ in range(batch // group):
                lags = [version - each for each in queue.popleft()]
                lag, samples = lag + sum(lags), samples + group
            heapq.heappush(events, (now + train_time, -1, 0))
    if not 2.3 < lag / samples < 2.8:
        raise AssertionError(f"the peer's mean lag {lag / samples:.2f} is not that of the design")
    return started


def ours() -> int:
    """Simulate the same design in four replications; return the responses started."""
    from testbed.pipeline.design import Design
    from testbed.pipeline.simulate import simulate_one

    design = Design(slots=240, batch=240, train_time=15.0, queue_rule="drop-oldest")
    return int(simulate_one(design, replicas=4, batches=BATCHES).value_R["simulated"].sum())


def space() -> int:
    """Simulate MAP different designs of 20 batches; return how many."""
    from testbed.pipeline.design import Design
    from testbed.pipeline.simulate import simulate

    designs = [
        Design(slots=64 * (1 + k % 10), train_time=2.0 + 0.05 * k, queue=1.0 + k % 4, in_flight=k % 2 == 0)
        for k in range(MAP)
    ]
    return len(simulate(designs, replicas=1, batches=20))


def rate(play: Callable[[], int]) -> float:
    """What one call returns, per second."""
    began = time.perf_counter()
    count = play()
    return count / (time.perf_counter() - began)


def main() -> int:
    """Print the comparison; exit status 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    given = parser.parse_args()
    os.environ["NUMBA_NUM_THREADS"] = str(given.threads)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    ours()  # compiled
    rates: dict[str, list[float]] = {"peer": [], "ours": [], "map": []}
    for _ in range(given.rounds):
        for name, play in (("peer", peer), ("ours", ours), ("map", space)):
            rates[name].append(rate(play))
    median = {name: statistics.median(values) for name, values in rates.items()}
    ratio = statistics.median(a / b for a, b in zip(rates["ours"], rates["peer"], strict=True))
    print(f"peer   {median['peer']:>12,.0f} samples/s  plain Python event loop (ours, heapq)")
    print(f"ours   {median['ours']:>12,.0f} samples/s  {given.threads} threads, target {TARGET:,.0f}")
    print(f"ratio  {ratio:>12,.0f} x")
    print(f"map    {10_000 / median['map'] / 60:>12.2f} min for 10,000 designs of 20 batches")
    return int(median["ours"] < TARGET)


if __name__ == "__main__":
    sys.exit(main())
