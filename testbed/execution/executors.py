"""Executors run packs: in worker processes here (the default), or in this process for a debugger."""

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass, replace
from typing import IO, Any, Protocol

from testbed.config.pack import Pack
from testbed.errors import UserError
from testbed.execution.threads import environment
from testbed.execution.worker import TRAIN, Receipt, execute, order

POLL = 0.2
"""Seconds between checks for an interrupt or a pack past its limit."""

ATTEMPTS = 2
"""Number of lost workers after which a pack is recorded as died."""

START = (
    "import gc, sys; gc.disable(); sys.path[:] = {path!r}; "
    "from testbed.execution.worker import main; main({function!r})"
)
"""Imports leave no garbage: looking for it meanwhile takes a tenth of a start."""


class Feed(Protocol):
    """Interface between runner and executor: it hands out packs and receives reports."""

    def take(self) -> Pack | None:
        """Return a pack to run now, or None if there is none at the moment."""

    def exhausted(self) -> bool:
        """Return True if take() will never return a pack again."""

    def stopping(self) -> bool:
        """Return True if no further pack should start."""

    def steps(self, pack: str, done: int, total: int) -> None:
        """Receive the number of steps done of a pack."""

    def line(self, text: str) -> None:
        """Receive a line about a running pack."""


class Executor(ABC):
    """Run packs by the name of an importable function; results depend only on the pack.

    here: packs run on this machine and must fit into its memory.

    Args:
        workers: number of packs that run at the same time.
        function: "module:name" of train(runs, report) -> columns.
    """

    name = ""
    here = True

    def __init__(self, workers: int, function: str = TRAIN) -> None:
        self.workers = workers
        self.function = function

    def open(self) -> None:  # noqa: B027 - most have nothing to reach
        """Connect to the machines; raise UserError if that fails. Nothing has been written then."""

    def run(self, feed: Feed) -> Generator[Receipt, None, None]:
        """Yield a receipt per pack as packs end; closing the iterator stops running ones."""
        again: deque[Pack] = deque()
        attempts: Counter[str] = Counter()
        running: dict[str, Pack] = {}
        ended: list[Receipt] = []
        try:
            while True:
                while len(running) < self.workers and not feed.stopping():
                    pack = again.popleft() if again else feed.take()
                    if pack is None:
                        break
                    running[pack.id] = pack
                    attempts[pack.id] += 1
                    self.submit(pack)
                yield from ended  # workers now compute new packs while these are stored
                ended.clear()
                if not running:
                    if feed.stopping() or feed.exhausted():
                        return
                    time.sleep(POLL)
                for receipt in self.wait(feed):
                    pack = running.pop(receipt.pack)
                    count = attempts[pack.id]
                    if receipt.kind == "died" and count < ATTEMPTS:
                        again.append(pack)
                    else:
                        said = receipt.provenance | self.provenance(count)
                        ended.append(replace(receipt, provenance=said))
        finally:
            self.close()

    def provenance(self, attempts: int) -> dict[str, Any]:
        """Return this executor's entries for a result's provenance."""
        return {"engine": self.name, "workers": self.workers, "attempts": attempts}

    @abstractmethod
    def submit(self, pack: Pack) -> None:
        """Start a pack."""

    @abstractmethod
    def wait(self, feed: Feed) -> Iterator[Receipt]:
        """Yield receipts that arrive within POLL seconds; a lost worker gives kind "died"."""

    @abstractmethod
    def close(self) -> None:
        """Stop everything that runs; afterwards no process is left."""


class Inline(Executor):
    """Run packs in this process, one at a time, with its current threads. For debuggers."""

    name = "inline"

    def __init__(self, function: str = TRAIN) -> None:
        super().__init__(1, function)
        self._next: Pack | None = None

    def submit(self, pack: Pack) -> None:
        self._next = pack

    def wait(self, feed: Feed) -> Iterator[Receipt]:
        pack, self._next = self._next, None
        if pack is not None:
            yield execute(order(pack, self.function), _Reporter(feed, pack.id))

    def close(self) -> None:
        self._next = None


@dataclass(frozen=True)
class _Reporter:
    """Report a pack in this process to a feed."""

    feed: Feed
    pack: str

    def __call__(self, done: int, total: int) -> None:
        self.feed.steps(self.pack, done, total)

    def line(self, text: str) -> None:
        """Pass a line on."""
        self.feed.line(text)


