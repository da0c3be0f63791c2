"""The training loop of every world: stacked cells, any schedule of lag, any recipe.

`train_pack` reads top to bottom: one step, from rollout to weights. Its parts are in staleness/
(which weights generate), update.py (advantages, gradient, weights) and recorder.py (logged metrics).
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeAlias

import torch

from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.staleness import build_source
from testbed.teachers import build_teacher
from testbed.teachers.guides import build_guided
from testbed.training.checkpoint import Checkpoints, Held
from testbed.training.live_rows import LiveRows, Told
from testbed.training.recorder import Columns, Recorder
from testbed.training.token_record import TokenRecord
from testbed.training.update import State, Trainer
from testbed.worlds.build_world import build_world

Report: TypeAlias = Callable[[int, int], None]


def train_pack(runs: tuple[Run, ...], report: Report | None = None) -> Columns:
    """Train cells of equal shape side by side and return their logs, sorted by cell, then step.

    A step generates one batch and updates on it once, or `Recipe.passes` times; lag counts steps. If the age
    limit discards every sample, the step makes no update.

    If TESTBED_CHECKPOINT names a folder, a killed pack resumes from its checkpoint there.

    Args:
        runs: cells that differ only in the fields of packs.STACKED.
        report: called with (steps done, steps in all) as the pack advances; see LiveRows for its `line`.
    """
    order = sorted(range(len(runs)), key=lambda i: (runs[i].recipe, runs[i].recipe_args, i))
    stacked = tuple(runs[i] for i in order)
    world = build_world(stacked)
    state = State.start(world.initial())
    teacher = build_teacher(stacked, world, state.theta_RP)
    source = build_guided(build_source(stacked, world, state.theta_RP), stacked, teacher)
    trainer = Trainer.of(stacked, world, state.theta_RP, teacher)
    recorder = Recorder(stacked, order, world, trainer.learners, state.theta_RP)
    tokens = TokenRecord.of(stacked)
    live = LiveRows.of(stacked, report)

    held = Held(world, trainer, source, recorder)
    checkpoints = Checkpoints.of(runs)
    say = report.line if isinstance(report, Told) else partial(print, file=sys.stderr)
    state, first = checkpoints.resume(state, held, say)
    for step in range(first, stacked[0].steps):
        trainer.switch_recipes(state, step)
        generated = source.batch(state.theta_RP, step)
        if generated.empty:
            recorder.add_empty(step, state, generated)
        else:
            rollout, state = mask_nonfinite_replicas(generated.rollout, state)
            live.count(rollout)
            rollout = trainer.mix(state.theta_RP, rollout, step)
            update = trainer.first_pass(state.theta_RP, rollout, step, entropy=recorder.due(step))
            # Logged before the weights change, but after the gradient has shown which replicas diverge.
            recorder.add(step, state, generated, rollout, update)
            if recorder.due(step):
                tokens.add(step, rollout, update, trainer.learners, state.alive_R)
            state = trainer.learn(state, rollout, update, step)
            recorder.add_last_pass(step)
            if recorder.due(step):
                live.add(step, recorder.rows[-1])
        checkpoints.save(state, held, step + 1)
        if report:
            report(step + 1, stacked[0].steps)
    live.close()
    return recorder.columns()


def train(run: Run, report: Report | None = None) -> Columns:
    """Train one run.

    Args:
        run: its settings.
        report: called with (step, steps) after every step.

    Returns:
        Logged columns by name, each [rows]: "cell", "step" and the metrics of docs/metrics.md.

    Raises UserError for settings that contradict each other.
    """
    return train_pack((run,), report)


def mask_nonfinite_replicas(rollout: Rollout, state: State) -> tuple[Rollout, State]:
    """Zero non-finite log-probabilities in the rollout, and mark their replicas as not finite in the state.

    They are recorded as diverged; the zeros keep them from stopping the replicas stacked with them.
    """
    finite_R = torch.isfinite(rollout.logp_mu_RBT).flatten(1).all(-1)
    logp_RBT = rollout.logp_mu_RBT.masked_fill(~finite_R[:, None, None], 0.0)
    return replace(rollout, logp_mu_RBT=logp_RBT), replace(state, alive_R=state.alive_R & finite_R)
