"""Offline kernels against the loops they replace: gymnasium's environments with tables and buffers in numpy.

Three jobs, in steps per second of processor time, so that a busy machine does not matter: Q-learning with a
replayed update per step (FrozenLake 4x4, the peer keeps its buffer in a list, as single-file programs do),
logging episodes of the uniform policy, and Pendulum-v1 with random torques. Below: seconds for a thousand
cells of the other kernels.

    python tests/benchmarks/bench_offline.py [--rounds 3]
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

TARGET = 50.0
PEER_STEPS = 4000


def peer(learns: bool) -> int:
    """One cell of Q-learning with replay, epsilon-greedy; or one logger with uniformly random actions."""
    import gymnasium
    import numpy as np

    env, rng = gymnasium.make("FrozenLake-v1"), np.random.default_rng(0)
    q, buffer = np.zeros((16, 4)), []
    state, _ = env.reset(seed=0)
    for _ in range(PEER_STEPS):
        greedy = learns and rng.random() >= 0.1
        action = int(q[state].argmax()) if greedy else int(rng.integers(4))
        following, reward, ended, cut, _ = env.step(action)
        buffer.append((state, action, float(reward), following, ended))
        if learns:
            s, a, r, then, over = buffer[rng.integers(len(buffer))]
            q[s, a] += 0.1 * (r + 0.99 * (not over) * q[then].max() - q[s, a])
        state = env.reset()[0] if ended or cut else following
    return PEER_STEPS


def our_q() -> int:
    """A hundred cells of the same."""
    import numpy as np

    from envs.catalog import make
    from testbed.offline.replay_control import replay_q

    replay_q(make("grid-world", discount=0.99), np.arange(100), steps=PEER_STEPS, every=PEER_STEPS)
    return 100 * PEER_STEPS


def our_log() -> int:
    """A hundred data sets of 500 episodes, with their next states."""
    import numpy as np

    from envs.catalog import make
    from envs.logged_data import collect

    log = collect(make("grid-world"), np.full((100, 1, 16, 4), 0.25), 500, np.arange(100, dtype=np.uint64))
    return int(log.mask_RBT.sum())


def seconds_of_tables() -> dict[str, float]:
    """A thousand data sets of 16 states and 4 actions through each tabular kernel."""
    import numpy as np

    from envs.logged_data import draw_counts
    from envs.mdps import garnet
    from testbed.offline import models, tabular_offline

    world = garnet(discount=0.9)
    law = np.full((16, 4), 1 / 64)
    jobs: dict[str, Callable[[], object]] = {
        "draw 1000 steps": lambda: draw_counts(world, law, 1000, np.random.default_rng(0), cells=1000)
    }
    counts = draw_counts(world, law, 1000, np.random.default_rng(0), cells=1000)
    moves, mu = counts.moves_RSAS, tabular_offline.clone(counts.visit_RSA)
    jobs["fitted Q in the data"] = lambda: tabular_offline.fitted_q(
        moves, counts.reward_RSA, 0.9, counts.seen_RSA
    )
    jobs["IQL"] = lambda: tabular_offline.iql(moves, counts.reward_RSA, mu, 0.9, 0.9)
    jobs["pessimistic Q"] = lambda: models.pessimistic_q(counts, 0.9, 1.0)
    jobs["nested FQI"] = lambda: models.nested_fitted_q(counts, counts, 0.9, 1.0)
    found = {}
    for name, job in jobs.items():
        began = time.process_time()
        job()
        found[name] = time.process_time() - began
    return found


def rate(play: Callable[[], int]) -> float:
    """Steps per second of one call."""
    began = time.process_time()
    steps = play()
    return steps / (time.process_time() - began)


def main() -> int:
    """Print the ratios and the seconds; exit status 1 when a ratio misses the target."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    pairs = {"replay Q": (our_q, partial(peer, True)), "log": (our_log, partial(peer, False))}
    missed = False
    for name, (ours, theirs) in pairs.items():
        ours()  # compiled and warm
        rates = [(rate(ours), rate(theirs)) for _ in range(given.rounds)]
        ratio = statistics.median(a / b for a, b in rates)
        fast, slow = (statistics.median(column) for column in zip(*rates, strict=True))
        print(f"{name:10} {fast:>12,.0f} steps/s, gymnasium {slow:>7,.0f}, ratio {ratio:.0f} of {TARGET:.0f}")
        missed |= ratio < TARGET
    for name, seconds in seconds_of_tables().items():
        print(f"{name:22} {seconds:6.2f} s for 1000 cells")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
