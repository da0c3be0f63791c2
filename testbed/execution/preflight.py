"""Check a sweep before it writes anything, and report all problems at once.

`run_sweep`, and anything that only needs the packs, must go through `prepare`. Checks that depend on few
fields run once per distinct combination of their values, so a sweep of 10^5 cells costs little more than its
longest axes.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from operator import attrgetter
from pathlib import Path

import torch

from envs.tokens.token_task import TokenTask
from testbed.anchors import build_anchor
from testbed.config.argument_types import wrong_types
from testbed.config.fields import normal
from testbed.config.pack import RAGGED, Pack
from testbed.config.run import Run
from testbed.critics import check_critic, parts
from testbed.errors import UserError, refuse
from testbed.execution.memory import Room, too_large
from testbed.execution.packs import Shard, plan_into
from testbed.policies.optimizers import build_optimizer
from testbed.prefixes import source_for, with_parents
from testbed.recipes import recipe
from testbed.staleness import check_past, plan_for
from testbed.staleness.by_age import ByAge
from testbed.teachers import OWN, check_teacher, everywhere, teacher
from testbed.teachers.guides import guide_for
from testbed.user_files import in_a_file, line_of_a_user, words_of
from testbed.worlds.generation import engine_of
from testbed.worlds.prefix_masking import refuse_given, source_of
from testbed.worlds.task_registry import longest_response, task_for, tasks_with_turns, turns_of
from testbed.worlds.verifier_rewards import verifier_of
from testbed.worlds.world import CORRECTIONS

TASK = ("task", "task_args", "policy")
SCHEDULE = ("staleness", "staleness_args", "lag", "age_limit", "too_old")
ENGINE = ("mismatch", "mismatch_args")
PREFIX = ("prefix", "prefix_args")
VERIFIER = ("verifier", "verifier_args")
TEACHER = ("teacher", "teacher_args", "guide", "guide_args")


def prepare(
    cells: Iterable[Run],
    shard: str = "1/1",
    folder: str | Path | None = None,
    *,
    extend: bool = False,
    trains: bool = True,
    here: bool = True,
) -> tuple[tuple[Pack, ...], tuple[Pack, ...]]:
    """Return the packs of a sweep, and those of the shard.

    Args:
        cells: normalized here.
        shard: "i/n", the i-th of n parts.
        folder: results folder; packs with results in it need no memory.
        extend: add new cells to those of the folder; packs are then planned over both together.
        trains: True if the training loop runs them; for another function only the fields are checked.
        here: True if packs run on this machine and must fit into its memory.

    Raises UserError with one line for every distinct problem, at most 20: fields, tasks, policies, schedules,
    engines, recipes, anchors, repeated cells, packs that exceed the memory. Nothing has been written then.
    """
    found: list[str] = []
    sound, wrong = normal(cells)
    found += wrong
    found += problems(sound) if trains else ()
    found += hostile_objectives(sound) if trains and not found else ()
    packs: tuple[Pack, ...] = ()
    ours: tuple[Pack, ...] = ()
    try:
        packs = plan_into(sound, folder, extend)
        ours = Shard.parse(shard).of(packs)
    except UserError as error:
        found += [] if wrong and not sound else [str(error)]
    if trains and here:
        found += too_large(ours, Room.now, folder)
    refuse(found)
    return packs, ours


def hostile_objectives(cells: Collection[Run]) -> list[str]:
    """Return the problems of objectives in users' files, each called once on a small batch."""
    found = []
    for name in sorted({cell.recipe for cell in cells if in_a_file(cell.recipe)}):
        from testbed.inspection.effective_weights import effective_weights
        from testbed.inspection.promise_batches import batch_of

        try:
            effective_weights(name, *batch_of())
        except UserError as error:
            found.append(str(error))
        except Exception as error:
            place = line_of_a_user(error)
            found.append(f"{place or name}: {words_of(error)}")
    return found


def check_arguments(cells: Collection[Run]) -> None:
    """Raise UserError with all problems of the cells' names and arguments."""
    refuse(problems(cells))


def problems(cells: Collection[Run]) -> Iterator[str]:
    """Yield problems of names and arguments, without training; some more than once."""
    for fields, check in CHECKS:
        values = attrgetter(*fields)
        for cell in {values(cell): cell for cell in cells}.values():
            try:
                check(cell)
            except UserError as error:
                yield str(error)


def _check_task(cell: Run) -> None:
    task_for(cell)


def _check_policy(cell: Run) -> None:
    from testbed.worlds.build_world import check_policy

    check_policy(cell)


def _check_schedule(cell: Run) -> None:
    made = plan_for(cell)
    made.check(cell)
    made.versions(cell, longest_response(cell))


def _check_engine(cell: Run) -> None:
    engine_of(cell)
    check_past(cell, plan_for(cell))


def _check_recipe(cell: Run) -> None:
    """Raise UserError if a recipe cannot use the anchor, or mixes groups into unfit batches."""
    entry, given = recipe[cell.recipe], dict(cell.recipe_args)
    bound = entry.bind(**given)
    refuse(wrong_types(f"recipe '{cell.recipe}'", entry.function, given))
    made = bound()
    build_anchor(made, cell.anchor, cell.anchor_args)
    for part in parts(made):
        if part.demonstrations and cell.policy == "tabular" and cell.teacher == "start":
            raise UserError(
                f"recipe '{cell.recipe}' needs demonstrations, and a tabular world has no teacher; "
                "take a token task with policy 'toy', or teacher 'file'."
            )
        if (part.demonstrations or part.replay) and cell.age_limit >= 0 and cell.too_old in RAGGED:
            raise UserError(
                f"recipe '{cell.recipe}' replaces a share of every batch, but too_old '{cell.too_old}' with "
                f"age_limit {cell.age_limit} leaves batches of any size; expected too_old wait or discard."
            )