class Local(Executor):
    """Run packs in worker processes of this machine, with thread limits set before they start.

    A worker runs one pack at a time, so a worker that dies or hangs costs only that pack.

    Args:
        workers: processes.
        threads: threads of torch and BLAS in each; other numbers may change last bits.
        timeout: seconds after which a pack is stopped and recorded as timeout; None waits forever.
    """

    name = "local"

    def __init__(
        self, workers: int, threads: int = 1, timeout: float | None = None, function: str = TRAIN
    ) -> None:
        super().__init__(workers, function)
        self._timeout = timeout
        self._environment = dict(os.environ) | environment(workers, threads)
        self._workers: list[_Worker] = []
        self._still_born = 0

    def submit(self, pack: Pack) -> None:
        worker = next((worker for worker in self._workers if worker.pack is None), None)
        if worker is None:
            worker = _Worker(self.function, self._environment)
            self._workers.append(worker)
        worker.give(pack, order(pack, self.function), self._timeout)

    def wait(self, feed: Feed) -> Iterator[Receipt]:
        with selectors.DefaultSelector() as selector:
            for worker in self._workers:
                selector.register(worker.output, selectors.EVENT_READ, worker)
            ready = [key.data for key, _ in selector.select(POLL)]
        for worker in ready:
            yield from self._hear(worker, feed)
        for worker in list(self._workers):
            if worker.pack is not None and time.monotonic() > worker.deadline:
                message = f"The pack ran longer than its limit of {self._timeout:g} s."
                yield Receipt(worker.pack.id, "timeout", message=message, trace=worker.last_words())
                self._remove(worker)

    def close(self) -> None:
        for worker in list(self._workers):
            self._remove(worker)

    def _hear(self, worker: "_Worker", feed: Feed) -> Iterator[Receipt]:
        data = os.read(worker.output, 1 << 20)
        if not data:
            yield from self._bury(worker)
        for fields, content in worker.messages(data):
            if fields["kind"] == "ready":
                self._still_born = 0
                worker.begin()
            elif fields["kind"] == "steps" and worker.pack:
                feed.steps(worker.pack.id, fields["done"], fields["total"])
            elif fields["kind"] == "line":
                feed.line(fields["text"])
            # Steps that arrive after their pack ended are passed over.
            elif fields["kind"] != "steps":
                worker.pack = None
                yield Receipt(**fields | {"content": content})

    def _bury(self, worker: "_Worker") -> Iterator[Receipt]:
        """Remove a dead worker; raise UserError if workers die before they can take any pack."""
        cause, words = worker.cause(), worker.last_words()
        self._remove(worker)
        if not worker.ready:
            self._still_born += 1
            if self._still_born > 2 * self.workers:
                raise UserError(f"Workers die before they start:\n{words or cause}")
        if worker.pack is not None:
            yield Receipt(worker.pack.id, "died", message=cause, trace=words)

    def _remove(self, worker: "_Worker") -> None:
        self._workers.remove(worker)
        worker.kill()


class _Worker:
    """One child process, in a separate process group so that Ctrl-C reaches only the parent."""

    def __init__(self, function: str, environ: dict[str, str]) -> None:
        self.pack: Pack | None = None
        self.ready = False
        self.deadline = float("inf")
        self._order = ""
        self._limit: float | None = None
        self._buffer = bytearray()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
        self._process = subprocess.Popen(
            [sys.executable, "-c", START.format(path=sys.path, function=function)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environ,
            process_group=0,
        )
        self.output = self._pipe(self._process.stdout).fileno()

    @staticmethod
    def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
        assert stream is not None, "every worker is started with pipes"
        return stream

    def give(self, pack: Pack, text: str, limit: float | None) -> None:
        """Hand over a pack; it is sent once the process reports ready."""
        self.pack, self._order, self._limit = pack, text, limit
        self._errors.seek(0, os.SEEK_END)
        if self.ready:
            self.begin()

    def begin(self) -> None:
        """Send the order and start its clock."""
        self.ready = True
        self.deadline = time.monotonic() + self._limit if self._limit else float("inf")
        with contextlib.suppress(BrokenPipeError):  # it just died; the closed output shows that
            self._pipe(self._process.stdin).write(self._order.encode() + b"\n")
            self._pipe(self._process.stdin).flush()

    def messages(self, data: bytes) -> Iterator[tuple[dict[str, Any], bytes]]:
        """Yield complete messages: a JSON line, and the number of bytes that it announces."""
        self._buffer += data
        while (end := self._buffer.find(b"\n") + 1) > 0:
            fields = json.loads(self._buffer[:end])
            stop = end + fields.get("content", 0)
            if len(self._buffer) < stop:
                return
            yield fields, bytes(self._buffer[end:stop])
            del self._buffer[:stop]

    def last_words(self) -> str:
        """Return the end of the process's standard error."""
        self._errors.seek(max(0, self._errors.seek(0, os.SEEK_END) - 2000))
        return self._errors.read().decode(errors="replace").strip()

    def cause(self) -> str:
        """Wait for the process, whose pipe is closed, and return how it ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=2)
        code = self._process.poll()
        if code is None:
            return "The worker process closed its output."
        if code >= 0:
            return f"The worker process ended with exit code {code}."
        hint = " Memory may have run out." if code == -signal.SIGKILL else ""
        return f"The worker process was killed by {signal.Signals(-code).name}.{hint}"

    def kill(self) -> None:
        """Kill the process and its children."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._pipe(self._process.stdin).close()
        self._pipe(self._process.stdout).close()
        self._errors.close()
