"""Critics fitted to returns by gradient descent: a table, a head on the policy, a separate model."""

import math
from abc import abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from testbed import rng
from testbed.advantages import advantage
from testbed.critics import Critic, critic
from testbed.data.rollout import Rollout
from testbed.data.signals import Signals
from testbed.errors import UserError
from testbed.policies.optimizers import Adam
from testbed.worlds.world import World


@dataclass(frozen=True)
class Fit:
    """Training of a critic: Adam at `rate` on the squared distance from V + A.

    lam, gamma: of A, by egae, so that a truncated response continues with its last value; lam = 1 is the
    return.
    off_policy: A by v_trace instead. passes: steps on each batch; `first`: those on the first batch (0: as
    many). clip: largest change of values from before the first pass (0: no limit). replay: earlier batches to
    step on too, with current values and ratios.
    """

    rate: float
    lam: float = 1.0
    gamma: float = 1.0
    off_policy: bool = False
    passes: int = 1
    first: int = 0
    clip: float = 0.0
    replay: int = 0

    def __post_init__(self) -> None:
        """Raise UserError for invalid numbers."""
        for name, least in (("passes", 1), ("first", 0), ("clip", 0), ("replay", 0)):
            if getattr(self, name) < least:
                raise UserError(f"critic_args.{name} is {getattr(self, name)}, expected at least {least}.")
        if not self.rate > 0 or not 0 <= self.lam <= 1 or not 0 < self.gamma <= 1:
            raise UserError(
                f"critic_args are rate {self.rate:g}, lam {self.lam:g}, gamma {self.gamma:g}; expected "
                "a rate above 0, lam from 0 to 1 and gamma above 0 up to 1."
            )

    def target(self, signals: Signals) -> Tensor:
        """Return V + A of every token, [C, B, T]."""
        name = "v_trace" if self.off_policy else "egae"
        adv_CBT: Tensor = advantage[name].bind(gamma=self.gamma, lam=self.lam)(signals)
        return signals.tokens("value_BT", name) + adv_CBT


class Fitted(Critic):
    """A critic with weights w_CK; subclasses define the prediction."""

    def __init__(self, world: World, w_CK: Tensor, fit: Fit) -> None:
        self.world, self.w_CK, self.fit = world, w_CK, fit
        self.optimizer = Adam(w_CK)
        self.stored: deque[Rollout] = deque(maxlen=fit.replay)
        self.lessons = 0
        self.noted: dict[str, Tensor] = {}

    @abstractmethod
    def predict(self, w_CK: Tensor, theta_CP: Tensor, rollout: Rollout) -> Tensor:
        """Return predictions [H, C, B, T], differentiable in w; all H learn from one target."""

    def joined(self, value_HCBT: Tensor) -> Tensor:
        """Combine H predictions into one value, [C, B, T]: their mean."""
        return value_HCBT.mean(0)

    @torch.no_grad()
    def values(self, theta_CP: Tensor, rollout: Rollout) -> Tensor:
        return self._masked(self.joined(self.predict(self.w_CK, theta_CP, rollout)), rollout)

    def learn(self, theta_CP: Tensor, rollout: Rollout, signals: Signals) -> None:
        """Step on this batch, then on stored ones; record the error and explained variance before."""
        target_CBT, value_CBT = self.fit.target(signals), signals.tokens("value_BT", "a critic")
        self.noted = explained(value_CBT, target_CBT, rollout.mask_RBT)
        passes = (self.fit.first or self.fit.passes) if not self.lessons else self.fit.passes
        for _ in range(passes):
            self._step(theta_CP, rollout, target_CBT, value_CBT)
        for earlier in self.stored:
            again = self._signals(theta_CP, earlier)
            self._step(theta_CP, earlier, self.fit.target(again), again.tokens("value_BT", "a critic"))
        if self.fit.replay:
            self.stored.append(rollout)
        self.lessons += 1

    def _signals(self, theta_CP: Tensor, rollout: Rollout) -> Signals:
        """Return the signals for a stored batch's target, under the current values and policy."""
        with torch.no_grad():
            log_rho_CBT = self.world.logp(theta_CP, rollout) - rollout.logp_mu_RBT
        return Signals(
            rollout.reward_RB,
            rollout.groups(),
            rollout.mask_RBT,
            log_rho_BT=self._masked(log_rho_CBT, rollout),
            value_BT=self.values(theta_CP, rollout),
            truncated_B=truncated(rollout),
        )

    def _step(self, theta_CP: Tensor, rollout: Rollout, target_CBT: Tensor, before_CBT: Tensor) -> None:
        leaf_CK = self.w_CK.detach().requires_grad_()
        value_HCBT = self.predict(leaf_CK, theta_CP, rollout)
        square_HCBT = (value_HCBT - target_CBT).square()
        if self.fit.clip:
            near_HCBT = before_CBT + (value_HCBT - before_CBT).clamp(-self.fit.clip, self.fit.clip)
            square_HCBT = torch.maximum(square_HCBT, (near_HCBT - target_CBT).square())
        mask_CBT = rollout.mask_RBT
        loss_C = (square_HCBT.sum(0) * mask_CBT).sum((1, 2)) / (2 * mask_CBT.sum((1, 2)))
        (grad_CK,) = torch.autograd.grad(loss_C.sum(), leaf_CK)
        # A replica with a diverged policy has no features; then only momentum moves its critic, not to NaN.
        grad_CK = torch.where(torch.isfinite(grad_CK).all(-1, keepdim=True), grad_CK, 0.0)
        rate_C = grad_CK.new_full((len(grad_CK),), self.fit.rate)
        self.w_CK = self.optimizer.step(self.w_CK, grad_CK, rate_C)

    def _masked(self, value_CBT: Tensor, rollout: Rollout) -> Tensor:
        return torch.where(rollout.mask_RBT, value_CBT, torch.zeros_like(value_CBT))


