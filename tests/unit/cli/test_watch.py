"""A sweep that runs, by arm: on the terminal that runs it, and from elsewhere."""

import io
import json
import re
import threading
import time

import numpy as np
from support.command_line import call, refused
from support.made_sweep import CELLS, STEPS, TOY, accuracy, columns, made

from analysis.commands.progress_table import ROWS, ProgressTable
from analysis.sweeps.finished_cells import arm_of, finished
from testbed.config.run import cell_id, cell_ids, grid
from testbed.execution.packs import plan
from testbed.execution.progress import Bar, Plain, Progress, choose
from testbed.execution.runner import run_sweep
from testbed.results.file_locks import Locks
from testbed.results.parquet import encode
from testbed.results.store import Failure, Store


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def content(cells, curve=accuracy):
    (pack,) = plan(cells)
    return encode(columns(pack.cells, curve), pack)


def test_arms_have_done_best_last_and_collapsed_cells():
    board = ProgressTable(cell_ids(CELLS))
    assert board.rows()[0] == {"arm": "grpo, lag 0", "done": "0/4", "best": "", "last": "", "collapsed": ""}
    board.add(content([cell for cell in CELLS if cell.seed < 2]))
    rows = {row["arm"]: row for row in board.rows()}
    assert rows["grpo, lag 8"] == {
        "arm": "grpo, lag 8", "done": "2/4", "best": "0.905", "last": "0.905", "collapsed": 0,
    }  # fmt: skip
    assert rows["reinforce, lag 64"]["last"] == "0.000"
    assert rows["reinforce, lag 64"]["collapsed"] == 2


def test_many_lags_share_a_row_and_what_joins_later_is_counted():
    board = ProgressTable(cell_ids(grid(TOY, lag=range(ROWS + 1))))
    board.add(content(grid(TOY, recipe=["m2po"], lag=[0])))
    assert [(row["arm"], row["done"]) for row in board.rows()] == [("grpo", f"0/{ROWS + 1}"), ("m2po", "1/1")]


def test_diverged_cells_get_a_column_once_there_are_some():
    board = ProgressTable(cell_ids(CELLS))
    board.add(content(CELLS[:1], lambda run: np.where(STEPS > 40, np.nan, accuracy(run))))
    assert board.rows()[0]["diverged"] == 1
    assert board.rows()[1]["diverged"] == ""


def test_an_own_objective_is_called_by_its_function_here_too():
    own = cell_id(grid(TOY, recipe=["a/b/mine.py:clip#0123456789ab"], lag=[4])[0])
    assert arm_of(own) == "clip, lag 4"
    assert arm_of("something else") == "something else"


def test_without_accuracy_the_value_is_shown():
    (pack,) = plan(CELLS[:1])
    found = columns(pack.cells)
    found["exact/value"] = np.linspace(0, 0.4, len(STEPS))
    del found["accuracy"]
    (one,) = finished(encode(found, pack))
    assert (one.best, one.last, one.collapsed) == (0.4, 0.4, None)


def test_the_board_stands_above_the_bar_until_the_end():
    stream = Terminal()
    shown = choose(stream=stream, board=lambda: ProgressTable(cell_ids(CELLS)))
    assert type(shown) is Bar
    shown.start(planned=24, done=0)
    shown.landed(content(CELLS[:4]))
    shown._bars.refresh()
    middle = stream.getvalue()
    assert re.search(r"grpo, lag 0 +4/4 +0\.\d+ +0\.\d+ +0", middle)
    shown.close()
    assert "0/24" in stream.getvalue()


def test_a_board_that_fails_is_dropped_with_a_word_and_the_sweep_goes_on(tmp_path):
    stream = Terminal()
    shown = Bar(stream, ProgressTable([]))
    shown.start(planned=2, done=0)
    shown.landed(b"no parquet")
    shown.landed(content(CELLS[:1]))
    shown.finished("a", 2)
    shown.close()
    assert stream.getvalue().count("The table of arms cannot be shown any more") == 1
    assert "2/2" in stream.getvalue()


def test_elsewhere_than_on_a_terminal_no_board_is_made():
    def board():
        raise AssertionError

    assert type(choose(stream=io.StringIO(), board=board)) is Plain


def watched(capsys, *words):
    return call(capsys, "status", *words)[:2]


def test_a_folder_is_looked_at_once_for_machines(tmp_path, capsys):
    code, out = watched(capsys, made(tmp_path / "s"), "--arms", "--json")
    found = json.loads(out)
    assert (code, found["planned"], found["done"]) == (0, 24, 24)
    assert {row["arm"]: row["collapsed"] for row in found["arms"]}["reinforce, lag 64"] == 4


def test_a_pack_under_way_counts_as_the_runner_counts_it(tmp_path, capsys):
    """The runner's display and `watch`, which sees the folder alone, say the same at the same moment."""
    said = []

    class Display(Progress):
        def steps(self, pack, cells, share):
            super().steps(pack, cells, share)
            out = watched(capsys, tmp_path / "s", "--arms")[1]
            said.append((self.done_of_planned, out, watched(capsys, tmp_path / "s", "--arms", "--json")[1]))

    cells = grid(TOY, steps=[100, 200], seed=range(4))
    run_sweep(
        cells, tmp_path / "s", workers=0, progress=Display(), function="support.fake_training:half_told"
    )
    assert [mine for mine, _, _ in said] == ["2.0 of 8 cells", "6.0 of 8 cells"]
    for mine, out, data in said:
        assert f"{mine} done, 0 failed." in out
        assert f"{json.loads(data)['done_with_parts']} of 8 cells" == mine
        assert f"grpo, lag 0 {mine.split()[0]}/8" in " ".join(out.split())
    assert "8 of 8 cells done, 0 failed." in watched(capsys, tmp_path / "s", "--arms")[1]


def test_what_a_killed_runner_noted_is_not_progress(tmp_path):
    (tmp_path / ".locks").mkdir()
    (tmp_path / ".locks" / "pack").write_text("0.500000")
    assert Locks(tmp_path / ".locks").noted("pack") == ""
    locks = Locks(tmp_path / ".locks")
    assert locks.take("pack")
    assert Locks(tmp_path / ".locks").noted("pack") == ""
    locks.note("pack", "0.25")
    assert Locks(tmp_path / ".locks").noted("pack") == "0.25"


def test_a_sweep_that_runs_elsewhere_is_followed_until_it_is_done(tmp_path, capsys):
    packs = plan(grid(TOY, steps=[100, 200, 300], seed=range(2)))
    store = Store.start(tmp_path / "s", packs)
    store.commit(packs[0].id, encode(columns(packs[0].cells), packs[0]), {})

    def work():
        for pack in packs[1:2]:
            time.sleep(0.15)
            Store(tmp_path / "s").commit(pack.id, encode(columns(pack.cells), pack), {})
        Store(tmp_path / "s").fail(Failure(packs[2].id, "died", "gone", packs[2].names))

    worker = threading.Thread(target=work)
    worker.start()
    code, out = watched(capsys, tmp_path / "s", "--watch", "--every", "0.1")
    worker.join()
    assert code == 0
    assert "4 of 6 cells done, 2 failed." in out
    assert re.search(r"grpo, lag 0 +4/6", out)


def test_watching_no_results_folder_is_one_message(tmp_path, capsys):
    assert "is not a results folder" in refused(capsys, "status", str(tmp_path), "--watch")
