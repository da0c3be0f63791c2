"""Self-Rewarding PPO: where the reward log(SFT/base) leads, with and without a KL penalty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.lab import Evidence, Experiment, Part, exact
from analysis.worlds.teaching_worlds import AllResponses, expected_gradient

if TYPE_CHECKING:
    from torch import Tensor


EXPERIMENT = Experiment(
    "self-rewarding",
    question="What is the fixed point of on-policy RL on the reward log(SFT/base)?",
    source="Self-Rewarding PPO (2025): reward log(pi_SFT/pi_base), on-policy",
    differs="one prompt, 27 responses, tables: other prompts, the source's point, are not seen",
    systems={
        "Self-Rewarding PPO": Part(
            "the fixed point with and without a KL penalty on the training prompt; not held-out prompts"
        )
    },
)
BETAS, SEEDS = (0.25, 0.5, 1.0, 2.0), 6


def slope(world: AllResponses, pi: Tensor, base: Tensor, sft: Tensor, beta: float) -> Tensor:
    """Return the expected gradient of the project's REINFORCE on the reward less beta log(pi/base)."""
    from testbed.objectives.reinforce.plain import reinforce

    reward_L = (world.logp(sft) - world.logp(base)).sum(-1)
    # k1 of a sequence is a reward at its end: the per-token term would leave out what later tokens cost.
    kl_L = (world.logp(pi) - world.logp(base)).sum(-1)
    batch = world.batch(pi, base, reward_L - beta * kl_L)
    return expected_gradient(reinforce, world, pi, world.law(pi), batch)


@EXPERIMENT.claim()
def self_rewarding_ends_at_the_tilted_policy() -> Evidence:
    """With a KL penalty beta to the base, the expected update vanishes at base (SFT/base)^(1/beta) and not at
    the base; at beta = 1 that is the SFT policy itself, so that on the training prompts nothing is gained
    over it.
    """
    gaps = []
    for length in (1, 3):
        world = AllResponses(3, length)
        for seed in range(SEEDS):
            base, sft = world.random(2 * seed), world.random(2 * seed + 1)
            for beta in BETAS:
                tilt_L = world.law(base) * (world.law(sft) / world.law(base)) ** (1 / beta)
                pi = world.of_law(tilt_L)
                gaps.append(float(slope(world, pi, base, sft, beta).abs().max()))
                gaps.append(1e-3 - float(slope(world, base, base, sft, beta).abs().max()))
                if beta == 1.0:
                    gaps.append(float((world.law(pi) - world.law(sft)).abs().max()))
    return exact(gaps, 1e-10, "update at the tilted policy, lack of one at the base, or distance from SFT")


@EXPERIMENT.claim(source="derived", kind="enumerated")
def self_rewarding_without_kl_leaves_sft_behind() -> Evidence:
    """Without a KL penalty the update at the SFT policy does not vanish, and the response of largest reward,
    where the policy ends, is not SFT's likeliest one for at least half of 24 random pairs.
    """
    world, gaps, other = AllResponses(3, 3), [], 0
    for seed in range(24):
        base, sft = world.random(2 * seed), world.random(2 * seed + 1)
        gaps.append(1e-3 - float(slope(world, sft, base, sft, 0.0).abs().max()))
        reward_L = (world.logp(sft) - world.logp(base)).sum(-1)
        other += int(reward_L.argmax()) != int(world.law(sft).argmax())
    gaps.append(0.5 - other / 24)
    return exact(
        gaps, 0.0, f"lacking update at SFT, or lacking share; another response on {other} of 24 pairs"
    )
