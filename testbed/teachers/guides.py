"""Guides: put answers of a teacher, or earlier answers of the policy, into the groups of a batch.

`guide` registers makers: maker(*, …) -> Guide; `Run.guide` names one. A guide wraps a source of batches and
is one itself, so the training loop needs no change. Inserted expert answers have origin EXPERT, with ratio 1;
inserted successes of the policy have origin REPLAY and keep the log-probabilities at which they were drawn.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor

from testbed.config.argument_types import wrong_types
from testbed.config.run import Run
from testbed.data.batch import EXPERT, REPLAY
from testbed.data.rollout import Rollout
from testbed.data.select import with_origin
from testbed.errors import UserError, refuse
from testbed.registry import Registry
from testbed.staleness.schedule_plan import Generated, Source
from testbed.teachers import Teacher

guide = Registry("guide", package="testbed.teachers")

ALONE = "none"
"""The default guide of a run."""


class Guide(ABC):
    """Rule that replaces members of groups.

    count: members of a group that it may replace, the last ones. shows: True if it asks the teacher. mends:
    True if it asks for corrections of responses instead of answers.
    """

    count: int = 1
    shows: bool = True
    mends: bool = False

    @abstractmethod
    def choose(self, rollout: Rollout) -> Tensor:
        """Return the groups to help, bool [R, N]."""

    def help(self, rollout: Rollout, answers: Callable[[], Rollout], step: int) -> tuple[Rollout, Tensor]:
        """Replace the last `count` members of the chosen groups; return the rollout, and those groups.

        answers: () -> the teacher's answers to the same prompts.
        """
        del step
        chosen_RN = self.choose(rollout)
        shown = replace(answers(), origin_RB=torch.full_like(rollout.reward_RB, EXPERT, dtype=torch.int64))
        return swapped(rollout, shown, chosen_RN, self.count), chosen_RN


def failed(rollout: Rollout, most: float = 0.0) -> Tensor:
    """Return the groups without a reward above `most`, bool [R, N]."""
    return torch.all((rollout.reward_RB <= most).unflatten(1, (-1, rollout.group)), dim=-1)


def swapped(rollout: Rollout, other: Rollout, chosen_RN: Tensor, count: int) -> Rollout:
    """Replace the last `count` members of the chosen groups by the other rollout's."""
    member_G = torch.arange(rollout.group, device=chosen_RN.device) >= rollout.group - count
    swap_RB = (chosen_RN[..., None] & member_G).flatten(1)
    ours = with_origin(rollout)
    changed: dict[str, Any] = {}
    for item in fields(Rollout):
        mine, theirs = getattr(ours, item.name), getattr(other, item.name)
        if isinstance(mine, Tensor) and isinstance(theirs, Tensor) and item.name != "prompt_RNQ":
            changed[item.name] = torch.where(swap_RB[(..., *[None] * (mine.dim() - 2))], theirs, mine)
    return replace(ours, **changed)


@dataclass
class Insert(Guide):
    """The teacher's answers in every group."""

    count: int

    def choose(self, rollout: Rollout) -> Tensor:
        return torch.ones_like(failed(rollout))


@dataclass
class Rescue(Guide):
    """The teacher's answers in groups without a reward above `most`."""

    count: int
    most: float = 0.0

    def choose(self, rollout: Rollout) -> Tensor:
        return failed(rollout, self.most)


@dataclass
class Splice(Rescue):
    """The members' own answers in these groups, corrected from their first error on."""

    mends = True


@dataclass
class OwnSuccesses(Guide):
    """The policy's newest success at the same prompt, in groups without one.

    store: per cell, prompt tokens -> the success, by fields of Rollout; beyond `kept` the oldest are dropped.
    """

    kept: int
    store: list[dict[tuple[int, ...], dict[str, Tensor]]] = field(default_factory=list)
    count = 1
    shows = False

    def choose(self, rollout: Rollout) -> Tensor:
        keys = self._keys(rollout)
        self.store += [{} for _ in keys[len(self.store) :]]
        known_RN = [[key in held for key in row] for held, row in zip(self.store, keys, strict=True)]
        return failed(rollout) & torch.tensor(known_RN, device=rollout.reward_RB.device)

    def help(self, rollout: Rollout, answers: Callable[[], Rollout], step: int) -> tuple[Rollout, Tensor]:
        """As Guide.help, from the store; then store the first success of every group of this batch."""
        del answers, step
        chosen_RN = self.choose(rollout)
        keys = self._keys(rollout)
        held = {name: getattr(rollout, name).clone() for name in self._names(rollout)}
        origin_RB = torch.full_like(rollout.reward_RB, REPLAY, dtype=torch.int64)
        other = replace(with_origin(rollout), origin_RB=origin_RB, **held)
        for r, n in chosen_RN.nonzero().tolist():
            for name, value in self.store[r][keys[r][n]].items():
                getattr(other, name)[r, (n + 1) * rollout.group - 1] = value
        helped = swapped(rollout, other, chosen_RN, 1)
        # From the batch as it was drawn: a success that was put in must not count as the newest.
        self._keep(rollout, keys)
        return helped, chosen_RN

    def _keep(self, rollout: Rollout, keys: list[list[tuple[int, ...]]]) -> None:
        success_RNG = (rollout.reward_RB > 0).unflatten(1, (-1, rollout.group))
        first_RN = success_RNG.int().argmax(-1)
        for r, n in success_RNG.any(-1).nonzero().tolist():
            place = n * rollout.group + int(first_RN[r, n])
            held, key = self.store[r], keys[r][n]
            held.pop(key, None)  # the newest comes last
            held[key] = {name: getattr(rollout, name)[r, place].clone() for name in self._names(rollout)}
            if len(held) > self.kept:
                del held[next(iter(held))]

    def _names(self, rollout: Rollout) -> list[str]:
        skipped = ("prompt_RNQ", "origin_RB", "group_RB")
        names = [item.name for item in fields(Rollout) if item.name not in skipped]
        return [name for name in names if isinstance(getattr(rollout, name), Tensor)]

    def _keys(self, rollout: Rollout) -> list[list[tuple[int, ...]]]:
        return [[tuple(prompt) for prompt in row] for row in rollout.prompt_RNQ.tolist()]