class Table(Fitted):
    """One value per state."""

    def predict(self, w_CK: Tensor, theta_CP: Tensor, rollout: Rollout) -> Tensor:
        del theta_CP
        state_CBT = rollout.states()
        return w_CK.gather(-1, state_CBT.flatten(1)).view_as(state_CBT)[None]


class Head(Fitted):
    """Linear maps of the policy's last hidden states; no gradient reaches the policy.

    softness: of the minimum over heads, -softness log mean exp(-V / softness); 0 takes their mean.
    """

    def __init__(self, world: World, w_CK: Tensor, fit: Fit, heads: int, softness: float) -> None:
        super().__init__(world, w_CK, fit)
        self.heads, self.softness = heads, softness

    def predict(self, w_CK: Tensor, theta_CP: Tensor, rollout: Rollout) -> Tensor:
        with torch.no_grad():
            x_CBTM = self.world.features(theta_CP, rollout)
        w_CHK: Tensor = w_CK.unflatten(-1, (self.heads, -1))
        value_CBTH = torch.einsum("cbtm,chm->cbth", x_CBTM, w_CHK[..., 1:])
        return (value_CBTH + w_CHK[:, None, None, :, 0]).movedim(-1, 0)

    def joined(self, value_HCBT: Tensor) -> Tensor:
        return soft_minimum(value_HCBT, self.softness) if self.softness else value_HCBT.mean(0)


class Model(Fitted):
    """A separate transformer with a linear head; it starts as the policy does."""

    def predict(self, w_CK: Tensor, theta_CP: Tensor, rollout: Rollout) -> Tensor:
        own_CP, head_CK = w_CK[:, : theta_CP.shape[-1]], w_CK[:, theta_CP.shape[-1] :]
        x_CBTM = self.world.features(own_CP, rollout)
        value_CBT = torch.einsum("cbtm,cm->cbt", x_CBTM, head_CK[:, 1:]) + head_CK[:, :1, None]
        return value_CBT[None]


