"""Make a Hugging Face model the policy of a cell, with the task in its tokens."""

from typing import Any

from envs.tokens.token_task import TokenTask
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.hf.shared_batches import InRanks, Ranks, checked_ranks
from testbed.policies.hf.text_task import task_for_model
from testbed.policies.policy import Policy


def build_hf(task: TokenTask, model: str, device: str, arguments: dict[str, Any]) -> tuple[TokenTask, Policy]:
    """Return the task as the model reads it, and the policy; UserError if the model is refused.

    arguments: the policy's, and `ranks`, the number of processes that share every batch.
    """
    given = dict(arguments)
    ranks = checked_ranks(given.pop("ranks", 1))
    met = None
    if ranks > 1:
        import torch

        met = Ranks(ranks, torch.device(device))  # before the model, because it picks this process's GPU
    task = task_for_model(task, model)
    policy = HuggingFacePolicy(model, task, device=device, **given)
    return task, policy if met is None else InRanks(policy, met)
