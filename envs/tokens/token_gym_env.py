"""Any token task as a gymnasium environment: one action per token, the reward with the last one."""

from typing import Any

import gymnasium
import numpy as np

from envs.arrays import Ints
from envs.catalog import token_task


class TokenEnv(gymnasium.Env[Ints, np.int64]):
    """Observation: Q prompt and T response positions, [Q + T]; V where nothing is written. Action: a token.

    `task` is a cataloged token task; the other arguments are the task's. A tool's tokens follow an action at
    once. The reward of the last action is the task's exact score; `info` of the last step holds the
    response's text.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - gymnasium's own declaration

    def __init__(self, task: str = "running-sum", render_mode: str | None = None, **task_args: Any) -> None:
        self.task = token_task(task, task_args)
        self.render_mode = render_mode
        Q, T, V = self.task.prompt_length, self.task.response_length, self.task.vocabulary
        self.observation_space = gymnasium.spaces.MultiDiscrete(np.full(Q + T, V + 1))
        self.action_space = gymnasium.spaces.Discrete(V)
        self._place = np.full(Q + T, V, dtype=np.int64)
        self._written = T  # nothing to do before the first reset

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Ints, dict[str, Any]]:
        """A fresh prompt and an empty response."""
        super().reset(seed=seed, options=options)
        self._place[:] = self.task.vocabulary
        self._place[: self.task.prompt_length] = self.task.prompts(self.np_random, 1)[0]
        self._written = 0
        return self._place.copy(), {}

    def step(self, action: np.int64) -> tuple[Ints, float, bool, bool, dict[str, Any]]:
        """Write one token; end with the end token or when all T positions are full."""
        if not self.action_space.contains(action):
            raise ValueError(
                f"action {action!r} is not a token; expected an integer from 0 to {self.task.vocabulary - 1}."
            )
        Q, T = self.task.prompt_length, self.task.response_length
        if self._written >= T:
            raise ValueError("the episode is over; call reset before step.")
        self._place[Q + self._written] = action
        self._written += 1
        ended = bool(self._written == T or action == self.task.end_token) or self._tool_ends()
        if not ended:
            return self._place.copy(), 0.0, False, False, {}
        mask_T = np.arange(T) < self._written
        response_T = np.where(mask_T, self._place[Q:], 0)
        reward = float(self.task.score(self._place[None, :Q], response_T[None], mask_T[None])[0])
        self._written = T
        return self._place.copy(), reward, True, False, {"text": self.task.text(response_T, mask_T)}

    def _tool_ends(self) -> bool:
        """Let a tool write if the next positions belong to it; return True if it ended the response."""
        Q, tool_T = self.task.prompt_length, self.task.tool_T
        while tool_T and tool_T[self._written]:
            so_far_1t = self._place[None, Q : Q + self._written]
            answer = int(self.task.tool(self._place[None, :Q], so_far_1t)[0])
            self._place[Q + self._written] = answer
            self._written += 1
            if answer == self.task.end_token or self._written == self.task.response_length:
                return True
        return False

    def render(self) -> str:
        """The prompt, " -> " and the response so far, as text."""
        Q = self.task.prompt_length
        response = self._place[Q:]
        written = response[response < self.task.vocabulary]
        return f"{self.task.text(self._place[:Q])} -> {self.task.text(written)}"
