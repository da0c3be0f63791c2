"""Gates: what must hold before a comparison may have a verdict. A failed gate makes the claim invalid.

    headroom      neither arm piles up at floor or ceiling; the margin can be reached and missed
    tuned         every arm's rate, and the one knob that its paper tunes, lies inside its grid, or
                  settings.csv says why no arm could have won by another setting
    long enough   outcomes are compared after each arm's plateau, or per unit of a stated budget
    acts          what the method adds did something
    off-switch    with the mechanism switched off the same claim is not supported
    rival         the paper's rival is an arm, at its best
    worlds        a claim on random worlds has at least 20 of them, seeds nested inside
    drift         a lag is given with the drift that it caused, beside that of which the source speaks

objections.csv holds what a review against the source found: such a gate counts as failed until the claim is
asked again in an experiment that passes it. A claim may declare checks of its own (`gates=`);
analysis.judging.table_gates has those that read only the table. A gate that does not apply yields nothing.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from analysis.experiment import EXPERIMENTS, GATES, Experiment
from analysis.judging import rule
from analysis.judging.claims import Seen, examine, is_statistical
from analysis.judging.comparison import Comparison
from analysis.judging.comparisons import Arm, Read, places
from analysis.judging.e_values import REFUTED, SUPPORTED, Evidence
from analysis.judging.source_drift import LAG, NATS, SHARE, beside
from analysis.judging.table_gates import BY_HAND, NOBODY, SETTINGS, Answer, answers, lacking, leaning
from analysis.sweeps.tuned_cells import choosing
from analysis.sweeps.tuning import FEWER
from analysis.tables.cell_table import FIELDS, words
from analysis.tables.committed import manifest, remeasured
from testbed.config.run import Run
from testbed.errors import UserError, unknown
from testbed.registry import Entry

LEAST_WORLDS = 20
"""Least number of worlds, with seeds nested inside, for a claim on drawn worlds."""
DRAWN = ("bandit", "garnet", "logged-bandit")
"""Tasks that are random worlds."""
NESTED = ("prompts", "worlds")
"""Key in a table's `about` with the number of worlds that one seed draws."""
SIMULATED = "pipelines"
"""Area of experiments on simulated queues: their seeds repeat one design and draw no world."""
MORE_IS_BETTER = ("accuracy", "area", "best", "last val/pass@8")
"""Outcomes that a better rate could only raise; for others, such as an entropy, the direction is unknown."""
FAILING, ENOUGH_PILOTS = 0.1, 32
"""Share of an arm's runs below half of its median from which fewer pilot seeds choose settings by chance."""
NOTHING_TO_GAIN = 0.98
"""Score of a chosen rate above which a better one beyond the edge cannot matter."""
ON_BASE_DATA = 0.6
"""Largest share of an arm's steps on data of the initial model that counts as an episode."""
KL = {
    "kl": lambda x_N: x_N,
    "mean rollout_corr/kl_mu_pi_k3": lambda x_N: x_N,
    "log10 kl": lambda x_N: 10.0**x_N,
}
"""Columns with the KL per token from the data to the policy, and their factors to nats."""
NO_DRIFT = "a lag without its KL and clip share"
CLIPPED = ("clip_share", "clip share", "mean actor/clip_share", "mean actor/clip_share_last_pass")


def design_answers(
    entry: Entry, frame: pd.DataFrame, read: Sequence[Read], evidence: Evidence
) -> Iterator[Answer]:
    """Yield the gates' results for a statistical claim.

    frame: its whole table. read: the arms that its check read. evidence: the result of its check. Raises
    UserError for an arm that a claim declares and the table lacks.
    """
    name, systems, old = entry.promises["experiment"], list[str](), frozenset[str]()
    if name in EXPERIMENTS and EXPERIMENTS[name].claims.get(entry.name) is entry:
        experiment = EXPERIMENTS[name]
        yield from worlds(experiment, frame)
        yield from tuned(rates_of(experiment.name), entry.function, read, evidence)
        if experiment.pilots is not None:
            yield from enough_pilots(experiment.pilots(), read, evidence)
        yield from long_enough(base_data_of(experiment.name), read)
        systems = [each for each, part in experiment.judges().items() if entry.name in part.claims]
        old = frozenset(experiment.old()) if experiment.old is not None else old
    yield from drift(entry.function, frame, read, name, systems, old)
    yield from collapses(read, frame, evidence)
    if isinstance(entry.function, Comparison):
        yield from instead(entry.name, entry.function, frame)


