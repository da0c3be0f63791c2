"""Public stacks' compositions under a paper's name that differ in more than the loss.

A variant that changes only the objective, such as `cispo@trl`, is a recipe without an entry here.
"""

from testbed.recipes import recipe
from testbed.recipes.composition import Recipe, Term, pairs
from testbed.recipes.stack_composition import compose


@recipe("grpo@trl", source="huggingface/trl f2cd5771 2026-07-24, trl/trainer/grpo_config.py")
def grpo_trl() -> Recipe:
    """GRPO with TRL's default loss_type "dapo": mean over all tokens, no KL."""
    return Recipe("group_std", "ppo_clip", "token_mean", advantage_args=pairs(eps=1e-4))


@recipe("grpo@verl", source="verl-project/verl 1dda039b 2026-08-22, verl/trainer/ppo/core_algos.py")
def grpo_verl() -> Recipe:
    """GRPO with dual clip at 3, log-ratios clamped to 20, mean over all tokens."""
    return Recipe("group_std", "dual_clip@verl", "token_mean")


@recipe("grpo@nemo-rl", source="NVIDIA-NeMo/RL 7ea279ab 2026-08-22, nemo_rl/algorithms")
def grpo_nemo_rl(*, kl: float = 0.01) -> Recipe:
    """GRPO with baseline and std of the other responses, KL with a score-function gradient, token mean."""
    return Recipe("group_std@nemo-rl", "ppo_clip", "token_mean", terms=(Term("kl_penalty@nemo-rl", kl),))


@recipe("grpo@areal", source="inclusionAI/AReaL 4aef98d8 2026-05-21, areal/trainer/ppo/actor.py")
def grpo_areal() -> Recipe:
    """GRPO with advantages standardized again over the tokens of the batch, mean over tokens."""
    return Recipe("batch_std@areal", "ppo_clip", "token_mean")


@recipe("grpo@open-instruct", source="allenai/open-instruct e6c3044a 2026-08-20, open_instruct/grpo_fast.py")
def grpo_open_instruct(*, kl: float = 0.05) -> Recipe:
    """GRPO with an upper clip of 0.272 and a KL term, mean over tokens."""
    args = pairs(eps_high=0.272)
    return Recipe("group_std", "ppo_clip", "token_mean", objective_args=args, terms=(Term("kl_penalty", kl),))


@recipe("grpo@pipelinerl", source="ServiceNow/PipelineRL 58d3934 2026-06-19, pipelinerl/finetune/rl")
def grpo_pipelinerl(*, kl: float = 0.1) -> Recipe:
    """GRPO with token sums divided by the number of sequences, and a KL term."""
    return Recipe("group_std", "ppo_clip", "constant", length=1, terms=(Term("kl_penalty", kl),))


@recipe("grpo@slime", source="THUDM/slime 624b824a 2026-08-21, slime/backends/megatron_utils/loss.py")
def grpo_slime() -> Recipe:
    """GRPO with sequence means summed, not averaged: the step grows with the batch."""
    return Recipe("group_std", "ppo_clip", "sequence_sum")


@recipe("dr_grpo@trinity", source="Trinity-RFT 9051d637 2026-04-09 (fork), trinity/algorithm")
def dr_grpo_trinity() -> Recipe:
    """Dr. GRPO without the division by the number of sequences."""
    return Recipe("group_mean", "ppo_clip", "sum_over_length")


@recipe("grpo_passk@verl", source="verl-project/verl 1dda039b 2026-08-22, verl/trainer/ppo/core_algos.py")
def grpo_passk_verl() -> Recipe:
    """Only the best response of a group learns, by its margin over the second best; mean over tokens."""
    return Recipe("max_at_k@verl", "ppo_clip", "token_mean")


@recipe("dapo@verl", source="verl-project/verl 1dda039b 2026-08-22, the DAPO recipe's scripts")
def dapo_verl() -> Recipe:
    """DAPO with dual clip at 10, log-ratios clamped to 20."""
    args = pairs(eps_high=0.28, c=10.0)
    return Recipe("group_std", "dual_clip@verl", "token_mean", objective_args=args, dynamic_sampling=True)


@recipe("gspo@areal", source="inclusionAI/AReaL 4aef98d8 2026-05-21, areal/trainer/ppo/actor.py")
def gspo_areal() -> Recipe:
    """GSPO with its ratio at every token and a mean over tokens: long answers weigh more."""
    return Recipe("group_std", "gspo@areal", "token_mean")


@recipe("gspo@pipelinerl", source="ServiceNow/PipelineRL 58d3934 2026-06-19, pipelinerl/finetune/rl")
def gspo_pipelinerl() -> Recipe:
    """GSPO deliberately weighed by length, token sums over the number of sequences."""
    return Recipe("group_std", "gspo@pipelinerl", "constant", length=1)


@recipe("stack", source="the stack's own, docs/stacks/ (snapshots of 2026)")
def stack(*, of: str = "verl", config: str = "") -> Recipe:
    """Train as a public stack does: its name in `of`, its settings in `config`, e.g. "loss_mode=gspo".

    `testbed objectives from` translates these into our names and prints an equivalent command. If no recipe
    has the stack's anchor, that command sets `anchor=`.
    """
    return compose(of, config.split()).recipe()
