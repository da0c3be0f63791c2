"""Distance of an engine from its policy: the distribution of log-mismatch in a world, exact or sampled."""

import numpy as np
import torch
from torch import Tensor

from envs.arrays import Ints
from envs.streams import uniforms
from envs.tokens.token_task import TokenTask
from envs.tokens.token_tree import TokenTree
from testbed import rng
from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.mismatch.behavior import Behavior
from testbed.mismatch.ratio_distribution import (
    RatioDistribution,
    enumerated_distribution,
    sampled_distribution,
    tree_distribution,
)


def mismatch_distribution(
    behavior: Behavior,
    theta_RP: Tensor,
    task: TokenTask | TokenTree,
    prompt_NQ: Ints | None = None,
    *,
    step: int = 0,
    samples: int = 0,
    past_RP: Tensor | None = None,
) -> tuple[RatioDistribution, ...]:
    """Return the distribution of log pi - log mu at equal weights, one per replica.

    Args:
        behavior: the engine around a policy.
        theta_RP: the weights of both.
        task: a token tree for a tabular policy, otherwise the policy's token task.
        prompt_NQ: prompts of a token task, equally likely.
        step: the batch number; matters for stochastic engines.
        samples: responses per prompt, drawn from mu; 0 enumerates every response, which needs a small task.
        past_RP: weights of an older version, for engines that read them.

    Raises UserError for a tabular world that is not a token tree, for a token task without prompts, and for
    noise drawn per sequence, which leaves no single distribution to enumerate.
    """
    if behavior.tabular:
        if not isinstance(task, TokenTree):
            raise UserError(f"{type(task).__name__} has no responses to enumerate; take task 'tree'.")
        log_pi_RSA = behavior.policy.logits(theta_RP.detach()).log_softmax(-1)
        log_mu_RSA = behavior.log_table(theta_RP.detach(), step, past_RP)
        return tuple(tree_distribution(task, pi, mu) for pi, mu in zip(log_pi_RSA, log_mu_RSA, strict=True))
    if isinstance(task, TokenTree):
        raise UserError("task 'tree' is for tabular policies; give the token task that the policy speaks.")
    if prompt_NQ is None:
        raise UserError("prompt_NQ is missing; give the prompts at which a token policy is compared.")
    if samples:
        rollout = _sampled(behavior, theta_RP, task, prompt_NQ, step, samples, past_RP)
    elif behavior.engine.fresh:
        raise UserError(
            f"engine '{behavior.engine.name}' draws noise for each sequence, so every response has a "
            "different distribution; set samples, or use a tabular policy on task 'tree'."
        )
    else:
        rollout = every_rollout(task, prompt_NQ, len(theta_RP))
    with torch.no_grad():
        log_pi_RBT = behavior.policy.logp(theta_RP, rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT)
        log_mu_RBT = rollout.logp_mu_RBT if samples else behavior.logp(theta_RP, rollout, step, past_RP)
    arrays = (x.cpu().numpy() for x in (log_pi_RBT, log_mu_RBT, rollout.mask_RBT))
    if samples:
        return tuple(sampled_distribution(pi, mu, mask) for pi, mu, mask in zip(*arrays, strict=True))
    return tuple(
        enumerated_distribution(pi, mu, mask, len(prompt_NQ)) for pi, mu, mask in zip(*arrays, strict=True)
    )


def every_rollout(task: TokenTask, prompt_NQ: Ints, replicas: int) -> Rollout:
    """Return all responses to each prompt as one rollout with rewards and no log mu, for R replicas."""
    token_LT, mask_LT = task.enumerate()
    N, L = len(prompt_NQ), len(token_LT)
    token_BT, mask_BT = np.tile(token_LT, (N, 1)), np.tile(mask_LT, (N, 1))
    reward_B = task.score(np.repeat(prompt_NQ, L, 0), token_BT, mask_BT)
    prompt, token, mask, reward = (
        torch.from_numpy(np.ascontiguousarray(x)).expand(replicas, *x.shape).contiguous()
        for x in (np.asarray(prompt_NQ), token_BT, mask_BT, reward_B)
    )
    return Rollout(prompt, token, mask, torch.zeros(token.shape, dtype=torch.float64), reward, group=L)


def _sampled(
    behavior: Behavior,
    theta_RP: Tensor,
    task: TokenTask,
    prompt_NQ: Ints,
    step: int,
    samples: int,
    past_RP: Tensor | None,
) -> Rollout:
    key_R = rng.keys(behavior.seeds, "mismatch/law")
    uniform_RBT = torch.from_numpy(uniforms(key_R, step, len(prompt_NQ) * samples, task.response_length))
    prompt_RNQ = torch.from_numpy(np.asarray(prompt_NQ)).expand(len(theta_RP), -1, -1)
    prompt_RNQ = prompt_RNQ.contiguous().to(theta_RP.device)
    uniform_RBT = uniform_RBT.to(theta_RP.device)
    token, mask, logp_mu = behavior.sample(theta_RP.detach(), prompt_RNQ, samples, uniform_RBT, step, past_RP)
    return Rollout(prompt_RNQ, token, mask, logp_mu, torch.zeros(token.shape[:2]), samples)