def soft_minimum(value_HCBT: Tensor, softness: float) -> Tensor:
    """Return -s log mean_h exp(-V_h / s): between the least and the mean of H values."""
    log_mean = torch.logsumexp(-value_HCBT / softness, 0) - math.log(len(value_HCBT))
    return -softness * log_mean


def explained(value_CBT: Tensor, target_CBT: Tensor, mask_CBT: Tensor) -> dict[str, Tensor]:
    """Return the mean squared error of values, and the explained share of the targets' variance; [C]."""
    count_C = mask_CBT.sum((1, 2))
    mean_C = (target_CBT * mask_CBT).sum((1, 2)) / count_C
    spread_C = ((target_CBT - mean_C[:, None, None]).square() * mask_CBT).sum((1, 2)) / count_C
    error_C = ((target_CBT - value_CBT).square() * mask_CBT).sum((1, 2)) / count_C
    share_C = torch.where(spread_C > 0, 1 - error_C / spread_C, torch.nan)
    return {"critic/vf_loss": error_C, "critic/vf_explained_var": share_C}


def truncated(rollout: Rollout) -> Tensor:
    """Return True for responses known only in part, bool [C, B]."""
    found = rollout.truncated_RB
    return torch.zeros_like(rollout.reward_RB, dtype=torch.bool) if found is None else found


@critic("table", source="Sutton & Barto (2018), Section 9.3", policies=("tabular",))
def table(
    world: World, theta_CP: Tensor, seeds: Sequence[int], *, rate: float = 0.02, lam: float = 1.0,
    gamma: float = 1.0, off_policy: bool = False, passes: int = 1, first: int = 0, clip: float = 0.0,
    replay: int = 0,
) -> Table:  # fmt: skip
    """One value per state of a table, starting at 0; arguments as in Fit."""
    fit = Fit(rate, lam, gamma, off_policy, passes, first, clip, replay)
    del seeds
    return Table(world, theta_CP.new_zeros(len(theta_CP), world.states), fit)


@critic("head", source="Schulman et al. (2017), PPO, arXiv:1707.06347, Section 5", policies=("toy",))
def head(
    world: World, theta_CP: Tensor, seeds: Sequence[int], *, rate: float = 0.01, lam: float = 1.0,
    gamma: float = 1.0, off_policy: bool = False, passes: int = 1, first: int = 0, clip: float = 0.0,
    replay: int = 0, heads: int = 1, softness: float = 0.0,
) -> Head:  # fmt: skip
    """Linear maps of the policy's last hidden states, without changing them; arguments as in Fit.

    heads start at different random weights (standard deviation 0.1), one alone at 0. softness: see Head.
    """
    fit = Fit(rate, lam, gamma, off_policy, passes, first, clip, replay)
    if heads < 1 or softness < 0:
        raise UserError(f"critic_args.heads is {heads} and softness {softness}; expected at least 1 and 0.")
    size = heads * (world.width + 1)
    drawn = [0.1 * rng.generator(seed, "critic").standard_normal(size) for seed in seeds]
    w_CK = torch.stack([theta_CP.new_tensor(row) for row in drawn])
    return Head(world, w_CK if heads > 1 else torch.zeros_like(w_CK), fit, heads, softness)


@critic(
    "model", source="Ouyang et al. (2022), InstructGPT, arXiv:2203.02155, Appendix C.4", policies=("toy",)
)
def model(
    world: World, theta_CP: Tensor, seeds: Sequence[int], *, rate: float = 0.001, lam: float = 1.0,
    gamma: float = 1.0, off_policy: bool = False, passes: int = 1, first: int = 0, clip: float = 0.0,
    replay: int = 0,
) -> Model:  # fmt: skip
    """A separate transformer that starts as the policy does, with a head that starts at 0; see Fit."""
    fit = Fit(rate, lam, gamma, off_policy, passes, first, clip, replay)
    del seeds
    w_CK = torch.cat([theta_CP.detach(), theta_CP.new_zeros(len(theta_CP), world.width + 1)], -1)
    return Model(world, w_CK, fit)
