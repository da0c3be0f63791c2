"""Numbers of the short answers at the head of docs/findings.md, by their names in findings.txt."""

from collections.abc import Callable, Iterable

from analysis.arena.table import costly
from analysis.judging.e_values import NONE, SMALLER, SUPPORTED
from analysis.judging.system_list import DECIDED, status, systems
from analysis.pages.finding_facts import LAG, Facts

HELD, VARIED, SHRANK = "hold", "hold in one world or part only", "shrink"
VANISHED, REVERSED = "vanish", "reverse in at least one world"
COSTS = 0.03
"""Final accuracy that a lag takes from GRPO on the tasks that are named."""


def _tuned(f: Facts, column: int, start: bool = True) -> str:
    """Return GRPO's score in tuning where a knob was tried, as "from 0.5 to 0.7 on sums"."""
    knobs = {task: f.by_clip_and_rate(task) for task in f.tasks}
    return ", ".join(
        f"{f'from {scores[0]} to ' * start}{scores[column]} on {task}"
        for task, scores in knobs.items()
        if scores[0] != "not tried"
    )


def leaders(f: Facts, lag: int) -> str:
    """Return which arm gains most over tuned GRPO at a lag, by task on which the lag costs it something."""
    found = []
    for task in costly(f.frame, lag, least=COSTS):
        arm = next(name for name in f.best(task, lag) if name != "placebo")
        rows = f.frame[(f.frame["task"] == task) & (f.frame["lag"] == lag)]
        gain = "GRPO itself" if arm == "grpo" else f"{arm} {f.gain(task, arm, lag=lag)}"
        found.append(f"{gain} on {task}, of {rows['arm'].nunique()} recipes")
    return f"Gains most over tuned GRPO: {'; '.join(found)}. The gain of the best of many is an overestimate."


def survivors(f: Facts) -> str:
    """Return how many recipes gain on all tasks that they ran, on some, and on none."""
    found = f.verdicts(f"-gains-over-tuned-grpo-at-lag-{LAG}-on-")
    firm = {stem: [word == SUPPORTED for word in words.values()] for stem, words in found.items()}
    every = sorted(stem for stem, held in firm.items() if all(held))
    some = sorted(stem for stem, held in firm.items() if any(held) and not all(held))
    none = len(firm) - len(every) - len(some)
    return (
        f"{', '.join(every) or 'no recipe'} on every task that it ran; {', '.join(some)} on some; the other "
        f"{none} of {len(firm)} recipes on none"
    )


def published(f: Facts) -> str:
    """Return the training recipes of the literature by what became of their central claims."""
    found: dict[str, list[str]] = {}
    recipes = [system for system in systems().values() if system.kind.startswith("A")]
    for system in recipes:
        word = status(system, f.rows)
        if word in (DECIDED, SMALLER):
            became = SHRANK if word == SMALLER else _became(str(f.rows[c]["verdict"]) for c in system.central)
            found.setdefault(became, []).append(system.name.partition(" (")[0])
    words = (word for word in (HELD, VARIED, SHRANK, VANISHED, REVERSED) if word in found)
    said = (f"{word.capitalize()} ({len(found[word])}): {', '.join(found[word])}." for word in words)
    judged = sum(map(len, found.values()))
    return f"{judged} of {len(recipes)} training recipes are decided. {' '.join(said)}"


def _became(verdicts: Iterable[str]) -> str:
    """Return what became of a decided system's claims."""
    words = set(verdicts)
    if SUPPORTED in words:
        return HELD if words == {SUPPORTED} else VARIED
    return VANISHED if words <= {NONE} else REVERSED


PARTS: dict[str, Callable[..., str]] = {
    "by_clip": lambda f: _tuned(f, 1),
    "by_rate": lambda f: _tuned(f, 2),
    "by_both": lambda f: _tuned(f, 3, start=False),
    "leaders": lambda f, lag: leaders(f, int(lag)),
    "survivors": survivors,
    "published": published,
}
