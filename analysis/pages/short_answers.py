"""Writes the answers at the head of docs/findings.md: one line a question, numbers read from the tables."""

from collections.abc import Iterable

from analysis.arena.table import costly
from analysis.judging.e_values import NONE, SMALLER, SUPPORTED
from analysis.judging.system_list import DECIDED, status, systems
from analysis.pages.finding_facts import LAG, Facts

HELD, VARIED, SHRANK = "hold", "hold in one world or part only", "shrink"
VANISHED, REVERSED = "vanish", "turn round in at least one"
COSTS = 0.03
"""Final accuracy that a lag takes from GRPO on the tasks that are named."""
FEW = "three-steps-of-lag-cost-grpo-less-than-five-points"


def table(f: Facts) -> str:
    """Return a table of questions, answers and the findings that say more."""
    lines = ["| question | answer | more in |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {asked} | {said} | {more} |" for asked, said, more in answers(f))])


def answers(f: Facts) -> list[tuple[str, str, str]]:
    """Return question, answer and numbers of findings."""
    return [*_of_recipes(f), *_of_signs_and_costs(f)]


def _of_recipes(f: Facts) -> list[tuple[str, str, str]]:
    knobs = {task: f.by_clip_and_rate(task) for task in f.tasks}
    tried = [task for task, scores in knobs.items() if scores[0] != "not tried"]
    clip = ", ".join(f"from {knobs[task][0]} to {knobs[task][1]} on {task}" for task in tried)
    rate = ", ".join(f"from {knobs[task][0]} to {knobs[task][2]} on {task}" for task in tried)
    return [
        (
            "Which method at a lag of 1 to 3?",
            f"Any. Three steps change what GRPO reaches by {f.claim(FEW)}; a lag of 1 was not run by itself.",
            "1",
        ),
        *((f"At a lag of {lag}?", _leaders(f, lag), "3") for lag in (16, 64, 256)),
        (
            "At a lag of 400?",
            "Not known: no recipe was tuned there. At 256, the oldest that was, fresh data reach "
            f"{f.final('long', 'grpo', 0)} on long, VCPO {f.final('long', 'vcpo', 256)}, GRPO "
            f"{f.final('long', 'grpo', 256)}.",
            "8",
        ),
        ("What does a wide clip alone buy?", f"At lag {LAG} GRPO goes {clip}.", "5"),
        (
            "What does a smaller rate alone buy?",
            f"Next to nothing: with the clip of 0.2 GRPO goes {rate}.",
            "5",
        ),
        (
            "What survives tuning of the rival?",
            f"Gains of 0.05 over tuned GRPO at lag {LAG} {_survivors(f)}.",
            "13",
        ),
        ("Which published gains vanish, shrink or hold?", _published(f), "[verdicts](verdicts.md)"),
    ]


def _of_signs_and_costs(f: Facts) -> list[tuple[str, str, str]]:
    return [
        (
            "How early can a collapse be told, and by what?",
            "After 200 of 600 steps, by a small entropy, better than by a small ESS: difference of AUROC "
            f"{f.claim('entropy-warns-better-than-ess-at-one-lag-and-rate')}.",
            "10",
        ),
        (
            "What does discarding old groups cost?",
            "The long responses: a policy that is trained where groups older than one update are replaced "
            f"writes fewer tokens, by {f.claim('discarding-old-groups-shortens-the-policy')} of 3.7.",
            "11",
        ),
        (
            "What does waiting cost?",
            "Time, and no length: a log factor of "
            f"{f.claim('decoupled-actors-are-faster-than-waiting')} in time; tokens "
            f"{f.claim('waiting-leaves-lengths-alone')}.",
            "11",
        ),
        (
            "What do in-flight updates cost?",
            "No accuracy that is seen: GRPO on a pipeline's ages less GRPO at a constant lag of their mean "
            f"{f.claim('a-pipelines-ages-cost-grpo-what-their-mean-does-on-sorted')}.",
            "2",
        ),
        (
            "When do importance weights help, when do they hurt?",
            "They help where no clip holds a ratio back: SmolLM2's REINFORCE at lag 32 by "
            f"{f.claim('importance-weights-help-smollm2-at-the-end')}. Beside a clip they hurt at a full "
            f"rate, {f.claim('rec-importance-weights-change-nothing')}, and are idle at a tenth of it.",
            "9, 17",
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
    return "Gains most over tuned GRPO: " + "; ".join(found) + ". The best of many is named too high."


def _survivors(f: Facts) -> str:
    """Return how many recipes gain on all tasks that they ran, on some, and on none."""
    found = f.verdicts(f"-gains-over-tuned-grpo-at-lag-{LAG}-on-")
    firm = {stem: [word == SUPPORTED for word in words.values()] for stem, words in found.items()}
    every = sorted(stem for stem, held in firm.items() if all(held))
    some = sorted(stem for stem, held in firm.items() if any(held) and not all(held))
    return (
        f"are shown for {', '.join(every) or 'none'} on every task that they ran, for {', '.join(some)} on "
        f"some, for the other {len(firm) - len(every) - len(some)} of {len(firm)} recipes on none"
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
    said = (f"{len(found[word])} {word} ({', '.join(found[word])})" for word in words)
    judged = sum(map(len, found.values()))
    return f"Of {len(recipes)} training recipes {judged} are decided: {'; '.join(said)}."


def _became(verdicts: Iterable[str]) -> str:
    """Return what became of a decided system's claims."""
    words = set(verdicts)
    if SUPPORTED in words:
        return HELD if words == {SUPPORTED} else VARIED
    return VANISHED if words <= {NONE} else REVERSED
