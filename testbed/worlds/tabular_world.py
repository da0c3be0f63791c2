"""Bandits, MDPs and token trees with a tabular softmax policy, as a world of stacked cells."""

import dataclasses
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from envs.finite_mdp import Episodes, FiniteMDP
from envs.streams import uniforms
from envs.tokens.token_tree import TokenTree
from testbed import rng
from testbed.config.run import Run
from testbed.data.held_out import HeldOut
from testbed.data.rollout import Rollout
from testbed.errors import UserError, listed
from testbed.policies.policy import Policy
from testbed.policies.token_versions import logp_by_version
from testbed.prefixes.prefix_source import Asked, PrefixSource, Start
from testbed.worlds.generation import Generation, whole
from testbed.worlds.prefix_masking import refuse_given, source_of, wave_keys, without_given
from testbed.worlds.rounded import of_precision, split_precision
from testbed.worlds.task_registry import spread, tabular_task, turns_of
from testbed.worlds.world import BehaviorWeights, World


class TabularRuns(World):
    """Bandits, MDPs and token trees with a softmax table; all quantities are known exactly."""

    def __init__(self, runs: tuple[Run, ...]) -> None:
        first = runs[0]
        if first.device != "cpu":
            raise UserError("policy 'tabular' runs on device 'cpu' only: its kernels are compiled for it.")
        self.task, self.policy = build_tabular_policy(first)
        self.seeds = tuple(run.seed for run in runs)
        self.prompts, self.group = first.prompts, first.group
        self.sampling_R = rng.keys(self.seeds, "sampling")
        self.start_R = rng.keys(self.seeds, f"prompts/{first.task}")
        self.generation = Generation(runs, self.policy)
        self.first, self.counted = first, dict[str, np.ndarray]()
        self.prefixes = source_of(first, self.task)

    def initial(self) -> Tensor:
        return self.policy.initial(self.seeds)

    @property
    def length(self) -> int:
        """Most tokens of a sequence."""
        return int(self.task.horizon)

    def generate(
        self, theta_XP: Tensor, step: int, slices: int = 1, past_XP: Tensor | None = None
    ) -> Rollout:
        """Return episodes of the engine at weights theta; prompts are start states.

        Row r * slices + s of theta_XP generates part s of replica r's prompts.
        """
        behavior = self.generation.sliced(slices)
        mu_RWSA = behavior.probabilities(theta_XP, step, past_XP).reshape(
            len(self.seeds), slices, self.task.states, self.task.actions
        )
        if self.prefixes is None:
            rollout = self._episodes(mu_RWSA, parts(self.prompts * self.group, slices), step)
        else:
            rollout = self._from_prefixes(self.prefixes, mu_RWSA, slices, step)
        logp_XBT = behavior.logp(theta_XP, rollout.split(slices), step, past_XP)
        rollout = replace(rollout, logp_mu_RBT=whole(logp_XBT, slices))
        return self.generation.noted(theta_XP, rollout, slices, self.logp)

    def _from_prefixes(self, source: PrefixSource, mu_RWSA: np.ndarray, slices: int, step: int) -> Rollout:
        """Return a tree's responses from a source of prefixes, without log-probabilities."""
        assert isinstance(self.task, TokenTree)
        tree = self.task
        number = {tuple(prompt_Q): n for n, prompt_Q in enumerate(tree.prompt_NQ.tolist())}

        def roots(prompt_RNQ: np.ndarray) -> np.ndarray:
            return np.array([[number[tuple(p)] for p in row] for row in prompt_RNQ.tolist()]) * tree.nodes

        def respond(start: Start, wave: int) -> Rollout:
            root_RN = roots(start.prompt_RNQ)
            version_1B1 = parts(start.given_RBT.shape[1], slices)
            key_R = wave_keys(self.seeds, self.sampling_R, wave)
            where = (version_1B1, root_RN, start.group, key_R, step)
            episodes = tree.simulate_versions(mu_RWSA, *where, start.given_RBT)
            answers = self._rollout(episodes, root_RN, start.group)
            return without_given(answers, torch.from_numpy(start.given_RBT))

        def at_start(prompt_RNQ: np.ndarray, group: int, round: int) -> Rollout:
            root_RN = roots(prompt_RNQ)
            pi_RSA = self.policy.probabilities(self.initial())
            key_R = rng.keys(self.seeds, "prefixes/attempts")
            return self._rollout(tree.simulate(pi_RSA, root_RN, group, key_R, round), root_RN, group)

        def stored(purpose: str, prompts: int) -> np.ndarray:
            start_RN = tree.start(uniforms(rng.keys(self.seeds, purpose), 0, prompts, 1)[..., 0])
            return tree.prompt_NQ[start_RN // tree.nodes]

        start_RN = tree.start(uniforms(self.start_R, step, self.prompts, 1)[..., 0])
        prompt_RNQ = tree.prompt_NQ[start_RN // tree.nodes]
        asked = Asked(
            step,
            self.first.steps,
            prompt_RNQ,
            self.group,
            self.seeds,
            tree.task,
            respond,
            at_start,
            stored,
            self.counted,
        )
        return source.rollout(asked)

    def counts(self) -> dict[str, np.ndarray]:
        """Return the costs of prefixes, by metric name; [R]."""
        return self.counted

    def generate_in_flight(self, theta_RWP: Tensor, version_RBT: Tensor, step: int, cache: str) -> Rollout:
        """Return episodes; the action at time t is drawn at weights theta_RWP[r, version_RBT[r, b, t]].

        version_RBT broadcasts to [R, B, T]. A table has no cache, so `cache` is ignored.
        """
        del cache
        refuse_given(self.first)
        behavior = self.generation.sliced(1)
        mu_RWSA = np.stack([behavior.probabilities(theta_RP, step) for theta_RP in theta_RWP.unbind(1)], 1)
        rollout = self._episodes(mu_RWSA, version_RBT.numpy(), step)
        logp_RBT = logp_by_version(
            lambda theta_RP: behavior.logp(theta_RP, rollout, step), theta_RWP, version_RBT, rollout.mask_RBT
        )
        rollout = replace(rollout, logp_mu_RBT=logp_RBT)
        return self.generation.noted_in_flight(theta_RWP, version_RBT, rollout, self.logp)

    def _episodes(self, mu_RWSA: np.ndarray, version_RBT: np.ndarray, step: int) -> Rollout:
        """Return episodes from tables that may change, without log-probabilities."""
        start_RN = self.task.start(uniforms(self.start_R, step, self.prompts, 1)[..., 0])
        key_R = self.sampling_R
        episodes = self.task.simulate_versions(mu_RWSA, version_RBT, start_RN, self.group, key_R, step)
        return self._rollout(episodes, start_RN, self.group)

    def _rollout(self, episodes: Episodes, start_RN: np.ndarray, group: int) -> Rollout:
        """Return episodes as a rollout without log-probabilities."""
        state_RBT = torch.from_numpy(episodes.state_RBT)
        return Rollout(
            prompt_RNQ=torch.from_numpy(start_RN)[..., None],
            token_RBT=torch.from_numpy(episodes.action_RBT),
            mask_RBT=torch.from_numpy(episodes.mask_RBT),
            logp_mu_RBT=torch.zeros(state_RBT.shape, dtype=self.policy.dtype),
            reward_RB=self._reward(episodes),
            group=group,
            state_RBT=state_RBT,
        )

    def in_flight_table(self, theta_RWP: Tensor, version_T: Tensor) -> Tensor | None:
        """Return weights [R, P] of the single policy equivalent to changing weights at given times.

        Only a token tree has one: its states determine the time. version_T: the version of every time [T].
        """
        if not isinstance(self.task, TokenTree):
            return None
        node_S = torch.arange(self.task.states) % self.task.nodes
        time_S = torch.bucketize(node_S, torch.tensor(self.task.level[1:]), right=True)
        logits_RWSA = theta_RWP.unflatten(-1, (self.task.states, self.task.actions))
        return logits_RWSA[:, version_T[time_S], torch.arange(self.task.states)].flatten(1)

    def logp(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        return self.policy.logp(theta_RP, rollout.states(), rollout.token_RBT, rollout.mask_RBT)

    @property
    def states(self) -> int:
        """Rows of the table."""
        return int(self.task.states)

    def state_values(self, theta_RP: Tensor) -> Tensor:
        """Return V(s) of a token tree [R, S]; raise UserError if the world's values depend on the time."""
        if not isinstance(self.task, TokenTree):
            raise UserError("critic 'exact' has exact values only for task 'tree'; use critic 'table'.")
        pi_RSA = self.policy.probabilities(theta_RP)
        return torch.from_numpy((pi_RSA * self.task.action_values(pi_RSA)).sum(-1))

    def turns(self, rollout: Rollout) -> Tensor | None:
        """Return the turn of every token, int64 [R, B, T]; None in a task of one turn."""
        return spread(turns_of(self.task), rollout.token_RBT)

    def entropy(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        return self.policy.entropy(theta_RP, rollout.states(), rollout.token_RBT, rollout.mask_RBT)

    def truth(
        self, theta_RP: Tensor, update_RP: Tensor, step: int, behavior: BehaviorWeights | None
    ) -> dict[str, np.ndarray]:
        """Return the exact value, gradient and ratio moments besides the sampled ones; each [R].

        If parts of a batch have different weights, moments are those of a sample of the whole batch.
        """
        pi_RSA = self.policy.probabilities(theta_RP)
        gradient_RP = self.task.gradient(pi_RSA).reshape(len(pi_RSA), -1)
        known = {
            "exact/value": self.task.value(pi_RSA),
            "exact/grad_norm": np.linalg.norm(gradient_RP, axis=-1),
            "exact/grad_cosine": _cosine(update_RP.numpy(), gradient_RP),
        }
        return known if behavior is None else known | self._moments(pi_RSA, step, behavior)

    def held_out(self, theta_RP: Tensor, start_RP: Tensor, row: int, last: bool) -> HeldOut:
        """Return the exact KL of the policy's episodes from those of the starting weights; [R]."""
        del row, last
        pi_RSA, start_RSA = self.policy.probabilities(theta_RP), self.policy.probabilities(start_RP)
        found = self.task.divergence(pi_RSA, start_RSA, unsupported="infinite")
        return HeldOut(exact={"exact/kl_start": found.kl_pi_mu})

    def _moments(self, pi_RSA: np.ndarray, step: int, behavior: BehaviorWeights) -> dict[str, np.ndarray]:
        slices = behavior.slices
        engine = self.generation.sliced(slices)
        mu_XSA = engine.probabilities(behavior.weights_XP, step, behavior.past_XP)
        # A collapsed policy gives actions probability 0: ratios are then infinite.
        found = self.task.divergence(pi_RSA.repeat(slices, 0), mu_XSA, unsupported="infinite")
        names = (item.name for item in dataclasses.fields(found))
        part = {name: getattr(found, name).reshape(-1, slices) for name in names}
        second_R, kl_R = part["second_moment"].mean(1), part["kl_pi_mu"].mean(1)
        return {
            "exact/ess_kish_sequence": 1.0 / second_R,
            "exact/ess_perplexity_sequence": np.exp(-kl_R),
            "exact/ess_max_sequence": np.exp(-part["max_log_rho"].max(1)),
            "exact/kl_pi_mu": kl_R,
            "exact/kl_mu_pi": part["kl_mu_pi"].mean(1),
            "exact/chi2_sequence": second_R - 1.0,
        }

    def _reward(self, episodes: Episodes) -> Tensor:
        reward_RBT = episodes.reward_RBT
        discount = self.task.discount if isinstance(self.task, FiniteMDP) else 1.0
        discount_T = float(discount) ** np.arange(reward_RBT.shape[-1])
        return torch.from_numpy(reward_RBT @ discount_T)

    def score_norm(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return |d log pi / d logits|^2 = 1 - 2 pi + sum pi^2 of every action, [R, B, T]; 0 at padding."""
        return self.policy.score_norm(theta_RP, rollout.states(), rollout.token_RBT, rollout.mask_RBT)

    def greedy_reward(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return the reward of always taking the likeliest action, from each sequence's start; [R, B]."""
        logits_RSA = self.policy.logits(theta_RP.detach())
        greedy_RSA = torch.nn.functional.one_hot(logits_RSA.argmax(-1), logits_RSA.shape[-1]).double()
        start_RN = rollout.prompt_RNQ[..., 0].numpy()
        # A random world draws from step 0 of a stream that all cells share.
        key_R = rng.keys((0,) * len(start_RN), "greedy")
        episodes = self.task.simulate(greedy_RSA.numpy(), start_RN, 1, key_R, 0)
        return self._reward(episodes).repeat_interleave(rollout.group, dim=1)

    def answers(self, theta_RP: Tensor, rollout: Rollout, rows: slice, step: int) -> Rollout:
        """Return episodes of theta from the rollout's starts, as many as it has."""
        key_R, pi_RSA = rng.keys(self.seeds[rows], "teacher"), self.policy.probabilities(theta_RP)
        start_RN = rollout.prompt_RNQ[..., 0].numpy()
        episodes = self.task.simulate(pi_RSA, start_RN, rollout.group, key_R, step)
        found = self._rollout(episodes, start_RN, rollout.group)
        return replace(
            rollout,
            token_RBT=found.token_RBT,
            mask_RBT=found.mask_RBT,
            state_RBT=found.state_RBT,
            reward_RB=found.reward_RB,
            logp_mu_RBT=self.policy.logp(theta_RP, found.states(), found.token_RBT, found.mask_RBT),
        )

    def reference_reward(
        self, theta_RP: Tensor, rollout: Rollout, rows: slice, group: int, step: int
    ) -> Tensor:
        """Return rewards of `group` episodes of theta from each sequence's start; [R, B, group]."""
        start_RN = rollout.prompt_RNQ[..., 0].numpy()
        key_R = rng.keys(self.seeds[rows], "reference")
        episodes = self.task.simulate(self.policy.probabilities(theta_RP), start_RN, group, key_R, step)
        reward_RNG = self._reward(episodes).unflatten(1, (start_RN.shape[1], group))
        return reward_RNG.repeat_interleave(rollout.group, dim=1)


def parts(sequences: int, slices: int) -> np.ndarray:
    """Return the part of the batch that each sequence is in, [1, B, 1]."""
    part_B = np.arange(sequences) // (sequences // slices)
    return part_B[None, :, None]


def _cosine(left_RP: np.ndarray, right_RP: np.ndarray) -> np.ndarray:
    scale = np.linalg.norm(left_RP, axis=-1) * np.linalg.norm(right_RP, axis=-1)
    product = (left_RP * right_RP).sum(-1)
    # NaN: one of the two gradients is zero, so there is no angle.
    return np.divide(product, scale, out=np.full_like(product, np.nan), where=scale > 0)


def build_tabular_policy(run: Run) -> tuple[FiniteMDP | TokenTree, Policy]:
    """Return the world of a run and its table; raise UserError for arguments that tables lack."""
    from testbed.policies.tabular_policy import TabularPolicy

    task = tabular_task(run)
    own, precision = split_precision(run)
    if own:
        raise UserError(f"policy 'tabular' does not take {listed(own)}, only precision.")
    return task, of_precision(TabularPolicy(task.states, task.actions), precision)