class GuidedSource(Source):
    """A source of batches with a guide."""

    def __init__(self, source: Source, guide: Guide, teacher: Teacher) -> None:
        self.source, self.guide, self.teacher = source, guide, teacher

    def batch(self, theta_RP: Tensor, step: int) -> Generated:
        """Return the inner source's batch with the guide's members, and the share of groups with any."""
        generated = self.source.batch(theta_RP, step)
        if generated.empty:
            return generated
        rollout = generated.rollout
        ask = (
            (lambda: self.teacher.corrections(generated.rollout))
            if self.guide.mends
            else (lambda: self.teacher.answers(theta_RP, generated.rollout, step))
        )
        rollout, helped_RN = self.guide.help(rollout, ask, step)
        share_R = helped_RN.double().mean(-1).cpu().numpy()
        return replace(generated, rollout=rollout, counts={**generated.counts, "guide/helped_share": share_R})


def build_guided(source: Source, runs: tuple[Run, ...], teacher: Teacher) -> Source:
    """Return the source of a pack with its guide, or the source itself without one."""
    made = guide_for(runs[0])
    return source if made is None else GuidedSource(source, made, teacher)


def guide_for(run: Run) -> Guide | None:
    """Return the guide of a run, None for none.

    Raises UserError for an unknown name, argument or value, for more members than a group has, and for an age
    limit that takes single members out.
    """
    entry, given = guide[run.guide], dict(run.guide_args)
    bound = entry.bind(**given)
    refuse(wrong_types(f"guide '{run.guide}'", entry.function, given))
    made: Guide | None = bound()
    if made is not None and not 1 <= made.count <= run.group:
        raise UserError(
            f"guide '{run.guide}' replaces {made.count} members of a group of {run.group}; expected from 1 "
            f"to {run.group}."
        )
    if made is not None and run.age_limit >= 0 and run.too_old == "truncate":
        raise UserError(
            f"guide '{run.guide}' replaces members of whole groups, but too_old 'truncate' takes single "
            "sequences out; expected too_old drop, wait or discard."
        )
    return made


@guide("none", source="on-policy groups")
def none() -> Guide | None:
    """Groups hold only the policy's responses."""
    return None


@guide("insert", source="TempSamp-R1 (2025), arXiv:2509.18056: G - 1 own samples and one ground truth")
def insert(*, count: int = 1) -> Guide:
    """The last `count` members of every group are the teacher's answers."""
    return Insert(count)


@guide("rescue", source="DaGRPO (2025), arXiv:2512.06337: anchors for hard prompts; RGR-GRPO (2025)")
def rescue(*, count: int = 1, most: float = 0.0) -> Guide:
    """The last `count` members of groups without a success are the teacher's answers.

    most: the largest reward that is no success; for graded rewards.
    """
    return Rescue(count, most)


@guide("splice", source="SCOPE (2026), Recycling Failures; SOPHIA (2025): own prefix, another's suffix")
def splice(*, count: int = 1, most: float = 0.0) -> Guide:
    """The last `count` members of groups without a success are corrected from their first error on."""
    return Splice(count, most)


@guide(
    "own", source="Qin et al. (2025), SPEAR, arXiv:2509.22601: replay of own successes, here at equal prompts"
)
def own(*, kept: int = 4096) -> Guide:
    """The last member of groups without a success is the newest success at the same prompt, if any.

    kept: successes stored per cell. They help only if prompts recur.
    """
    if kept < 1:
        raise UserError(f"kept of guide 'own' is {kept}, the size of its store; expected at least 1.")
    return OwnSuccesses(kept)
