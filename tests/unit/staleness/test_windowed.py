"""Windows: every token is trained on once, by the weights that wrote it, and rewards come at the end."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from testbed.config.run import Run
from testbed.errors import UserError
from testbed.execution.preflight import prepare
from testbed.staleness import build_source
from testbed.staleness.bookkeeping import check_versions
from testbed.training.loop import train_pack
from testbed.worlds.build import build_world

SUM = Run(
    task="tree", task_args=(("task", "running-sum"),), staleness="windowed", staleness_args=(("tokens", 2),),
    recipe="ppo", recipe_args=(("advantage", "egae"),), critic="table", prompts=4, group=2, steps=4,
    log_every=1,
)  # fmt: skip


def batches(steps: int):
    """A world, the weights by step, and the windows of each step."""
    world = build_world((SUM,))
    start_RP = world.initial()
    source = build_source((SUM,), world, start_RP)
    weights = {t: start_RP + 0.3 * t * torch.linspace(-1, 1, start_RP.shape[-1]) for t in range(steps)}
    return world, weights, [source.batch(theta_RP, step).rollout for step, theta_RP in weights.items()]


def test_a_window_is_written_by_the_weights_of_its_step():
    world, weights, found = batches(3)
    for step, rollout in enumerate(found):
        assert check_versions(world, weights, rollout) == int(rollout.mask_RBT.sum())
        assert (rollout.version_RBT[rollout.mask_RBT] == step).all()


def test_every_token_of_a_response_is_in_one_window_and_keeps_its_prefix():
    _, _, found = batches(3)
    for before, after in pairwise(found):
        # Prompts of the first half are in their first window; a step later they are in the second half.
        first, second = (
            before.map(lambda x: x[:, : x.shape[1] // 2]),
            after.map(lambda x: x[:, x.shape[1] // 2 :]),
        )
        assert first.truncated_RB.all()
        assert not second.truncated_RB.any()
        assert (first.prompt_RNQ == second.prompt_RNQ).all()
        assert (first.token_RBT[..., :2] == second.token_RBT[..., :2]).all()
        assert (first.mask_RBT ^ second.mask_RBT).all()
        assert not first.reward_RB.any()


def test_windows_as_long_as_the_response_are_the_synchronous_trainer():
    whole = replace(SUM, staleness_args=(("tokens", 3),))
    plain = replace(SUM, staleness="exact", staleness_args=())
    for name in ("exact/value", "reward/mean", "critic/vf_loss"):
        assert train_pack((whole,))[name].tolist() == train_pack((plain,))[name].tolist()


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"task_args": (("task", "length"),)}, "responses of task 'tree' may end in any window"),
        ({"prompts": 5}, "prompts is 5, but a response takes 2 windows of 2 tokens"),
        ({"lag": 1}, "trains on tokens written in the same step; expected lag 0"),
        ({"staleness_args": (("tokens", 0),)}, "staleness_args.tokens is 0, expected at least 1"),
    ],
)
def test_windows_that_cannot_be_are_refused_beforehand(changed, says):
    with pytest.raises(UserError, match=says):
        prepare([replace(SUM, **changed)])
