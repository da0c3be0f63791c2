"""Score responses by the task, or by the run's verifier, logging the task's score too."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from torch import Tensor

from envs.tokens.jsonl import ERROR, TIMEOUT
from envs.tokens.token_task import TokenTask
from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.worlds.verifier_rewards import judged, verifier_of

if TYPE_CHECKING:
    from testbed.policies.policy import Ranks


class Rewards:
    """The scores of a pack. counts: counters by metric name, each [R].

    ranks: of a policy shared by several processes. A verifier with a time limit may differ between them, so
    the first rank's task scores for all.
    """

    def __init__(
        self, run: Run, task: TokenTask, seeds: tuple[int, ...], ranks: "Ranks | None" = None
    ) -> None:
        self.task, self.seeds, self.ranks, self.verifier = task, seeds, ranks, verifier_of(run)
        self.counts: dict[str, np.ndarray] = {}

    def gold(self, prompt_RNQ: np.ndarray, token_RBT: Tensor, mask_RBT: Tensor, group: int) -> np.ndarray:
        """Return the task's scores [R, B]."""
        parts = flat(prompt_RNQ, token_RBT, mask_RBT, group)
        judge = lambda: self.task.score(*parts)  # noqa: E731
        score: np.ndarray = judge() if self.ranks is None else self.ranks.of_first(judge, len(parts[0]))
        self._count_failures(token_RBT.shape[:2])
        return score.reshape(token_RBT.shape[:2])

    def train(
        self,
        prompt_RNQ: np.ndarray,
        token_RBT: Tensor,
        mask_RBT: Tensor,
        group: int,
        rows: slice = slice(None),
    ) -> np.ndarray:
        """Return the rewards [R, B] of the cells `rows`, from the verifier if there is one."""
        return self._both(prompt_RNQ, token_RBT, mask_RBT, group, rows)[1]

    def batch(self, prompt_RNQ: np.ndarray, token_RBT: Tensor, mask_RBT: Tensor, group: int) -> np.ndarray:
        """Return `train` of a generated batch; log the task's score if a verifier rewards it."""
        gold_RB, reward_RB = self._both(prompt_RNQ, token_RBT, mask_RBT, group, slice(None))
        if self.verifier is not None:
            self.counts["reward/gold"] = gold_RB.reshape(len(self.seeds), -1).mean(-1)
        return reward_RB

    def proxy(self, answers: Rollout) -> dict[str, np.ndarray]:
        """Return the verifier's rewards of held-out answers, by metric name, each [R]; {} without one."""
        if self.verifier is None:
            return {}
        given = (answers.prompt_RNQ.cpu().numpy(), answers.token_RBT, answers.mask_RBT, answers.group)
        gold_M = answers.reward_RB.double().cpu().numpy().ravel()
        found_M = judged(self.verifier, self.seeds, *flat(*given), gold_M)
        return {"val/proxy": found_M.reshape(len(self.seeds), -1).mean(-1)}

    def _both(
        self, prompt_RNQ: np.ndarray, token_RBT: Tensor, mask_RBT: Tensor, group: int, rows: slice
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return task scores and rewards [R, B] of the cells `rows`; the task scores once."""
        gold_RB = self.gold(prompt_RNQ, token_RBT, mask_RBT, group)
        if self.verifier is None:
            return gold_RB, gold_RB
        parts = flat(prompt_RNQ, token_RBT, mask_RBT, group)
        found_M = judged(self.verifier, self.seeds[rows], *parts, gold_RB.ravel())
        return gold_RB, found_M.reshape(gold_RB.shape)

    def _count_failures(self, shape: Sequence[int]) -> None:
        """Count failures of a task's verifier in the latest scoring, if it can fail."""
        failures_N = self.task.failures_N
        # Answers of some cells alone cannot be shared out among all.
        if failures_N is None or shape[0] != len(self.seeds):
            return
        rows_RM = failures_N.reshape(len(self.seeds), -1)
        for name, code in (("verifier/errors", ERROR), ("verifier/timeouts", TIMEOUT)):
            self.counts[name] = self.counts.get(name, 0.0) + (rows_RM == code).sum(1).astype(np.float64)


def flat(
    prompt_RNQ: np.ndarray, token_RBT: Tensor, mask_RBT: Tensor, group: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return prompts, tokens and masks of all responses, one row each."""
    prompt_MQ = prompt_RNQ.repeat(group, axis=1).reshape(-1, prompt_RNQ.shape[-1])
    return prompt_MQ, token_RBT.flatten(0, 1).cpu().numpy(), mask_RBT.flatten(0, 1).cpu().numpy()
