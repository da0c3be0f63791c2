"""Numbers and tables of the findings on the arena, by their names in findings.txt."""

from collections.abc import Callable

from analysis.arena import one_setting
from analysis.arena import table as arena
from analysis.arena.tasks import NEAR, PIPELINE, TASKS
from analysis.experiments.arena.arena import AGED, MARGIN
from analysis.pages.finding_facts import LAG, Facts, in_words
from analysis.pages.markdown import table

FAR, FARTHEST = 256, 400
OLD = (("long", FAR), ("guess", FAR), ("long", FARTHEST))
"""Where the oldest data were used, by task and lag."""


def on_tasks(one: Callable[[Facts, str, str], str]) -> Callable[[Facts, str], str]:
    """Return a number of an arm on each task where LAG costs accuracy, as "0.1 on sorted, 0.2 on sums"."""
    return lambda f, arm: ", ".join(f"{one(f, task, arm)} on {task}" for task in f.tasks)


def on_every_task(f: Facts) -> str:
    """Return which recipes gain the arena's margin over tuned GRPO on every task, with the whole interval."""
    arms = set.intersection(*(set(f.best(task, count=len(f.frame))) for task in f.tasks))
    names = [
        arm.upper().replace("_", "-")
        for arm in sorted(arms - {"grpo", "placebo"})
        if all(f.interval(task, arm)[0] > MARGIN for task in f.tasks)
    ]
    gains = f"{' and '.join(names)} alone gain{'s' * (len(names) == 1)}" if names else "none gains"
    return f"{gains} {MARGIN:g} on every task"


def ages(f: Facts) -> str:
    """Return what recipes reach on a pipeline's ages and on a constant lag of their mean."""
    rows = (
        (arm, f.final("sorted", arm, NEAR), f.final("sorted", arm, PIPELINE), in_words(*f.aged(arm)))
        for arm in AGED
    )
    return table(("recipe", "lag 16", "pipeline", "difference on the same seeds"), rows)


def moved(f: Facts, up: bool) -> str:
    """Return the recipes that end higher, or lower, on a pipeline's ages with their whole interval."""
    ends = {arm: f.aged(arm) for arm in AGED}
    found = [arm for arm, (low, _, high) in ends.items() if (low > 0 if up else high < 0)]
    return ", ".join(found) or "none"


def settings(f: Facts) -> str:
    """Return what one setting for all places costs each recipe."""
    rows = [
        (row["arm"], f"{row['own']:.2f}", f"{row['one']:.2f}", in_words(row["low"], row["loss"], row["high"]))
        for row in arena.records(one_setting.losses(f.frame, ["arm"]).sort_values("loss"))
    ]
    return table(("recipe", "each its own", "one setting", "lost"), rows)


def order(f: Facts, of: str) -> str:
    """Return the three best recipes, each place at its "own" setting or all at "one"."""
    best = one_setting.losses(f.frame, ["arm"]).nlargest(3, of)
    return ", ".join(f"{row['arm']} {row[of]:.2f}" for row in arena.records(best))


def ranks(f: Facts) -> str:
    """Return the best recipes at every task and lag."""
    rows = [
        (
            task,
            str(lag),
            f.final(task, "grpo", 0),
            ", ".join(f"{arm} {f.final(task, arm, lag)}" for arm in f.best(task, lag)),
            f.final(task, "grpo", lag),
        )
        for task in TASKS
        for lag in f.lags(task)
    ]
    return table(
        ("task", "lag", "GRPO, fresh", "best five of the recipes, mean final accuracy", "GRPO"), rows
    )


def reinforce(f: Facts) -> str:
    """Return REINFORCE beside GRPO at LAG."""
    rows = (
        (task, f.final(task, "reinforce"), f.final(task, "grpo"), f.gain(task, "reinforce"))
        for task in f.tasks
    )
    return table(("task", "REINFORCE", "GRPO", "difference on the same seeds"), rows)


def oldest(f: Facts) -> str:
    """Return what each recipe has more than GRPO at the places of OLD, best at the first one first."""
    ran = {place: f.best(*place, len(f.frame)) for place in OLD}
    rows = (
        (arm, *(f.gain(task, arm, lag=lag) if arm in arms else "–" for (task, lag), arms in ran.items()))
        for arm in dict.fromkeys(arm for arms in ran.values() for arm in arms)
        if arm != "grpo"
    )
    return table(("recipe", *(f"{task}, lag {lag}" for task, lag in OLD)), rows)


def grpo_by_lag(f: Facts) -> str:
    """Return GRPO's mean final accuracy by task and lag, tuned at each."""
    lags = (0, 1, NEAR, LAG, FAR, FARTHEST)
    rows = (
        (task, *(f.final(task, "grpo", lag) if lag in {0, *f.lags(task)} else "–" for lag in lags))
        for task in TASKS
    )
    return table(("task", "fresh data", *(f"lag {lag}" for lag in lags[1:])), rows)


def knobs(f: Facts) -> str:
    """Return GRPO's scores in tuning with one or both of its knobs at their usual values."""
    head = ("task", "fresh data's rate, clip 0.2", "its rate, best clip", "best rate, clip 0.2", "both tuned")
    return table(head, ((task, *f.by_clip_and_rate(task)) for task in f.tasks))


def finer(f: Facts) -> str:
    """Return what finer rates give GRPO on `long`."""
    pairs = ((lag, *f.by_grid("long", lag)) for lag in (LAG, FAR, FARTHEST))
    return ", ".join(f"from {coarse:.2f} to {fine:.2f} at lag {lag}" for lag, coarse, fine in pairs)


def by_verdict(f: Facts) -> str:
    """Return the verdicts on a gain over tuned GRPO at LAG."""
    found = f.verdicts(f"-gains-over-tuned-grpo-at-lag-{LAG}-on-")
    asked = ("sorted", "sums", "guess")
    rows = ((stem, *(words.get(task, "–") for task in asked)) for stem, words in sorted(found.items()))
    return table(("recipe", *asked), rows)


PARTS: dict[str, Callable[..., str]] = {
    **{part.__name__: part for part in (
        on_every_task, ages, ranks, order, reinforce, oldest, grpo_by_lag, knobs, finer, by_verdict
    )},
    "one_setting": settings,
    "places": lambda _: ", ".join(f"lag {lag} on {task}" for task, lag in one_setting.places()),
    "other_seeds": lambda _: str(len(one_setting.SEEDS)),
    "higher": lambda f: moved(f, True),
    "lower": lambda f: moved(f, False),
    "gain": lambda f, task, arm, lag: f.gain(task, arm, lag=int(lag)),
    "gains": on_tasks(Facts.gain),
    "finals": on_tasks(Facts.final),
}  # fmt: skip
