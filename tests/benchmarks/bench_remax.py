"""Time of a step of ReMax against PPO with a critic as large as the policy, in the toy LLM.

Steps alternate in one process on one thread; what counts is the median CPU time of each. The arithmetic alone
allows a factor of 1.5 (experiment critic-memory).

    python tests/benchmarks/bench_remax.py [--rounds 40]
"""

import argparse
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from analysis.experiments.weights.critic_memory import PPO, REMAX
from testbed.config.run import Run
from testbed.staleness import build_source
from testbed.training.update import State, Trainer
from testbed.worlds.build import build_world


def steps(run: Run) -> Iterator[float]:
    """Yield the CPU seconds of every step."""
    world = build_world((run,))
    state = State.start(world.initial())
    source, trainer = build_source((run,), world, state.theta_RP), Trainer.of((run,), world, state.theta_RP)
    step = 0
    while True:
        start = time.process_time()
        rollout = source.batch(state.theta_RP, step).rollout
        state = trainer.learn(state, rollout, trainer.first_pass(state.theta_RP, rollout, step), step)
        yield time.process_time() - start
        step += 1


def main() -> int:
    """Print the medians and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    both = [steps(run) for run in (REMAX, PPO)]
    found = [[next(side) for side in both] for _ in range(rounds + 3)][3:]
    remax, ppo = (statistics.median(side) for side in zip(*found, strict=True))
    ratio = f"{ppo / remax:.2f} times as fast"
    print(f"ReMax {1e3 * remax:.2f} ms, PPO with a critic {1e3 * ppo:.2f} ms a step: {ratio}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
