"""Run a sweep: plan packs, skip finished ones, run the rest, store each pack when it finishes."""

import contextlib
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import get_args

from testbed.config.pack import Pack
from testbed.config.run import Run
from testbed.errors import UserError, counted, printable
from testbed.execution.executors import Executor, Inline, Local
from testbed.execution.preflight import prepare
from testbed.execution.progress import Progress
from testbed.execution.rank_processes import ranks_of
from testbed.execution.threads import advice, cores
from testbed.execution.worker import TRAIN, Receipt
from testbed.results import manifest
from testbed.results.checkpoint_files import CHECKPOINT, EVERY, forget
from testbed.results.store import Failure, Kind, Status, Store

PERIOD = "60s"
"""Time between the checkpoints of a running pack, the most that a second Ctrl-C may lose; see Checkpoints for
packs whose checkpoints take seconds.
"""
NOTE_EVERY = 1.0
"""Seconds between two progress notes of a pack for `testbed status --watch`."""
AT_ONCE = 64
"""Most packs that one call tries to claim; other runners may hold all of them."""


def run_sweep(
    cells: Iterable[Run] | Run,
    folder: str | Path,
    *,
    executor: Executor | None = None,
    workers: int | None = None,
    threads: int = 1,
    timeout: float | None = None,
    shard: str = "1/1",
    extend: bool = False,
    progress: Progress | None = None,
    function: str = TRAIN,
) -> Status:
    """Run every cell without a result in the folder.

    Args:
        cells: the sweep, or one run; checked and normalized first.
        folder: the results folder; finished cells are skipped, failed ones run again.
        executor: runs the packs; by default worker processes on this machine.
        workers: processes of the default executor; by default one per core, or one in total for cells on
            "cuda". 0 runs in this process, for debuggers, without a time limit.
        threads: threads of torch and BLAS per worker.
        timeout: seconds a pack may take; None waits forever.
        shard: "i/n" runs the i-th of n parts of the sweep.
        extend: add cells that the folder lacks; then run all that is missing.
        progress: display of the progress; none by default.
        function: "module:name" of the function that runs a pack.

    Returns:
        Counts of planned, done, failed and pending cells.

    Raises UserError for bad cells, a folder of another sweep, a full or read-only disk; KeyboardInterrupt
    after Ctrl-C, once running packs have ended and others are left; a second Ctrl-C does not wait. However a
    run ends, its results are kept and the same call continues: packs that ran for over a minute resume from
    their checkpoint in FOLDER/checkpoints, unless TESTBED_CHECKPOINT names a folder.
    """
    display = progress or Progress()
    cells = (cells,) if isinstance(cells, Run) else cells
    with contextlib.closing(display), _checkpoints_in(Path(folder) / "checkpoints"):
        check_limits(workers, threads, timeout)
        function = executor.function if executor else function
        here = executor is None or executor.here
        packs, ours = prepare(cells, shard, folder, extend=extend, trains=function == TRAIN, here=here)
        if executor is not None:
            executor.open()
        store = Store.start(folder, packs, extend)
        done = set()
        for name, content in store.results():
            done.add(name)
            display.landed(content)
        todo = [pack for pack in ours if pack.id not in done]
        _tell_damage(store, todo, display)
        if executor is None:
            executor = _default_executor(todo, workers, threads, timeout, function, display)
        with contextlib.closing(store), draining(display.stopping) as interrupt:
            display.start(_count(ours), _count(ours) - _count(todo))
            feed = _Feed(store, todo, interrupt, display)
            with contextlib.closing(executor.run(feed)) as receipts:
                for receipt in receipts:
                    feed.settle(receipt)
        manifest.load(store.folder)  # fails if the plan was lost meanwhile
        status = store.status()
    if interrupt.is_set() and feed.unsettled():
        raise KeyboardInterrupt(
            f"Stopped with {status.done} of {counted(status.planned, 'cell')} done. "
            "Run the same command again to go on."
        )
    return status


@contextlib.contextmanager
def _checkpoints_in(folder: Path) -> Iterator[None]:
    """Let packs on this machine write checkpoints in a folder, unless the user named another."""
    if os.environ.get(CHECKPOINT):
        yield
        return
    before = os.environ.get(EVERY)
    os.environ |= {CHECKPOINT: str(folder), EVERY: before or PERIOD}
    try:
        yield
    finally:
        del os.environ[CHECKPOINT], os.environ[EVERY]
        if before is not None:
            os.environ[EVERY] = before
        with contextlib.suppress(OSError):  # missing, or still with checkpoints
            folder.rmdir()


def check_limits(workers: int | None, threads: int, timeout: float | None) -> None:
    """Raise UserError for an invalid number of workers or threads, or timeout."""
    if workers is not None and workers < 0:
        raise UserError(f"workers is {workers}, expected at least 0; 0 runs in this process.")
    if threads < 1:
        raise UserError(f"threads is {threads}, expected at least 1.")
    if timeout is not None and not timeout > 0:
        raise UserError(f"timeout is {timeout:g} s, expected more than 0; leave it out to wait forever.")


