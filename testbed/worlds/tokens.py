"""A token task with a transformer, the toy LLM or a Hugging Face model, as a world of stacked cells."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from envs.streams import uniforms
from envs.tokens.hinted import Hinted
from envs.tokens.token_task import TokenTask
from testbed import rng
from testbed.config.run import Run
from testbed.data.held_out import HeldOut
from testbed.data.rollout import Rollout
from testbed.errors import UserError, listed, unknown
from testbed.policies.policy import Policy
from testbed.policies.toy.toy_transformer import ToyTransformer
from testbed.prefixes.prefix_source import Asked, Start
from testbed.worlds.base_models import made_of, shared
from testbed.worlds.generation import Generation, cut, narrow_versions, whole
from testbed.worlds.loss_noise import Perturbed, check_perturbable, loss_noise_draw, perturb_of
from testbed.worlds.prefix_masking import refuse_given, source_of, wave_keys, without_given
from testbed.worlds.rewards import Rewards
from testbed.worlds.roles import ROLES, separated
from testbed.worlds.rounded import of_precision, split_precision
from testbed.worlds.task_registry import spread, token_task, turns_of
from testbed.worlds.world import World

Draw: TypeAlias = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""(prompt_XNQ, uniform_XBT) -> token, mask and log mu, each [X, B, T]."""

EVALUATION_GROUP = 4
"""Responses per held-out prompt behind `accuracy`."""
PASS_PROMPTS = 32
"""Number of held-out prompts, the first ones, for pass@k and max@k."""
PASS_EXTRA = 4
"""Responses per prompt for pass@k and max@k, besides those of `accuracy`."""
PASS_EVERY = 4
"""Logged rows between rows with pass@k and max@k; the first and the last have them too."""
START_PROMPTS = 8
"""Number of held-out prompts, the first ones, for the KL to the start."""


