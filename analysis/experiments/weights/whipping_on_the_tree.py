"""The whipping effect on a token tree: where old data move the length of answers, if nobody pays for it."""

import numpy as np

from analysis.lab import Evidence, Experiment, exact, short_of
from envs.arrays import Floats

PAIRS, DRIFT, MOVED = 40, 0.7, 1e-3
"""Random pairs of sampler and policy; deviation of the logits' step between them; a rate that is no error."""


def rates(objective: str, at_anchor: bool) -> Floats:
    """Return by pair the rate of E_pi[length] along the expected update at all tokens but the first, [N].

    E over all responses of the sampler mu, A = R - mean of mu, a sum over tokens. at_anchor: the anchor is
    pi, as at a first pass; else it is half way from mu to pi, in logits.
    """
    import torch

    from envs.catalog import make
    from testbed.data.batch import Batch
    from testbed.exact.tree import enumerate_leaves, random_policies, softmax
    from testbed.inspection.effective_weights import effective_weights

    tree = make("tree", task="length", prompts=1)
    leaves = enumerate_leaves(tree)
    later_LT = leaves.mask_LT & (np.arange(leaves.mask_LT.shape[1]) > 0)
    place = (leaves.state_LT[later_LT], leaves.action_LT[later_LT])
    group_L, length_L = torch.zeros(len(later_LT), dtype=torch.int64), leaves.mask_LT.sum(-1)
    found = []
    for seed in range(PAIRS):
        mu_SA, pi_SA = random_policies(tree, DRIFT, seed)
        anchor_SA = pi_SA if at_anchor else softmax(np.log(mu_SA) / 2 + np.log(pi_SA) / 2)
        law_L = leaves.probability(mu_SA)
        adv_LT = np.where(leaves.mask_LT, (leaves.reward_L - law_L @ leaves.reward_L)[:, None], 0.0)
        mu_LT, pi_LT, anchor_LT, adv = (
            torch.from_numpy(x_LT)
            for x_LT in (leaves.log(mu_SA), leaves.log(pi_SA), leaves.log(anchor_SA), adv_LT)
        )
        mask, reward = torch.from_numpy(leaves.mask_LT), torch.from_numpy(leaves.reward_L)
        batch = Batch(mu_LT, adv, mask, reward, group_L, logp_anchor_BT=anchor_LT)
        weight_LT = effective_weights(objective, pi_LT, batch).numpy()
        pushes = (law_L[:, None] * weight_LT, (leaves.probability(pi_SA) * length_L)[:, None] * later_LT)
        update_SA, gradient_SA = (np.zeros_like(pi_SA) for _ in pushes)
        for into_SA, push_LT in zip((update_SA, gradient_SA), pushes, strict=True):
            np.add.at(into_SA, place, push_LT[later_LT])
            into_SA -= pi_SA * into_SA.sum(-1, keepdims=True)
        found.append(float((update_SA * gradient_SA).sum()))
    return np.array(found)


EXPERIMENT = Experiment(
    "whipping-on-the-tree",
    question="Do old data shorten answers in expectation where the reward does not care about their length?",
    source="ReMix (2025), arXiv:2507.06892: the whipping effect, off-policy drift prefers shorter responses",
    differs="all responses of a small length-neutral task, one expected update, a sum over tokens",
    systems=("ReMix (Squeeze the Soaked Sponge)",),
)


@EXPERIMENT.claim(
    "remix-leaves-lengths-alone-in-expectation-at-its-first-pass",
    source="derived here: given the first token A is constant, and E_mu[pi/mu grad log pi] = 0 at later ones",
    statement=(
        "On the token tree of a length-neutral reward, whatever the sampler, the expected update of ReMix's "
        "first pass leaves the expected length as it is at every token after the first."
    ),
)
def still() -> Evidence:
    """Return the rates of the length, which must be 0."""
    return exact(np.abs(rates("remix", at_anchor=True)), 1e-12, "rate of the expected length, tokens")


@EXPERIMENT.claim(
    "clips-move-lengths-either-way-in-expectation",
    source="derived here: a clip cuts tokens by their ratio, which takes the zero away and has no direction",
    statement=(
        "On that tree the clip around an old sampler, and ReMix's at later passes, shorten answers for some "
        "pairs of sampler and policy and lengthen them for others: old data alone prefer no length."
    ),
    kind="enumerated",
)
def either_way() -> Evidence:
    """Return by how much the rates of both clips fall short of 1e-3 on either side."""
    gaps, notes = [], []
    for name, objective in (("clip around the sampler", "ppo_clip"), ("ReMix, later pass", "remix")):
        found = rates(objective, at_anchor=False)
        gaps += [short_of(found.max(), MOVED), short_of(-found.min(), MOVED)]
        notes.append(f"{name}: shorter for {int((found < 0).sum())} of {PAIRS} pairs")
    return exact(gaps, 0.0, f"shortfall of rates from 1e-3 on either side; {'; '.join(notes)}")
