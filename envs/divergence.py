"""How far apart the episode laws of two stationary policies are, exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from envs.tables import Tables


@dataclass(frozen=True)
class Divergence:
    """Moments of the sequence ratio w = prod_t rho_t of pi to mu; arrays have the policies' shape [x].

    - `kl_pi_mu`, `kl_mu_pi`: relative entropies of the episode laws, in nats.
    - `second_moment`: E_mu w^2.
    - `second_moment_prefix_T` [x, T]: E_mu of the squared ratio of the first t + 1 steps.
    - `second_moment_token`, `mean_rho_token`: E_mu sum_t rho_t^2 (or rho_t) over E_mu length, tokens pooled.
    - `max_log_rho`: the largest log w of an episode that pi can produce.
    """

    kl_pi_mu: NDArray[np.float64]
    kl_mu_pi: NDArray[np.float64]
    second_moment: NDArray[np.float64]
    second_moment_token: NDArray[np.float64]
    mean_rho_token: NDArray[np.float64]
    second_moment_prefix_T: NDArray[np.float64]
    max_log_rho: NDArray[np.float64]

    @property
    def chi2(self) -> NDArray[np.float64]:
        """E_mu w^2 - 1."""
        return self.second_moment - 1.0

    @property
    def ess_kish(self) -> NDArray[np.float64]:
        """1 / E_mu w^2: what Kish's ESS tends to, as a share of N."""
        return 1.0 / self.second_moment

    @property
    def ess_perplexity(self) -> NDArray[np.float64]:
        """exp(-KL(pi, mu)): what the perplexity ESS tends to, as a share of N."""
        return np.exp(-self.kl_pi_mu)

    @property
    def ess_max(self) -> NDArray[np.float64]:
        """exp(-max log w): what the max-weight ESS tends to, as a share of N."""
        return np.exp(-self.max_log_rho)


def episode_divergence(
    tables: Tables, pi_RSA: NDArray[np.float64], mu_RSA: NDArray[np.float64]
) -> Divergence:
    """The divergence of each pi from the mu of the same row, [R]; infinite where pi leaves mu's support.

    Cost per policy: four sweeps over T * S * A * successors. E_mu w^2 may overflow to inf far off policy.
    """
    # Imported here: a world can be built and listed without loading the compiler.
    from envs import dynamic_programs as programs

    sums_RM = programs.divergence_sums(
        tables,
        pi_RSA,
        mu_RSA,
        programs.state_occupancy(tables, pi_RSA),
        programs.state_occupancy(tables, mu_RSA),
    )
    prefix_RT = programs.prefix_second_moments(tables, pi_RSA, mu_RSA)
    kl_pi_mu_R, kl_mu_pi_R, square_R, mean_R, length_R = sums_RM.T
    return Divergence(
        kl_pi_mu=kl_pi_mu_R,
        kl_mu_pi=kl_mu_pi_R,
        second_moment=prefix_RT[:, -1],
        second_moment_token=square_R / length_R,
        mean_rho_token=mean_R / length_R,
        second_moment_prefix_T=prefix_RT,
        max_log_rho=programs.largest_log_ratio(tables, pi_RSA, mu_RSA),
    )
