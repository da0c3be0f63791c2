"""Teachers given by weights: initial, better trained, loaded from a file, or with noise."""

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import torch

from envs.tokens.token_tree import TokenTree
from testbed import rng
from testbed.errors import UserError
from testbed.teachers import Own, Place, Teacher, teacher


@teacher("start", source="Shao et al. (2024), arXiv:2402.03300: the reference is the weights at the start")
def start(place: Place) -> Teacher:
    """The student's starting weights; its answers are the task's solutions."""
    return Own(place.world, place.theta_RP.detach())


@teacher(
    "trained",
    source="Agarwal et al. (2024), GKD, arXiv:2306.13649: a better trained teacher",
    policies=("toy",),
)
def trained(place: Place, *, steps: int = 2400, noise: float = 0.02, seed: int = 0) -> Teacher:
    """A model of the student's shape after `steps` of supervised training on solutions with less noise.

    seed: added to the cell's seed; 0 starts from the student's initial weights, 1 from others.
    """
    if steps < 1 or not 0 <= noise <= 1 or seed < 0:
        raise UserError(
            f"teacher 'trained' has steps {steps}, noise {noise:g} and seed {seed}; expected at least 1 "
            "step, a chance in [0, 1] and a seed from 0."
        )
    taught = (replace(run, warm_start_steps=steps, teacher_noise=noise) for run in place.runs)
    runs = tuple(replace(run, seed=run.seed + seed) for run in taught)
    return Teacher(place.world, type(place.world)(runs).initial())  # type: ignore[call-arg]


@teacher("file", source="any saved weights")
def file(place: Place, *, path: str = "") -> Teacher:
    """Weights in a .npy file: flat [P] for all cells, or one row per cell [R, P]."""
    if not Path(path).is_file():
        raise UserError(f"teacher 'file' has path '{path}', which does not exist; give teacher_args.path.")
    try:
        found = np.atleast_2d(np.asarray(np.load(path, allow_pickle=False), dtype=np.float64))
    except (ValueError, TypeError, OSError, EOFError) as error:
        raise UserError(f"teacher file {path} is not a .npy array of numbers: {error}.") from error
    if found.ndim != 2 or len(found) not in (1, len(place.runs)):
        raise UserError(
            f"teacher file {path} has shape {found.shape}, expected [P] or one row for each of the "
            f"{len(place.runs)} cells of the pack."
        )
    return Teacher(place.world, place.check(torch.from_numpy(found), f"teacher file {path}"))


@teacher("noisy", source="a control: a teacher without information beyond the student's")
def noisy(place: Place, *, scale: float = 0.5) -> Teacher:
    """The starting weights plus normal noise of `scale` times their root mean square (1 if they are 0)."""
    if not 0 <= scale < inf:
        raise UserError(f"scale of teacher 'noisy' is {scale:g}, expected a finite number of at least 0.")
    P = place.theta_RP.shape[-1]
    drawn = np.stack([rng.generator(run.seed, "teacher/noisy").standard_normal(P) for run in place.runs])
    rms_R1 = place.theta_RP.square().mean(-1, keepdim=True).sqrt()
    spread_R1 = torch.where(rms_R1 > 0, rms_R1, torch.ones_like(rms_R1))
    noise_RP = spread_R1 * torch.from_numpy(drawn).to(place.theta_RP)
    return Teacher(place.world, place.theta_RP.detach() + scale * noise_RP)


@teacher(
    "solution",
    source="Self-Distilled Reasoner (OPSD, 2026): the same model with privileged context",
    policies=("toy",),
)
def solution(place: Place, *, weights: str = "start") -> Teacher:
    """The student with the solution in its context, in a task with room for it: hinted-sum.

    weights: "start", its starting ones, or "present", the current ones of every step.
    """
    if weights not in ("start", "present"):
        raise UserError(f"weights of teacher 'solution' is '{weights}', expected start or present.")
    if not place.world.shows_solutions:
        raise UserError(
            f"teacher 'solution' needs a task that can show the solution in the prompt, but task "
            f"'{place.runs[0].task}' cannot; take task 'hinted-sum'."
        )
    return Teacher(place.world, place.theta_RP.detach() if weights == "start" else None, solution=True)


@teacher(
    "values",
    source="the soft optimum pi ~ exp(Q^pi / temperature), by policy iteration on a tree",
    policies=("tabular",),
)
def values(place: Place, *, temperature: float = 0.1) -> Teacher:
    """A table whose logits are its exact action values over a temperature; for a token tree."""
    task = getattr(place.world, "task", None)
    if not isinstance(task, TokenTree):
        raise UserError(
            "teacher 'values' needs a token tree, to compute action values on; task "
            f"'{place.runs[0].task}' is not one. Use task 'tree', or teacher 'file'."
        )
    if not temperature > 0:
        raise UserError(f"temperature of teacher 'values' is {temperature:g}, expected above 0.")
    logits_SA = torch.zeros(task.states, task.actions, dtype=torch.float64)
    for _ in range(task.horizon):  # each round makes one more position exact, from the last
        q_SA = task.action_values(logits_SA.softmax(-1).numpy())
        logits_SA = torch.from_numpy(q_SA) / temperature
    return Teacher(place.world, place.check(logits_SA.reshape(1, -1), "teacher 'values'"))
