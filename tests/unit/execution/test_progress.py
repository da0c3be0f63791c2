"""What a sweep shows: a bar on a terminal, a line every 10 s elsewhere, nothing when quiet."""

import io
from types import SimpleNamespace

import pytest

from testbed.execution import progress
from testbed.execution.progress import Bar, Plain, Progress, choose


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    """Time that passes when told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(progress.time, "monotonic", lambda: self.now)


def test_the_display_fits_where_it_is_shown():
    assert type(choose(quiet=True, stream=Terminal())) is Progress
    assert type(choose(stream=io.StringIO())) is Plain
    terminal = Terminal()
    bar = choose(stream=terminal)
    assert type(bar) is Bar
    bar.landed(b"a pack")  # there is no board to add it to
    bar.close()
    assert "cannot be shown" not in terminal.getvalue()


def test_a_plain_line_comes_every_ten_seconds_and_at_the_end(monkeypatch):
    clock = Clock(monkeypatch)
    stream = io.StringIO()
    shown = Plain(stream)
    shown.start(planned=100, done=20)
    for pack in range(40):
        clock.now += 1
        shown.finished(str(pack), 1, failed=pack == 0)
    shown.close()
    assert stream.getvalue().splitlines() == [
        "20 of 100 cells after 0:00",
        "29 of 100 cells, 1 failed after 0:10, about 1:10 left",
        "39 of 100 cells, 1 failed after 0:20, about 1:00 left",
        "49 of 100 cells, 1 failed after 0:30, about 0:50 left",
        "59 of 100 cells, 1 failed after 0:40, about 0:40 left",
        "59 of 100 cells, 1 failed after 0:40, about 0:40 left",
    ]


def test_a_sweep_that_was_refused_says_nothing_of_its_cells():
    shown = Plain(stream := io.StringIO())
    shown.lines = False
    shown.line("step 1 of 100")
    shown.show()
    shown.close()
    assert (stream.getvalue(), shown.planned, shown.done, shown.failed, shown.left) == ("", 0, 0, 0, None)


def test_a_sweep_behind_another_has_a_pace_of_its_own(monkeypatch):
    clock = Clock(monkeypatch)
    shown = Progress()
    for seconds in (600, 10):
        shown.start(planned=40, done=0)
        shown.steps("a", ["c"] * 40, share=0.0)
        clock.now += seconds
        shown.steps("a", ["c"] * 40, share=0.5)
        assert shown.left == seconds
        shown.finished("a", 40)


def test_a_bar_shows_cells_failures_and_notes():
    stream = Terminal()
    shown = Bar(stream)
    shown.start(planned=8, done=0)
    shown.finished("a", 4, failed=True)
    shown.finished("b", 2)
    shown.note("pack 0 failed: [no markup]")
    shown.close()
    text = stream.getvalue()
    assert "2/8" in text
    assert "4 failed" in text
    assert "pack 0 failed: [no markup]" in text


def test_a_sweep_that_is_long_in_planning_says_how_far_it_is(monkeypatch):
    clock = iter(range(0, 100))
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    stream = io.StringIO()
    assert list(progress.watched("making cells", 5000, range(5000), stream)) == list(range(5000))
    assert stream.getvalue().splitlines() == ["making cells: 1,000 of 5,000", "making cells: 3,000 of 5,000"]


def test_a_first_ctrl_c_is_answered_with_the_time_that_the_slowest_running_pack_needs(monkeypatch):
    clock = Clock(monkeypatch)
    stream = io.StringIO()
    shown = Plain(stream)
    shown.start(planned=64, done=0)
    shown.stopping()
    assert stream.getvalue().splitlines()[-1].startswith("Stopping when the running packs are done; what is")
    shown.steps("a", ["c"] * 32, 0.1)
    shown.steps("b", ["c"] * 32, 0.1)
    clock.now += 60
    shown.steps("a", ["c"] * 32, 0.5)
    shown.steps("b", ["c"] * 32, 0.3)
    shown.stopping()
    assert "are done, in about 3:30; what is finished is kept. Press Ctrl-C again" in stream.getvalue()
    shown.finished("b", 32)
    shown.stopping()
    assert "when the running pack is done, in about 1:15;" in stream.getvalue()


@pytest.mark.slow
def test_a_first_ctrl_c_is_answered_at_once_while_a_pack_computes(tmp_path):
    import signal
    import subprocess
    import sys
    import time

    code = "from testbed.cli import main; main()"
    words = [
        "run", "ess-collapse", "lag=0", "seed=0", "steps=100000", "--workers", "0", "--out", tmp_path / "r",
    ]  # fmt: skip
    with subprocess.Popen([sys.executable, "-c", code, *words], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        while not (tmp_path / "r" / "sweep.json").exists():
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        lines = iter(process.stderr.readline, "")
        assert any("Press Ctrl-C again to stop at once" in line for line in lines)
        assert time.monotonic() - began < 5
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 130


def test_what_is_left_and_done_follows_from_the_clock(monkeypatch):
    clock = Clock(monkeypatch)
    shown = Progress()
    shown.start(planned=20, done=4)
    assert (shown.done_of_planned, shown.left, shown.left_of_running) == ("4 of 20 cells", None, None)
    clock.now += 50
    shown.steps("a", ["c"] * 4, 0.25)
    assert (shown.done_of_planned, shown.left) == ("5.0 of 20 cells", None)
    assert shown.left_of_running is None
    clock.now += 10
    shown.steps("a", ["c"] * 4, 0.75)
    assert (shown.settled, shown.left) == (7, 10 * (20 - 7) / (7 - 5))
    assert shown.left_of_running == pytest.approx(10 * 0.25 / 0.5)
    shown.finished("a", 4, failed=True)
    assert (shown.settled, shown.done, shown.failed, shown.done_of_planned) == (8, 4, 4, "4 of 20 cells")
    shown.steps("b", ["c"], 0.5)
    shown.drop("b")
    assert (shown.settled, shown.left_of_running) == (8, None)
    shown.start(planned=1, done=0)
    assert (shown.failed, shown.done_of_planned, shown.left) == (0, "0 of 1 cell", None)


def test_a_bar_feeds_its_board_and_goes_on_without_a_broken_one(monkeypatch):
    clock, heard = Clock(monkeypatch), []

    class Board:
        def add(self, content):
            heard.append(content)
            if content == b"bad":
                raise ValueError("no table")

        def steps(self, cells, share):
            heard.append((cells, share))

        def __rich__(self):
            return "a board"

    bar = choose(stream=Terminal(), board=Board)
    told, state = [], {}
    bar._bars = SimpleNamespace(
        update=lambda task, **given: state.update(given), stop=lambda: told.append("stop"),
        console=SimpleNamespace(print=lambda text, markup, highlight: told.append((text, markup, highlight))),
    )  # fmt: skip
    bar.start(planned=10, done=0)
    bar.steps("a", ["c"] * 4, 0.0)
    clock.now += 30
    bar.steps("a", ["c"] * 4, 0.5)
    assert state == {"total": 10, "completed": 2, "state": "about 2:00 left"}
    bar.drop("a")
    bar.drop("never")
    bar.finished("b", 3, failed=True)
    assert (state["completed"], state["state"]) == (0, "3 failed  about 1:10 left")
    bar.landed(b"good")
    bar.landed(b"bad")
    bar.landed(b"late")
    bar.steps("c", ["d"], 0.5)
    assert heard == [(["c"] * 4, 0.0), (["c"] * 4, 0.5), (["c"] * 4, 0.0), b"good", b"bad"]
    assert told == [("The table of arms cannot be shown any more: ValueError: no table", False, False)]
    bar.close()
    assert told[-1] == "stop"
    times = {0: "0:00", 59.4: "0:59", 59.6: "1:00", 61: "1:01", 3599: "59:59", 3600: "1:00:00"}
    assert {seconds: progress._clock(seconds) for seconds in times} == times
