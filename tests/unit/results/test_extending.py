"""A finished sweep grows: new cells join, old ones stay as they are, and folders become one."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.command_line import call
from support.made_sweep import TOY, columns, made
from support.refusals import refuses
from support.small_store import files

from analysis.tables.committed import load_results
from testbed.config.run import cell_id, grid
from testbed.config.toml_file import expand, from_toml
from testbed.execution.packs import plan, plan_into
from testbed.execution.runner import run_sweep
from testbed.results import manifest
from testbed.results.file_locks import Locks
from testbed.results.merging import merge
from testbed.results.parquet import encode
from testbed.results.store import Failure, Store, read, status

FAKE = "support.fake_training:train"
OLD = grid(TOY, recipe=["grpo", "m2po"], seed=range(2))
NEW = grid(TOY, recipe=["grpo", "m2po"], seed=range(4))


def ran(cells, folder, **options):
    return run_sweep(cells, folder, workers=0, function=FAKE, **options)


def test_new_cells_join_and_old_results_stay_as_they_are(tmp_path):
    ran(OLD, tmp_path / "s")
    before, text = files(tmp_path / "s"), (tmp_path / "s" / manifest.NAME).read_text()
    done = ran(NEW, tmp_path / "s", extend=True)
    assert (done.planned, done.done) == (8, 8)
    after = files(tmp_path / "s")
    assert {name: after[name] for name in before} == before
    assert len(after) == len(before) + 1
    assert manifest.SIGNED.search((tmp_path / "s" / manifest.NAME).read_bytes())
    assert text.splitlines()[1:-2][0] in (tmp_path / "s" / manifest.NAME).read_text()
    cells = load_results(tmp_path / "s")["cell"]
    assert sorted(set(cells)) == sorted(map(cell_id, NEW))
    assert cells.duplicated().sum() == len(cells) - 8


def test_an_extended_sweep_goes_on_without_the_flag_and_runs_nothing_twice(tmp_path):
    ran(OLD, tmp_path / "s")
    ran(NEW, tmp_path / "s", extend=True)
    before = files(tmp_path / "s")
    assert ran(NEW, tmp_path / "s").done == 8
    assert ran(OLD, tmp_path / "s", extend=True).planned == 8
    assert files(tmp_path / "s") == before
    shards = [plan_into(NEW, tmp_path / "s")[i::2] for i in range(2)]
    assert sum(len(pack.cells) for shard in shards for pack in shard) == 8


def test_without_the_flag_another_sweep_is_refused_and_told_of_it(tmp_path):
    ran(OLD, tmp_path / "s")
    before = (tmp_path / "s" / manifest.NAME).read_bytes()
    refuses("4 cells, 4 of them in this sweep of 8. Add the new cells with", ran, NEW, tmp_path / "s")
    assert (tmp_path / "s" / manifest.NAME).read_bytes() == before
    refuses("4 cells, 2 of them in this sweep of 2", ran, OLD[:2], tmp_path / "s")


def test_an_unfinished_sweep_is_finished_with_what_joins_it(tmp_path):
    Store.start(tmp_path / "s", plan(OLD))
    assert ran(NEW, tmp_path / "s", extend=True).done == 8


def test_of_two_who_extend_at_once_none_is_lost(tmp_path):
    ran(OLD, tmp_path / "s")
    late = plan_into([*NEW, replace(TOY, steps=7)], tmp_path / "s", extend=True)
    ran([replace(TOY, lag=8)], tmp_path / "s", extend=True)
    refuses("holds another sweep", Store.start, tmp_path / "s", late, extend=True)
    assert status(tmp_path / "s").done == 5
    held = Locks(tmp_path / "s" / ".locks")
    assert held.take(manifest.NAME)
    refuses("Another run is extending", ran, NEW, tmp_path / "s", extend=True)
    held.close()


def test_the_plan_gives_back_the_cells_that_it_was_made_of(tmp_path):
    cells = grid(replace(TOY, task_args=(("digits", 4),)), recipe_args=[(), (("eps", 0.1),)], lag=[0, 8])
    Store.start(tmp_path / "s", plan(cells))
    assert [cell for pack in manifest.planned(tmp_path / "s") for cell in pack.cells] == list(cells)
    assert manifest.planned(tmp_path / "nothing") == ()
    golden = Path(__file__).parents[2] / "golden" / "store_format_1"
    assert [pack.names for pack in manifest.planned(golden)] == list(manifest.load(golden).packs.values())


def test_folders_merge_whole_packs_as_the_same_bytes_and_each_cell_once(tmp_path):
    made(tmp_path / "a", OLD)
    made(tmp_path / "b", grid(TOY, recipe=["grpo"], seed=range(1, 4)))
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c").done == 6
    assert files(tmp_path / "a").items() <= files(tmp_path / "c").items()
    found = read(tmp_path / "c").to_pandas().set_index(["cell", "step"])
    assert not found.index.has_duplicates
    there = read(tmp_path / "b").to_pandas().set_index(["cell", "step"])
    some = cell_id(replace(TOY, seed=3))
    assert found.loc[some].map(repr).equals(there.loc[some].map(repr))
    before = files(tmp_path / "c")
    assert merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c").done == 6
    assert files(tmp_path / "c") == before


def test_a_cell_that_is_finished_somewhere_is_finished_in_the_merged_folder(tmp_path):
    pending = Store.start(tmp_path / "a", plan(NEW))
    pending.fail(Failure(plan(NEW)[0].id, "timeout", "too long", plan(NEW)[0].names))
    made(tmp_path / "b", OLD)
    found = merge([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    assert (found.planned, found.done, found.pending) == (8, 4, 4)
    assert ran(NEW, tmp_path / "c").done == 8


def test_folders_that_contradict_each_other_are_not_merged(tmp_path, monkeypatch):
    made(tmp_path / "a", OLD)
    made(tmp_path / "b", OLD, lambda run: np.zeros(10))
    refuses("has other numbers", merge, [tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    made(tmp_path / "d", [replace(TOY, lag=3)])
    refuses("holds another sweep", merge, [tmp_path / "a"], tmp_path / "d")
    monkeypatch.setattr("testbed.results.merging.fingerprint", lambda: {"numpy": "1.0"})
    refuses("was computed by other code", merge, [tmp_path / "a"], tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("words", "seeds"), [("seed=0..3", [0, 1, 2, 3]), ("seed=7,0..1", [7, 0, 1]), ("seed=5..5", [5])]
)
def test_a_range_stands_for_its_numbers(words, seeds):
    assert [cell.seed for cell in expand([TOY], [words])] == seeds


def test_ranges_are_for_numbers_and_go_upward(tmp_path):
    (cell,) = expand([TOY], ["task=0..3"])
    assert cell.task == "0..3"
    for words in ("seed=3..0", "seed=0..99999999999"):
        refuses(r"seed is \d\.\.\d+, expected as in 0\.\.7: the smaller first", expand, [TOY], [words])
    assert [cell.recipe_args for cell in expand([TOY], ["recipe_args.k=1..2"])] == [(("k", 1),), (("k", 2),)]


def test_a_sweep_file_takes_ranges_alone_and_in_lists(tmp_path):
    file = tmp_path / "mine.toml"
    file.write_text('[grid]\nseed = "0..2"\nlag = [0, "4..5"]\n')
    cells = from_toml(file)
    assert [(cell.seed, cell.lag) for cell in cells] == [(s, lag) for s in range(3) for lag in (0, 4, 5)]
    file.write_text('[grid]\nseed = "7..3"\n')
    refuses(r"mine\.toml:2: seed is 7\.\.3, expected as in 0\.\.7", from_toml, file)
    file.write_text('[grid]\nrecipe = "grpo"\n')
    refuses("expected a list of at least one value", from_toml, file)


def test_the_command_merges(tmp_path, capsys):
    made(tmp_path / "a", OLD)
    made(tmp_path / "b", [replace(TOY, lag=8)])
    code, out, _ = call(capsys, "merge", tmp_path / "a", tmp_path / "b", "--out", tmp_path / "c", "--json")
    assert (code, json.loads(out)["done"]) == (0, 5)


def test_part_of_a_pack_is_encoded_as_those_cells_alone_would_be():
    (pack,) = plan(OLD)
    (one,) = plan(OLD[:1])
    whole = columns(pack.cells)
    rows = [i for i, cell in enumerate(whole["cell"]) if cell == one.names[0]]
    assert encode({k: [v[i] for i in rows] for k, v in whole.items()}, one) == encode(columns(one.cells), one)
