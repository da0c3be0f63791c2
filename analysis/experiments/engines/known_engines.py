"""Distance in distribution between common rollout engines and a float32 trainer, on a well-known model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from analysis.experiments.real.known_model import MODEL, prepare
from analysis.kernels.on_use import Tensor, torch
from analysis.lab import Experiment, ask, asks
from analysis.sweeps.base_runs import HF_RUN
from analysis.tables.committed import Table

NAME = "known-engines"
PROMPTS, GROUP, LENGTH = 32, 6, 48
"""Half of the prompts belong to the first run. Responses to one prompt share a statistical unit."""
WORDS = """a river, bread, the moon, a library, rain, a bicycle, tea, a mountain, the number seven, sleep,
a letter, wool, a bridge, salt, an owl, silence, a garden, ice, a clock, the sea, gold, a market, a fox,
music, a window, fire, a train, honey, a forest, glass, a king, snow, a coat, paper"""
ENGINES = ("bfloat16", "int8", "fp8-block", "Q8_0", "Q4_0")
"""bfloat16 rounds weights and arithmetic; the others round the layers' matrices and compute in float32. int8
and fp8-block are engines of this project, Q8_0 and Q4_0 formats of llama.cpp, in blocks of 32 weights."""
SMALL, LARGE, HALF = 1e-3, 1e-2, 0.5
"""Margins: nats per token, and share of the batch. Set before anything was measured."""


def compute() -> Table:
    """Return a row per engine and prompt, over responses drawn by the trainer.

    kl: mean over tokens of KL(pi, mu) by k3, in nats; largest: largest |log pi/mu| of a token; ess: share of
    a prompt's responses, 1 / mean(pi/mu), since E_mu (pi/mu)^2 = E_pi pi/mu.
    """
    from testbed.mismatch import Draw, mismatch
    from testbed.policies.hf.build_hf import build_hf
    from testbed.policies.hf.hf_policy import HuggingFacePolicy
    from testbed.worlds.task_registry import token_task

    build: dict[str, Any] = {"micro_tokens": 2048}
    prepare()
    file = MODEL.with_name("smollm2-problems") / "words.jsonl"
    lines = ({"prompt": f"Write about {word.strip()}.", "answer": ""} for word in WORDS.split(","))
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    args = (("file", str(file)), ("held_out", 0), ("response_length", LENGTH))
    task, policy = build_hf(
        token_task(replace(HF_RUN, model=str(MODEL), task="jsonl", task_args=args)), str(MODEL), "cpu", build
    )
    assert isinstance(policy, HuggingFacePolicy)
    theta_RP = policy.initial([0])
    # Prompts are drawn with repetition: many draws are needed to meet each of them.
    every_NQ = np.unique(task.prompts(np.random.default_rng(0), 40 * PROMPTS), axis=0)
    prompt_RNQ = torch.as_tensor(every_NQ[:PROMPTS])[None]
    uniform_RBT = np.random.default_rng(1).random((1, PROMPTS * GROUP, LENGTH))
    token_RBT, mask_RBT, pi_RBT = policy.sample(theta_RP, prompt_RNQ, GROUP, uniform_RBT)
    frames = []
    for name in ENGINES:
        other, mu_RP = policy, theta_RP
        if name == "bfloat16":
            other = HuggingFacePolicy(MODEL, policy.task, dtype="bfloat16", **build)
        elif change := mismatch[name.lower().replace("_", "-")].function().weights:
            mu_RP = change(theta_RP, policy.layout, Draw((0,)))
        with torch.no_grad():
            mu_RBT = other.logp(mu_RP, prompt_RNQ, token_RBT, mask_RBT)
        parts = (pi_RBT - mu_RBT)[0].double(), mask_RBT[0]
        frames.append(compared(name, *(part.view(PROMPTS, GROUP, LENGTH) for part in parts)))
        print(frames[-1].mean(numeric_only=True).to_dict(), flush=True)
    return Table.of(NAME, pd.concat(frames, ignore_index=True), {"tokens": int(mask_RBT.sum())})


def compared(engine: str, log_ratio_NGT: Tensor, mask_NGT: Tensor) -> pd.DataFrame:
    """Return the rows of an engine; log_ratio_NGT: log pi/mu, 0 where the mask is False."""
    k3_NGT = (-log_ratio_NGT).exp() - 1 + log_ratio_NGT
    return pd.DataFrame(
        {
            "engine": engine,
            "run": np.where(np.arange(PROMPTS) < PROMPTS // 2, "first", "replication"),
            "seed": np.arange(PROMPTS),
            "kl": (k3_NGT.sum((1, 2)) / mask_NGT.sum((1, 2))).numpy(),
            "largest": log_ratio_NGT.abs().amax((1, 2)).numpy(),
            "ess": (1 / log_ratio_NGT.sum(2).exp().mean(1)).clamp(max=1).numpy(),
        }
    )


EXPERIMENT = Experiment(
    question="How far from a float32 trainer are the distributions of common rollout engines?",
    source="this project; SmolLM2-135M-Instruct, Apache-2.0; formats of llama.cpp",
    differs="equal weights, no training; the model's weights come from a 4-bit file (Q4_1) and represent it "
    "exactly, so that this file as an engine would differ only in arithmetic; Q4_0 is the coarser 4-bit "
    "format",
    compute=compute, keys=("engine", "run", "seed"), metrics=("kl", "largest", "ess"),
    margins={"KL that is small": SMALL, "KL that is large": LARGE, "share of sequences": HALF},
)  # fmt: skip


for _name, _engine in (
    ("bfloat16-rollouts-are-near-a-float32-trainer", "bfloat16"),
    ("int8-rollouts-are-near-a-float32-trainer", "int8"),
    ("fp8-block-rollouts-are-near-a-float32-trainer", "fp8-block"),
    ("q8-0-rollouts-are-near-a-float32-trainer", "Q8_0"),
):
    ask(EXPERIMENT, _name, f"On SmolLM2-135M the distribution of {_engine} rollouts differs from float32's "
        "by less than 0.001 nats a token, in the median over prompts.", {"engine": _engine}, by=SMALL,
        outcome="kl", below=True, null=0.0, typical="median")  # fmt: skip
asks(EXPERIMENT,
    ("four-bit-rollouts-are-far-from-a-float32-trainer", "On SmolLM2-135M the distribution of Q4_0 rollouts "
     "differs from float32's by more than 0.01 nats a token, in the median over prompts.", {"engine": "Q4_0"},
     None, LARGE, "kl"),
    ("four-bit-rollouts-lose-half-of-the-sequences", "On SmolLM2-135M the effective sample size of responses "
     "of 48 tokens that a Q4_0 engine writes is below half of the batch, in the median over prompts.",
     {"engine": "Q4_0"}, None, HALF, "ess", {"below": True}),
    null=0.0, typical="median",
)  # fmt: skip
