"""Response tokens per second of the toy LLM against TRL's GRPOTrainer on an equal Llama-shaped model.

A step is one sampling pass and one update with Adam: 8 prompts of 13 tokens, 8 responses of 12 tokens each,
width 32, 2 layers, 4 heads, equally many weights. Ours trains 32 models, stacked 16 to a thread as two
workers run them; the peer trains one, since it cannot stack, with one or all threads, whichever suits it
better. Steps alternate in one process, and what counts is the median step of each. The limit is our step
with nothing left but its matrix products.

    python tests/benchmarks/bench_toy_llm.py [--rounds 20] [--threads 2]

Needs TRL: pip install 'off-policy-testbed[bench]'.
"""

import argparse
import importlib.util
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
import torch

from envs.streams import uniforms
from envs.tokens.running_sum import RunningSum
from testbed import rng
from testbed.policies.optimizers import Adam
from testbed.policies.toy.toy_transformer import ToyTransformer

WIDTH, LAYERS, HEADS = 32, 2, 4
PROMPTS, GROUP, REPLICAS = 8, 8, 32
WARM_UP = 3
LEAST_RATIO = 8.0
TASK = RunningSum()
TOKENS = PROMPTS * GROUP * TASK.response_length


class Ours:
    """REINFORCE with the group's mean as baseline on R stacked models."""

    def __init__(self, seeds: range) -> None:
        self.policy, self.seeds, self.count = ToyTransformer(TASK, WIDTH, LAYERS, HEADS), tuple(seeds), 0
        self.theta_RP = self.policy.initial(self.seeds)
        self.adam, self.rate_R = Adam(self.theta_RP), torch.full((len(seeds),), 1e-3)
        self.key_R = rng.keys(self.seeds, "bench/sampling")

    def step(self) -> None:
        self.count += 1
        prompts = [TASK.prompts(rng.generator(s, "bench/prompts", self.count), PROMPTS) for s in self.seeds]
        prompt_RNQ = np.stack(prompts)
        uniform = torch.from_numpy(uniforms(self.key_R, self.count, PROMPTS * GROUP, TASK.response_length))
        prompt = torch.from_numpy(prompt_RNQ)
        token, mask, _ = self.policy.sample(self.theta_RP, prompt, GROUP, uniform)
        rows = token.flatten(0, 1).numpy(), mask.flatten(0, 1).numpy()
        repeated = prompt_RNQ.repeat(GROUP, 1).reshape(-1, TASK.prompt_length)
        reward_RNG = torch.from_numpy(TASK.score(repeated, *rows)).float().view(-1, PROMPTS, GROUP)
        adv_RB = (reward_RNG - reward_RNG.mean(2, keepdim=True)).flatten(1)
        leaf_RP = self.theta_RP.requires_grad_()
        logp_RBT = self.policy.logp(leaf_RP, prompt, token, mask)
        loss = -(adv_RB[..., None] * logp_RBT).mean((1, 2)).sum()
        (grad_RP,) = torch.autograd.grad(loss, leaf_RP)
        self.theta_RP = self.adam.step(leaf_RP.detach(), grad_RP, self.rate_R)


class Limit:
    """The matrix products of one step of R stacked models, written into memory that is already there."""

    def __init__(self, seeds: range) -> None:
        policy, R, T = ToyTransformer(TASK, WIDTH, LAYERS, HEADS), len(seeds), TASK.response_length
        prompt, slot = PROMPTS * TASK.prompt_length, PROMPTS * GROUP
        trained = prompt + slot * (T - 1)
        self.products: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = []
        for name, (rows, columns) in policy.shape.matrices().items():
            if name == "embedding":
                continue
            w = torch.randn(R, rows, columns)
            for tokens, count in ((trained, 1), (prompt, 1), (slot, T - 1)):
                x, y = torch.randn(R, columns, tokens), torch.empty(R, rows, tokens)
                self.products += [(w, x, y)] * count
                if tokens == trained:
                    self.products += [(w.mT, y, x), (y, x.mT, torch.empty_like(w))]

    def step(self) -> None:
        for left, right, out in self.products:
            torch.bmm(left, right, out=out)


class Stacked:
    """R replicas in equal stacks, one thread each, as worker processes run them."""

    def __init__(self, make: type[Ours] | type[Limit], replicas: int, threads: int) -> None:
        share = replicas // threads
        self.stacks = [make(range(i * share, (i + 1) * share)) for i in range(threads)]
        self.pool = ThreadPoolExecutor(threads)
        self.tokens = TOKENS * share * threads

    def rate(self) -> float:
        """Take one step and return its response tokens per second."""
        torch.set_num_threads(1)
        start = time.perf_counter()
        list(self.pool.map(lambda stack: stack.step(), self.stacks))
        return self.tokens / (time.perf_counter() - start)


