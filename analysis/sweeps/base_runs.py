"""Runs from which several experiments and `testbed run --model` start."""

from dataclasses import replace

from testbed.config.run import MODEL_RUN, Arguments, Run

TOY = Run(
    task="running-sum", policy="toy", prompts=8, group=8, steps=260, learning_rate=3e-3, optimizer="adam",
    max_grad_norm=1.0, warm_start_steps=600, teacher_noise=0.2,
)  # fmt: skip
"""The toy LLM: 12 digits modulo 8, width 32, 2 layers, 4 heads, a base model that succeeds at 5 to 8 %."""

LAB = replace(TOY, steps=600, log_every=20)
"""The toy LLM of most experiments: long enough for slow learning rates to converge."""

SMALL = replace(
    LAB, steps=400, task_args=(("digits", 6),), policy_args=(("width", 16),), teacher_noise=0.35,
    learning_rate=3e-3,
)  # fmt: skip
"""Six digits and width 16, a fifth of LAB's cost; noise that makes the base model as rarely right."""

TINY = replace(SMALL, policy_args=(("heads", 2), ("layers", 1), ("width", 16)))
"""SMALL with one layer and two heads: 4,000 weights."""

LITE = replace(SMALL, prompts=4, steps=300)
"""SMALL with half the prompts."""

CHAIN = Run(task="chain", recipe="reinforce", prompts=32, group=8, steps=240, learning_rate=0.1)
"""A chain MDP whose value, gradient and ESS are known exactly; 256 episodes per step."""

UNCORRECTED: Arguments = (
    ("advantage", "group_std"),
    ("aggregation", "token_mean"),
    ("eps_low", 1.0),
    ("eps_high", 1e9),
    ("weight", "none"),
)
"""rec_oneside with a region that holds every token, which equals the recipe tis without its weight."""
FP8 = "fp8-tensor+fp8-activations"
"""Weights and inputs of linear layers are in e4m3, embeddings and head included."""

HF_RUN = MODEL_RUN
"""Starting settings of `testbed run --model`; the command line adds the model."""
