"""Claims about age limits where long responses take long: kept ones are short, unless the trainer waits."""

from dataclasses import replace

from analysis.lab import Arm, Experiment, Frame, Groups, Plot, paired
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
