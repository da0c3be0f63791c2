"""Logged rounds with embeddings of actions: exact moments of MIPS and plain weighting, and their formulas."""

from dataclasses import dataclass

import numpy as np

from envs.arrays import Floats
from testbed.exact.bandit_moments import Moments, _check_overlap, _ratio


@dataclass(frozen=True)
class EmbeddedDistribution:
    """Logged rounds with an embedding e ~ p(e | x, a) [S, A, E] of actions; reward mean q [S, A, E].

    square_SAE: E[r^2 | x, a, e]. The reward has no direct effect when q does not depend on the action. mu may
    miss actions of pi: MIPS needs only its embeddings, but methods that need pi/mu raise UserError.
    """

    context_S: Floats
    mu_SA: Floats
    pi_SA: Floats
    embedding_SAE: Floats
    mean_SAE: Floats
    square_SAE: Floats

    @property
    def joint_SAE(self) -> Floats:
        """p(x) mu(a | x) p(e | x, a)."""
        return self.context_S[:, None, None] * self.mu_SA[..., None] * self.embedding_SAE

    @property
    def marginal_weight_SE(self) -> Floats:
        """p(e | x, pi) / p(e | x, mu), 0 where mu never shows e."""
        top_SE, bottom_SE = (
            np.einsum("xa,xae->xe", p_SA, self.embedding_SAE) for p_SA in (self.pi_SA, self.mu_SA)
        )
        return _ratio(top_SE, bottom_SE)

    @property
    def weight_SA(self) -> Floats:
        """w = pi / mu, 0 where both are 0; UserError where only mu is 0."""
        _check_overlap(self.context_S, self.mu_SA, self.pi_SA)
        return _ratio(self.pi_SA, self.mu_SA)

    @property
    def value(self) -> float:
        """E_pi r."""
        target_SAE = self.context_S[:, None, None] * self.pi_SA[..., None] * self.embedding_SAE
        return float((target_SAE * self.mean_SAE).sum())

    def moments(self, weight_SAE: Floats) -> Moments:
        """Bias and n-variance of the mean of w r for any weight of context, action and embedding."""
        mean = float((self.joint_SAE * weight_SAE * self.mean_SAE).sum())
        square = float((self.joint_SAE * weight_SAE**2 * self.square_SAE).sum())
        return Moments(mean - self.value, square - mean**2)

    def mips(self) -> Moments:
        """The marginalized estimator (Saito & Joachims 2022), by enumeration."""
        return self.moments(np.broadcast_to(self.marginal_weight_SE[:, None], self.joint_SAE.shape))

    def ips(self) -> Moments:
        """Plain importance weighting, by enumeration."""
        return self.moments(np.broadcast_to(self.weight_SA[..., None], self.joint_SAE.shape))

    def posterior_SAE(self) -> Floats:
        """mu(a | x, e)."""
        total_S1E = self.joint_SAE.sum(axis=1, keepdims=True)
        return self.joint_SAE / np.where(total_S1E > 0, total_S1E, 1.0)

    def mips_bias_formula(self) -> float:
        """E sum_{a<b} mu(a|x,e) mu(b|x,e) [q(a) - q(b)] [w(b) - w(a)]; 0 without direct effect."""
        posterior_SAE, w_SA = self.posterior_SAE(), self.weight_SA
        gap_SAAE = self.mean_SAE[:, :, None] - self.mean_SAE[:, None]
        weight_SAA = w_SA[:, None] - w_SA[:, :, None]
        pairs_SE = np.einsum(
            "xae,xbe,xabe,xab->xe", posterior_SAE, posterior_SAE, gap_SAAE, weight_SAA
        )  # each pair twice
        return float((self.joint_SAE.sum(axis=1) * pairs_SE).sum() / 2)

    def mips_gain_formula(self) -> float:
        """n (Var IPS - Var MIPS) = E[E[r^2 | x, e] Var_{a | x, e} w], valid without direct effect."""
        posterior_SAE, w_SA1 = self.posterior_SAE(), self.weight_SA[..., None]
        mean_SE = (posterior_SAE * w_SA1).sum(axis=1)
        spread_SE = (posterior_SAE * w_SA1**2).sum(axis=1) - mean_SE**2
        square_SE = (posterior_SAE * self.square_SAE).sum(axis=1)
        return float((self.joint_SAE.sum(axis=1) * square_SE * spread_SE).sum())
