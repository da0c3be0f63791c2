"""Exact divergences between the episode distributions of two stationary policies."""

from dataclasses import dataclass

import numpy as np

from envs.arrays import Floats
from envs.tables import Tables


@dataclass(frozen=True)
class Divergence:
    """Moments of the sequence ratio w = prod_t rho_t of pi to mu; arrays have the policies' shape [x].

    - `kl_pi_mu`, `kl_mu_pi`: relative entropies of the episode distributions, in nats.
    - `second_moment`: E_mu w^2.
    - `second_moment_prefix_T` [x, T]: E_mu of the squared ratio of the first t + 1 steps.
    - `second_moment_token`, `mean_rho_token`: E_mu sum_t rho_t^2 (or rho_t) over E_mu length, tokens pooled.
    - `max_log_rho`: the largest log w of an episode that pi can produce.
    """

    kl_pi_mu: Floats
    kl_mu_pi: Floats
    second_moment: Floats
    second_moment_token: Floats
    mean_rho_token: Floats
    second_moment_prefix_T: Floats
    max_log_rho: Floats

    @property
    def chi2(self) -> Floats:
        """E_mu w^2 - 1."""
        return self.second_moment - 1.0

    @property
    def ess_kish(self) -> Floats:
        """1 / E_mu w^2: the limit of Kish's ESS, as a share of N."""
        return 1.0 / self.second_moment

    @property
    def ess_perplexity(self) -> Floats:
        """exp(-KL(pi, mu)): the limit of the perplexity ESS, as a share of N."""
        return np.exp(-self.kl_pi_mu)

    @property
    def ess_max(self) -> Floats:
        """exp(-max log w): the limit of the max-weight ESS, as a share of N."""
        return np.exp(-self.max_log_rho)


def episode_divergence(tables: Tables, pi_RSA: Floats, mu_RSA: Floats) -> Divergence:
    """Divergence of each pi from the mu of the same row, [R]; infinite if pi leaves mu's support.

    Cost per policy: four sweeps over T * S * A * successors. E_mu w^2 may overflow to inf far off policy.
    """
    # Imported here: building and listing worlds should not load the compiler.
    from envs import dynamic_programs as programs

    visits = (programs.state_occupancy(tables, each_RSA) for each_RSA in (pi_RSA, mu_RSA))
    sums_RM = programs.divergence_sums(tables, pi_RSA, mu_RSA, *visits)
    prefix_RT = programs.prefix_second_moments(tables, pi_RSA, mu_RSA)
    kl_pi_mu_R, kl_mu_pi_R, square_R, mean_R, length_R = sums_RM.T
    return Divergence(
        kl_pi_mu=kl_pi_mu_R, kl_mu_pi=kl_mu_pi_R, second_moment=prefix_RT[:, -1],
        second_moment_token=square_R / length_R, mean_rho_token=mean_R / length_R,
        second_moment_prefix_T=prefix_RT, max_log_rho=programs.largest_log_ratio(tables, pi_RSA, mu_RSA),
    )  # fmt: skip


def log_moment(
    transition_SAS: Floats, tables: Tables, pi_RSA: Floats, mu_RSA: Floats, order: float
) -> Floats:
    """ln E_mu w^order of the sequence ratio, [R], in logarithms: never overflows.

    Backward: M_t(s) = sum_a pi^order mu^(1 - order) sum_s' P(s'|s,a) M_{t+1}(s'), M = 1 after the last step
    and in terminal states. Infinite if order > 1 and pi leaves the support of mu in a reachable state.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        log_pi, log_mu, log_move_SAS = np.log(pi_RSA), np.log(mu_RSA), np.log(transition_SAS)
        off_support = np.inf if order > 1.0 else -np.inf
        log_step_RSA = np.where(mu_RSA > 0.0, order * log_pi + (1.0 - order) * log_mu, off_support)
        log_step_RSA = np.where(pi_RSA > 0.0, log_step_RSA, -np.inf)
        log_start_S = np.log(tables.start_S)
    ahead_RS = np.zeros(pi_RSA.shape[:2])
    for _ in range(tables.horizon):
        log_next_RSA = _log_sum(_log_product(log_move_SAS, ahead_RS[:, None, None, :]))
        ahead_RS = np.where(tables.terminal_S, 0.0, _log_sum(_log_product(log_step_RSA, log_next_RSA)))
    return _log_sum(_log_product(log_start_S, ahead_RS))


def _log_sum(log_xK: Floats) -> Floats:
    """ln sum exp over the last axis; -inf for an empty sum."""
    found: Floats = np.logaddexp.reduce(log_xK, axis=-1)
    return found


def _log_product(left: Floats, right: Floats) -> Floats:
    """left + right with 0 * inf = 0: -inf + inf is -inf, so unreachable terms add nothing."""
    with np.errstate(invalid="ignore"):
        return np.where((left == -np.inf) | (right == -np.inf), -np.inf, left + right)
