"""Claims about age limits where long responses take long: kept ones are short, unless the trainer waits."""

import itertools
from dataclasses import replace

import numpy as np

from analysis.lab import Arm, Evidence, Experiment, Floats, Frame, Groups, Plot, exact, paired
from testbed.config.run import Run, grid

LENGTH = "mean staleness/length_made"
MARGIN = 0.1
"""Margin in tokens; the mean length is about 3.7. Set before the sweep was run."""
NO_LIMIT = -1

LATENCY = Run(
    task="tree",
    task_args=(("prompts", 4), ("task", "length"), ("task_args", "digits=2 modulus=2 limit=8")),
    recipe="reinforce", staleness="latency", staleness_args=(("concurrency", 64), ("speed", 2)), prompts=16,
    group=4, steps=300, learning_rate=2.0,
)  # fmt: skip
"""A token tree whose reward ignores length; generating two tokens takes the time of an update."""

RULES = ("wait", "discard", "drop")
LIMITS = (1, 2, 4)


def cells() -> tuple[Run, ...]:
    """Waiting for, discarding and dropping groups above three age limits, and no limit; 24 seeds.

    Seeds below 100 were looked at while claims were written; the claims are judged on others.
    """
    arms = [LATENCY]
    arms += [replace(LATENCY, age_limit=limit, too_old=rule) for rule in RULES for limit in LIMITS]  # type: ignore[arg-type]
    return tuple(cell for arm in arms for cell in grid(arm, seed=range(100, 124)))


EXPERIMENT = Experiment(
    question="Does discarding old samples shorten what a policy writes where long groups take long?",
    source="tinker-cookbook issue 822; Applied Compute (2026), queue-max",
    differs="a token tree whose reward ignores length, so that nothing else can shorten responses",
    cells=cells, fresh=range(1000, 1024), keys=("too_old", "age_limit", "seed"),
    metrics=(
        *("mean staleness/length_made", "staleness/length_made", "first staleness/length_made"),
        *("exact/value", "mean exact/value", "mean staleness/stalled", "mean staleness/empty"),
        "mean staleness/dropped_share",
    ),
    margins={"tokens that count as the same length": MARGIN},
    figure=Plot(
        "final by setting", x="age_limit: age limit (optimizer steps)", y=f"{LENGTH}: mean length (tokens)",
        arm=("too_old: groups that are too old",), names={"-1": "none"},
        also=({"y": "exact/value: final value"}, {"y": "mean staleness/stalled: time steps stalled"}),
    ),
)  # fmt: skip


def cohorts(rule: str, limit: int, seed: int, steps: int = 200) -> list[tuple[Floats, Floats]]:
    """Return, for each start of 8 groups, the times that the kept and the discarded groups took.

    Groups still being generated at the end are neither. Times are uniform over 1 .. 6.
    """
    from testbed.staleness.latency import CellQueue, Latency

    draws = np.random.default_rng(seed).integers(1, 7, size=(40 * steps, 8))
    line, draw = CellQueue(Latency(speed=1.0, base=0, concurrency=0, limit=limit, rule=rule), 8), 0
    kept: dict[int, list[float]] = {}
    lost: dict[int, list[float]] = {}
    for step in range(steps):
        waiting = True
        while waiting:
            line.land()
            line.start(draws[draw], step, draw)
            line.fill(step)
            draw, waiting = draw + 1, len(line.batch) < 8
        for groups, into in zip(line.take(), (kept, lost), strict=True):
            for group in groups:
                into.setdefault(group.draw, []).append(float(draws[group.draw, group.place]))
    return [(np.array(kept.get(d, [])), np.array(lost.get(d, []))) for d in range(draw)]


@EXPERIMENT.claim(
    "discarding-takes-the-longest-of-a-start",
    source="tinker-cookbook issue 822; the ordering is derived here",
)
def discarding_takes_the_longest_of_a_start() -> Evidence:
    """Of groups that start together, those discarded for their age took at least as long as every one that is
    trained on, and longer on average; a trainer that waits instead discards none.

    Return the largest excess of a kept group's time over a discarded one's of the same start; 0 or 1 else.
    """
    gaps, split = [0.0], 0
    for limit, seed in itertools.product((1, 2), range(4)):
        found = cohorts("discard", limit, seed)
        both = [(kept, lost) for kept, lost in found if kept.size and lost.size]
        gaps += [max(0.0, kept.max() - lost.min()) for kept, lost in both]
        mean_kept, mean_lost = (np.concatenate(part).mean() for part in zip(*found, strict=True))
        gaps.append(float(mean_kept >= mean_lost))
        split += len(both)
        gaps.append(float(sum(lost.size for _, lost in cohorts("wait", limit, seed))))
    gaps.append(float(split < 100))
    return exact(
        gaps, 0.0, f"violations, in {split} starts of which some groups were kept and some discarded"
    )


def under(rule: str, limit: int) -> Arm:
    """Return the arm with this answer to samples above an age limit."""
    return {"too_old": rule, "age_limit": limit}


EXPERIMENT.claim(
    "discarding-old-groups-shortens-the-policy",
    "Where reward knows nothing of length, a policy trained with age limit 1 writes shorter responses when "
    "old groups are discarded and replaced than when the trainer waits for them.",
    source="tinker-cookbook issue 822",
).compare(LENGTH, under("wait", 1), under("discard", 1), typical="mean")


def change_by_waiting(table: Frame) -> Groups:
    """Return the policy's mean length under waiting minus that without an age limit, by limit and seed."""
    free = under("drop", NO_LIMIT)
    return {f"limit {limit}": paired(table, LENGTH, under("wait", limit), free) for limit in (1, 2, 4)}


EXPERIMENT.claim(
    "waiting-leaves-lengths-alone",
    "A trainer that waits keeps the policy's mean length within 0.1 tokens of that without an age limit, at "
    "age limits 1, 2 and 4.",
    source="this project: the control arm of the selection bias",
).equal(change_by_waiting, within=MARGIN, typical="mean")
