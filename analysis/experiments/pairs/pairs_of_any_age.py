"""Why stale pairs do not mislead DPO: its optimum does not depend on who sampled them."""

import itertools

import numpy as np

from analysis.lab import Evidence, Experiment, Part, exact
from envs.arrays import Floats

ARMS, BETA = 4, 0.5
WORLDS = 40
"""Random rewards, references and samplers."""

EXPERIMENT = Experiment(
    "pairs-of-any-age",
    question="Does the age of the data move what DPO converges to?",
    source="Noukhovitch et al. (2024), Asynchronous RLHF, arXiv:2410.18252; Rafailov et al. (2023), Eq. 5",
    differs="pairs of a bandit, labels from the Bradley-Terry model, enumerated",
    systems={"Asynchronous RLHF": Part("why stale pairs leave the optimum of DPO where it is")},
)


def _expected_gradient(pi_A: Floats, ref_A: Floats, reward_A: Floats, mu_A: Floats) -> Floats:
    """Return the gradient in pi's logits of DPO's expected loss over pairs of mu and their labels."""
    import torch

    from testbed.data.batch import Batch
    from testbed.inspection.effective_weights import effective_weights

    pair_P2 = np.array(list(itertools.permutations(range(ARMS), 2)))  # winner, loser
    won_P = 1 / (1 + np.exp(reward_A[pair_P2[:, 1]] - reward_A[pair_P2[:, 0]]))
    chance_P = 2 * mu_A[pair_P2].prod(-1) * won_P  # in either order
    action_B = pair_P2.ravel()
    log_pi, log_ref, log_mu = (
        torch.from_numpy(np.log(p_A)[action_B])[:, None] for p_A in (pi_A, ref_A, mu_A)
    )
    reward_B = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat(len(pair_P2))
    group_B = torch.arange(len(pair_P2)).repeat_interleave(2)
    mask_B1 = torch.ones_like(log_pi, dtype=torch.bool)
    batch = Batch(log_mu, reward_B[:, None], mask_B1, reward_B, group_B, logp_ref_BT=log_ref)
    weight_B = effective_weights("dpo", log_pi, batch, beta=BETA)[:, 0].numpy() * np.repeat(chance_P, 2)
    found_A: Floats = np.bincount(action_B, weight_B, ARMS) - weight_B.sum() * pi_A
    return found_A


@EXPERIMENT.claim(
    source="Rafailov et al. (2023), arXiv:2305.18290, Eq. 5; that the sampler drops out is derived"
)
def dpo_has_one_optimum_on_pairs_of_any_age() -> Evidence:
    """With labels from a Bradley-Terry model of rewards r, the expected gradient of DPO vanishes at ref exp(r
    / beta) / Z whoever sampled the pairs, and at a policy that is off it does not.
    """
    rng, gaps, elsewhere = np.random.default_rng(0), [], np.inf
    for _ in range(WORLDS):
        reward_A, off_A = rng.normal(size=ARMS), rng.normal(size=ARMS)
        ref_A, mu_A = rng.dirichlet(np.ones(ARMS), 2).clip(1e-3)
        ref_A, mu_A = ref_A / ref_A.sum(), mu_A / mu_A.sum()
        best_A, other_A = (ref_A * np.exp(x_A) for x_A in (reward_A / BETA, reward_A / BETA + off_A))
        gaps.append(np.abs(_expected_gradient(best_A / best_A.sum(), ref_A, reward_A, mu_A)).max())
        far = np.abs(_expected_gradient(other_A / other_A.sum(), ref_A, reward_A, mu_A)).max()
        elsewhere = min(elsewhere, float(far))
    gaps.append(0.0 if elsewhere > 1e-6 else 1.0)
    return exact(gaps, 1e-12, f"largest gradient at the optimum; elsewhere at least {elsewhere:.2g}")