def _check_signals(cell: Run) -> None:
    """Raise UserError if a recipe reads turns or values that its world or critic lacks."""
    made = recipe[cell.recipe].bind(**dict(cell.recipe_args))()
    turned = [part for part in parts(made) if "turn" in part.reads or "turn_BT" in part.needs]
    if turned and not turns_of(task_for(cell)):
        names = " or ".join(f"'{name}'" for name in tasks_with_turns())
        raise UserError(
            f"recipe '{cell.recipe}' reads turns, and task '{cell.task}' has only one; take task {names}, or "
            "'tree' with task_args.task one of them."
        )
    check_critic(cell, made)


def _check_prefixes(cell: Run) -> None:
    if source_of(cell, task_for(cell)) is not None and not isinstance(plan_for(cell), ByAge):
        refuse_given(cell)


def _check_parents(cell: Run) -> None:
    """Raise UserError for a recipe that the cell's prefixes do not support, or contradict."""
    source = source_for(cell)
    made = recipe[cell.recipe].bind(**dict(cell.recipe_args))()
    if "parent_B" in made.needs and (source is None or not source.gives_parents):
        raise UserError(
            f"recipe '{cell.recipe}' needs parent_B, sequences that continue a prefix of one another; prefix "
            f"'{cell.prefix}' has none. Take {' or '.join(with_parents())}."
        )
    if "parent_B" in made.needs and cell.age_limit >= 0 and cell.too_old == "truncate":
        raise UserError(
            f"recipe '{cell.recipe}' needs whole groups, but too_old 'truncate' takes single sequences out; "
            "expected drop, wait or discard."
        )
    rooted = [need for need in ("greedy_reward_B", "reference_reward_BN") if need in made.needs]
    if source is not None and rooted:
        raise UserError(
            f"recipe '{cell.recipe}' reads {rooted[0]}, the reward of responses that begin at the prompt, "
            f"but prefix '{cell.prefix}' lets responses begin behind it; choose a recipe with another "
            "baseline."
        )


def _check_teacher(cell: Run) -> None:
    """Raise UserError if a recipe lacks a teacher, or a teacher or guide is unused."""
    check_teacher(cell)
    made, helper = recipe[cell.recipe].bind(**dict(cell.recipe_args))(), guide_for(cell)
    own = cell.teacher == OWN
    if own and made.taught:
        raise UserError(
            f"recipe '{cell.recipe}' learns from a teacher, but teacher is '{OWN}', the student itself; take "
            f"one of {', '.join(name for name in teacher if name != OWN)}."
        )
    if own and helper is not None and helper.shows and cell.policy == "tabular":
        raise UserError(
            f"guide '{cell.guide}' shows the teacher's answers, but a tabular world knows no solutions; "
            f"set teacher {' or '.join(everywhere())}, or a token task with policy 'toy'."
        )
    if helper is not None and helper.mends:
        task = task_for(cell)
        mute = not isinstance(task, TokenTask) or type(task).correction is TokenTask.correction
        if cell.policy != "toy" or mute:
            raise UserError(f"guide '{cell.guide}' on task '{cell.task}': {CORRECTIONS}")
    shown = made.demonstrations or (helper is not None and helper.shows)
    if not own and not shown and "ref" not in made.reads and "reference_reward_BN" not in made.needs:
        raise UserError(
            f"teacher is '{cell.teacher}', but recipe '{cell.recipe}' reads no reference and no guide "
            "shows the teacher's answers, so the teacher would change nothing. Leave teacher at 'start', "
            "set a guide, or choose a recipe that reads a teacher, e.g. dgrpo."
        )


def _check_verifier(cell: Run) -> None:
    """Raise UserError if a run cannot have its verifier, or its recipe cannot use it."""
    made = verifier_of(cell)
    if made is None or not made.by_seed:
        return
    if "greedy_reward_B" in recipe[cell.recipe].bind(**dict(cell.recipe_args))().needs:
        raise UserError(
            f"recipe '{cell.recipe}' reads the reward of greedy responses, which verifier '{cell.verifier}', "
            "fitted anew for every seed, does not give; take another recipe, or verifier lenient."
        )


def _check_optimizer(cell: Run) -> None:
    build_optimizer(cell.optimizer, dict(cell.optimizer_args), torch.empty(0))


Check = Callable[[Run], None]

CHECKS: tuple[tuple[tuple[str, ...], Check], ...] = (
    (TASK, _check_task),
    ((*TASK, "policy_args", "model", "staleness"), _check_policy),
    ((*TASK, *SCHEDULE, "prompts", "steps", *ENGINE), _check_schedule),
    (("policy", "policy_args", *ENGINE, *SCHEDULE), _check_engine),
    ((*TASK, *SCHEDULE, "prompts", "group", "steps", *PREFIX), _check_prefixes),
    (("recipe", "recipe_args", "age_limit", "too_old", *PREFIX), _check_parents),
    (
        ("policy", "recipe", "recipe_args", "anchor", "anchor_args", "age_limit", "too_old", "teacher"),
        _check_recipe,
    ),
    ((*TASK, "recipe", "recipe_args", "critic", "critic_args"), _check_signals),
    ((*TASK, "recipe", "recipe_args", *TEACHER, "group", "age_limit", "too_old"), _check_teacher),
    ((*TASK, "recipe", "recipe_args", *VERIFIER), _check_verifier),
    (("optimizer", "optimizer_args"), _check_optimizer),
)
"""The checks, each with the fields that it depends on."""