class TokenRuns(World):
    """A token task with a transformer: the toy LLM or a Hugging Face model."""

    def __init__(self, runs: tuple[Run, ...]) -> None:
        self.runs = runs
        self.first = first = runs[0]
        self.task, self.policy = build_token_policy(first)
        self.seeds = tuple(run.seed for run in runs)
        self.sampling_R = rng.keys(self.seeds, "sampling")
        self.evaluation_R = rng.keys(self.seeds, "evaluation")
        self.passes_R = rng.keys(self.seeds, "pass@k")
        self.generation = Generation(runs, self.policy)
        self.prefixes = source_of(first, self.task)
        self.rewards = Rewards(first, self.task, self.seeds, self.policy.ranks)

    def initial(self) -> Tensor:
        """Return the starting weights: equal seeds share one base model."""
        first = self.first
        unique = tuple(dict.fromkeys(self.seeds))
        if first.policy == "toy" and first.warm_start_steps:
            from testbed.policies.warm_start import warm_start

            full, how = self.policy.full_precision, (first.warm_start_steps, first.teacher_noise)
            train = lambda seeds: warm_start(full, self.task, seeds, *how)  # noqa: E731
            base = shared(full, self.task, made_of(first), unique, train)
        else:
            base = self.policy.initial(unique)
        rows = [unique.index(seed) for seed in self.seeds]
        # Indexing copies, and a large model alone in its pack should not be held twice.
        return base.detach() if len(rows) == 1 else base.detach()[rows]

    def generate(
        self, theta_XP: Tensor, step: int, slices: int = 1, past_XP: Tensor | None = None
    ) -> Rollout:
        """Return responses of the engine at weights theta to this step's prompts, scored by the task.

        Row r * slices + s of theta_XP answers part s of replica r's prompts.
        """
        purpose, first = f"prompts/{self.first.task}", self.first
        behavior, prompt_RNQ = self.generation.sliced(slices), self._prompts(purpose, step, first.prompts)

        def respond(start: Start, wave: int) -> Rollout:
            given = start.given()
            parts = None if given is None else cut(given, slices)
            draw = lambda prompt_XNQ, uniform_XBT: behavior.sample(  # noqa: E731
                theta_XP, prompt_XNQ, start.group, uniform_XBT, step, past_XP, parts
            )
            key_R = wave_keys(self.seeds, self.sampling_R, wave)
            answers = self._answered(draw, start.prompt_RNQ, key_R, step, start.group, slices)
            return answers if given is None else without_given(answers, given)

        asked = Asked(
            step,
            first.steps,
            prompt_RNQ,
            first.group,
            self.seeds,
            self.task,
            respond,
            self._at_start,
            self._stored,
            self.rewards.counts,
        )
        rollout = respond(asked.at_prompts(), 0) if self.prefixes is None else self.prefixes.rollout(asked)
        return self.generation.noted(theta_XP, rollout, slices, self.logp)

    def _stored(self, purpose: str, prompts: int) -> np.ndarray:
        return self._prompts(f"{purpose}/{self.first.task}", 0, prompts)

    def _at_start(self, prompt_RNQ: np.ndarray, group: int, number: int) -> Rollout:
        """Return responses of the policy at its starting weights; no engine, no lag."""
        theta_RP = self.initial()
        draw = lambda prompt_RNQ, uniform_RBT: self.policy.sample(  # noqa: E731
            theta_RP, prompt_RNQ, group, uniform_RBT
        )
        return self._answered(draw, prompt_RNQ, rng.keys(self.seeds, "prefixes/attempts"), number, group)

    @property
    def length(self) -> int:
        """Most tokens of a response."""
        return int(self.task.response_length)

    @property
    def version_dtype(self) -> torch.dtype | None:
        """The dtype in which a Hugging Face model computes, unless an engine rounds weights itself."""
        return narrow_versions(self.first)

    def generate_in_flight(self, theta_RWP: Tensor, version_RBT: Tensor, step: int, cache: str) -> Rollout:
        """Return responses with token t drawn at weights theta_RWP[r, version_RBT[r, b, t]].

        version_RBT broadcasts to [R, B, T]; cache: "kept" or "recomputed" when the weights change.
        """
        refuse_given(self.first)
        purpose, first = f"prompts/{self.first.task}", self.first
        behavior = self.generation.sliced(1)
        draw = lambda prompt_RNQ, uniform_RBT: behavior.sample_in_flight(  # noqa: E731
            theta_RWP, version_RBT, prompt_RNQ, first.group, uniform_RBT, step, cache
        )
        prompt_RNQ = self._prompts(purpose, step, first.prompts)
        rollout = self._answered(draw, prompt_RNQ, self.sampling_R, step, first.group)
        return self.generation.noted_in_flight(theta_RWP, version_RBT, rollout, self.logp)

    def _prompts(self, purpose: str, step: int, prompts: int) -> np.ndarray:
        # Prompts depend only on (task, seed, step): cells with the same seed answer the same ones.
        ask = self.task.held_out_prompts if purpose.startswith("held-out/") else self.task.prompts
        drawn = {s: ask(rng.generator(s, purpose, step), prompts) for s in dict.fromkeys(self.seeds)}
        return np.stack([drawn[seed] for seed in self.seeds])

    def _answered(
        self,
        draw: Draw,
        prompt_RNQ: np.ndarray,
        key_R: np.ndarray,
        step: int,
        group: int,
        slices: int = 1,
        judge: Callable[..., np.ndarray] | None = None,
    ) -> Rollout:
        uniform_RBT = uniforms(key_R, step, prompt_RNQ.shape[1] * group, self.task.response_length)
        device = self.policy.device
        prompt = torch.from_numpy(prompt_RNQ).to(device)
        uniform = torch.from_numpy(uniform_RBT).to(device)
        parts = draw(cut(prompt, slices), cut(uniform, slices))
        token_RBT, mask_RBT, logp_RBT = (whole(part, slices) for part in parts)
        reward_RB = (judge or self.rewards.batch)(prompt_RNQ, token_RBT, mask_RBT, group)
        reward = torch.from_numpy(reward_RB).to(device=device, dtype=logp_RBT.dtype)
        return Rollout(prompt, token_RBT, mask_RBT, logp_RBT, reward, group)

    def counts(self) -> dict[str, np.ndarray]:
        """Return the verifier's failures so far, and the costs of prefixes, by metric name; [R]."""
        return self.rewards.counts

    def logp(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        return self.policy.logp(theta_RP, rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT)

    def loss_logp(self, theta_RP: Tensor, rollout: Rollout, step: int, pass_index: int) -> Tensor:
        """Return the log-probabilities that the loss reads: `logp`, or those of ALP's perturbed policy."""
        if not isinstance(self.policy, Perturbed):
            return self.logp(theta_RP, rollout)
        draw = loss_noise_draw(self.seeds, self.policy.layers, step, pass_index)
        return self.policy.loss_logp(theta_RP, rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT, draw)

    def loss_logp_entropy(
        self, theta_RP: Tensor, rollout: Rollout, step: int, pass_index: int
    ) -> tuple[Tensor, Tensor | None]:
        where = (rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT)
        both = None if isinstance(self.policy, Perturbed) else self.policy.logp_entropy(theta_RP, *where)
        return both or super().loss_logp_entropy(theta_RP, rollout, step, pass_index)

    def penalty(self, theta_RP: Tensor) -> Tensor | None:
        """Return the policy's addition to the loss of each replica [R]; None without one."""
        return self.policy.penalty(theta_RP) if isinstance(self.policy, Perturbed) else None

    @property
    def width(self) -> int:
        return self.policy.width

    def features(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        return self.policy.features(theta_RP, rollout.prompt_RNQ, rollout.token_RBT)

    def turns(self, rollout: Rollout) -> Tensor | None:
        """Return the turn of every token, int64 [R, B, T]; None in a task of one turn."""
        return spread(turns_of(self.task), rollout.token_RBT)

    def entropy(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        return self.policy.entropy(theta_RP, rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT)

    def score_norm(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return |d log pi / d logits|^2 = 1 - 2 pi + sum pi^2 of every token, [R, B, T]; 0 at padding."""
        return self.policy.score_norm(theta_RP, rollout.prompt_RNQ, rollout.token_RBT, rollout.mask_RBT)

    def greedy_reward(self, theta_RP: Tensor, rollout: Rollout) -> Tensor:
        """Return the reward of greedy decoding from each prompt; [R, B]."""
        R, N = rollout.prompt_RNQ.shape[:2]
        any_RNT = torch.zeros(R, N, self.task.response_length, dtype=torch.float64)
        drawn = self.policy.sample(theta_RP.detach(), rollout.prompt_RNQ, 1, any_RNT, greedy=True)
        # A per-seed verifier is refused with this baseline, because the seed of these rows is unknown.
        rows = slice(0, len(rollout.prompt_RNQ))
        reward_RN = self._rewards(rollout.prompt_RNQ, drawn[0], drawn[1], 1, rows)
        return reward_RN.repeat_interleave(rollout.group, dim=1)

    def reference_reward(
        self, theta_RP: Tensor, rollout: Rollout, rows: slice, group: int, step: int
    ) -> Tensor:
        """Return rewards of `group` responses of the policy theta to each prompt; [R, B, group]."""
        N = rollout.prompt_RNQ.shape[1]
        key_R = rng.keys(self.seeds[rows], "reference")
        uniform = torch.from_numpy(uniforms(key_R, step, N * group, self.task.response_length))
        drawn = self.policy.sample(theta_RP, rollout.prompt_RNQ, group, uniform.to(theta_RP.device))
        reward_RB = self._rewards(rollout.prompt_RNQ, drawn[0], drawn[1], group, rows)
        return reward_RB.unflatten(1, (N, group)).repeat_interleave(rollout.group, dim=1)

    def _rewards(
        self, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor, group: int, rows: slice
    ) -> Tensor:
        reward_RB = self.rewards.train(prompt_RNQ.cpu().numpy(), token_RBT, mask_RBT, group, rows)
        return torch.from_numpy(reward_RB).to(device=token_RBT.device, dtype=self.policy.dtype)

    @property
    def shows_solutions(self) -> bool:
        """True if the task's prompts have space for the solution."""
        return isinstance(self.task, Hinted)

    def with_solutions(self, rollout: Rollout) -> Rollout:
        """Return the rollout with the solution shown in every prompt; UserError if there is no room."""
        if not isinstance(self.task, Hinted):
            return super().with_solutions(rollout)
        prompt_MQ = rollout.prompt_RNQ.flatten(0, 1).cpu().numpy()
        shown = torch.from_numpy(self.task.shown(prompt_MQ)).to(rollout.prompt_RNQ)
        return replace(rollout, prompt_RNQ=shown.view_as(rollout.prompt_RNQ))

    def answers(self, theta_RP: Tensor, rollout: Rollout, rows: slice, step: int) -> Rollout:
        """Return responses of theta to the rollout's prompts, as many as it has, scored by the task."""
        key_R = rng.keys(self.seeds[rows], "teacher")
        uniform = torch.from_numpy(uniforms(key_R, step, *rollout.token_RBT.shape[1:])).to(theta_RP.device)
        drawn = self.policy.sample(theta_RP, rollout.prompt_RNQ, rollout.group, uniform)
        token_RBT, mask_RBT, logp_RBT = drawn
        reward_RB = self._rewards(rollout.prompt_RNQ, token_RBT, mask_RBT, rollout.group, rows)
        return replace(
            rollout,
            token_RBT=token_RBT,
            mask_RBT=mask_RBT,
            logp_mu_RBT=logp_RBT.to(rollout.logp_mu_RBT.dtype),
            reward_RB=reward_RB.to(rollout.reward_RB.dtype),
        )

    def demonstrations(self, rollout: Rollout, rows: slice, step: int) -> Rollout:
        """Return the teacher's answers to the rollout's prompts, one per group member."""
        prompt_RBQ = rollout.prompt_RNQ.cpu().numpy().repeat(rollout.group, axis=1)
        streams = (rng.generator(seed, "demonstrations", step) for seed in self.seeds[rows])
        answers = [self.task.expert(*each) for each in zip(prompt_RBQ, streams, strict=True)]
        return self._shown(rollout, answers, rows)

    def corrections(self, rollout: Rollout, rows: slice) -> Rollout:
        """Return the rollout's responses, corrected from their first error on."""
        prompt_RNQ = rollout.prompt_RNQ.cpu().numpy().repeat(rollout.group, axis=1)
        given = zip(prompt_RNQ, rollout.token_RBT.cpu().numpy(), rollout.mask_RBT.cpu().numpy(), strict=True)
        return self._shown(rollout, [self.task.correction(*each) for each in given], rows)

    def _shown(self, rollout: Rollout, answers: list[tuple[np.ndarray, np.ndarray]], rows: slice) -> Rollout:
        """Return the rollout with given answers in place of its own."""
        parts = zip(*answers, strict=True)
        token, mask = (torch.from_numpy(np.stack(part)).to(self.policy.device) for part in parts)
        reward_RB = self._rewards(rollout.prompt_RNQ, token, mask, rollout.group, rows)
        # A demonstration has no behavior policy and no version: these values are never read.
        return replace(
            rollout,
            token_RBT=token,
            mask_RBT=mask,
            logp_mu_RBT=torch.zeros_like(rollout.logp_mu_RBT),
            reward_RB=reward_RB.to(rollout.reward_RB.dtype),
            parent_RB=None if rollout.parent_RB is None else torch.full_like(rollout.parent_RB, -1),
        )

    def accuracy(self, theta_RP: Tensor) -> np.ndarray:
        """Return the mean reward of fresh samples on held-out prompts, the same ones at every step; [R]."""
        answers = self._evaluation(theta_RP, self._held_out_prompts())
        mean: np.ndarray = answers.reward_RB.mean(-1).double().cpu().numpy()
        return mean

    def held_out(self, theta_RP: Tensor, start_RP: Tensor, row: int, last: bool) -> HeldOut:
        """Return the samples behind `accuracy`; those of the first prompts also under the starting weights.

        Every PASS_EVERY-th row has more samples for pass@k, from a separate stream.
        """
        prompt_RNQ = self._held_out_prompts()
        answers = self._evaluation(theta_RP, prompt_RNQ)
        first = START_PROMPTS * EVALUATION_GROUP
        with torch.no_grad():
            start, end = slice(START_PROMPTS), slice(first)
            given = answers.prompt_RNQ[:, start], answers.token_RBT[:, end], answers.mask_RBT[:, end]
            logp_start_RBT = self.policy.logp(start_RP, *given)
        more = level_RN = None
        if last or row % PASS_EVERY == 0:
            more = self._evaluation(theta_RP, prompt_RNQ[:, :PASS_PROMPTS], self.passes_R, PASS_EXTRA)
        if self.task.difficulties:
            level_RN = np.stack([self.task.difficulty(prompt_NQ) for prompt_NQ in prompt_RNQ])
        proxy = self.rewards.proxy(answers)
        return HeldOut(proxy, answers, logp_start_RBT, more, level_RN, self.task.difficulties)

    def _held_out_prompts(self) -> np.ndarray:
        return self._prompts(f"held-out/{self.first.task}", 0, self.first.evaluation_prompts)

    def _evaluation(
        self,
        theta_RP: Tensor,
        prompt_RNQ: np.ndarray,
        key_R: np.ndarray | None = None,
        group: int = EVALUATION_GROUP,
    ) -> Rollout:
        """Return samples of the policy itself: no engine, no lag, the same uniforms at every step."""
        draw = lambda prompt_RNQ, uniform_RBT: self.policy.sample(  # noqa: E731
            theta_RP, prompt_RNQ, group, uniform_RBT
        )
        key_R = self.evaluation_R if key_R is None else key_R
        return self._answered(draw, prompt_RNQ, key_R, 0, group, judge=self.rewards.gold)


def build_token_policy(run: Run) -> tuple[TokenTask, Policy]:
    """Return the task as the policy reads it, and the policy, for policy 'toy' or 'hf'."""
    task = token_task(run)
    if run.device == "cuda" and not torch.cuda.is_available():
        raise UserError("device 'cuda' was asked for, but torch sees no GPU; use device=cpu.")
    given, precision = split_precision(run)
    arguments: dict[str, Any] = dict(given)
    try:
        if run.policy == "toy":
            (sigma, where), roles = perturb_of(arguments), arguments.pop("roles", ROLES[0])
            toy = ToyTransformer(task, device=run.device, **arguments)
            check_perturbable(toy, precision if sigma else "")
            if roles not in ROLES:
                raise unknown("roles", str(roles), ROLES)
            if roles == "separate":
                return task, separated(toy, task.turn_T, bool(sigma or precision), run.staleness)
            return task, Perturbed(toy, sigma, where) if sigma else of_precision(toy, precision)
        from testbed.policies.hf.build_hf import build_hf
        from testbed.policies.hf.hf_policy import HuggingFacePolicy

        sigma, where = perturb_of(arguments)
        task, hf = build_hf(task, run.model, run.device, arguments)
        if sigma:
            check_perturbable(hf, precision)
            assert isinstance(hf, HuggingFacePolicy)
            return task, Perturbed(hf, sigma, where)
        return task, of_precision(hf, precision)
    except TypeError as error:
        raise UserError(f"policy '{run.policy}' cannot be made with {listed(arguments)}: {error}") from error
