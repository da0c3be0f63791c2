"""Response tokens per second that the toy LLM samples with a share of its layers left out (Nested-ReFT).

A model without k of its layers is a shallower model, so that is what is timed; the engine `skip-layers`
zeroes what a layer adds, which saves nothing. Beside the measured ratio stands 1 / (1 - k / L), what decoding
would gain if it were all blocks. Shapes take turns; what counts is the median pass of each.

    python tests/benchmarks/bench_skipped_layers.py [--rounds 20] [--width 64]
"""

import argparse
import statistics
import time

import torch

from envs.streams import uniforms
from envs.tokens.running_sum import RunningSum
from testbed import rng
from testbed.policies.toy.transformer import ToyTransformer

LAYERS, SKIPPED, PROMPTS, GROUP = 8, (0, 1, 2, 4), 8, 8


def main(rounds: int, width: int) -> None:
    """Print a row per number of skipped layers."""
    torch.set_num_threads(1)
    task = RunningSum()
    prompt = torch.from_numpy(task.prompts(rng.generator(0, "bench/prompts"), PROMPTS)[None])
    models = {k: ToyTransformer(task, width, LAYERS - k, 4) for k in SKIPPED}
    theta = {k: model.initial((0,)) for k, model in models.items()}
    key_R = rng.keys((0,), "bench/sampling")
    seconds: dict[int, list[float]] = {k: [] for k in SKIPPED}
    for step in range(rounds + 3):
        drawn = torch.from_numpy(uniforms(key_R, step, PROMPTS * GROUP, task.response_length))
        for k in SKIPPED:
            start = time.perf_counter()
            models[k].sample(theta[k], prompt, GROUP, drawn)
            if step >= 3:
                seconds[k].append(time.perf_counter() - start)
    tokens = PROMPTS * GROUP * task.response_length
    rate = {k: tokens / statistics.median(each) for k, each in seconds.items()}
    print("skipped  tokens/s  measured  all blocks")
    for k in SKIPPED:
        print(f"{k / LAYERS:7.3f} {rate[k]:9.0f} {rate[k] / rate[0]:9.2f} {1 / (1 - k / LAYERS):11.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--width", type=int, default=64)
    arguments = parser.parse_args()
    main(arguments.rounds, arguments.width)