def worlds(experiment: Experiment, frame: pd.DataFrame) -> Iterator[Answer]:
    """Yield whether a table has enough worlds. A computation draws one or several per seed; cells count if
    they are on random bandits or MDPs; a task of digits, a corridor or a lock is no random world.
    """
    cells = experiment.cells() if experiment.cells is not None else ()
    if drawn := [dict(cell.task_args) for cell in cells if cell.task in DRAWN]:
        contexts = min(int(args.get("contexts", 1)) for args in drawn)
        count = len({args.get("seed") for args in drawn}) * contexts
        yield Answer("worlds", count >= LEAST_WORLDS, f"{count} drawn, {LEAST_WORLDS} expected")
    area = EXPERIMENTS.module(experiment.name).split(".")[-2]
    keys = [name for name in ("run", "world", "seed") if name in frame]
    if experiment.compute is None or "seed" not in keys or area == SIMULATED:
        return
    count = len(frame[frame["seed"] >= 0][keys].drop_duplicates()) * _nested(experiment.name)
    yield Answer("worlds", count >= LEAST_WORLDS, f"{count} drawn, {LEAST_WORLDS} expected")


def _nested(experiment: str) -> int:
    about = manifest()[experiment]["about"] if experiment in manifest() else {}
    return int(max([1, *(about[name] for name in NESTED if isinstance(about.get(name), int))]))


def tuned(
    chosen: pd.DataFrame, check: Callable[..., object], read: Sequence[Read], evidence: Evidence
) -> Iterator[Answer]:
    """Yield whether the rates of two compared arms lie inside their grids; chosen: a row per tuned arm.

    If the better arm's rate is at its edge, the difference found could only be larger, so that arm passes. If
    a check reads more than two arms, it is unknown which of them it compares. "Not so many times as fast"
    does not say who is faster, and is left alone.
    """
    columns = {each.column.partition(" ")[0] for each in read}
    fewer = columns.issubset({*FEWER, "collapsed"})
    if not fewer and not {each.column for each in read}.issubset(MORE_IS_BETTER):
        return
    if fewer and leaning(evidence) == REFUTED:
        return
    rows = [_rows(chosen, each.where) for each in read] if not chosen.empty else []
    compared = {_named(each.where) for each in read}
    if not any(len(each) for each in rows) or len(compared) < 2:
        return
    if len(compared) > 2 and not (isinstance(check, Comparison) and check.first):
        return
    better = -1
    if leaning(evidence) in (SUPPORTED, REFUTED):
        middle = [
            (-1 if fewer else 1) * float(np.nan_to_num(each.values, nan=(np.inf if fewer else 0.0)).mean())
            for each in read
        ]
        better = int(np.argmax(middle))
    edges = {
        f"{row.learning_rate:g} at {_named(read[number].where)} ({row.at_edge})": None
        for number, found in enumerate(rows)
        if number != better
        for row in found[(found["at_edge"] != "") & (found["score"] < NOTHING_TO_GAIN)].itertuples()
    }
    count = sum(len(each) for each in rows)
    said = f"at the edge of its grid: {'; '.join(edges)}" if edges else f"{count} rates, no edge that counts"
    yield Answer("tuned", not edges, said)


def enough_pilots(pilots: Mapping[str, int], read: Sequence[Read], evidence: Evidence) -> Iterator[Answer]:
    """Yield whether enough pilot seeds chose the setting of every compared arm of which many runs fail.

    pilots: by the arm's name. A run fails below half of its arm's median. The better arm passes, as a better
    setting could only enlarge the difference found.
    """
    arms = {str(each.where["arm"]): each.values for each in read
            if each.column in MORE_IS_BETTER and each.where.get("arm") in pilots}  # fmt: skip
    if leaning(evidence) in (SUPPORTED, REFUTED) and len(arms) > 1:
        arms.pop(max(arms, key=lambda name: float(arms[name].mean())))
    fails = {name: float((x_N < np.median(x_N) / 2).mean()) for name, x_N in arms.items()}
    for name, share in fails.items():
        if share >= FAILING:
            said = f"{pilots[name]} pilot seeds chose the setting of {name}, and {share:.0%} of its runs fail"
            yield Answer("tuned", pilots[name] >= ENOUGH_PILOTS, said)


