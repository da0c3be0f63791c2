"""SmolLM2-135M-Instruct learns which of two numbers is larger, from fresh data and from data 16 steps old."""

from dataclasses import replace
from pathlib import Path

from analysis.lab import Experiment, Plot, Stop
from analysis.sweeps.base_runs import HF_RUN
from testbed.config.run import Run, grid

MODEL = Path("out/smollm2")
"""Where `testbed pretrained smollm2 out/smollm2` writes the model; its problems lie beside it."""
PROBLEMS = MODEL.with_name("smollm2-problems") / "larger.jsonl"
LAG = 16
MARGIN = 0.05
"""Accuracy that counts. Set before the runs; a pilot of one seed at each lag chose the number of steps."""
AREA, ESS = "mean accuracy", "mean rollout_corr/ess_kish_sequence_raw"


def prepare() -> None:
    """Write the model and its problems, where they are not there yet."""
    if not MODEL.exists():
        from testbed.policies.hf.shipped_models import write_pretrained

        write_pretrained("smollm2", MODEL)
    if not PROBLEMS.exists():
        from envs.tokens.graded_problems import write_problems

        write_problems(PROBLEMS.parent)


BASE = replace(
    HF_RUN,
    model=str(MODEL),
    task="jsonl",
    task_args=(("file", str(PROBLEMS)), ("verifier", "number"), ("response_length", 4)),
    policy_args=(("lora", 16), ("dtype", "bfloat16")),
    recipe="grpo",
    learning_rate=3e-4,
    prompts=4,
    group=8,
    steps=31,
    log_every=5,
    evaluation_prompts=32,
)


def cells() -> tuple[Run, ...]:
    """GRPO with adapters of rank 16 at 3e-4, 31 steps of 4 x 8 responses of at most 4 tokens, two lags."""
    return grid(BASE, lag=[0, LAG], seed=range(8))


EXPERIMENT = Experiment(
    question="What do data 16 steps old cost a language model that people know?",
    source="this project; SmolLM2-135M-Instruct, Apache-2.0",
    differs="31 steps, one learning rate at both lags, bfloat16 adapters, one task",
    prepare=prepare,
    cells=cells,
    stop=Stop(block=8, cap=32),
    keys=("lag", "seed"),
    metrics=("accuracy", AREA, ESS, "mean actor/clip_share", "mean rollout_corr/kl_mu_pi_k3"),
    margins={"accuracy that counts": MARGIN},
    figure=Plot(
        "strips",
        x=f"{AREA}: mean held-out accuracy",
        y="lag: ",
        names={"0": "fresh", str(LAG): f"lag {LAG}"},
        also=({"x": "accuracy: final held-out accuracy"}, {"x": f"{ESS}: mean sequence ESS"}),
    ),
)

EXPERIMENT.claim(
    "old-data-slow-smollm2-down",
    "At rate 3e-4 and lag 16 its mean accuracy over training is 0.05 lower, in the median.",
).compare(AREA, {"lag": 0}, {"lag": LAG}, by=MARGIN)

EXPERIMENT.claim(
    "smollm2-ends-as-well-on-old-data",
    "At lag 16 it ends at most 0.05 below fresh data after 31 steps, in the median.",
).compare("accuracy", {"lag": LAG}, {"lag": 0}, by=-MARGIN)

EXPERIMENT.claim(
    "smollm2-loses-a-quarter-of-its-sequences",
    "At lag 16 its effective sample size of sequences, over training, is below 0.75 of the batch.",
).compare(ESS, {"lag": LAG}, by=0.75, below=True)
