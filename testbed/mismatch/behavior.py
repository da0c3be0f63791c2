"""The behavior engine of a policy: it samples and returns log mu, as the policy returns log pi.

Functions by which a world generates through an engine:

    behavior = Behavior(policy, engine, seeds)
    tabular      mu_RSA = behavior.probabilities(theta_RP, step)           instead of policy.probabilities
    token        behavior.sample(theta_RP, prompt_RNQ, group, uniform, step)   instead of policy.sample
    both         behavior.logp(theta_RP, rollout, step)                    log mu of any rollout's tokens

With the engine "off" each is the policy's, bit for bit. If generation lags, the world passes older weights:
lag and mismatch are separate settings.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.mismatch import Draw, Forward, SamplerEngine
from testbed.policies.policy import Distribution, Drawn, Policy, Reweighted


def rebuilt(forward: Forward, policy: Policy, draw: Draw) -> Policy:
    """Return the policy with an engine's forward pass inside, below all changes of weights."""
    if not isinstance(policy, Reweighted):
        return forward(policy, draw)
    past_RP = None if draw.past_RP is None else policy.weights(draw.past_RP)
    return policy.around(rebuilt(forward, policy.policy, replace(draw, past_RP=past_RP)))


def forcing(given_RBT: Tensor, distribution: Distribution | None = None) -> Distribution:
    """Put all mass on a given token where one is given (not negative); elsewhere keep `distribution`."""

    def of_time(log_pi_RVB: Tensor, t: int) -> Tensor:
        log_mu_RVB = log_pi_RVB if distribution is None else distribution(log_pi_RVB, t)
        given_R1B = given_RBT[:, None, :, t].to(log_mu_RVB.device)
        alone_RVB = torch.full_like(log_mu_RVB, -torch.inf).scatter(1, given_R1B.clamp(min=0), 0.0)
        return torch.where(given_R1B >= 0, alone_RVB, log_mu_RVB)

    return of_time


