"""Retries: half of every group tries, the other half restarts from a try's first error."""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from envs.tokens.token_task import TokenTask
from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.errors import UserError, unknown
from testbed.prefixes import prefix
from testbed.prefixes.prefix_source import Asked, PrefixSource, Start, first_tokens

CREDITS = ("suffix", "whole")


@dataclass(frozen=True)
class Retries(PrefixSource):
    """Member g + G/2 of a group keeps member g up to its first error, and rewrites the rest.

    If member g made no error, nothing is kept and the retry is one more try. credit: "suffix" leaves kept
    tokens out of the loss, "whole" trains on them again, with the retry's reward.
    """

    credit: str
    gives_parents = True

    def __post_init__(self) -> None:
        """Raise UserError for an unknown credit."""
        if self.credit not in CREDITS:
            raise unknown("credit of a retry", self.credit, CREDITS)

    def check(self, run: Run, task: TokenTask) -> None:
        """Raise UserError for an odd group, and for a task that cannot locate a response's first error."""
        if run.group % 2:
            raise UserError(f"half of a group is retried, and group={run.group} is odd; take an even one.")
        if type(task).first_error is TokenTask.first_error:
            raise UserError(
                f"prefix 'retry' needs the first wrong token, which task '{run.task}' cannot tell; take one "
                "that checks steps, such as running-sum, copy or sorted, or write its first_error."
            )

    def rollout(self, asked: Asked) -> Rollout:
        """Return tries and retries, those of a prompt side by side."""
        half = asked.group // 2
        tried = asked.respond(asked.at_prompts(half), 0)
        token_RBT, mask_RBT = tried.token_RBT.cpu().numpy(), tried.mask_RBT.cpu().numpy()
        R, B, T = token_RBT.shape
        prompt_MQ = np.repeat(asked.prompt_RNQ, half, axis=1).reshape(R * B, -1)
        token_MT, mask_MT = token_RBT.reshape(-1, T), mask_RBT.reshape(-1, T)
        wrong_RB = asked.task.first_error(prompt_MQ, token_MT, mask_MT).reshape(R, B)
        failed_RB = wrong_RB < T
        kept_RB = np.where(failed_RB, wrong_RB, 0)
        again = asked.respond(Start(asked.prompt_RNQ, first_tokens(token_RBT, kept_RB)), 1)
        if self.credit == "whole":
            again = with_kept(again, tried, torch.from_numpy(kept_RB).to(tried.token_RBT.device))
        member_RB = np.broadcast_to(np.tile(np.arange(half), B // half), (R, B))
        parent_RB = torch.from_numpy(np.where(failed_RB, member_RB, -1)).to(tried.token_RBT.device)
        first = replace(tried, parent_RB=torch.full_like(parent_RB, -1))
        second = replace(again, parent_RB=parent_RB)
        N = first.prompt_RNQ.shape[1]

        def joined(left: Tensor, right: Tensor) -> Tensor:
            return torch.cat([left.unflatten(1, (N, -1)), right.unflatten(1, (N, -1))], dim=2).flatten(1, 2)

        tensors = {name: left for name, left in vars(first).items() if isinstance(left, Tensor)}
        tensors.pop("prompt_RNQ")
        both: dict[str, Any] = {name: joined(left, getattr(second, name)) for name, left in tensors.items()}
        return replace(first, group=first.group + second.group, **both)


def with_kept(again: Rollout, tried: Rollout, kept_RB: Tensor) -> Rollout:
    """Return the retries with kept tokens in the mask, at the log-probabilities of the tries."""
    T = tried.token_RBT.shape[-1]
    kept_RBT = torch.arange(T, device=kept_RB.device) < kept_RB[..., None]
    logp_RBT = torch.where(kept_RBT, tried.logp_mu_RBT, again.logp_mu_RBT)
    return replace(again, mask_RBT=again.mask_RBT | kept_RBT, logp_mu_RBT=logp_RBT)


Credit = Literal["suffix", "whole"]


@prefix("retry", source="R3L; shiweijiezero/R3L d503f6c, docs", parents="prefix=retry")
def retry(*, credit: Credit = "suffix") -> Retries:
    """Half of every group continues from the first error of the other half."""
    return Retries(credit)
