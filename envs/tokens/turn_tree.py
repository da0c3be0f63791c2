"""The tree of a task in which a tool writes too: its tokens are the world's, not the policy's."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from envs.arrays import Floats, Ints
from envs.finite_mdp import Episodes
from envs.tokens.base import TokenTask, every_response
from envs.tokens.tree import TokenTree


class TurnTree(TokenTree):
    """A TokenTree whose states at places of the tool have one possible token, whatever a policy says there.

    Their masks are False in episodes, their ratios 1, their gradients 0. Moments per token count them.

    tool_S: whether a tool writes in a state, [S]. answer_S: what it writes, 0 elsewhere.
    """

    def __init__(self, task: TokenTask, prompts: int | npt.ArrayLike, seed: int = 0) -> None:
        super().__init__(task, prompts, seed)
        self.tool_S = np.zeros(self.states, dtype=bool)
        self.answer_S = np.zeros(self.states, dtype=np.int64)
        tool_NS, answer_NS = (x.reshape(len(self.prompt_NQ), -1) for x in (self.tool_S, self.answer_S))
        for t in np.flatnonzero(task.tool_T):
            prefix_Lt = self.going[every_response(self.going.size, int(t), None)[0]]
            tool_NS[:, self._at(int(t))] = True
            for prompt_Q, answer_S in zip(self.prompt_NQ, answer_NS, strict=True):
                prompt_LQ = np.broadcast_to(prompt_Q, (len(prefix_Lt), prompt_Q.size))
                answer_S[self._at(int(t))] = task.tool(prompt_LQ, prefix_Lt)
        self._law_XA = np.eye(self.actions)[self.answer_S[self.tool_S]]

    def _policy(self, pi_xSA: Floats, name: str) -> Floats:
        pi = super()._policy(pi_xSA, name).copy()
        pi[..., self.tool_S, :] = self._law_XA
        return pi

    def _episodes(
        self, pi_RWSA: Floats, version_RBT: Ints, start_RN: Ints, group: int, key_R: npt.ArrayLike, step: int
    ) -> Episodes:
        found = super()._episodes(pi_RWSA, version_RBT, start_RN, group, key_R, step)
        chosen_T = ~np.array(self.task.tool_T)
        return Episodes(found.state_RBT, found.action_RBT, found.reward_RBT, found.mask_RBT & chosen_T)
