"""Tables of exact curves: limits of AsymRE, OAPL's path and the ESS of drifting token chains; no sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from analysis.load import Table
from envs.arrays import Floats

if TYPE_CHECKING:
    from envs.finite_mdp import FiniteMDP


MU = np.array([0.3, 0.25, 0.2, 0.15, 0.1])
"""The five-armed bandit of the limits: its behavior policy."""
REWARD = np.array([0.0, 0.2, 0.5, 0.8, 1.0])
"""Its rewards: the best action is the rarest."""
ASYMRE, OAPL, ESS = "asymre-phase", "oapl-path", "ess-theory"
BETAS = (1e-3, 0.1, 1.0)
LENGTHS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LAGS = (1, 2, 4, 8, 16, 32, 64)
TOKENS = 4
STEP = 0.015
"""Size of one update: every logit moves by this times a standard normal number, drawn once."""
FAR = 1e7
"""Flow time at which an AsymRE path counts as ended."""


def tables() -> dict[str, Table]:
    """Return the three tables by name, in under ten seconds."""
    return {ASYMRE: asymre_phase(), OAPL: oapl_path(), ESS: ess_theory()}


def instances() -> dict[str, tuple[Floats, Floats]]:
    """Return the bandits (mu, R) of the AsymRE figure."""
    return {"best action rare": (MU, REWARD), "uniform mu": (np.full(5, 0.2), REWARD)}


def asymre_phase() -> Table:
    """Return value and support of AsymRE's limit per bandit and delta_v; rows: instance, delta_v.

    For delta_v >= 0 the limit depends on the start: the flow from mu is followed.
    """
    from testbed.exact import flows

    size_N = np.geomspace(1e-4, 1.0, 121)
    rows = []
    for name, (mu_A, reward_A) in instances().items():
        edge = flows.asymre_transition(mu_A, reward_A)
        below_N = np.sort(np.concatenate([-size_N, edge * np.array([1 + 1e-4, 1 - 1e-4])]))
        for delta_v in [*below_N, 0.0, *size_N[size_N <= 0.1][::4]]:
            if delta_v < 0:
                limit_A = flows.asymre_limit(mu_A, reward_A, delta_v)
            else:
                drift = flows.linear_drift(flows.asymre_drift(mu_A, reward_A, delta_v))
                limit_A = np.round(flows.flow(drift, mu_A, np.array([0.0, FAR])).pi_TA[-1], 9)
            rows.append((name, delta_v, limit_A @ reward_A, int((limit_A > 0).sum()), mu_A @ reward_A, edge))
    frame = pd.DataFrame(rows, columns=["instance", "delta_v", "value", "support", "value_mu", "transition"])
    return Table.of(ASYMRE, frame, {"bandits": list(instances()), "limit": "closed form below 0, flow above"})


def oapl_path() -> Table:
    """Return entropy and value along OAPL's gradient flow from pi = mu, beta1 = 1, per beta2 and time."""
    from testbed.exact import flows

    time_T = np.concatenate([[0.0], np.geomspace(0.1, 1e6, 240)])
    frames = []
    for beta2 in BETAS:
        drift = flows.residual_drift(MU, flows.oapl_advantage(MU, REWARD, 1.0), beta2)
        path = flows.flow(drift, MU, time_T)
        columns = {"beta2": beta2, "time": time_T, "entropy": path.entropy_T, "value": path.pi_TA @ REWARD}
        frames.append(pd.DataFrame(columns))
    about = {
        "beta1": 1.0,
        "mu": MU.tolist(),
        "reward": REWARD.tolist(),
        "loss": "exact expectation, fixed mu",
    }
    return Table.of(OAPL, pd.concat(frames, ignore_index=True), about)


def ess_theory() -> Table:
    """Return -ln of the limit of Kish's ESS / N of token chains per drift, lag and length.

    variance is Var_mu(ln w), which a lognormal w would make equal to cost = -ln(ESS / N); lag 0 is mu itself.
    drift "coherent": mu moves by lag steps along one direction; "random walk": by a sum of lag random signs,
    cost and variance averaged over all walks.
    """
    rows = []
    for drift in ("coherent", "random walk"):
        for lag in LAGS:
            place_M, mass_M = displacements(drift, lag)
            for length in LENGTHS:
                pairs = np.array([chain_cost(STEP * place, length) for place in place_M])
                rows.append((drift, lag, length, *(mass_M @ pairs)))
    frame = pd.DataFrame(rows, columns=["drift", "lag", "length", "cost", "variance"])
    return Table.of(ESS, frame, {"tokens": TOKENS, "step": STEP, "chain": "next token given the last one"})


def displacements(drift: str, lag: int) -> tuple[Floats, Floats]:
    """Return where the policy can be after `lag` steps along its direction, and with what probability."""
    from scipy import stats

    if drift == "coherent":
        return np.array([float(lag)]), np.ones(1)
    heads_M = np.arange(lag + 1)
    return np.asarray(2.0 * heads_M - lag, dtype=np.float64), np.asarray(
        stats.binom.pmf(heads_M, lag, 0.5), dtype=np.float64
    )


def token_chain(length: int) -> tuple[FiniteMDP, Floats, Floats]:
    """Return a world whose state is the last token, its logits and a direction of drift, [S, A] each."""
    from envs.finite_mdp import FiniteMDP

    rng = np.random.default_rng(20_260_107)
    world = FiniteMDP(
        transition_SAS=np.broadcast_to(np.eye(TOKENS), (TOKENS, TOKENS, TOKENS)),
        reward_SA=np.ones((TOKENS, TOKENS)),
        start_S=np.full(TOKENS, 1 / TOKENS),
        horizon=length,
    )
    return world, rng.normal(size=(TOKENS, TOKENS)), rng.normal(size=(TOKENS, TOKENS))


def chain_cost(displacement: float, length: int) -> tuple[float, float]:
    """Return ln E_mu w^2 and Var_mu ln w of a policy that has moved so far."""
    from scipy.special import softmax

    from testbed.exact import mdp

    world, logits_SA, direction_SA = token_chain(length)
    mu_SA = softmax(logits_SA, axis=-1)
    pi_SA = softmax(logits_SA + displacement * direction_SA, axis=-1)
    step_SS, first_S = mdp.squared_ratio_matrix(world, pi_SA, mu_SA)
    moment = float(world.start_S @ np.linalg.matrix_power(step_SS, length - 1) @ first_S)
    log_rho_TSA = np.broadcast_to(np.log(pi_SA / mu_SA), (length, TOKENS, TOKENS))
    return float(np.log(moment)), mdp.additive_moments(world, mu_SA, log_rho_TSA)[1]
