"""What PPO's critic costs beside ReMax: numbers held, numbers kept for backward, arithmetic of one step."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from analysis.lab import Evidence, Experiment, Part, exact
from analysis.sweeps.base_runs import SMALL
from testbed.config.run import Run

if TYPE_CHECKING:
    from torch import Tensor

START = replace(SMALL, policy_args=(("heads", 2), ("layers", 1), ("width", 16)), warm_start_steps=0, steps=2)
REMAX, PPO = replace(START, recipe="remax"), replace(START, recipe="ppo", critic="model")


@dataclass(frozen=True)
class Cost:
    """Of one step: parameters and moments held between steps, numbers kept for backward, and floating-point
    operations of generation and of learning.
    """

    held: int
    kept: int
    generate: int
    learn: int


@cache
def cost(run: Run) -> Cost:
    """Return what the last step of a run costs, in a pack of its own."""
    from torch.autograd.graph import saved_tensors_hooks
    from torch.utils.flop_counter import FlopCounterMode

    from testbed.critics.fitted import Fitted
    from testbed.policies.optimizers import Adam
    from testbed.staleness import build_source
    from testbed.training.update import State, Trainer
    from testbed.worlds.build import build_world

    world = build_world((run,))
    state = State.start(world.initial())
    source, trainer = build_source((run,), world, state.theta_RP), Trainer.of((run,), world, state.theta_RP)
    learner = trainer.learners[0]
    critics = [learner.critic] if isinstance(learner.critic, Fitted) else []
    kept: dict[int, int] = {}

    def note(x: Tensor) -> Tensor:
        kept[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes() // x.element_size()
        return x

    for step in range(run.steps):
        kept.clear()
        generate, learn = FlopCounterMode(display=False), FlopCounterMode(display=False)
        with generate:
            rollout = source.batch(state.theta_RP, step).rollout
        with learn, saved_tensors_hooks(note, lambda x: x):
            update = trainer.first_pass(state.theta_RP, rollout, step)
            state = trainer.learn(state, rollout, update, step)
    held = [state.theta_RP, *(critic.w_CK for critic in critics)]
    for optimizer in (learner.optimizer, *(critic.optimizer for critic in critics)):
        assert isinstance(optimizer, Adam)
        held += [optimizer.first_RP, optimizer.second_RP]
    numbers = sum(x.numel() for x in held)
    return Cost(numbers, sum(kept.values()), generate.get_total_flops(), learn.get_total_flops())


EXPERIMENT = Experiment(
    "critic-memory",
    question="How much memory and arithmetic does ReMax save beside PPO with a critic?",
    source="Li et al. (2023), ReMax, arXiv:2310.10505",
    differs=(
        "a transformer of 4,000 weights, one pass over each batch; numbers and operations are counted, not "
        "measured on a GPU; a reward model and a reference are in neither"
    ),
    margins={"distance of a half": 0.02},
    systems={
        "ReMax": Part(
            "memory and operations by count, in a toy language model; neither peak memory nor time on a GPU"
        )
    },
)


@EXPERIMENT.claim(
    "remax-holds-half-of-what-ppo-holds",
    statement=(
        "Beside PPO with a critic as large as the policy ReMax holds half the parameters and moments between "
        "steps, and half the numbers that backward passes of a step need, within 0.02."
    ),
    kind="enumerated",
)
def memory() -> Evidence:
    """Return distances of both shares from a half, less 0.02."""
    remax, ppo = cost(REMAX), cost(PPO)
    shares = [remax.held / ppo.held, remax.kept / ppo.kept]
    note = f"distance from a half, less 0.02; shares {shares[0]:.3f} held, {shares[1]:.3f} for backward"
    return exact([abs(x - 0.5) - 0.02 for x in shares], 0.0, note)


@EXPERIMENT.claim(
    "remax-saves-less-than-half-the-arithmetic",
    statement=(
        "A step of ReMax, its greedy answers included, takes between a half and three quarters of the "
        "floating-point operations of one of PPO: without other costs it is 1.3 to 2 times as fast."
    ),
    kind="enumerated",
)
def arithmetic() -> Evidence:
    """Return how far the share of operations is outside a half to three quarters."""
    remax, ppo = (x.generate + x.learn for x in (cost(REMAX), cost(PPO)))
    share = remax / ppo
    return exact([max(0.5 - share, share - 0.75)], 0.0, f"distance outside; share {share:.3f}")
