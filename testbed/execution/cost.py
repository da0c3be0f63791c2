"""Estimate the cost of a sweep before it starts: cells, seconds and memory.

Seconds of a pack = cells (steps a + rows b) + base models * warm-start steps * c, with a, b, c in seconds per
cell, timed briefly on this machine for the largest kinds of cells and scaled by size for the others. They are
CPU seconds and exclude other load: on a busy machine a sweep takes longer than estimated. A sweep that is
short by a rough guess is not timed. Accuracy: docs/howto/cost.md.
"""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean, median

from testbed.config.pack import Pack
from testbed.config.run import Run
from testbed.errors import UserError, counted
from testbed.execution.memory import done_in, needed
from testbed.execution.packs import STACKED
from testbed.execution.worker import TRAIN, imported

SHORT = 60.0
"""Seconds, by the rough guess, up to which nothing is timed."""
KINDS = 3
"""Number of kinds of cells to time, those with the most work."""
MOMENT = 10.0
"""Seconds, by the rough guess, in which to time cells: as many of a pack as fit, but at least LEAST, because
with few cells each costs more per step."""
LEAST = 8
SMALL = 2 << 30
"""Largest pack in bytes to time, so that an estimate never needs the memory of the run itself."""
TIMED = 9
"""Steps to time, every other one logged: a cycle of four rows, one of them with pass@k."""
START = 4.0
"""Seconds in which a worker starts and loads its imports."""
PROCESS = 400 << 20
"""Bytes of a worker without its cells: Python, torch, Numba."""
ROUGH = {"tabular": 1e-4, "toy": 4e-10, "hf": 4e-10}
"""Seconds per cell and step; of models per weight and token of the batch, forward, backward and sampling."""
OTHERS = ("steps", "log_every", "warm_start_steps", "teacher_noise")
"""Shared fields of a pack that the formula covers, so that they do not define kinds."""

Train = Callable[[tuple[Run, ...], Callable[[int, int], None]], object]


@dataclass(frozen=True)
class Rates:
    """Seconds per cell: of a step, of an added logged row, and of a base model's warm-start step."""

    step: float
    row: float
    lesson: float

    def times(self, factor: float) -> "Rates":
        """Return rates of cells that are larger by a factor."""
        return Rates(*(factor * value for value in (self.step, self.row, self.lesson)))


@dataclass(frozen=True)
class Cost:
    """Remaining work: cells, packs, seconds on the workers (None: unknown), most bytes."""

    cells: int
    packs: int
    workers: int
    seconds: float | None
    memory: int

    def __str__(self) -> str:
        if not self.cells:
            return "All cells are done."
        from testbed.staleness.storage import readable

        what = f"{counted(self.cells, 'cell')} in {counted(self.packs, 'pack')}"
        when = "an unknown time" if self.seconds is None else duration(self.seconds)
        workers, memory = counted(self.workers, "worker"), readable(self.memory)
        return f"{what} on {workers}: {when}, about {memory} of memory."


def duration(seconds: float) -> str:
    """Format seconds as an estimate: "under a minute", "about 12 minutes", "about 3.4 hours"."""
    if seconds < SHORT:
        return "under a minute"
    if seconds < 5400:
        return f"about {counted(round(seconds / 60), 'minute')}"
    return f"about {seconds / 3600:.1f} hours"


def cost(packs: Sequence[Pack], workers: int, time_kind: Callable[[Pack], Rates] | None = None) -> Cost:
    """Return the cost of unfinished packs on some workers of this machine.

    time_kind: measures the rates of packs like this one; by default `timed`.
    """
    workers = max(1, min(workers, len(packs)))
    taken = sorted((bytes_of(pack) for pack in packs), reverse=True)[:workers]
    cells = sum(len(pack.cells) for pack in packs)
    seconds = None
    if all(pack.cells[0].policy != "hf" for pack in packs):  # a model of any size, on any device
        seconds = _elapsed(packs, workers, time_kind or timed)
    return Cost(cells, len(packs), workers, seconds, workers * PROCESS + sum(taken))


def _elapsed(packs: Sequence[Pack], workers: int, time_kind: Callable[[Pack], Rates]) -> float:
    rough = {kind_of(pack): guessed(pack.cells[0]) for pack in packs}
    guess = on_workers([seconds_of(pack, rough[kind_of(pack)]) for pack in packs], workers)
    if guess <= SHORT:
        return guess
    work: dict[tuple[object, ...], float] = {}
    first: dict[tuple[object, ...], Pack] = {}
    for pack in packs:
        kind = kind_of(pack)
        work[kind] = work.get(kind, 0.0) + seconds_of(pack, rough[kind])
        first.setdefault(kind, pack)
    largest = sorted(work, key=lambda kind: -work[kind])[:KINDS]
    known = {kind: time_kind(first[kind]) for kind in largest if bytes_of(first[kind]) <= SMALL}
    rates = {kind: known.get(kind) or _scaled(kind, known, first, rough) for kind in work}
    trained = _base_models(packs)
    each = zip(packs, trained, strict=True)
    return START + on_workers([seconds_of(pack, rates[kind_of(pack)], new) for pack, new in each], workers)


