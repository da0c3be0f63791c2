"""Show the progress of a sweep: a bar with the time left on a terminal, a line every 10 s elsewhere."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TextIO, TypeVar

from testbed.errors import counted

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.progress import TaskID

PLAIN_EVERY = 10.0
"""Seconds between two plain lines."""

WATCH_EVERY = 2.0
"""Seconds between two lines about a sweep that is still being planned."""

START = 0.05
"""Share of the work before which no time left is shown: loading, compiling and warm starts come first."""


class Board(Protocol):
    """Display above the progress bar: a rich renderable that is fed result files."""

    def add(self, content: bytes) -> None:
        """Add the result file of a pack."""

    def steps(self, cells: Sequence[str], share: float) -> None:
        """Record that a share (0 to 1) of the steps of these running cells is done."""

    def __rich__(self) -> "RenderableType":
        """Return what rich draws."""


class Progress:
    """Follow a sweep and show nothing; counts are cells."""

    lines = True
    """Whether lines about running packs are shown beside the counts."""

    def __init__(self) -> None:
        self.planned = self.done = self.failed = 0
        self._at_start = 0
        self._began = time.monotonic()
        self._running: dict[str, tuple[Sequence[str], float]] = {}
        self._since: dict[str, tuple[float, float]] = {}
        self._pace_from: tuple[float, float] | None = None

    def start(self, planned: int, done: int) -> None:
        """Record the sweep's counts before anything runs; it may follow another sweep."""
        self.planned, self.done, self._at_start, self.failed = planned, done, done, 0
        self._began, self._pace_from = time.monotonic(), None
        self.show()

    def steps(self, pack: str, cells: Sequence[str], share: float) -> None:
        """Record that a share (0 to 1) of the steps of a running pack of these cells is done."""
        self._running[pack] = (cells, share)
        self._since.setdefault(pack, (time.monotonic(), share))
        self._pace_from = self._pace_from or (time.monotonic(), self.settled)
        self.show()

    def finished(self, pack: str, cells: int, failed: bool = False) -> None:
        """Record that a pack has a result or a failure."""
        self.drop(pack)
        self.done += 0 if failed else cells
        self.failed += cells if failed else 0
        self.show()

    def drop(self, pack: str) -> None:
        """Record that a pack is no longer running."""
        self._running.pop(pack, None)
        self._since.pop(pack, None)

    def landed(self, content: bytes) -> None:
        """Receive a pack's result file, finished now or before."""

    def note(self, text: str) -> None:
        """Receive a sentence for the user."""

    def line(self, text: str) -> None:
        """Receive a line about a running pack."""
        if self.lines:
            self.note(text)

    def stopping(self) -> None:
        """Say what happens after the first Ctrl-C, and how long that may take."""
        left = self.left_of_running
        count = len(self._running)
        what = "when the running pack is done" if count == 1 else "when the running packs are done"
        when = f", in about {_clock(left)}" if left is not None else ""
        self.note(
            f"Stopping {what}{when}; what is finished is kept. Press Ctrl-C again to stop at once: running "
            "packs then resume from their last checkpoint, at most a minute old."
        )

    def show(self) -> None:
        """Draw the current state."""

    def close(self) -> None:
        """End the display."""

    @property
    def left_of_running(self) -> float | None:
        """Seconds until every running pack is done at its pace so far; None before there is one."""
        now, found = time.monotonic(), []
        for pack, (_, share) in list(self._running.items()):
            since, first = self._since[pack]
            if share <= first:
                return None
            found.append((now - since) * (1 - share) / (share - first))
        return max(found, default=None)

    @property
    def settled(self) -> float:
        """Number of cells done, parts of running packs included."""
        return self.done + self.failed + sum(len(cells) * share for cells, share in self._running.values())

    @property
    def done_of_planned(self) -> str:
        """Cells done, parts of running ones included: "52.6 of 54 cells"."""
        done = f"{self.settled - self.failed:.{1 if self._running else 0}f}"
        return f"{done} of {counted(self.planned, 'cell')}"

    @property
    def left(self) -> float | None:
        """Seconds left at the pace since the first step, which excludes the start; None before it."""
        since, first = self._pace_from or (self._began, self._at_start)
        gained = self.settled - first
        if self.settled - self._at_start < START * (self.planned - self._at_start) or gained <= 0:
            return None
        return (time.monotonic() - since) * (self.planned - self.settled) / gained