def long_enough(base: pd.DataFrame, read: Sequence[Read]) -> Iterator[Answer]:
    """Yield whether most steps learn from data of later models than the first; base: a row per arm.

    An arm whose lag is as long as its run is trained on fixed data on purpose.
    """
    found = pd.concat([_rows(base, each.where) for each in read]) if read and not base.empty else base
    if found.empty or not found["lag"].max():
        return
    share_N = found["lag"] / found["steps"]
    share = float(share_N[share_N < 1].max())
    if np.isnan(share):
        yield Answer("long enough", True, "fixed data of the first model on purpose")
    else:
        said = f"at most {share:.2g} of all steps on data of the first model"
        yield Answer("long enough", share <= ON_BASE_DATA, said)


def drift(
    check: Callable[..., object],
    frame: pd.DataFrame,
    read: Sequence[Read],
    experiment: str = "",
    systems: Iterable[str] = (),
    old: Collection[str] = (),
) -> Iterator[Answer]:
    """Yield whether the effect of a lag on the compared arms was measured and is in its source's range.

    The largest of their KLs counts, that of the least restrained arm, and no arm may drift further than the
    source's. experiment: owner of the table. systems: those of the claim. old: names of arms on old data, for
    a table without a column "lag".
    """
    wanted: list[Arm] = [each.where for each in read]
    if isinstance(check, Comparison):
        both = [where for where in (check.first, check.second) if where is not None]
        wanted = [{**where, **check.over} for where in both] or wanted
    again = remeasured(experiment)
    if "lag" not in frame and any(where.get("arm") in old for where in wanted):
        if again is None or "lag" not in again:
            yield lacking("drift", experiment, NO_DRIFT)
            return
        frame = again
    if "lag" not in frame or not pd.api.types.is_numeric_dtype(frame["lag"]):
        return
    arms = _stale(frame, wanted)
    if not arms:
        return
    count = len(arms)
    if not ({*KL} & {*frame} and {*CLIPPED} & {*frame}) and again is not None:
        frame, arms = again, _stale(again, wanted)
    kl, clipped = (next((name for name in names if name in frame), "") for names in (KL, CLIPPED))
    if not (kl and clipped) or len(arms) < count or any(rows[kl].isna().all() for rows in arms):
        yield lacking("drift", experiment, NO_DRIFT)
        return
    nats, share = max((float(KL[kl](rows[kl]).median()), float(rows[clipped].median())) for rows in arms)
    lag, most = (max(float(rows[name].median()) for rows in arms) for name in ("lag", clipped))
    holds, told = beside(systems, {LAG: lag, SHARE: most, NATS: nats})
    yield Answer("drift", holds, f"KL {nats:.2g}, clip share {share:.2g}" + f", {told}" * bool(told))


def _stale(frame: pd.DataFrame, wanted: Sequence[Arm]) -> list[pd.DataFrame]:
    """Return the rows of each arm on old data, where it has some."""
    found = (_rows(frame, where) for where in wanted)
    return [rows[rows["lag"] > 0] for rows in found if (rows["lag"] > 0).any()]


def collapses(read: Sequence[Read], frame: pd.DataFrame, evidence: Evidence) -> Iterator[Answer]:
    """Yield whether a run of the table collapses, if a claim is about collapse: else nothing was prevented.

    A claim that something said to collapse does not needs no such run.
    """
    if any(each.column == "collapsed" for each in read) and leaning(evidence) != REFUTED:
        count = int((frame["collapsed"] > 0.5).sum())
        yield Answer("acts", count > 0, f"{count} of {len(frame)} runs collapse")


def instead(claim: str, check: Comparison, frame: pd.DataFrame) -> Iterator[Answer]:
    """Yield whether the sentence fails, as it must, with a declared arm in place of the first one.

    Raises UserError for an arm without rows, also for the second one, with which the first is compared.
    """
    declared = (("rival", check.second), ("off-switch", check.off), ("rival", check.rival))
    for gate, where in declared:
        if where is not None and _rows(frame, where).empty:
            raise UserError(
                f"Claim '{claim}' names {dict(where)} for the gate '{gate}', but its table has no such row; "
                "add that arm to the cells, or name one that is there."
            )
        if where is None or where is check.second:
            continue
        e = replace(check, first=where)(frame).e.get(SUPPORTED, 0.0)
        yield Answer(gate, e < rule.USUAL, f"e-value {e:.3g} with {_named(where)} in place of the method")


