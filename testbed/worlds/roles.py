"""A policy of two roles with separate weights, one for turn 0 and one for turn 1."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from testbed.errors import UserError
from testbed.policies.policy import Distribution, Drawn, Layout, Policy

ROLES = ("shared", "separate")
ACROSS_VERSIONS = ("in-flight", "partial", "windowed")
"""Schedules that change weights inside a response."""


def separated(policy: Policy, turn_T: tuple[int, ...], changed: bool, staleness: str) -> "TwoRoles":
    """Return the policy once per role; UserError for changed layers, or weights that change in a response."""
    if changed or staleness in ACROSS_VERSIONS:
        raise UserError(
            "policy_args.roles 'separate' goes with neither perturb nor precision nor weights that change "
            f"inside a response (staleness {' or '.join(ACROSS_VERSIONS)}); take one."
        )
    return TwoRoles(policy, turn_T)


class TwoRoles(Policy):
    """One policy per turn of a task of two turns, [theta of turn 0, theta of turn 1] in one row.

    A role reads all earlier tokens with its weights. Both start alike.
    """

    def __init__(self, policy: Policy, turn_T: tuple[int, ...]) -> None:
        if set(turn_T) != {0, 1}:
            raise UserError(
                f"policy_args.roles is 'separate', but the task has {len(set(turn_T)) or 1} turns; "
                "expected a task of two turns, as 'solver-checker'."
            )
        self.policy, self.turn_T = policy, turn_T
        self.parameters, self.dtype, self.device = 2 * policy.parameters, policy.dtype, policy.device

    @property
    def layout(self) -> Layout:
        return {f"{role}/{name}": shape for role in (0, 1) for name, shape in self.policy.layout.items()}

    @property
    def positions(self) -> int:
        return self.policy.positions

    @property
    def width(self) -> int:
        """Width of each role, by which a warm start scales its rate."""
        return self.policy.width

    def initial(self, seeds: Sequence[int]) -> Tensor:
        """Return the policy's starting weights, twice."""
        return self.policy.initial(seeds).repeat(1, 2)

    def logp(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        return self._by_role(self.policy.logp, theta_RP, where, token_RBT, mask_RBT)

    def entropy(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        return self._by_role(self.policy.entropy, theta_RP, where, token_RBT, mask_RBT)

    def score_norm(self, theta_RP: Tensor, where: Tensor, token_RBT: Tensor, mask_RBT: Tensor) -> Tensor:
        return self._by_role(self.policy.score_norm, theta_RP, where, token_RBT, mask_RBT)

    def sample(
        self,
        theta_RP: Tensor,
        prompt_RNQ: Tensor,
        group: int,
        uniform_RBT: Tensor,
        greedy: bool = False,
        distribution: Distribution | None = None,
    ) -> Drawn:
        if greedy:
            self._lacks("a greedy sampler for two roles")
        theta_RWP, role_11T = theta_RP.unflatten(-1, (2, -1)), self._roles()[None, None]
        return self.policy.sample_in_flight(
            theta_RWP, role_11T, prompt_RNQ, group, uniform_RBT, "recomputed", distribution
        )

    def _by_role(self, of: Callable[..., Tensor], theta_RP: Tensor, *given: Tensor) -> Tensor:
        first_RBT, second_RBT = (of(part_RP, *given) for part_RP in theta_RP.chunk(2, -1))
        return torch.where(self._roles() == 0, first_RBT, second_RBT)

    def _roles(self) -> Tensor:
        return torch.tensor(self.turn_T, device=self.device)
