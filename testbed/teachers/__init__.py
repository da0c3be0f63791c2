"""Teachers: other policies that a run reads or learns from.

`teacher` registers makers: maker(place, *, …) -> Teacher; `Run.teacher` names one. A teacher is weights for
the run's policy and a view of the prompt. Its log-probabilities are the batch's `logp_ref`; its answers are
the demonstrations of recipes and those that `Run.guide` (testbed.teachers.guides) puts into groups.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from testbed.config.argument_types import wrong_types
from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.errors import UserError, refuse
from testbed.registry import Registry
from testbed.worlds.world import World

teacher = Registry("teacher", package="testbed.teachers")

OWN = "start"
"""The default teacher of a run: the starting weights, and the task's solutions."""


@dataclass(frozen=True)
class Place:
    """Inputs for making a teacher: the world of a pack, its cells, and their initial weights [R, P]."""

    world: World
    runs: tuple[Run, ...]
    theta_RP: Tensor

    def check(self, theta_RP: Tensor, what: str) -> Tensor:
        """Return a teacher's weights, a row per cell; raise UserError unless they fit the student."""
        wanted = self.theta_RP.shape[-1]
        if theta_RP.shape[-1] != wanted:
            raise UserError(
                f"{what} has {theta_RP.shape[-1]} weights, but the student's policy has {wanted}: a teacher "
                "of another vocabulary, length or shape. Give one that was trained with equal task_args and "
                "policy_args."
            )
        if not bool(torch.isfinite(theta_RP).all()):
            raise UserError(f"{what} holds weights that are not finite; save it before it diverges.")
        return theta_RP.to(self.theta_RP).expand(len(self.runs), -1).detach()


@dataclass(frozen=True)
class Teacher:
    """The teacher of cells in stacked order.

    theta_RP: its weights; None for the student's current ones. solution: True if it sees the solution in its
    context, in a task with room for it. world, first: its world, and its first cell's number in the pack.
    """

    world: World
    theta_RP: Tensor | None
    solution: bool = False
    first: int = 0

    def rows(self, rows: slice) -> "Teacher":
        """Return the teacher of some cells."""
        theta_RP = None if self.theta_RP is None else self.theta_RP[rows]
        return replace(self, theta_RP=theta_RP, first=self.first + rows.start)

    def weights(self, student_RP: Tensor) -> Tensor:
        """Return its weights when used with a student [R, P]."""
        return student_RP.detach() if self.theta_RP is None else self.theta_RP

    def seen(self, rollout: Rollout) -> Rollout:
        """Return the rollout with the prompts as the teacher sees them."""
        return self.world.with_solutions(rollout) if self.solution else rollout

    def answers(self, student_RP: Tensor, rollout: Rollout, step: int) -> Rollout:
        """Return its answers to the rollout's prompts, one per group member, with the student's prompts."""
        theta_RP = self.weights(student_RP)
        rows = slice(self.first, self.first + len(theta_RP))
        drawn = self.world.answers(theta_RP, self.seen(rollout), rows, step)
        return replace(drawn, prompt_RNQ=rollout.prompt_RNQ)

    def corrections(self, rollout: Rollout) -> Rollout:
        """Return the rollout's responses, corrected from their first error on by the task's checker."""
        return self.world.corrections(rollout, slice(self.first, self.first + len(rollout.reward_RB)))


class Own(Teacher):
    """The starting weights; its answers are the task's solutions, not samples."""

    def answers(self, student_RP: Tensor, rollout: Rollout, step: int) -> Rollout:
        """Return the task's solutions; raise UserError in a world that has none."""
        del student_RP
        assert self.theta_RP is not None
        return self.world.demonstrations(rollout, slice(self.first, self.first + len(self.theta_RP)), step)


def build_teacher(runs: tuple[Run, ...], world: World, theta_RP: Tensor) -> Teacher:
    """Return the teacher of a pack; theta_RP are the starting weights.

    Raises UserError for an unknown name, argument or value, and for weights that do not fit the policy.
    """
    made: Teacher = check_teacher(runs[0])(Place(world, runs, theta_RP))
    return made


def check_teacher(run: Run):  # type: ignore[no-untyped-def]
    """Return the maker of a run's teacher; raise UserError for an unknown name or argument."""
    entry, given = teacher[run.teacher], dict(run.teacher_args)
    bound = entry.bind(**given)
    refuse(wrong_types(f"teacher '{run.teacher}'", entry.function, given))
    if run.policy not in entry.promises.get("policies", ("tabular", "toy", "hf")):
        raise UserError(
            f"teacher '{run.teacher}' needs policy {' or '.join(entry.promises['policies'])}, but policy is "
            f"'{run.policy}'; teachers for every policy: {', '.join(everywhere())}."
        )
    return bound


def everywhere() -> list[str]:
    """Return the teachers that work with every policy, besides the starting weights."""
    return [name for name in teacher if name != OWN and "policies" not in teacher[name].promises]
