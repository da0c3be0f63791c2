"""What a recorder counts and lays out, on rows that are made by hand."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import torch

from testbed.config.run import Run
from testbed.staleness.base import Generated
from testbed.training.loop import train
from testbed.training.recorder import Recorder, age_metrics, blanks, sequence_tails
from testbed.training.update import State, Trainer
from testbed.worlds.build import build_world

BANDIT = Run(task="bandit", steps=6, prompts=4, group=4, learning_rate=0.5, log_every=2)


def made(run: Run = BANDIT):
    """Return a recorder, the state at the start, a batch and its gradient."""
    world = build_world((run,))
    theta = world.initial()
    trainer = Trainer.of((run,), world, theta)
    rollout = world.generate(theta, 0)
    recorder = Recorder((run,), [0], world, trainer.learners, theta)
    update = trainer.first_pass(theta, rollout, 0)
    return recorder, State.start(theta), Generated(rollout, None, {}), update


def test_a_replica_that_loses_its_gradient_at_a_step_has_diverged_at_that_step():
    recorder, state, generated, update = made()
    for finite in (True, False):
        lost = dataclasses.replace(update, finite_R=torch.tensor([finite]))
        recorder.add(0, state, generated, generated.rollout, lost)
        assert recorder.rows[-1]["diverged"].tolist() == [float(not finite)]


def test_empty_batches_count_their_rollouts_logged_or_not():
    recorder, state, generated, _ = made()
    for step in range(3):
        recorder.add_empty(step, state, generated)
    assert [row["rollouts"].tolist() for row in recorder.rows] == [[16.0], [48.0]]


def test_ages_are_those_of_tokens_under_the_mask():
    mask = torch.tensor([[[True, True, False], [True, False, False]]])
    version = torch.tensor([[[5, 6, 0], [3, 0, 9]]])
    batch = SimpleNamespace(mask_RBT=mask, version_RBT=version, logp_mu_RBT=mask.double())
    found = age_metrics(batch, 7)
    assert {name: value.tolist() for name, value in found.items()} == {
        "staleness/age_mean_token": [(2 + 1 + 4) / 3],
        "staleness/age_max_token": [4.0],
    }


def test_tails_leave_out_ratios_without_an_end():
    log_w = torch.from_numpy(np.random.default_rng(0).normal(size=(1, 200)))
    more = torch.cat([log_w, torch.tensor([[torch.inf, torch.nan]])], dim=1)
    plain = sequence_tails(log_w)
    assert all(np.isfinite(value).all() for value in plain.values())
    for name, value in sequence_tails(more).items():
        np.testing.assert_array_equal(value, plain[name])


def test_what_a_row_lacks_is_nan_or_no_count():
    rows = [{"a": np.ones(2)}, {"a": np.ones(2), "b": np.ones(2), "histogram": np.ones((2, 3), dtype=int)}]
    found = blanks(rows)
    assert list(found) == ["a", "b", "histogram"]
    assert np.isnan(found["b"]).all()
    assert found["histogram"].tolist() == [[0, 0, 0]] * 2


def test_the_last_of_two_passes_has_a_clip_share_of_its_own():
    run = dataclasses.replace(BANDIT, recipe="sfpo", recipe_args=(("fast", 1),), learning_rate=20.0)
    table = train(run)
    assert table["actor/clip_share"][0] == 0
    assert table["actor/clip_share_last_pass"][0] > 0
