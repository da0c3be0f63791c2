"""A world joins a task and a policy: it generates, gives log-probabilities and knows what truth it can.

The training loop sees only this interface, so one loop serves bandits, MDPs, token trees, the toy
LLM and Hugging Face models.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from envs.streams import uniforms
from testbed import rng
from testbed.config import Run
from testbed.errors import UserError
from testbed.rollout import Rollout
from testbed.tasks import task_for

EVALUATION_GROUP = 4
"""Responses per held-out prompt behind `accuracy`."""


class World(Protocol):
    """What the loop needs. Weights are flat tensors theta_RP that are passed in."""

    def initial(self) -> Tensor: ...

    def generate(self, theta_RP: Tensor, step: int) -> Rollout: ...

    def logp(self, theta_RP: Tensor, rollout: Rollout) -> Tensor: ...

    def entropy(self, theta_RP: Tensor, rollout: Rollout) -> Tensor: ...

    def truth(self, theta_RP: Tensor, mu_RP: Tensor, update_RP: Tensor) -> dict[str, np.ndarray]: ...

    def accuracy(self, theta_RP: Tensor) -> np.ndarray | None: ...

    # What only some recipes ask for. Rows names the replicas that theta and the rollout hold.

    def score_norm(self, theta_RP: Tensor, rollout: Rollout) -> Tensor: ...

    def greedy_reward(self, theta_RP: Tensor, rollout: Rollout) -> Tensor: ...

    def reference_reward(
        self, theta_RP: Tensor, rollout: Rollout, rows: slice, group: int, step: int
    ) -> Tensor: ...

    def demonstrations(self, rollout: Rollout, rows: slice, step: int) -> Rollout: ...


class TabularRuns:
    """Bandits, MDPs and token trees with a softmax table; everything is known exactly."""

    def __init__(self, runs: tuple[Run, ...]) -> None:
        from testbed.policies.tabular import TabularPolicy

        first = runs[0]
        self.task = task_for(first)
        if first.device != "cpu":
            raise UserError("policy 'tabular' runs on device 'cpu' only: its kernels are compiled for it.")
        self.policy = TabularPolicy(self.task.states, self.task.actions, **dict(first.policy_args))
        self.seeds = tuple(run.seed for run in runs)
        self.prompts, self.group = first.prompts, first.group
        self.sampling_R = rng.keys(self.seeds, "sampling")
        self.start_R = rng.keys(self.seeds, f"prompts/{first.task}")

    def initial(self) -> Tensor:
        return self.policy.initial(self.seeds)

    def generate(self, theta_RP: Tensor, step: int) -> Rollout:
        """Return episodes of the policy theta; prompts are start states."""
        pi_RSA = self.policy.probabilities(theta_RP)
        start_RN = self.task.start(uniforms(self.start_R, step, self.prompts, 1)[..., 0])
        episodes = self.task.simulate(pi_RSA, start_RN, self.group, self.sampling_R, step)
        state_RBT, action_RBT = map(torch.from_numpy, (episodes.state_RBT, episodes.action_RBT))
        mask_RBT = torch.from_numpy(episodes.mask_RBT)
        return Rollout(
            prompt_RNK=torch.from_numpy(start_RN)[..., None],
            token_RBT=action_RBT,
            mask_RBT=mask_RBT,
            logp_mu_RBT=self.policy.logp(theta_RP, state_RBT, action_RBT, mask_RBT),
            reward_RB=self._reward(episodes),
            group=self.group,
            state_RBT=state_RBT,
        )

    def logp(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        return self.policy.logp(theta_RP, _states(rollout), rollout.token_RBT, rollout.mask_RBT)

    def entropy(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        return self.policy.entropy(theta_RP, _states(rollout))

    def truth(self, theta_RP: Tensor, mu_RP: Tensor, update_RP: Tensor) -> dict[str, np.ndarray]:
        """Return the exact value, gradient and ratio moments beside the sampled ones; each [R]."""
        pi_RSA, mu_RSA = self.policy.probabilities(theta_RP), self.policy.probabilities(mu_RP)
        gradient_RP = self.task.gradient(pi_RSA).reshape(len(pi_RSA), -1)
        # A policy that has collapsed gives actions probability 0: then the ratios are infinite, and say so.
        law = self.task.divergence(pi_RSA, mu_RSA, unsupported="infinite")
        return {
            "exact/value": self.task.value(pi_RSA),
            "exact/grad_norm": np.linalg.norm(gradient_RP, axis=-1),
            "exact/grad_cosine": _cosine(update_RP.numpy(), gradient_RP),
            "exact/ess_kish_sequence": 1.0 / law.second_moment,
            "exact/ess_perplexity_sequence": np.exp(-law.kl_pi_mu),
            "exact/ess_max_sequence": np.exp(-law.max_log_rho),
            "exact/kl_pi_mu": law.kl_pi_mu,
            "exact/kl_mu_pi": law.kl_mu_pi,
            "exact/chi2_sequence": law.second_moment - 1.0,
        }

    def _reward(self, episodes: Any) -> Tensor:
        reward_RBT = episodes.reward_RBT
        discount_T = float(getattr(self.task, "discount", 1.0)) ** np.arange(reward_RBT.shape[-1])
        return torch.from_numpy(reward_RBT @ discount_T)

    def score_norm(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return |d log pi / d logits|^2 = 1 - 2 pi + sum pi^2 of every action, [R, B, T]; 0 at padding."""
        pi_RSA = self.policy.logits(theta_RP.detach()).softmax(-1)
        square_RBT = (
            pi_RSA.square().sum(-1).gather(-1, _states(rollout).flatten(-2)).view_as(rollout.token_RBT)
        )
        norm_RBT = 1 - 2 * self.logp(theta_RP.detach(), rollout).exp() + square_RBT
        return torch.where(rollout.mask_RBT, norm_RBT, torch.zeros_like(norm_RBT))

    def greedy_reward(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return the reward of always taking the likeliest action, from each sequence's start; [R, B]."""
        logits_RSA = self.policy.logits(theta_RP.detach())
        greedy_RSA = torch.nn.functional.one_hot(logits_RSA.argmax(-1), logits_RSA.shape[-1]).double()
        start_RN = rollout.prompt_RNK[..., 0].numpy()
        # Where the world is random too, its draws are those of step 0 of a stream of their own.
        key_R = rng.keys(tuple(range(len(start_RN))), "greedy")
        episodes = self.task.simulate(greedy_RSA.numpy(), start_RN, 1, key_R, 0)
        return self._reward(episodes).repeat_interleave(rollout.group, dim=1)

    def reference_reward(
        self, theta_RP: Tensor, rollout: Rollout, rows: slice, group: int, step: int
    ) -> Tensor:
        """Return rewards of `group` episodes of theta from each sequence's start; [R, B, group]."""
        start_RN = rollout.prompt_RNK[..., 0].numpy()
        key_R = rng.keys(self.seeds[rows], "reference")
        episodes = self.task.simulate(self.policy.probabilities(theta_RP), start_RN, group, key_R, step)
        reward_RNG = self._reward(episodes).unflatten(1, (start_RN.shape[1], group))
        return reward_RNG.repeat_interleave(rollout.group, dim=1)

    def demonstrations(self, rollout: Rollout, rows: slice, step: int) -> Rollout:
        """Raise UserError: a tabular world has no teacher."""
        del rollout, rows, step
        raise UserError("a tabular world has no teacher to demonstrate; take a token task with policy 'toy'.")

    def accuracy(self, theta_RP: Tensor) -> None:
        """Return None: `exact/value` is the truth that accuracy estimates elsewhere."""


class TokenRuns:
    """A token task with a transformer: the toy LLM or a Hugging Face model."""

    def __init__(self, runs: tuple[Run, ...]) -> None:
        self.runs = runs
        self.first = first = runs[0]
        self.task, self.policy = build_token_policy(first)
        self.seeds = tuple(run.seed for run in runs)
        self.sampling_R = rng.keys(self.seeds, "sampling")
        self.evaluation_R = rng.keys(self.seeds, "evaluation")

    def initial(self) -> Tensor:
        """Return the starting weights: equal seeds share one base model."""
        first = self.first
        unique = tuple(dict.fromkeys(self.seeds))
        if first.policy == "toy" and first.warm_start_steps:
            from testbed.warm_start import warm_start

            base = warm_start(self.policy, self.task, unique, first.warm_start_steps, first.teacher_noise)
        else:
            base = self.policy.initial(unique)
        rows = torch.tensor([unique.index(seed) for seed in self.seeds], device=base.device)
        return base.detach()[rows]

    def generate(self, theta_RP: Tensor, step: int) -> Rollout:
        """Return responses of the policy theta to this step's prompts, scored by the task."""
        purpose, first = f"prompts/{self.first.task}", self.first
        return self._generate(theta_RP, purpose, self.sampling_R, step, first.prompts, first.group)

    def _generate(
        self, theta_RP: Tensor, purpose: str, key_R: np.ndarray, step: int, prompts: int, group: int
    ) -> Rollout:
        # Prompts depend on (task, seed, step) alone: cells that share a seed answer the same ones.
        drawn = {
            s: self.task.prompts(rng.generator(s, purpose, step), prompts) for s in dict.fromkeys(self.seeds)
        }
        prompt_RNK = np.stack([drawn[seed] for seed in self.seeds])
        uniform_RBT = uniforms(key_R, step, prompts * group, self.task.response_length)
        device = theta_RP.device
        prompt = torch.from_numpy(prompt_RNK).to(device)
        uniform = torch.from_numpy(uniform_RBT).to(device)
        token_RBT, mask_RBT, logp_RBT = self.policy.sample(theta_RP, prompt, group, uniform)
        reward_RB = self._score(prompt_RNK, token_RBT, mask_RBT, group)
        reward = torch.from_numpy(reward_RB).to(device=device, dtype=logp_RBT.dtype)
        return Rollout(prompt, token_RBT, mask_RBT, logp_RBT, reward, group)

    def _score(self, prompt_RNK: np.ndarray, token_RBT: Tensor, mask_RBT: Tensor, group: int) -> np.ndarray:
        prompt_MK = prompt_RNK.repeat(group, axis=1).reshape(-1, prompt_RNK.shape[-1])
        token_MT = token_RBT.flatten(0, 1).cpu().numpy()
        mask_MT = mask_RBT.flatten(0, 1).cpu().numpy()
        score: np.ndarray = self.task.score(prompt_MK, token_MT, mask_MT)
        return score.reshape(token_RBT.shape[:2])

    def logp(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        return self.policy.logp(theta_RP, rollout.prompt_RNK, rollout.token_RBT, rollout.mask_RBT)

    def entropy(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        return self.policy.entropy(theta_RP, rollout.prompt_RNK, rollout.token_RBT, rollout.mask_RBT)

    def score_norm(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return |d log pi / d logits|^2 = 1 - 2 pi + sum pi^2 of every token, [R, B, T]; 0 at padding."""
        norm: Tensor = self.policy.score_norm(
            theta_RP, rollout.prompt_RNK, rollout.token_RBT, rollout.mask_RBT
        )
        return norm

    def greedy_reward(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return the reward of the likeliest tokens, drawn one after the other, to each prompt; [R, B]."""
        R, N = rollout.prompt_RNK.shape[:2]
        any_RNT = torch.zeros(R, N, self.task.response_length, dtype=torch.float64)
        drawn = self.policy.sample(theta_RP.detach(), rollout.prompt_RNK, 1, any_RNT, greedy=True)
        return self._rewards(rollout.prompt_RNK, drawn[0], drawn[1], 1).repeat_interleave(
            rollout.group, dim=1
        )

    def reference_reward(
        self, theta_RP: Tensor, rollout: Rollout, rows: slice, group: int, step: int
    ) -> Tensor:
        """Return rewards of `group` responses of the policy theta to each prompt; [R, B, group]."""
        N = rollout.prompt_RNK.shape[1]
        key_R = rng.keys(self.seeds[rows], "reference")
        uniform = torch.from_numpy(uniforms(key_R, step, N * group, self.task.response_length))
        drawn = self.policy.sample(theta_RP, rollout.prompt_RNK, group, uniform.to(theta_RP.device))
        reward_RB = self._rewards(rollout.prompt_RNK, drawn[0], drawn[1], group)
        return reward_RB.unflatten(1, (N, group)).repeat_interleave(rollout.group, dim=1)

    def _rewards(self, prompt_RNK: Tensor, token_RBT: Tensor, mask_RBT: Tensor, group: int) -> Tensor:
        reward_RB = self._score(prompt_RNK.cpu().numpy(), token_RBT, mask_RBT, group)
        return torch.from_numpy(reward_RB).to(device=token_RBT.device, dtype=self.policy.dtype)

    def demonstrations(self, rollout: Rollout, rows: slice, step: int) -> Rollout:
        """Return the teacher's answers to the rollout's prompts, one per group member."""
        prompt_RNK = rollout.prompt_RNK
        answers = [
            self.task.teacher(
                np.repeat(prompt_NK.cpu().numpy(), rollout.group, axis=0),
                rng.generator(seed, "demonstrations", step),
                0.0,
            )
            for seed, prompt_NK in zip(self.seeds[rows], prompt_RNK, strict=True)
        ]
        token, mask = (
            torch.from_numpy(np.stack(part)).to(prompt_RNK.device) for part in zip(*answers, strict=True)
        )
        reward_RB = self._rewards(prompt_RNK, token, mask, rollout.group).to(rollout.reward_RB.dtype)
        return Rollout(
            prompt_RNK, token, mask, torch.zeros_like(rollout.logp_mu_RBT), reward_RB, rollout.group
        )

    def truth(self, theta_RP: Tensor, mu_RP: Tensor, update_RP: Tensor) -> dict[str, np.ndarray]:
        """Return nothing: sequences are too many to enumerate; use task 'tree' for the truth."""
        del theta_RP, mu_RP, update_RP
        return {}

    def accuracy(self, theta_RP: Tensor) -> np.ndarray:
        """Return the mean reward of fresh samples on held-out prompts, the same ones at every step; [R]."""
        purpose, prompts = f"held-out/{self.first.task}", self.first.evaluation_prompts
        rollout = self._generate(
            theta_RP, purpose, self.evaluation_R, step=0, prompts=prompts, group=EVALUATION_GROUP
        )
        mean: np.ndarray = rollout.reward_RB.mean(-1).double().cpu().numpy()
        return mean


def build_token_policy(run: Run) -> tuple[Any, Any]:
    """Return the task as the policy sees it, and the policy, for policy 'toy' or 'hf'."""
    task = task_for(run)
    if run.device == "cuda" and not torch.cuda.is_available():
        raise UserError("device 'cuda' was asked for, but torch sees no GPU; use device=cpu.")
    arguments: dict[str, Any] = dict(run.policy_args)
    try:
        if run.policy == "toy":
            from testbed.policies.toy_transformer import ToyTransformer

            return task, ToyTransformer(task, device=run.device, **arguments)
        from testbed.policies.huggingface import HuggingFacePolicy
        from testbed.policies.text_task import task_for_model

        task = task_for_model(task, run.model)
        return task, HuggingFacePolicy(run.model, task, device=run.device, **arguments)
    except TypeError as error:
        raise UserError(f"policy '{run.policy}' cannot be made with {arguments}: {error}") from error


def build_world(runs: tuple[Run, ...]) -> World:
    """Return the world in which cells of equal shape run stacked."""
    return TabularRuns(runs) if runs[0].policy == "tabular" else TokenRuns(runs)


def _states(rollout: Rollout) -> Tensor:
    if rollout.state_RBT is None:
        raise ValueError("a tabular policy needs the visited states of a rollout")
    return rollout.state_RBT


def _cosine(left_RP: np.ndarray, right_RP: np.ndarray) -> np.ndarray:
    scale = np.linalg.norm(left_RP, axis=-1) * np.linalg.norm(right_RP, axis=-1)
    product = (left_RP * right_RP).sum(-1)
    # NaN says: one of the two gradients is zero, so there is no angle.
    return np.divide(product, scale, out=np.full_like(product, np.nan), where=scale > 0)