@cache
def rates_of(experiment: str) -> pd.DataFrame:
    """Return learning_rate, score and at_edge of every tuned arm of an experiment, beside its keys."""
    cells = EXPERIMENTS[experiment].cells
    if cells is None:
        return pd.DataFrame()
    with choosing() as found:
        cells()
    return _table(
        experiment,
        [(cell, {name: row[name] for name in ("learning_rate", "score", "at_edge")}) for cell, row in found],
    )


@cache
def base_data_of(experiment: str) -> pd.DataFrame:
    """Return lag and steps of every arm of an experiment whose lag is exact, beside its keys."""
    cells = EXPERIMENTS[experiment].cells
    exact = [cell for cell in cells() if cell.staleness == "exact"] if cells is not None else []
    return _table(experiment, [(cell, {"lag": cell.lag, "steps": cell.steps}) for cell in exact])


def _table(experiment: str, found: Sequence[tuple[Run, Mapping[str, Any]]]) -> pd.DataFrame:
    keys = [key for key in EXPERIMENTS[experiment].keys if key.partition(".")[0] in FIELDS and key != "seed"]
    rows = [{**{key: _value(cell, key) for key in keys}, **more} for cell, more in found]
    return pd.DataFrame(rows).drop_duplicates(ignore_index=True)


def _value(cell: Run, key: str) -> Any:
    """Return a key of a cell as its table spells it."""
    field, _, argument = key.partition(".")
    value = getattr(cell, field)
    if argument:
        return dict(value).get(argument)
    return words(value) if isinstance(value, tuple) else value


def _rows(frame: pd.DataFrame, where: Arm) -> pd.DataFrame:
    """Return the rows of an arm, by those of its columns that the frame has."""
    if set(where) <= set(frame) and all(isinstance(wanted, (str, int, float)) for wanted in where.values()):
        return frame.take(places(frame, where))
    for column, wanted in where.items():
        if column in frame:
            several = isinstance(wanted, Collection) and not isinstance(wanted, str)
            frame = frame[frame[column].isin(list(wanted) if several else [wanted])]
    return frame


def _named(where: Arm) -> str:
    return " ".join(str(value) for value in where.values())


OBJECTIONS = Path(__file__).with_name("objections.csv")


@cache
def objections(path: Path = OBJECTIONS) -> dict[str, tuple[str, str]]:
    """Return (gate, why) by claim, from a review.

    Raises UserError for an unknown gate and for two lines about one claim.
    """
    found: dict[str, tuple[str, str]] = {}
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["gate"] not in GATES:
                raise unknown(f"gate in {path.name}:", row["gate"], GATES)
            if row["claim"] in found:
                raise UserError(f"{path.name} has two lines about '{row['claim']}'; keep one.")
            found[row["claim"]] = row["gate"], row["why"]
    return found


def checked(entry: Entry, frame: pd.DataFrame | None, seen: Seen | None = None) -> list[Answer]:
    """Return the result of every gate that applies to a claim: objections, declared checks, and its table.

    seen: the claim as examined, if it was judged already.
    """
    found = []
    if entry.name in objections():
        gate, why = objections()[entry.name]
        found.append(Answer(gate, False, why))
    if frame is None:
        return found
    for name, check in entry.promises["gates"].items():
        why = check(frame)
        found.append(Answer(name, not why, why or "as the claim's check says"))
    if is_statistical(entry):
        evidence, table, read = seen or examine(entry, frame)
        assert table is not None
        name = entry.promises["experiment"]
        budget = EXPERIMENTS[name].budget if name in EXPERIMENTS else ""
        found += answers(entry.function, table, read, evidence, name, budget)
        found += design_answers(entry, table, read, evidence)
        if all(answer.gate != "tuned" for answer in found):
            found += declared(entry)
    return found


def declared(entry: Entry) -> Iterator[Answer]:
    """Yield what is declared of a comparison's settings, where its table has neither rates nor ends of grids.

    One arm against a number needs no word: no rival could have won.
    """
    of_claim = SETTINGS.get(entry.name) or SETTINGS.get(entry.promises["experiment"])
    check = entry.function
    if of_claim is not None:
        yield Answer("tuned", of_claim[0] != BY_HAND, ", ".join(of_claim))
    elif not isinstance(check, Comparison) or check.first is None or check.second is not None:
        yield Answer("tuned", False, NOBODY)
