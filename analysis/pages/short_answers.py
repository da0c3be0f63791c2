"""Writes the answers at the head of docs/findings.md: one line a question, numbers read from the tables."""

from collections.abc import Iterable

from analysis.arena.table import costly
from analysis.judging.e_values import NONE, SMALLER, SUPPORTED
from analysis.judging.system_list import DECIDED, status, systems
from analysis.pages import markdown_table
from analysis.pages.finding_facts import LAG, Facts

HELD, VARIED, SHRANK = "hold", "hold in one world or part only", "shrink"
VANISHED, REVERSED = "vanish", "turn round in at least one world"
COSTS = 0.03
"""Final accuracy that a lag takes from GRPO on the tasks that are named."""
PLACES = ((16, "3"), (64, "3"), (256, "8"), (400, "8"))
"""Lags, and the finding that says more."""
FEW = "three-steps-of-lag-cost-grpo-less-than-five-points"


def table(f: Facts) -> str:
    """Return a table of questions, answers and the findings that say more."""
    return markdown_table.table(("question", "answer", "more in"), answers(f))


def answers(f: Facts) -> list[tuple[str, str, str]]:
    """Return question, answer and numbers of findings."""
    return [*_of_recipes(f), *_of_signs_and_costs(f)]


def _of_recipes(f: Facts) -> list[tuple[str, str, str]]:
    knobs = {task: f.by_clip_and_rate(task) for task in f.tasks}
    tried = [task for task, scores in knobs.items() if scores[0] != "not tried"]
    clip = ", ".join(f"from {knobs[task][0]} to {knobs[task][1]} on {task}" for task in tried)
    both = ", ".join(f"{knobs[task][3]} on {task}" for task in tried)
    rate = ", ".join(f"from {knobs[task][0]} to {knobs[task][2]} on {task}" for task in tried)
    return [
        (
            "Which method at a lag of 1 to 3?",
            f"Any: three steps change GRPO's final accuracy by {f.claim(FEW)}. TOPR gains "
            f"{f.gain('sorted', 'topr', lag=1)} over tuned GRPO on sorted at a lag of 1, as it does on older "
            "data.",
            "1, 4",
        ),
        *((f"At a lag of {lag}?", _leaders(f, lag), where) for lag, where in PLACES),
        ("What does a wide clip alone buy?", f"At lag {LAG} GRPO goes {clip}.", "5"),
        (
            "What does a smaller rate alone buy?",
            f"With its clip at 0.2 GRPO goes {rate}; with both tuned to {both}.",
            "5",
        ),
        (
            "What survives tuning of the rival?",
            f"A gain of 0.05 over tuned GRPO at lag {LAG} {_survivors(f)}.",
            "13",
        ),
        ("Which published gains vanish, shrink or hold?", _published(f), "[verdicts](verdicts.md)"),
    ]


def _of_signs_and_costs(f: Facts) -> list[tuple[str, str, str]]:
    return [
        (
            "How early can a collapse be told, and by what?",
            "After 200 of 600 steps. A small entropy foretells it better than a small ESS, by "
            f"{f.claim('entropy-warns-better-than-ess-at-one-lag-and-rate')} of AUROC.",
            "10",
        ),
        (
            "What does discarding old groups cost?",
            "Long responses. Where groups older than one update are replaced, the trained policy writes "
            f"{f.claim('discarding-old-groups-shortens-the-policy')} fewer tokens a response.",
            "11",
        ),
        (
            "What does waiting cost?",
            "Time, not length. In a world where age costs nothing a synchronous learner takes "
            f"{f.factor('decoupled-actors-are-faster-than-waiting')} times as long; responses change by "
            f"{f.claim('waiting-leaves-lengths-alone')} tokens.",
            "11",
        ),
        (
            "What do in-flight updates cost?",
            "No accuracy that can be seen: on a pipeline's ages GRPO ends "
            f"{f.claim('a-pipelines-ages-cost-grpo-what-their-mean-does-on-sorted')} above GRPO at a "
            "constant lag of their mean.",
            "2",
        ),
        (
            "When do importance weights help, when do they hurt?",
            "They help where no clip limits the ratio: SmolLM2's REINFORCE gains "
            f"{f.claim('importance-weights-help-smollm2-at-the-end')} at lag 32. Beside a clip they change "
            f"final accuracy by {f.claim('rec-importance-weights-change-nothing')} at a full rate; at a "
            "tenth of it nothing is decided.",
            "9, 17",
        ),
        (
            "What do rollouts of a four-bit engine cost?",
            f"On SmolLM2 and fresh data {f.claim('q4-0-rollouts-slow-smollm2-down')} of mean accuracy along "
            "the run; with TIS less than 0.05 of it remains, in the median.",
            "19",
        ),
    ]


def _leaders(f: Facts, lag: int) -> str:
    """Return which arm gains most over tuned GRPO at a lag, by task on which the lag costs it something."""
    found = []
    for task in costly(f.frame, lag, least=COSTS):
        arm = next(name for name in f.best(task, lag) if name != "placebo")
        rows = f.frame[(f.frame["task"] == task) & (f.frame["lag"] == lag)]
        gain = "GRPO itself" if arm == "grpo" else f"{arm} {f.gain(task, arm, lag=lag)}"
        found.append(f"{gain} on {task}, of {rows['arm'].nunique()} recipes")
    return f"Gains most over tuned GRPO: {'; '.join(found)}. The gain of the best of many is an overestimate."


def _survivors(f: Facts) -> str:
    """Return how many recipes gain on all tasks that they ran, on some, and on none."""
    found = f.verdicts(f"-gains-over-tuned-grpo-at-lag-{LAG}-on-")
    firm = {stem: [word == SUPPORTED for word in words.values()] for stem, words in found.items()}
    every = sorted(stem for stem, held in firm.items() if all(held))
    some = sorted(stem for stem, held in firm.items() if any(held) and not all(held))
    none = len(firm) - len(every) - len(some)
    return (
        f"is shown on every task that it ran for {', '.join(every) or 'no recipe'}; on some tasks for "
        f"{', '.join(some)}; on none for the other {none} of {len(firm)} recipes"
    )


def _published(f: Facts) -> str:
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