class Plain(Progress):
    """One line every 10 s, for logs."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._last = 0.0

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def show(self) -> None:
        if self.planned and time.monotonic() - self._last >= PLAIN_EVERY:
            self._last = time.monotonic()
            print(self._line(), file=self._stream, flush=True)

    def close(self) -> None:
        if self.planned:  # refused sweeps never began
            print(self._line(), file=self._stream, flush=True)

    def _line(self) -> str:
        failed = f", {self.failed} failed" if self.failed else ""
        left = f", about {_clock(self.left)} left" if self.left else ""
        spent = _clock(time.monotonic() - self._began)
        return f"{self.done_of_planned}{failed} after {spent}{left}"


class Bar(Progress):
    """A bar with the time left, for terminals, and a board above it if given."""

    def __init__(self, stream: TextIO, board: Board | None = None) -> None:
        super().__init__()
        self._board = board
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        class WithBoard(Bars):
            def get_renderables(bars) -> "Iterable[RenderableType]":  # noqa: N805
                if (board := self._board) is not None:  # another thread may drop it
                    yield board
                yield bars.make_tasks_table(bars.tasks)

        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("cells"), TimeElapsedColumn())
        state = TextColumn("{task.fields[state]}")
        self._bars: Bars = WithBoard(*columns, state, console=Console(file=stream))
        self._task: TaskID = self._bars.add_task("", total=1, state="")
        self._bars.start()

    def note(self, text: str) -> None:
        self._bars.console.print(text, markup=False, highlight=False)

    def steps(self, pack: str, cells: Sequence[str], share: float) -> None:
        if (board := self._board) is not None:
            board.steps(cells, share)
        super().steps(pack, cells, share)

    def drop(self, pack: str) -> None:
        if self._board is not None and pack in self._running:
            self._board.steps(self._running[pack][0], 0.0)
        super().drop(pack)

    def show(self) -> None:
        failed = f"{self.failed} failed  " if self.failed else ""
        left = f"about {_clock(self.left)} left" if self.left else ""
        done = round(self.settled - self.failed, 1)
        self._bars.update(self._task, total=self.planned, completed=done, state=failed + left)

    def landed(self, content: bytes) -> None:
        if self._board is None:
            return
        try:
            self._board.add(content)
        except Exception as error:  # a display never ends a sweep
            self._board = None
            self.note(f"The table of arms cannot be shown any more: {type(error).__name__}: {error}")

    def close(self) -> None:
        self._board = None  # replaced by the table that follows
        self._bars.stop()


def choose(
    quiet: bool = False, stream: TextIO | None = None, board: Callable[[], Board] | None = None
) -> Progress:
    """Return the right display: none when quiet, a bar on a terminal, plain lines elsewhere.

    board: makes the display above the bar; called only on a terminal.
    """
    stream = stream or sys.stderr
    if quiet:
        return Progress()
    if not stream.isatty():
        return Plain(stream)
    return Bar(stream, board() if board else None)


Item = TypeVar("Item")


def watched(what: str, count: int, items: Iterable[Item], stream: TextIO | None = None) -> Iterator[Item]:
    """Pass items on, printing "making cells: 200,000 of 1,000,000" every 2 s."""
    last = time.monotonic()
    for index, item in enumerate(items):
        if index % 1000 == 0 and time.monotonic() - last >= WATCH_EVERY:
            last = time.monotonic()
            print(f"{what}: {index:,} of {count:,}", file=stream or sys.stderr, flush=True)
        yield item


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
