"""Steps per second of the compiled simulator with log-ratio sums against gymnasium's vectorized FrozenLake.

Both play the same world (FrozenLake 4x4, slippery, at most 100 steps) with uniformly random actions. The
peer's actions are drawn beforehand and it keeps no sums; ours draws actions and sums log pi/mu, returns and
lengths. Rounds are interleaved, so that a busy machine slows both. The limit is the random numbers alone.

    python tests/benchmarks/bench_simulation.py [--rounds 5] [--threads 2] [--json]
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

TARGET = 150.0
PEER_SIZES = {"sync": (16, 64, 256), "async": (2, 8)}
PEER_BATCHES = 200
REPLICAS, EPISODES = 8, 50_000


def peer_player(mode: str, size: int) -> Callable[[], int]:
    """Plays PEER_BATCHES vectorized steps and returns how many environment steps these were."""
    import gymnasium

    env = gymnasium.make_vec("FrozenLake-v1", num_envs=size, vectorization_mode=mode)
    env.reset(seed=0)
    env.action_space.seed(0)
    actions = [env.action_space.sample() for _ in range(PEER_BATCHES)]

    def play() -> int:
        for action in actions:
            env.step(action)
        return PEER_BATCHES * size

    return play


def our_player() -> Callable[[], int]:
    """Plays REPLICAS * EPISODES whole episodes of the uniform policy and returns their steps."""
    import numpy as np

    from envs.catalog import make

    world = make("grid-world")
    mu_RSA = np.full((REPLICAS, world.states, world.actions), 1.0 / world.actions)
    pi_RSA = np.random.default_rng(0).dirichlet(np.ones(world.actions), size=(REPLICAS, world.states))
    start_RN = np.zeros((REPLICAS, EPISODES), dtype=np.int64)
    key_R = np.arange(REPLICAS, dtype=np.uint64)

    def play() -> int:
        return int(world.simulate_log_ratios(pi_RSA, mu_RSA, start_RN, 1, key_R, 0).length_RB.sum())

    return play


def limit_player() -> Callable[[], int]:
    """Makes one Philox block per step, as the simulator does, and stores half of it."""
    import numpy as np

    from envs import kernels

    key_R = np.arange(REPLICAS, dtype=np.uint64)
    return lambda: int(kernels.uniforms(key_R, 0, EPISODES, 8).size)


def rate(play: Callable[[], int]) -> float:
    """Steps per second of one call."""
    began = time.perf_counter()
    steps = play()
    return steps / (time.perf_counter() - began)


def measure(rounds: int) -> dict[str, float | str]:
    """Medians over interleaved rounds; the peer is the best of its modes and sizes."""
    peers = {f"{mode} x{n}": peer_player(mode, n) for mode, sizes in PEER_SIZES.items() for n in sizes}
    players = {**peers, "ours": our_player(), "limit": limit_player()}
    for play in players.values():
        play()  # compiled and warm
    rates: dict[str, list[float]] = {name: [] for name in players}
    for _ in range(rounds):
        for name, play in players.items():
            rates[name].append(rate(play))
    median = {name: statistics.median(values) for name, values in rates.items()}
    best = max(peers, key=lambda name: median[name])
    ratios = [ours / peer for ours, peer in zip(rates["ours"], rates[best], strict=True)]
    return {
        "peer_name": f"gymnasium FrozenLake-v1 {best}",
        "peer_steps_per_s": median[best],
        "ours_steps_per_s": median["ours"],
        "ratio": statistics.median(ratios),
        "ratio_smallest": min(ratios),
        "limit_steps_per_s": median["limit"],
        "target_ratio": TARGET,
    }


def main() -> int:
    """Print the comparison; exit status 1 when the target is missed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    # Before Numba is imported: it reads them once.
    os.environ["NUMBA_NUM_THREADS"] = str(given.threads)
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    result = {**measure(given.rounds), "threads": given.threads}
    if given.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"peer   {result['peer_steps_per_s']:>14,.0f} steps/s  {result['peer_name']}")
        print(f"ours   {result['ours_steps_per_s']:>14,.0f} steps/s  {given.threads} threads, log-ratio sums")
        print(f"limit  {result['limit_steps_per_s']:>14,.0f} steps/s  one Philox block per step and no world")
        smallest = f"smallest of {given.rounds} rounds {result['ratio_smallest']:.0f}"
        print(f"ratio  {result['ratio']:>14,.0f} x        target {TARGET:.0f}, {smallest}")
    return int(float(result["ratio"]) < TARGET)


if __name__ == "__main__":
    sys.exit(main())
