"""Any finite MDP as a gymnasium environment: states are observations, one action at a time."""

from typing import Any

import gymnasium
import numpy as np

from envs.catalog import make
from envs.tables import running_sums


class FiniteMDPEnv(gymnasium.Env[np.int64, np.int64]):
    """Observation: the state, Discrete(S). Action: Discrete(A). Terminates when the world's episode ends.

    `world` is a cataloged name; the other arguments are the world's. The horizon is part of the world (no
    reward follows it), so reaching it is termination, not truncation. `env.unwrapped.mdp` is the world with
    its exact values.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - gymnasium's own declaration

    def __init__(self, world: str = "chain", render_mode: str | None = None, **arguments: Any) -> None:
        self.mdp = make(world, **arguments)
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Discrete(self.mdp.states)
        self.action_space = gymnasium.spaces.Discrete(self.mdp.actions)
        self._next_SAS = running_sums(self.mdp.transition_SAS)
        self._state = 0
        self._step: int | None = None  # None: no episode is running
        self._last = "not started"

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        """Draw a start state from the world's distribution."""
        super().reset(seed=seed, options=options)
        self._state = int(self.mdp.start(self.np_random.random((1, 1)))[0, 0])
        self._step = 0
        self._last = f"state {self._state}"
        return np.int64(self._state), {}

    def step(self, action: np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        """One draw of next state and reward."""
        if not self.action_space.contains(action):
            raise ValueError(f"action is {action!r}, expected an integer from 0 to {self.mdp.actions - 1}.")
        if self._step is None:
            raise ValueError("the episode is over or was never started; call reset before step.")
        state = self._state
        self._state = int(np.searchsorted(self._next_SAS[state, action], self.np_random.random(), "right"))
        reward = self._reward(state, int(action)) + float(self.mdp.bonus_S[self._state])
        self._step += 1
        over = bool(self.mdp.terminal_S[self._state]) or self._step == self.mdp.horizon
        self._last = f"step {self._step}: action {int(action)}, reward {reward:g}, state {self._state}"
        if over:
            self._step = None
        return np.int64(self._state), reward, over, False, {}

    def render(self) -> str:
        """The last step in one line of text."""
        return self._last

    def _reward(self, state: int, action: int) -> float:
        mean = float(self.mdp.reward_SA[state, action])
        match self.mdp.noise:
            case "bernoulli":
                return float(self.np_random.random() < mean)
            case "normal":
                deviation = np.sqrt(self.mdp.noise_variance_SA()[state, action])
                return float(self.np_random.normal(mean, deviation))
            case _:
                return mean
