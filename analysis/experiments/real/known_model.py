"""SmolLM2-135M-Instruct learns which of two numbers is larger, from fresh data and from data 16 steps old.

The second experiment trains GRPO with and without its clip, and REINFORCE, on data 32 steps old.
"""

from dataclasses import replace
from pathlib import Path

import pandas as pd

from analysis.lab import Experiment, Frame, Plot, Stop, asks
from analysis.sweeps.base_runs import HF_RUN
from analysis.tables.cell_table import arms_of
from testbed.config.run import Run, grid

MODEL = Path("out/smollm2")
"""Folder where `testbed pretrained smollm2 out/smollm2` writes the model; its problems lie beside it."""
PROBLEMS = MODEL.with_name("smollm2-problems") / "larger.jsonl"
LAG = 16
MARGIN = 0.05
"""Margin of accuracy. Set before the runs; a pilot of one seed at each lag chose the number of steps."""
AREA, ESS = "mean accuracy", "mean rollout_corr/ess_kish_sequence_raw"


def prepare() -> None:
    """Write the model and its problems, unless they exist."""
    if not MODEL.exists():
        from testbed.policies.hf.shipped_models import write_pretrained

        write_pretrained("smollm2", MODEL)
    if not PROBLEMS.exists():
        from envs.tokens.graded_problems import write_problems

        write_problems(PROBLEMS.parent)


BASE = replace(
    HF_RUN, model=str(MODEL), task="jsonl",
    task_args=(("file", str(PROBLEMS)), ("verifier", "number"), ("response_length", 4)),
    policy_args=(("lora", 16), ("dtype", "bfloat16")), recipe="grpo", learning_rate=3e-4, prompts=4,
    group=8, steps=31, log_every=5, evaluation_prompts=32,
)  # fmt: skip


def cells() -> tuple[Run, ...]:
    """GRPO with adapters of rank 16 at 3e-4, 31 steps of 4 x 8 responses of at most 4 tokens, two lags."""
    return grid(BASE, lag=[0, LAG], seed=range(8))


FRESH_AND_OLD = Experiment(
    "known-model",
    question="What do data 16 steps old cost a language model that people know?",
    source="this project; SmolLM2-135M-Instruct, Apache-2.0",
    differs="31 steps, one learning rate at both lags, bfloat16 adapters, one task",
    prepare=prepare, cells=cells, stop=Stop(block=8, cap=32), keys=("lag", "seed"),
    metrics=("accuracy", AREA, ESS, "mean actor/clip_share", "mean rollout_corr/kl_mu_pi_k3"),
    margins={"accuracy that counts": MARGIN},
    figure=Plot(
        "strips", x=f"{AREA}: mean held-out accuracy", y="lag: ",
        names={"0": "fresh", str(LAG): f"lag {LAG}"},
        also=({"x": "accuracy: final held-out accuracy"}, {"x": f"{ESS}: mean sequence ESS"}),
    ),
)  # fmt: skip

asks(FRESH_AND_OLD,
    ("old-data-slow-smollm2-down", "At rate 3e-4 SmolLM2's mean accuracy over training is 0.05 lower at lag "
     "16 than on fresh data, in the median.", {"lag": 0}, {"lag": LAG}, MARGIN, AREA),
    ("smollm2-ends-as-well-on-old-data", "At lag 16 SmolLM2 ends at most 0.05 below itself on fresh data "
     "after 31 steps, in the median.", {"lag": LAG}, {"lag": 0}, -MARGIN),
    ("smollm2-loses-a-quarter-of-its-sequences", "At lag 16 SmolLM2's effective sample size of "
     "sequences, over training, is below 0.75 of the batch, in the median.", {"lag": LAG}, None, 0.75,
     ESS, {"below": True}),
)  # fmt: skip


OLD, LAST = 32, "last accuracy"
LOST = 0.1
"""Final accuracy below which a run has collapsed; SmolLM2 begins at about 0.3. Set before the runs."""
PARTS = {
    "REINFORCE": Run(recipe="reinforce"),
    "open": Run(recipe="grpo", recipe_args=(("eps_high", 1e6), ("eps_low", 1.0))),
    "GRPO": Run(recipe="grpo"),
}
"""Open: GRPO's importance weights, standardized advantages and mean over tokens, with unbounded ratio."""
PLAIN, OPEN, CLIPPED = arms_of(PARTS, PARTS.values(), ("recipe", "recipe_args")).values()


def named(table: Frame) -> pd.Series:
    """Return the arm of each row in words."""
    bounded = (table["recipe_args"] == CLIPPED["recipe_args"]).map(
        {True: "GRPO, clip 0.2", False: "GRPO, no clip"}
    )
    return bounded.where(table["recipe"] == "grpo", "REINFORCE")


def part_cells() -> tuple[Run, ...]:
    """Three recipes at 3e-4 and lag 32: 56 steps of 4 x 8 responses."""
    base = replace(
        BASE, policy_args=(*BASE.policy_args, ("attention", "eager")), lag=OLD, steps=56, log_every=11,
        evaluation_prompts=16,
    )  # fmt: skip
    arms = (replace(base, recipe=arm.recipe, recipe_args=arm.recipe_args) for arm in PARTS.values())
    return tuple(run for arm in arms for run in grid(arm, seed=range(8)))


PARTS_OF_GRPO = Experiment(
    "known-parts",
    question="Is it the clip of GRPO that keeps a language model that people know from failing on old data?",
    source="this project; SmolLM2-135M-Instruct, Apache-2.0",
    differs="56 steps, one rate that is tuned for no arm, bfloat16 adapters, one task; the runs of GRPO and "
    "REINFORCE were known when the third arm was designed",
    prepare=prepare, cells=part_cells, stop=Stop(block=10, cap=40, first=200, fresh=2000),
    keys=("recipe", "recipe_args", "seed"),
    metrics=("accuracy", LAST, AREA, ESS, "mean actor/clip_share", "mean rollout_corr/kl_mu_pi_k3"),
    margins={"accuracy that counts": MARGIN, "accuracy of a collapsed run": LOST},
    figure=Plot(
        "strips", x=f"{LAST}: held-out accuracy after 56 steps", y="recipe: ",
        of=lambda table: table.assign(recipe=named(table)), also=({"x": f"{ESS}: mean sequence ESS"},),
    ),
)  # fmt: skip

asks(PARTS_OF_GRPO,
    ("reinforce-fails-on-smollm2-on-old-data", "At lag 32 and rate 3e-4 REINFORCE is below an accuracy of "
     "0.1 after 56 steps, in the median.", PLAIN, None, LOST, {"below": True}),
    ("grpo-without-its-clip-keeps-smollm2-on-old-data", "At lag 32 and rate 3e-4 GRPO without its clip is "
     "0.05 above REINFORCE after 56 steps, in the median.", OPEN, PLAIN, MARGIN),
    ("a-clip-helps-smollm2-on-old-data", "At lag 32 and rate 3e-4 GRPO is 0.05 above GRPO without its clip "
     "after 56 steps, in the median.", CLIPPED, OPEN, MARGIN),
    outcome=LAST,
)  # fmt: skip
