"""Forward and backward of every registered objective on [64, 512] tokens, as a ratio to ppo_clip's.

Float32, processor time of one thread, default hyperparameters. Every measurement times ppo_clip right before
and right after the objective, so that a busy machine slows both. Every round draws a new order of objectives;
what counts is the median ratio over the rounds. An objective that sorts its tokens, or sorts them into bins
(bapo), may cost 6 times ppo_clip, every other one 3 times.

    python tests/benchmarks/bench_objectives.py [PATTERN] [--rounds 15] [--write]

--write puts the table into docs/speed-objectives.md.
"""

import argparse
import fnmatch
import os
import random
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from testbed.data.batch import Batch
from testbed.objectives import objective

SEQUENCES, TOKENS, GROUP = 64, 512, 8
PEER = "ppo_clip"
LIMITS = {"elementwise": 3.0, "sorting": 6.0}
SORTS = {
    "sort", "argsort", "topk", "kthvalue", "median", "nanmedian", "_unique2", "bucketize", "searchsorted",
}  # fmt: skip
REPEATS = 3
PAGE = Path(__file__).parents[2] / "docs" / "speed-objectives.md"


def example() -> tuple[Tensor, Batch]:
    """Return ragged sequences in groups of 8, three policies apart, four turns, all origins, some A = 0."""
    draw = torch.Generator().manual_seed(0)
    shape = (SEQUENCES, TOKENS)

    def noise(scale: float) -> Tensor:
        return scale * torch.randn(shape, generator=draw)

    length_B1 = torch.randint(TOKENS // 2, TOKENS + 1, (SEQUENCES, 1), generator=draw)
    place_T = torch.arange(TOKENS)
    mu_BT = -noise(1.0).abs()
    anchor_BT = mu_BT + noise(0.05)
    reward_B = torch.randint(0, 2, (SEQUENCES,), generator=draw).float()
    adv_B = reward_B - reward_B.view(-1, GROUP).mean(1).repeat_interleave(GROUP)
    batch = Batch(
        logp_mu_BT=mu_BT, adv_BT=adv_B[:, None].expand(shape).contiguous(),
        mask_BT=(place_T < length_B1) & (place_T % 128 > 8), reward_B=reward_B,
        group_B=torch.arange(SEQUENCES) // GROUP, logp_anchor_BT=anchor_BT, logp_ref_BT=mu_BT + noise(0.2),
        turn_BT=(place_T // 128).expand(shape).contiguous(),
        origin_B=(torch.arange(SEQUENCES) % GROUP >= GROUP - 2).long() * (1 + torch.arange(SEQUENCES) % 2),
    )  # fmt: skip
    return anchor_BT + noise(0.1), batch


def step(name: str, logp_BT: Tensor, batch: Batch) -> Callable[[], None]:
    """Return one forward and backward pass of an objective's summed loss."""
    function = objective[name].function

    def run() -> None:
        leaf_BT = logp_BT.detach().requires_grad_()
        loss_BT = function(leaf_BT, batch)
        torch.autograd.grad(torch.where(batch.mask_BT, loss_BT, 0.0).sum(), leaf_BT)

    return run


def seconds(run: Callable[[], None]) -> float:
    """Return the processor time of one pass: the fastest of a few.

    Not the time on the wall: who shares the core stops whatever runs longer than a slice.
    """
    times = []
    for _ in range(REPEATS):
        start = time.thread_time()
        run()
        times.append(time.thread_time() - start)
    return min(times)


class Operations(TorchDispatchMode):
    """Writes down which operations run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def kind(run: Callable[[], None]) -> str:
    """Return "sorting" for what calls a sort or a binary search, "elementwise" for everything else."""
    with Operations() as seen:
        run()
    return "sorting" if seen.names & SORTS else "elementwise"


def measure(names: list[str], rounds: int) -> list[dict[str, str | float]]:
    """Return one row per objective, dearest first."""
    logp_BT, batch = example()
    steps = {name: step(name, logp_BT, batch) for name in {*names, PEER}}
    kinds = {name: kind(steps[name]) for name in names}  # and a warm-up
    ratios: dict[str, list[float]] = {name: [] for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    order = random.Random(0)
    for _ in range(rounds):
        for name in order.sample(names, len(names)):
            before, own, after = seconds(steps[PEER]), seconds(steps[name]), seconds(steps[PEER])
            ratios[name].append(own / ((before + after) / 2))
            times[name].append(own)
    rows: list[dict[str, str | float]] = [{"objective": name, "kind": kinds[name],
                                           "ratio": statistics.median(ratios[name]),
                                           "ratio_largest": max(ratios[name]),
                                           "ms": 1e3 * statistics.median(times[name]),
                                           "limit": LIMITS[kinds[name]]}
                                          for name in names]  # fmt: skip
    return sorted(rows, key=lambda row: -float(row["ratio"]))


def page(rows: list[dict[str, str | float]], rounds: int) -> str:
    """Return the page in docs."""
    late = [str(row["objective"]) for row in rows if float(row["ratio"]) > float(row["limit"])]
    verdict = (
        f"All {len(rows)} stay below their limit." if not late else f"Above their limit: {', '.join(late)}."
    )
    sorting, other = (f"{LIMITS[what]:.0f}" for what in ("sorting", "elementwise"))
    lines = [
        "# What an objective costs", "",
        f"Forward and backward on {SEQUENCES} sequences of up to {TOKENS} tokens, float32, as a multiple of",
        f"`{PEER}`'s time in the same run: processor time of one thread, median of {rounds} rounds, each of",
        f"which times `{PEER}` right before and after the objective. An objective that sorts its tokens,",
        f"or sorts them into bins, may cost {sorting} times as much, every other one {other} times.", verdict,
        "The milliseconds say only what the ratios were made of; they are one machine's.", "",
        "Written by `python tests/benchmarks/bench_objectives.py --write`.", "",
        "| objective | kind | times ppo_clip | ms |", "|---|---|---:|---:|",
    ]  # fmt: skip
    for row in rows:
        lines.append(f"| {row['objective']} | {row['kind']} | {row['ratio']:.2f} | {row['ms']:.2f} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Print the table; exit status 1 when an objective is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pattern", nargs="?", default="*")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in objective if fnmatch.fnmatch(name, given.pattern)]
    rows = measure(names, given.rounds)
    for row in rows:
        late = "  ABOVE" if float(row["ratio"]) > float(row["limit"]) else ""
        print(f"{row['objective']:30} {row['kind']:12} {row['ratio']:6.2f} x {row['ms']:8.2f} ms{late}")
    if given.write:
        if given.pattern != "*":
            parser.error("--write wants all objectives; leave the pattern out.")
        PAGE.write_text(page(rows, given.rounds))
    return int(any(float(row["ratio"]) > float(row["limit"]) for row in rows))


if __name__ == "__main__":
    sys.exit(main())
