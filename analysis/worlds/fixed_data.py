"""The expected gradient flow of registered objectives on fixed data: one state, K actions, mu that stays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from envs.arrays import Floats

if TYPE_CHECKING:
    from testbed.exact.flows import Drift


def in_proportion(mu_K: Floats, most: int = 1000) -> Floats:
    """Return counts n_K with n_K / n = mu_K and the smallest n; raise ValueError where n is above `most`."""
    for n in range(1, most + 1):
        count_K = np.round(n * mu_K)
        if np.abs(count_K - n * mu_K).max() < 1e-9:
            return count_K
    raise ValueError(f"{mu_K} are not fractions with a common denominator up to {most}.")


def drift_of(
    name: str, mu_K: Floats, reward_K: Floats, *, scale: float = 1.0, baseline: bool = True, **hyper: Any
) -> Drift:
    """Minus the gradient of the objective's mean loss in the logits, over `scale`: log pi [K] -> [K].

    The batch is one group in which every action is exactly as frequent as under mu, so that means over the
    group are expectations; an answer is one token. The advantage is the reward, less the group's mean with
    `baseline`.
    """
    import torch

    from testbed.data.batch import Batch
    from testbed.inspection.effective_weights import effective_weights

    count_K = in_proportion(mu_K)
    row_B = np.repeat(np.arange(len(mu_K)), count_K.astype(int))
    reward_B = torch.from_numpy(reward_K[row_B])
    log_mu_B1 = torch.from_numpy(np.log(mu_K)[row_B])[:, None]
    batch = Batch(
        logp_mu_BT=log_mu_B1,
        adv_BT=(reward_B - baseline * reward_B.mean())[:, None],
        mask_BT=torch.ones(len(row_B), 1, dtype=torch.bool),
        reward_B=reward_B,
        group_B=torch.zeros(len(row_B), dtype=torch.int64),
        logp_anchor_BT=log_mu_B1,
        logp_ref_BT=log_mu_B1,
    )

    def drift(log_pi_K: Floats) -> Floats:
        weight_B = effective_weights(name, torch.from_numpy(log_pi_K[row_B])[:, None], batch, **hyper)[:, 0]
        pushed_K = np.bincount(row_B, weight_B.numpy(), len(mu_K)) / (len(row_B) * scale)
        return pushed_K - pushed_K.sum() * np.exp(log_pi_K)

    return drift


def first_of_group(name: str, own_N: Floats, others_NG: Floats, *, scale: float, **hyper: Any) -> Floats:
    """Return the weight at pi = mu, over `scale`, of an answer in each of N groups with others, [N]."""
    import torch

    from testbed.data.batch import Batch
    from testbed.inspection.effective_weights import effective_weights

    # Groups that differ in the order of the others alone are one.
    group_NG = np.concatenate([own_N[:, None], np.sort(others_NG, axis=-1)], axis=-1)
    group_MG, which_N = np.unique(group_NG, axis=0, return_inverse=True)
    reward_MG = torch.from_numpy(group_MG)
    one = torch.ones_like(reward_MG)[..., None]
    batch = Batch(
        logp_mu_BT=-one,
        adv_BT=(reward_MG - reward_MG.mean(-1, keepdim=True))[..., None],
        mask_BT=one.bool(),
        reward_B=reward_MG,
        group_B=torch.zeros_like(reward_MG, dtype=torch.int64),
        logp_anchor_BT=-one,
        logp_ref_BT=-one,
    )
    weight_M: Floats = effective_weights(name, -one, batch, **hyper)[:, 0, 0].numpy()
    return weight_M[which_N.ravel()] / scale
