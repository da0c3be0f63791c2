"""Does GRPO at lag 0 learn as TRL's GRPOTrainer does? Curves from the same taught weights, over seeds.

A Llama of 84 thousand weights, taught by noisy solutions of running sums, then 80 steps of 8 prompts and 8
responses by either trainer, under TRL's own settings (recipe grpo@trl). Each seed draws other prompts and
responses; nothing else differs. What is compared is the mean reward of the last 20 steps: Welch's interval of
the difference, and two one-sided tests of |difference| < MARGIN, which was set before the first run.

    python tests/benchmarks/bench_trl_curve.py [--seeds 16] [--first 0] [--steps 80] [--json]

Returns 1 unless the curves are equal within the margin. Needs TRL: pip install 'off-policy-testbed[bench]'.
"""

import argparse
import importlib.util
import json
import logging
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import torch
import transformers
from bench_real_model import Ours, saved
from bench_toy_llm import TASK, peer_trainer
from scipy import stats

from testbed.policies.hf.tiny_model import Lesson, teach

MARGIN, LEVEL = 0.05, 0.05
"""Mean reward that counts as equal; rate at which equality is claimed of curves that differ by more."""
LAST = 20
"""Steps at the end whose rewards are averaged."""


def ours(folder: Path, seed: int, steps: int) -> list[float]:
    """Return the mean reward of every step of this project's loop."""
    bench = Ours(str(folder), "grpo@trl", seed)
    return [bench.step() for _ in range(steps)]


def peers(folder: Path, seed: int, steps: int) -> list[float]:
    """Return the mean reward of every step of TRL's trainer."""
    from transformers import TrainerCallback

    rewards: list[float] = []

    class Keep(TrainerCallback):
        def on_log(self, *_: object, logs: dict[str, float], **__: object) -> None:
            if "reward" in logs:
                rewards.append(float(logs["reward"]))

    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as out:
        trainer = peer_trainer(steps, out, model, seed=seed, logging_strategy="steps", logging_steps=1)
        trainer.add_callback(Keep())
        trainer.train()
    return rewards


def main() -> int:
    """Print the curves and what their ends say."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=16)
    parser.add_argument("--first", type=int, default=0, help="first seed: fresh ones repeat a comparison")
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if importlib.util.find_spec("trl") is None:
        print("TRL is not installed; pip install 'off-policy-testbed[bench]' and try again.", file=sys.stderr)
        return 2
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    curves: dict[str, list[list[float]]] = {"ours": [], "peer": []}
    with tempfile.TemporaryDirectory() as folder:
        base = Path(saved("84k", f"{folder}/model"))
        teach(base, TASK, 0, Lesson(600, 0.2))
        for count, seed in enumerate(range(options.first, options.first + options.seeds), 1):
            curves["ours"].append(ours(base, seed, options.steps))
            curves["peer"].append(peers(base, 1000 + seed, options.steps))
            print(f"{count} of {options.seeds} seeds", file=sys.stderr)
    curve = {name: np.asarray(each) for name, each in curves.items()}
    ends = {name: each[:, -LAST:].mean(axis=1) for name, each in curve.items()}
    test = stats.ttest_ind(ends["ours"], ends["peer"], equal_var=False)
    low, high = test.confidence_interval(1 - 2 * LEVEL)
    report = {
        "seeds": options.seeds,
        "first": options.first,
        **{f"{name}_every_{LAST}": blocks(each) for name, each in curve.items()},
        **{f"{name}_end": float(each.mean()) for name, each in ends.items()},
        **{f"{name}_sd": float(each.std(ddof=1)) for name, each in ends.items()},
        "difference": float(ends["ours"].mean() - ends["peer"].mean()),
        "low": float(low),
        "high": float(high),
        "p_of_no_difference": float(test.pvalue),
        "equal_within_margin": bool(low > -MARGIN and high < MARGIN),
    }
    print(json.dumps(report, indent=None if options.json else 2))
    return int(not report["equal_within_margin"])


def blocks(curve_SN: np.ndarray) -> list[float]:
    """Return the mean reward over seeds of every LAST steps."""
    steps = curve_SN.shape[1] // LAST * LAST
    return [
        round(float(x), 4) for x in curve_SN[:, :steps].reshape(len(curve_SN), -1, LAST).mean(axis=(0, 2))
    ]


if __name__ == "__main__":
    sys.exit(main())
