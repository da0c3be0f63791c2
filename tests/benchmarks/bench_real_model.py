"""Response tokens per second of training a real model against TRL's GRPOTrainer: same weights, same work.

A step is one sampling pass and one update with Adam: 8 prompts of 13 tokens, 8 responses of 12 tokens each,
by the bench's own loop (world, trainer) and by the peer's. Llama shapes of about 84 thousand, 3 million and
30 million weights. Steps alternate in one process with one thread; what counts is the median step of each, in
seconds of CPU time, so that a busy machine costs both the same. The products of matrices alone, interleaved
too, are the limit that no code could beat. Peak memory is that of a process of its own.

    python tests/benchmarks/bench_real_model.py [--rounds 12] [--sizes 84k,3m,30m]

Needs TRL: pip install 'off-policy-testbed[bench]'.
"""

import argparse
import importlib.util
import logging
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parent))

import torch
import transformers
from bench_chunked_logp import high_water
from bench_toy_llm import GROUP, PROMPTS, TASK, TOKENS, peer_trainer

from testbed.config.run import Run
from testbed.policies.hf.model_folder import quiet_transformers
from testbed.training.update import State, Trainer
from testbed.worlds.build_world import build_world

LEAST_SHARE = {"84k": 0.0, "3m": 0.60, "30m": 0.75}
"""Share of the products' rate that a step is to reach; memory is to stay below the peer's at each size."""
SHAPES = {"84k": (64, 2, 4), "3m": (256, 4, 4), "30m": (512, 10, 8)}
"""Width, layers, heads."""
WARM_UP = 3


def llama(size: str) -> transformers.LlamaForCausalLM:
    """Return a random model, the same one at every call; the peer's end token lies outside its vocabulary."""
    width, layers, heads = SHAPES[size]
    config = transformers.LlamaConfig(
        vocab_size=TASK.vocabulary, hidden_size=width, intermediate_size=round(8 / 3 * width),
        num_hidden_layers=layers, num_attention_heads=heads, max_position_embeddings=64, bos_token_id=None,
        eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config)


class Ours:
    """GRPO at lag 0 as `train_pack` runs it, between two logged rows."""

    def __init__(self, folder: str, recipe: str = "grpo", seed: int = 0) -> None:
        run = Run(
            task="running-sum", policy="hf", model=folder, recipe=recipe, prompts=PROMPTS, group=GROUP,
            learning_rate=1e-3, optimizer="adam", max_grad_norm=1.0, steps=10_000, seed=seed,
        )  # fmt: skip
        self.world, self.count = build_world((run,)), 0
        self.state = State.start(self.world.initial())
        self.trainer = Trainer.of((run,), self.world, self.state.theta_RP)

    def step(self) -> float:
        """Take one step and return its mean reward."""
        rollout = self.world.generate(self.state.theta_RP, self.count)
        update = self.trainer.first_pass(self.state.theta_RP, rollout, self.count)
        self.state = self.trainer.learn(self.state, rollout, update, self.count)
        self.count += 1
        return float(rollout.reward_RB.mean())


class Limit:
    """The matrix products of one step of ours, into memory that is there: what no shorter code could save."""

    def __init__(self, size: str) -> None:
        width, layers, _ = SHAPES[size]
        inner, answers = round(8 / 3 * width), PROMPTS * GROUP
        maps = [(width, width)] * 4 + [(width, inner)] * 2 + [(inner, width)]
        weights = [torch.randn(i, o) for i, o in maps * layers]
        columns = PROMPTS * TASK.prompt_length
        # Prompts and one token at a time when sampling; both at once, three times over, when learning.
        passes = [columns] + [answers] * (TASK.response_length - 1)
        passes += [columns + answers * (TASK.response_length - 1)] * 3
        self.products = [(torch.randn(rows, w.shape[0]), w, torch.empty(rows, w.shape[1])) for rows in passes
                         for w in weights]  # fmt: skip

    def step(self) -> None:
        """Multiply."""
        for x, w, out in self.products:
            torch.mm(x, w, out=out)


def saved(size: str, folder: str) -> str:
    """Write the model and return its folder."""
    with quiet_transformers():
        llama(size).save_pretrained(folder)
    return folder


def interleaved(size: str, rounds: int) -> dict[str, list[float]]:
    """Return seconds of CPU time of every step of TRL, of ours and of the limit, taking turns."""
    from transformers import TrainerCallback

    found: dict[str, list[float]] = {"peer": [], "ours": [], "limit": []}
    limit = Limit(size)

    class TakeTurns(TrainerCallback):
        def on_step_begin(self, *_: object, **__: object) -> None:
            self.start = time.process_time()

        def on_step_end(self, *_: object, **__: object) -> None:
            now = time.process_time()
            found["peer"].append(now - self.start)
            ours.step()
            found["ours"].append(time.process_time() - now)
            now = time.process_time()
            limit.step()
            found["limit"].append(time.process_time() - now)

    with tempfile.TemporaryDirectory() as folder:
        ours = Ours(saved(size, f"{folder}/model"))
        trainer = peer_trainer(rounds + WARM_UP, f"{folder}/peer", llama(size))
        trainer.add_callback(TakeTurns())
        trainer.train()
    return {name: values[WARM_UP:] for name, values in found.items()}


def alone(who: str, size: str) -> int:
    """Return the peak memory of three steps in this process, in bytes; what is loaded is in it."""
    with tempfile.TemporaryDirectory() as folder:
        if who == "ours":
            ours = Ours(saved(size, f"{folder}/model"))
            for _ in range(3):
                ours.step()
        else:
            peer_trainer(3, f"{folder}/peer", llama(size)).train()
    return high_water()


def peak(who: str, size: str) -> int:
    """Return the peak memory of a process of its own."""
    command = [sys.executable, __file__, "--alone", who, "--sizes", size]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def main() -> int:
    """Print the figures; return 1 when a share is too small or memory above the peer's."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--sizes", default="84k,3m,30m")
    parser.add_argument("--alone", choices=("ours", "peer"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = options.sizes.split(",")
    if importlib.util.find_spec("trl") is None:
        print("TRL is not installed; pip install 'off-policy-testbed[bench]' and try again.", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    if options.alone:
        print(alone(options.alone, sizes[0]))
        return 0
    report: dict[str, Any] = {}
    for size in sizes:
        found = {name: statistics.median(each) for name, each in interleaved(size, options.rounds).items()}
        memory = {who: peak(who, size) / 2**20 for who in ("ours", "peer")}
        report[size] = {
            "ours_tokens_per_cpu_s": TOKENS / found["ours"], "peer_tokens_per_cpu_s": TOKENS / found["peer"],
            "ratio": found["peer"] / found["ours"], "share_of_limit": found["limit"] / found["ours"],
            "ours_peak_mib": memory["ours"], "peer_peak_mib": memory["peer"],
        }  # fmt: skip
    for size, row in report.items():
        print(f"{size}: " + ", ".join(f"{name} {value:,.2f}" for name, value in row.items()))
        if row["share_of_limit"] < LEAST_SHARE[size]:
            asked = f"{LEAST_SHARE[size]:g} asked"
            print(f"{size}: share {row['share_of_limit']:.2f} of the products' rate, {asked}")
        if row["ours_peak_mib"] > row["peer_peak_mib"]:
            print(f"{size}: more memory than the peer")
    kept = (
        row["share_of_limit"] >= LEAST_SHARE[size] and row["ours_peak_mib"] <= row["peer_peak_mib"]
        for size, row in report.items()
    )
    return int(not all(kept))


if __name__ == "__main__":
    sys.exit(main())
