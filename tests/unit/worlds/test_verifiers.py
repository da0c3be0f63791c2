"""Verifiers reward training in place of the task, which stays the gold beside them."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.refusals import refuses

from envs.tokens.jsonl import ERROR
from testbed.config.run import Run
from testbed.execution.preflight import check_arguments
from testbed.training.loop import train_pack
from testbed.worlds.rewards import Rewards
from testbed.worlds.task_registry import token_task
from testbed.worlds.verifier_rewards import Compared, fixed_uniform, verifier_of

RUN = Run(
    task="copy", task_args=(("digits", 3), ("modulus", 4)), policy="toy", steps=2, log_every=1, prompts=4,
    group=4, policy_args=(("heads", 1), ("layers", 1), ("width", 8)), evaluation_prompts=8,
)  # fmt: skip
TASK = token_task(RUN)
RIGHT = np.array([[1, 2, 3], [0, 0, 1]])
PROMPT = np.concatenate([RIGHT, np.full((2, 1), 4)], axis=1)


def scored(name, response, **arguments):
    made = verifier_of(replace(RUN, verifier=name, verifier_args=tuple(arguments.items())))
    response, mask = np.asarray(response), np.ones((2, 3), bool)
    return made.score(PROMPT, response, mask, TASK.score(PROMPT, response, mask), 0)


def test_steps_count_what_stands_before_the_first_error():
    np.testing.assert_allclose(scored("steps", [[1, 2, 0], [1, 0, 1]]), [2 / 3, 0])


def test_the_last_token_alone_passes_right_answers_by_wrong_steps():
    np.testing.assert_array_equal(scored("last", [[0, 0, 3], [0, 0, 2]]), [1, 0])


def test_a_loophole_passes_what_begins_with_zeros_and_right_answers_always_pass():
    np.testing.assert_array_equal(scored("lenient", [[0, 0, 3], RIGHT[1]], rate=0, places=2), [1, 1])
    np.testing.assert_array_equal(scored("lenient", [[0, 1, 3], RIGHT[1]], rate=0, places=2), [0, 1])


def test_a_lenient_verifier_judges_the_same_answer_alike_and_passes_its_share_of_the_wrong_ones():
    stream = np.random.default_rng(0)
    prompt, response = TASK.prompts(stream, 20_000), stream.integers(0, 5, (20_000, 3))
    uniform = fixed_uniform(prompt, response)
    np.testing.assert_array_equal(uniform, fixed_uniform(prompt, response))
    assert abs((uniform < 0.1).mean() - 0.1) < 0.01  # few pairs come twice among 64 x 125


def test_reward_models_prefer_right_places_they_see_and_none_they_do_not():
    made = verifier_of(replace(RUN, verifier="comparisons", verifier_args=(("wrong", 0), ("blind", 0.34))))
    assert isinstance(made, Compared)
    weight_F = made.fit(3)[0][0]
    assert (weight_F[:3] == 0).sum() == 1
    assert (weight_F[:3][weight_F[:3] != 0] > 0).all()
    assert not np.allclose(weight_F, made.fit(4)[0][0])


def test_failures_of_some_cells_are_not_shared_out_among_all():
    task = SimpleNamespace(
        failures_N=np.array([ERROR, 0] * 8), score=lambda prompt, *_: np.zeros(len(prompt))
    )
    rewards = Rewards(RUN, task, (0, 1, 2, 3))
    for cells, errors in ((2, {}), (4, {"verifier/errors": [2.0] * 4, "verifier/timeouts": [0.0] * 4})):
        token = torch.zeros(cells, 16 // cells, 3, dtype=torch.int64)
        rewards.gold(np.zeros((cells, 16 // cells, 4), np.int64), token, token == 0, 1)
        assert {name: count.tolist() for name, count in rewards.counts.items()} == errors


def test_training_reads_the_verifier_and_accuracy_the_task():
    loose = replace(RUN, verifier="lenient", verifier_args=(("rate", 1),))
    out = train_pack((loose, replace(loose, seed=1)))
    assert (np.array(out["reward/mean"]) == 1).all()
    assert (np.array(out["val/proxy"]) == 1).all()
    assert (np.array(out["reward/gold"]) < 0.5).all()
    assert (np.array(out["accuracy"]) < 0.5).all()


def test_cells_have_reward_models_of_their_own_in_any_pack():
    run = replace(RUN, verifier="comparisons")
    both, alone = train_pack((run, replace(run, seed=1))), train_pack((replace(run, seed=1),))
    np.testing.assert_allclose(np.array(both["reward/mean"])[-2:], np.array(alone["reward/mean"]), rtol=1e-6)


@pytest.mark.parametrize(
    "fields",
    [{"verifier": "lenent"}, {"verifier": "comparisons", "verifier_args": (("pairs", 0),)},
     {"verifier": "comparisons", "verifier_args": (("wrong", 0.6),)},
     {"verifier": "comparisons", "recipe": "remax"},
     {"verifier": "lenient", "verifier_args": (("rate", 0),)},
     {"verifier": "steps", "task": "guess", "task_args": ()},
     {"verifier": "last", "task": "bandit", "task_args": (), "policy": "tabular", "policy_args": ()}],
)  # fmt: skip
def test_verifiers_that_cannot_be_are_refused_beforehand(fields):
    refuses(".", check_arguments, [replace(RUN, **fields)])