class Behavior:
    """An engine around a policy; seeds identify the replicas' streams.

    slices: rows of theta per seed: row r * slices + s holds the weights of part s of replica r's batch.

    Raises UserError for an engine with a different forward pass, except around the toy transformer.
    """

    def __init__(
        self, policy: Policy, engine: SamplerEngine, seeds: tuple[int, ...], slices: int = 1
    ) -> None:
        self.policy, self.engine, self.seeds, self.slices = policy, engine, tuple(seeds), slices
        self.tabular = policy.tabular
        if engine.forward is not None and not policy.open_layers:
            raise UserError(
                f"engine '{engine.name}' changes the forward pass, so it needs a transformer, policy "
                f"'toy'; this one is {type(policy).__name__}."
            )

    def weights(self, theta_RP: Tensor, step: int, past_RP: Tensor | None = None) -> Tensor:
        """Return theta of the behavior engine; differentiable, roundings straight through.

        Raises UserError unless theta has one row per seed and slice.
        """
        if len(theta_RP) != len(self.seeds) * self.slices:
            raise UserError(
                f"theta has {len(theta_RP)} rows for {len(self.seeds)} seeds and {self.slices} slices; "
                "expected one per seed and slice."
            )
        change = self.engine.weights
        return theta_RP if change is None else change(theta_RP, self.policy.layout, self._draw(step, past_RP))

    def log_table(self, theta_RP: Tensor, step: int, past_RP: Tensor | None = None) -> Tensor:
        """Return log mu(a|s) of a tabular policy, [R, S, A]."""
        log_pi_RSA = self.policy.logits(self.weights(theta_RP, step, past_RP)).log_softmax(-1)
        distribution = self.engine.distribution
        return log_pi_RSA if distribution is None else distribution(log_pi_RSA, self._draw(step, past_RP), 0)

    def probabilities(self, theta_RP: Tensor, step: int, past_RP: Tensor | None = None) -> np.ndarray:
        """Return mu(a|s) of a tabular policy as float64 [R, S, A]."""
        if self.engine.distribution is None:
            return self.policy.probabilities(self.weights(theta_RP, step, past_RP))
        mu_RSA: np.ndarray = self.log_table(theta_RP.detach(), step, past_RP).exp().numpy()
        return mu_RSA

    def sample(
        self,
        theta_RP: Tensor,
        prompt_RNQ: Tensor,
        group: int,
        uniform_RBT: Tensor,
        step: int,
        past_RP: Tensor | None = None,
        given_RBT: Tensor | None = None,
    ) -> Drawn:
        """Return token_RBT, mask_RBT and logp_mu_RBT of a token policy, as `policy.sample` does.

        given_RBT: fixed tokens, negative where one is drawn; their log mu is 0.
        """
        changed_RP = self.weights(theta_RP, step, past_RP)
        policy = self._forward(step, past_RP)
        mu = self._mu(step, past_RP)
        mu = mu if given_RBT is None else forcing(given_RBT, mu)
        drawn = policy.sample(changed_RP, prompt_RNQ, group, uniform_RBT, distribution=mu)
        token_RBT, mask_RBT, logp_RBT = drawn
        if self.engine.raw and mu is not None:
            logp_RBT = policy.logp(changed_RP, prompt_RNQ, token_RBT, mask_RBT)
            if given_RBT is not None:
                logp_RBT = logp_RBT.masked_fill(given_RBT.to(logp_RBT.device) >= 0, 0.0)
        return token_RBT, mask_RBT, logp_RBT

    def sample_in_flight(
        self,
        theta_RWP: Tensor,
        version_RBT: Tensor,
        prompt_RNQ: Tensor,
        group: int,
        uniform_RBT: Tensor,
        step: int,
        cache: str,
    ) -> Drawn:
        """Return the result of `sample` when weights change during responses, see ToyTransformer.

        Raises UserError for raw log-probabilities of an engine that changes the distribution.
        """
        if self.engine.raw and self.engine.distribution is not None:
            raise UserError(
                f"mismatch '{self.engine.name}' records raw log-probabilities, which are not kept while "
                "weights change in flight. Leave 'raw' out, or take another schedule."
            )
        changed_RWP = torch.stack([self.weights(theta_RP, step) for theta_RP in theta_RWP.unbind(1)], 1)
        mu = self._mu(step, None)
        policy = self._forward(step, None)
        return policy.sample_in_flight(changed_RWP, version_RBT, prompt_RNQ, group, uniform_RBT, cache, mu)

    def logp(self, theta_RP: Tensor, rollout: Rollout, step: int, past_RP: Tensor | None = None) -> Tensor:
        """Return the recorded log mu of a rollout's tokens [R, B, T]; 0 outside the mask, -inf where mu is 0.

        Differentiable in theta except for stale-kv and for a distribution-level engine around the toy
        transformer.
        """
        changed_RP = self.weights(theta_RP, step, past_RP)
        if self.engine.distribution is None or self.engine.raw:
            where = rollout.states() if self.tabular else rollout.prompt_RNQ
            policy = self._forward(step, past_RP)
            return policy.logp(changed_RP, where, rollout.token_RBT, rollout.mask_RBT)
        if not self.tabular:
            return self._read(changed_RP, rollout, step, past_RP)
        log_mu_RSA = self.log_table(theta_RP, step, past_RP)
        pair_RX = (rollout.states() * log_mu_RSA.shape[-1] + rollout.token_RBT).flatten(1)
        log_mu_RBT = log_mu_RSA.flatten(1).gather(1, pair_RX).view_as(rollout.token_RBT)
        return torch.where(rollout.mask_RBT, log_mu_RBT, torch.zeros_like(log_mu_RBT))

    def _read(self, changed_RP: Tensor, rollout: Rollout, step: int, past_RP: Tensor | None) -> Tensor:
        """Let the sampler rewrite the rollout's tokens and record their log-probabilities in the engine."""
        token_RBT, noted, mu = rollout.token_RBT, [], self._mu(step, past_RP)
        assert mu is not None

        def forced(log_pi_RVB: Tensor, t: int) -> Tensor:
            log_mu_RVB = mu(log_pi_RVB, t)
            index_R1B = token_RBT[:, None, :, t]
            noted.append(log_mu_RVB.gather(1, index_R1B)[:, 0])
            return torch.full_like(log_mu_RVB, -torch.inf).scatter(1, index_R1B, 0.0)

        uniform_RBT = torch.zeros(token_RBT.shape, dtype=torch.float64)
        prompt_RNQ, group = rollout.prompt_RNQ, rollout.group
        policy = self._forward(step, past_RP)
        policy.sample(changed_RP.detach(), prompt_RNQ, group, uniform_RBT, distribution=forced)
        # The sampler stops when every response has ended.
        log_mu_RBT = torch.zeros(token_RBT.shape, dtype=noted[0].dtype, device=token_RBT.device)
        log_mu_RBT[..., : len(noted)] = torch.stack(noted, -1)
        return torch.where(rollout.mask_RBT, log_mu_RBT, torch.zeros_like(log_mu_RBT))

    def _forward(self, step: int, past_RP: Tensor | None) -> Policy:
        """Return the policy, or its version with the engine's forward pass."""
        if self.engine.forward is None:
            return self.policy
        # An engine that rounds its weights rounded the older ones too when it filled the cache.
        if past_RP is not None:
            past_RP = self.weights(past_RP, step, past_RP)
        return rebuilt(self.engine.forward, self.policy, self._draw(step, past_RP))

    def _mu(self, step: int, past_RP: Tensor | None) -> Distribution | None:
        """Return the engine's change of log pi at time t; None for an engine that keeps the policy's."""
        if self.engine.distribution is None:
            return None
        change, draw = self.engine.distribution, self._draw(step, past_RP)
        return lambda log_pi_RVB, t: change(log_pi_RVB.transpose(1, 2), draw, t).transpose(1, 2)

    def _draw(self, step: int, past_RP: Tensor | None) -> Draw:
        return Draw(self.seeds, step, self.policy.positions, past_RP, slices=self.slices, shared=self.tabular)
