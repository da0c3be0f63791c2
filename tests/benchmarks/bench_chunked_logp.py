"""Log-probabilities of 2048 tokens over a vocabulary: memory and time of ours against the ways others take.

Forward and backward pass, float32, hidden width 256, one thread; a process per way, its peak memory above
what its inputs take: gradients of features and head are in it for all. With entropy where the name says so.

    python tests/benchmarks/bench_chunked_logp.py [--vocabularies 32768,150000] [--only NAME]

trl: selective_log_softmax of TRL on full logits, and its version with entropy (both need TRL). liger: the
chunked selective log-probability behind Liger's GRPO loss, where liger-kernel can be imported. torch:
linear_cross_entropy of torch 2.13. checkpointed: chunks of 256 rows under torch.utils.checkpoint.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from testbed.policies.hf.chunked_logp import chunked_logp, chunked_logp_entropy

TOKENS, WIDTH = 2048, 256
MOST = 1.1
"""Limit of our memory relative to the best other way."""
Way = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(hidden [N, H], weight [V, H], token [N]) -> log-probabilities [N]."""


def trl(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    from trl.trainer.utils import selective_log_softmax

    found: Tensor = selective_log_softmax(functional.linear(hidden, weight), token)
    return found


def trl_entropy(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    from trl.trainer.utils import selective_log_softmax_and_entropy

    found: Tensor = selective_log_softmax_and_entropy(
        functional.linear(hidden, weight), token, entropy_requires_grad=False
    )[0]
    return found


def liger(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    from liger_kernel.chunked_loss import fused_linear_ppo

    found: Any = fused_linear_ppo._ChunkedSelectiveLogProbFunction.apply(
        hidden, weight, token, None, 1.0, 4096
    )
    return found[0] if isinstance(found, tuple) else found


def torch_own(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    return -functional.linear_cross_entropy(hidden, weight, token, reduction="none")


def checkpointed(hidden: Tensor, weight: Tensor, token: Tensor) -> Tensor:
    def some(part: Tensor, of: Tensor) -> Tensor:
        return functional.linear(part, weight).log_softmax(-1).gather(1, of[:, None])[:, 0]

    parts = zip(hidden.split(256), token.split(256), strict=True)
    return torch.cat([checkpoint(some, part, of, use_reentrant=False) for part, of in parts])


WAYS: dict[str, Way] = {
    "ours": lambda h, w, t: chunked_logp(h, w, None, t),
    "ours, entropy": lambda h, w, t: chunked_logp_entropy(h, w, None, t)[0],
    "trl": trl,
    "trl, entropy": trl_entropy,
    "liger": liger,
    "torch": torch_own,
    "checkpointed": checkpointed,
}


def high_water() -> int:
    """Return the most memory that this process has held, in bytes; unlike ru_maxrss not its parent's."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def measure(name: str, vocabulary: int) -> dict[str, float]:
    """Return MiB above the inputs, seconds of CPU time, and the error against float64 of a few rows."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    hidden = torch.randn(TOKENS, WIDTH, requires_grad=True)
    weight = (torch.randn(vocabulary, WIDTH) / WIDTH**0.5).requires_grad_()
    token = torch.randint(vocabulary, (TOKENS,))
    WAYS[name](hidden[:2], weight[:512], token[:2] % 512).sum().backward()  # whatever loads at the first call
    hidden.grad = weight.grad = None
    Path("/proc/self/clear_refs").write_text("5")  # the high water of making the inputs is forgotten
    before, began = high_water(), time.process_time()
    logp = WAYS[name](hidden, weight, token)
    logp.sum().backward()
    spent, peak = time.process_time() - began, high_water()
    exact = functional.linear(hidden[:8].double(), weight.double()).log_softmax(-1)
    error = (logp[:8] - exact.gather(1, token[:8, None])[:, 0]).abs().max()
    return {"mib": (peak - before) / 2**20, "cpu_s": spent, "error": float(error)}


def asked(name: str, vocabulary: int) -> dict[str, float] | str:
    """Return what a process of its own measures, or why there is nothing."""
    command = [sys.executable, __file__, "--alone", name, "--vocabularies", str(vocabulary)]
    # What is freed goes back at once: else the peak is that of glibc's habits, 60 MiB to and fro.
    given = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "1000000", "MALLOC_TRIM_THRESHOLD_": "1000000"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=given)
    if done.returncode:
        return (done.stderr.strip().splitlines() or ["ended without a word"])[-1][:100]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Print a row per way; return 1 where ours takes more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--vocabularies", default="32768,150000")
    parser.add_argument("--only", choices=WAYS, action="append")
    parser.add_argument("--alone", choices=WAYS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    vocabularies = [int(v) for v in options.vocabularies.split(",")]
    if options.alone:
        print(json.dumps(measure(options.alone, vocabularies[0])))
        return 0
    missed = 0
    for vocabulary in vocabularies:
        rows: dict[str, Any] = {}
        for name in options.only or WAYS:
            row = rows[name] = asked(name, vocabulary)
            shown = row if isinstance(row, str) else ", ".join(f"{n} {v:.4g}" for n, v in row.items())
            print(f"V {vocabulary:>7,} {name:14} {shown}", flush=True)
        measured = {name: row["mib"] for name, row in rows.items() if not isinstance(row, str)}
        others = [mib for name, mib in measured.items() if not name.startswith("ours")]
        for name in ("ours", "ours, entropy"):
            if others and name in measured:
                ratio = measured[name] / min(others)
                print(f"V {vocabulary:>7,} {name}: {ratio:.2f} times the best other way, limit {MOST}")
                missed += ratio > MOST
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