def _tell_damage(store: Store, todo: Iterable[Pack], display: Progress) -> None:
    lost = {name.partition("-")[0] for name in store.quarantined()}
    if count := _count(pack for pack in todo if pack.id in lost):
        display.note(f"Results of {counted(count, 'cell')} were damaged; these cells run again.")


def _count(packs: Iterable[Pack]) -> int:
    return sum(len(pack.cells) for pack in packs)


def _default_executor(
    packs: Sequence[Pack],
    workers: int | None,
    threads: int,
    timeout: float | None,
    function: str,
    display: Progress,
) -> Executor:
    if workers == 0:
        return Inline(function)
    on_gpu = any(cell.device == "cuda" for pack in packs for cell in pack.cells)
    ranks = max((ranks_of(pack.cells) for pack in packs), default=1)
    workers = max(1, min(workers or (1 if on_gpu else cores() // ranks), len(packs)))
    if warning := advice(workers * ranks, threads):
        display.note(warning)
    return Local(workers, threads, timeout, function)


class _Feed:
    """Hand packs to an executor, each claimed first, so that runners on one folder share the work."""

    def __init__(
        self, store: Store, packs: Sequence[Pack], interrupt: threading.Event, display: Progress
    ) -> None:
        self._store = store
        self._waiting = deque(packs)
        self._packs = {pack.id: pack for pack in packs}
        self._failed_before = store.failures()
        self._interrupt = interrupt
        self._display = display
        self._noted: dict[str, float] = {}
        self._settled: set[str] = set()

    def take(self) -> Pack | None:
        for _ in range(min(AT_ONCE, len(self._waiting))):
            pack = self._waiting.popleft()
            if not self._store.claim(pack.id):
                # Another runner has it, but may die: it is asked for again after the others.
                self._waiting.append(pack)
            elif not self._settled_elsewhere(pack):
                return pack
        return None

    def exhausted(self) -> bool:
        return not self._waiting

    def unsettled(self) -> bool:
        """Return True while a pack has neither a result nor a failure."""
        return len(self._settled) < len(self._packs)

    def stopping(self) -> bool:
        return self._interrupt.is_set()

    def steps(self, pack: str, done: int, total: int) -> None:
        share = done / max(total, 1)
        if time.monotonic() - self._noted.get(pack, 0.0) >= NOTE_EVERY:
            self._noted[pack] = time.monotonic()
            self._store.note_share(pack, share)
        self._display.steps(pack, self._packs[pack].names, share)

    def line(self, text: str) -> None:
        self._display.line(text)

    def settle(self, receipt: Receipt) -> None:
        """Store a pack's outcome, and release its claim."""
        pack = self._packs[receipt.pack]
        if receipt.kind == "done":
            made = {**receipt.provenance, "planned": manifest.entry(pack)}
            self._store.commit(pack.id, receipt.content, made)
            self._display.landed(receipt.content)
            forget(pack.id)
        else:
            self._store.fail(_failure(pack, receipt))
            self._display.note(f"{pack} {receipt.kind}: {printable(receipt.message)}")
        self._store.release(pack.id)
        self._settled.add(pack.id)
        self._display.finished(pack.id, len(pack.cells), failed=receipt.kind != "done")

    def _settled_elsewhere(self, pack: Pack) -> bool:
        """Return True if another runner finished or failed the pack while this one waited."""
        done = self._store.settled(pack.id)
        if done and (content := self._store.result(pack.id)):
            self._display.landed(content)
        failed = self._store.failure(pack.id) != self._failed_before.get(pack.id)
        if done or failed:
            self._store.release(pack.id)
            self._settled.add(pack.id)
            self._display.finished(pack.id, len(pack.cells), failed=not done)
        return done or failed


def _failure(pack: Pack, receipt: Receipt) -> Failure:
    kind: Kind = next(kind for kind in get_args(Kind) if kind == receipt.kind)
    attempts = int(receipt.provenance.get("attempts", 1))
    return Failure(pack.id, kind, receipt.message, pack.names, attempts, receipt.trace)


@contextlib.contextmanager
def draining(tell: Callable[[], None] = lambda: None) -> Iterator[threading.Event]:
    """Turn the first Ctrl-C into an event that is set, and the second into KeyboardInterrupt.

    tell: called right after the first, on a separate thread, so that it cannot reenter an interrupted print.
    """
    asked = threading.Event()

    def hear(_number: int, _frame: FrameType | None) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        threading.Thread(target=tell, daemon=True).start()

    if threading.current_thread() is not threading.main_thread():
        yield asked  # only the main thread gets signals
        return
    before = signal.signal(signal.SIGINT, hear)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