def peer_trainer(rounds: int, folder: str, model: Any = None, seed: int = 0, **settings: Any) -> Any:
    """GRPOTrainer on a model; every response has 12 tokens.

    By default a Llama with our width, layers, heads and vocabulary. seed: of prompts and responses; settings:
    more of GRPOConfig.
    """
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, PrinterCallback
    from trl import GRPOConfig, GRPOTrainer

    # The end token lies outside the model's vocabulary: it is never drawn.
    symbols = {symbol: i for i, symbol in enumerate((*TASK.symbols, "<end>"))}
    words = Tokenizer(models.WordLevel(symbols, unk_token="<end>"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<end>", eos_token="<end>")
    llama = LlamaConfig(
        vocab_size=TASK.vocabulary,
        hidden_size=WIDTH,
        intermediate_size=round(8 / 3 * WIDTH),  # three matrices with as many weights as our two
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=64,
        bos_token_id=None,
        eos_token_id=None,
    )
    drawn = TASK.prompts(rng.generator(seed, "bench/peer"), PROMPTS * (rounds + 8))
    prompts = [" ".join(TASK.symbols[t] for t in row) for row in drawn]
    known = dict(zip(prompts, drawn, strict=True))

    def reward(prompts: list[str], completion_ids: list[list[int]], **_: object) -> list[float]:
        token_NT = np.array(completion_ids)
        if token_NT.shape != (PROMPTS * GROUP, TASK.response_length):
            raise RuntimeError(f"the peer wrote responses of shape {token_NT.shape}: rates do not compare.")
        prompt_NQ = np.array([known[prompt] for prompt in prompts])
        score: list[float] = TASK.score(prompt_NQ, token_NT, np.ones_like(token_NT, dtype=bool)).tolist()
        return score

    config = GRPOConfig(
        output_dir=folder,
        max_steps=rounds,
        per_device_train_batch_size=PROMPTS * GROUP,
        num_generations=GROUP,
        max_completion_length=TASK.response_length,
        learning_rate=1e-3,
        lr_scheduler_type="constant",
        beta=0.0,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,  # on by default, and slower
        report_to=[],
        save_strategy="no",
        disable_tqdm=True,
        seed=seed,
        **{"logging_strategy": "no", **settings},
    )
    trainer = GRPOTrainer(
        model=model or LlamaForCausalLM(llama), reward_funcs=reward, args=config,
        train_dataset=Dataset.from_dict({"prompt": prompts}), processing_class=tokenizer,
    )  # fmt: skip
    trainer.remove_callback(PrinterCallback)
    return trainer


def interleaved(rounds: int, threads: int) -> dict[str, list[float]]:
    """Return tokens per second of every step of TRL, ours and the limit, taking turns.

    TRL's steps alternate between one and all threads: its operations are so small that one may be better.
    """
    from transformers import TrainerCallback

    ours, limit = Stacked(Ours, REPLICAS, threads), Stacked(Limit, REPLICAS, threads)
    peers = [f"peer_{count}_threads" for count in (1, threads)]
    rates: dict[str, list[float]] = {name: [] for name in (*peers, "ours", "limit")}

    class TakeTurns(TrainerCallback):
        count = 0

        def on_step_begin(self, *_: object, **__: object) -> None:
            self.count += 1
            torch.set_num_threads(threads if self.count % 2 else 1)
            self.start = time.perf_counter()

        def on_step_end(self, *_: object, **__: object) -> None:
            rate = TOKENS / (time.perf_counter() - self.start)
            rates[peers[self.count % 2]].append(rate)
            rates["ours"].append(ours.rate())
            rates["limit"].append(limit.rate())

    with tempfile.TemporaryDirectory() as folder:
        trainer = peer_trainer(2 * (rounds + WARM_UP), folder)
        trainer.add_callback(TakeTurns())
        trainer.train()
    return {name: values[WARM_UP:] for name, values in rates.items()}


def main() -> int:
    """Print the figures; return 1 when the ratio is too small."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if importlib.util.find_spec("trl") is None:
        print("TRL is not installed; pip install 'off-policy-testbed[bench]' and try again.", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    rates = interleaved(options.rounds, options.threads)
    report: dict[str, Any] = {f"{name}_tokens_per_s": statistics.median(v) for name, v in rates.items()}
    peer = max(value for name, value in report.items() if name.startswith("peer"))
    ratio = report["ours_tokens_per_s"] / peer
    report |= {
        "ratio": ratio, "least_ratio": LEAST_RATIO, "ratio_of_limit": report["limit_tokens_per_s"] / peer,
    }  # fmt: skip
    report |= {"threads": options.threads, "rounds": options.rounds, "replicas": REPLICAS}
    for name, value in report.items():
        print(f"{name:36} {value:,.1f}" if isinstance(value, float) else f"{name:36} {value}")
    return int(ratio < LEAST_RATIO)


if __name__ == "__main__":
    sys.exit(main())
