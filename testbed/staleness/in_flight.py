"""In-flight updates: weights change during a response, so its tokens differ in age."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from testbed.config.run import Run
from testbed.errors import UserError
from testbed.policies.token_versions import checked_cache
from testbed.staleness import schedule
from testbed.staleness.schedule_plan import Generated, SchedulePlan
from testbed.staleness.versions import VersionBuffer
from testbed.worlds.task_registry import longest_response
from testbed.worlds.world import BehaviorWeights, World


@dataclass(frozen=True)
class InFlight(SchedulePlan):
    """A plan in which every optimizer step reaches the generator after `tokens` tokens.

    shortest: age of the last possible position of a response. most_versions: limit on the versions kept; 0
    sets none.
    """

    shortest: int
    tokens: int
    cache: str
    most_versions: int

    def check(self, run: Run) -> None:
        """Raise UserError if an age limit drops every sample; a sample is as old as its first token."""
        length = longest_response(run)
        oldest = self.shortest + (length - 1) // self.tokens
        if run.too_old == "drop" and 0 <= run.age_limit < oldest:
            raise UserError(
                f"age_limit is {run.age_limit}, but the first of {length} tokens, {self.tokens} per update, "
                f"is {oldest} steps old under lag {self.shortest}: every sample would be dropped. Raise "
                f"age_limit to {oldest}, or set too_old to truncate."
            )

    def source(
        self, plans: "Sequence[InFlight]", runs: tuple[Run, ...], world: "World", theta_RP: Tensor
    ) -> "InFlightSource":
        """Return the source of a pack; raise UserError if the longest response spans more than the buffer."""
        return InFlightSource(plans, runs, world, theta_RP)

    def versions(self, run: Run, length: int) -> int:
        """Return shortest + span; span is the number of versions during one response."""
        del run
        span = -(-length // self.tokens)
        depth = self.shortest + span
        if self.most_versions and depth > self.most_versions:
            raise UserError(
                f"a response of {length} tokens, {self.tokens} per update, is written by {span} versions; "
                f"with lag {self.shortest} that needs a buffer of {depth}, but versions is "
                f"{self.most_versions}. Raise versions or tokens, or lower lag."
            )
        return depth


class InFlightSource:
    """Keep the versions during which the longest response is written, and generate across them."""

    def __init__(
        self, plans: Sequence[InFlight], runs: tuple[Run, ...], world: "World", theta_RP: Tensor
    ) -> None:
        self.world, self.cache = world, plans[0].cache
        self.place_T = torch.arange(world.length, device=theta_RP.device) // plans[0].tokens
        self.lag_R = torch.tensor([plan.shortest for plan in plans], device=theta_RP.device)
        self.span = int(self.place_T[-1]) + 1
        cells = zip(plans, runs, strict=True)
        depths = [plan.versions(run, world.length) for plan, run in cells]
        self.versions = VersionBuffer(theta_RP, depths, dtype=world.version_dtype)

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Return this step's samples, with every token marked by its version."""
        self.versions.write(theta_RP, step)
        back_W = torch.arange(self.span - 1, -1, -1, device=theta_RP.device)
        version_RW = (step - self.lag_R[:, None] - back_W).clamp(min=0)
        theta_RWP = self.versions.read(version_RW)
        rollout = self.world.generate_in_flight(theta_RWP, self.place_T[None, None], step, self.cache)
        version_RBT = version_RW[:, None, self.place_T].expand(rollout.token_RBT.shape)
        one = self.span == 1
        table_RP = theta_RWP[:, 0] if one else self.world.in_flight_table(theta_RWP, self.place_T)
        behavior = None if table_RP is None else BehaviorWeights(table_RP)
        return Generated(replace(rollout, version_RBT=version_RBT), behavior)


@schedule("in-flight", source="Piche et al. (2025), PipelineRL, arXiv:2509.19128; Fu et al. (2025), AReaL")
def in_flight(lag: int, *, tokens: int = 4, cache: str = "kept", versions: int = 0) -> InFlight:
    """age = lag + (T - 1) // tokens - t // tokens for token t of responses of at most T tokens.

    An optimizer step reaches the generator after every `tokens` tokens: the last position has age lag, the
    first is the oldest. cache: at each change, keys and values of earlier tokens are "kept" (PipelineRL) or
    "recomputed" (AReaL's interruptible generation); a table has none. versions: limit on the versions kept, 0
    for none. With tokens >= T weights never change inside a response: exact(lag).
    """
    if lag < 0 or tokens < 1 or versions < 0:
        raise UserError(f"lag {lag}, tokens {tokens} and versions {versions}: expected at least 0, 1 and 0.")
    return InFlight(lag, tokens, checked_cache(cache), versions)
