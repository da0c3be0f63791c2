"""The whole story in sixty lines: a small transformer learns from data that is LAG optimizer steps old."""

from collections import deque

import torch

from testbed.advantages import advantage
from testbed.config import Run
from testbed.data.batch import Batch
from testbed.data.signals import Signals
from testbed.diagnostics.ratio_metrics import ess
from testbed.losses.aggregate import aggregate
from testbed.objectives import objective
from testbed.policies.optimizers import Adam
from testbed.worlds.build_world import build_world

LAG, STEPS, RATE = 4, 61, 1e-2
TASK, MODEL = (("digits", 4), ("modulus", 4)), (("width", 16), ("layers", 1), ("heads", 2))
RUN = Run(
    task="running-sum", task_args=TASK, policy="toy", policy_args=MODEL, prompts=8, warm_start_steps=150
)


def main(steps: int = STEPS) -> list[float]:
    """Train, print a line every ten steps, and return the mean reward of every step."""
    world = build_world((RUN,))
    theta_RP = world.initial()
    optimizer, rewards = Adam(theta_RP), []
    versions = deque([theta_RP], maxlen=LAG + 1)  # the newest LAG + 1 weights, the oldest first

    for step in range(steps):
        rollout = world.generate(versions[0], step)  # 1. weights of LAG steps ago write responses
        signals = Signals(rollout.reward_RB, rollout.groups(), rollout.mask_RBT)
        adv_RB = advantage["group_std"].bind()(signals)  # 2. rewards become advantages, within each prompt
        batch = Batch(
            logp_mu_BT=rollout.logp_mu_RBT,
            adv_BT=adv_RB[..., None].expand(rollout.mask_RBT.shape).to(rollout.logp_mu_RBT.dtype),
            mask_BT=rollout.mask_RBT,
            reward_B=rollout.reward_RB,
            group_B=rollout.groups(),
        )
        leaf_RP = theta_RP.detach().requires_grad_()
        logp_RBT = world.logp(leaf_RP, rollout)  # 3. today's weights read them
        loss_RBT = objective["ppo_clip"].bind(eps_high=0.28)(logp_RBT, batch)  # 4. the objective under study
        loss_R = aggregate(loss_RBT, batch.mask_BT, "token_mean")
        (grad_RP,) = torch.autograd.grad(loss_R.sum(), leaf_RP)
        theta_RP = optimizer.step(theta_RP, grad_RP, theta_RP.new_tensor([RATE]))  # 5. new weights
        versions.append(theta_RP)

        rewards.append(float(rollout.reward_RB.mean()))
        if step % 10 == 0:
            share = float(ess((logp_RBT.detach() - rollout.logp_mu_RBT).sum(-1)))
            print(f"step {step:3}  reward {rewards[-1]:.2f}  ESS share of sequence weights {share:.3f}")
    return rewards


if __name__ == "__main__":
    main()