def _scaled(
    kind: tuple[object, ...],
    known: dict[tuple[object, ...], Rates],
    first: dict[tuple[object, ...], Pack],
    rough: dict[tuple[object, ...], Rates],
) -> Rates:
    """Return the rates of an untimed kind: those of a timed one with its policy, scaled by rough size."""
    policy = first[kind].cells[0].policy
    like = [other for other in known if first[other].cells[0].policy == policy]
    return known[like[0]].times(rough[kind].step / rough[like[0]].step) if like else rough[kind]


def kind_of(pack: Pack) -> tuple[object, ...]:
    """Return the fields that determine a pack's rates: those shared by its cells, except the formula's."""
    names = (item.name for item in dataclasses.fields(Run) if item.name not in (*STACKED, *OTHERS))
    return tuple(getattr(pack.cells[0], name) for name in names)


def seconds_of(pack: Pack, rates: Rates, base_models: int | None = None) -> float:
    """Return the seconds of a pack; base_models: number to train, by default one per seed."""
    first = pack.cells[0]
    new = len({cell.seed for cell in pack.cells}) if base_models is None else base_models
    rows = -(-first.steps // first.log_every) + 1
    each = first.steps * rates.step + rows * rates.row
    return len(pack.cells) * each + new * first.warm_start_steps * rates.lesson


def on_workers(seconds: Iterable[float], workers: int) -> float:
    """Return when the last worker finishes if each takes the next pack as soon as it is free."""
    free = [0.0] * workers
    for each in seconds:
        free[free.index(min(free))] += each
    return max(free)


def guessed(run: Run) -> Rates:
    """Return rough rates, good only for deciding if timing is worthwhile."""
    from testbed.worlds.build_world import policy_size
    from testbed.worlds.task_registry import longest_response

    if run.policy == "tabular":
        return Rates(ROUGH["tabular"], ROUGH["tabular"], 0.0)
    weights, _, _ = policy_size(run)
    tokens = longest_response(run) * ROUGH[run.policy] * weights
    lesson = 16 * 4 * tokens  # the defaults of testbed.policies.warm_start
    return Rates(run.prompts * run.group * tokens, run.evaluation_prompts * 4 * tokens, lesson)


def timed(pack: Pack, train: Train | None = None, clock: Callable[[], float] | None = None) -> Rates:
    """Time a few steps of a pack's cells, or of some of them, and return the rates; keeps nothing.

    clock: by default this process's CPU time on one thread, as in workers; wall time on a GPU.
    """
    first = pack.cells[0]
    most = max(LEAST, int(MOMENT / (TIMED * guessed(first).step)))
    cells = pack.cells[:: -(-len(pack.cells) // most)]
    clock = clock or (time.perf_counter if first.device == "cuda" else time.process_time)
    with one_thread():
        marks: list[float] = []
        sample = tuple(replace(cell, steps=TIMED, log_every=2, warm_start_steps=0) for cell in cells)
        (train or imported(TRAIN))(sample, lambda _done, _total: marks.append(clock()))
        taken = [later - before for before, later in itertools.pairwise(marks)]
        # The first step may compile, and ends at the first mark; then plain and logged steps alternate.
        step = median(taken[0::2])
        row = max(0.0, mean(taken[1::2]) - step)
        return Rates(step / len(cells), row / len(cells), _lesson(cells[0], clock))


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread for a while."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _lesson(run: Run, clock: Callable[[], float]) -> float:
    """Return the seconds of a warm-start step of one base model."""
    if not run.warm_start_steps:
        return 0.0
    from testbed.policies.warm_start import warm_start
    from testbed.worlds.tokens import build_token_policy

    task, policy = build_token_policy(run)
    seeds, steps = (0, 1), 4
    warm_start(policy.full_precision, task, seeds, 1)  # in a fresh installation it compiles first
    began = clock()
    warm_start(policy.full_precision, task, seeds, steps)
    return (clock() - began) / (len(seeds) * steps)


def _base_models(packs: Sequence[Pack]) -> list[int]:
    """Return the number of base models that each pack trains, in this order: stored ones once."""
    from testbed.worlds.base_models import folder

    known: set[tuple[object, ...]] = set()
    counts = []
    for pack in packs:
        first = pack.cells[0]
        like = (first.task, first.task_args, first.policy_args, first.warm_start_steps, first.teacher_noise)
        new = {cell.seed for cell in pack.cells if (*like, cell.seed) not in known}
        counts.append(len(new - _kept(first, new)))
        known |= {(*like, seed) for seed in new} if folder() is not None else set()
    return counts


def _kept(run: Run, seeds: Iterable[int]) -> set[int]:
    """Return the seeds with a stored base model for such a run."""
    from testbed.worlds.base_models import folder, made_of, name_of
    from testbed.worlds.tokens import build_token_policy

    place = folder()
    if place is None or run.policy != "toy" or not run.warm_start_steps:
        return set()
    task, policy = build_token_policy(run)
    named = {seed: name_of(policy.full_precision, task, made_of(run), seed) for seed in seeds}
    return {seed for seed, name in named.items() if (place / name).exists()}


def bytes_of(pack: Pack) -> int:
    """Return the bytes of a pack besides the process; 0 if it is invalid, which other checks report."""
    try:
        need = needed(pack)
    except UserError:
        return 0
    return need.fixed + need.versions * need.one


def unfinished(packs: Iterable[Pack], folder: str | Path) -> tuple[Pack, ...]:
    """Return the packs missing from the results folder; all if there is no such folder."""
    done = done_in(folder)
    return tuple(pack for pack in packs if pack.id not in done)
