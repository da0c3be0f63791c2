"""TOML files and field=value words give the runs of Python, or are refused with every error and its line.

Cells written as a sweep file give the same cells again, or are refused.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from support.refusals import refuses

from paper_figs.toml_text import as_toml, groups
from testbed.config.run import Run, grid
from testbed.config.toml_file import _wrong_axes, expand, from_toml, line_numbers, override, ranged

GOOD = """\
[run]
task = "running-sum"
policy = "toy"
learning_rate = 3e-3
task_args = {modulus = 8, digits = 12}

[run.policy_args]
width = 32

[grid]
recipe = ["grpo", "m2po"]
lag = [0, 16]
recipe_args.eps = [0.1, 0.2]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "sweep.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(folder: Path, text: str, **known: object) -> list[str]:
    """Return the lines of the error that a sweep file gives, without the folder."""
    return refuses("", from_toml, written(folder, text), **known).replace(f"{folder}/", "").splitlines()


def test_a_toml_file_gives_the_cells_of_the_python_grid(tmp_path):
    start = Run(
        task="running-sum", policy="toy", learning_rate=3e-3, task_args=(("digits", 12), ("modulus", 8)),
        policy_args=(("width", 32),),
    )  # fmt: skip
    arguments = [(("eps", 0.1),), (("eps", 0.2),)]
    cells = grid(start, recipe=["grpo", "m2po"], lag=[0, 16], recipe_args=arguments)
    assert from_toml(written(tmp_path, GOOD)) == cells


@pytest.mark.parametrize(
    "text",
    ["[run]\nlagg = 3\n", '[run]\n\nlag = "3"\n', "[run]\nlag = 3.0\n", "[run]\nlag = true\n",
    "[run]\nlag = -1\n", "[run]\nlearning_rate = inf\n", "[run]\nlearning_rate = nan\n",
    "[run]\nteacher_noise = 1.5\n", "[run]\nsteps = 2147483648\n", '[run]\npolicy = "toi"\n',
    "[run]\npolicy = 3\n", '[run]\npolicy = "hf"\n', '[run]\nmodel = "m"\n',
    "[run]\nwarm_start_steps = 5\n", "lag = 3\n", "[rum]\nlag = 3\n", "run = 3\n", "[grid]\nlag = 3\n",
    "[grid]\nlag.a = [3]\n", "[grid]\nlag = [0]\nrecipe_args = {eps = []}\n", "[grid]\nlag = []\n",
    '[grid]\nlag = [0, "4"]\n', "[grid]\nlagg = [3]\n", "[grid]\nrecipe_args.eps = [[1]]\n",
    "[run]\nrecipe_args = 3\n", "[run.recipe_args]\neps = nan\n", "[run]\nlag = 3\nlag = 4\n",
    "[run]\nlag =\n", "run = [\n\n\n", "[recipe_args]\neps = 1\n", '[grid]\nlag = "0..7x"\n',
    "a = {b = 1, b = 2}\n", "[[run]]\nlag = 1\n[run]\n", "", '[grid]\nlag = "9..3"\n',
    "[run]\nmodel = '''\nlag = 3\n'''\nlag = -4\n",
    '[run]\ntask_args = ["ab"]\n[run.recipe_args]\n"" = 3\n', "[run]\nlag = 1e3x\n"],
)  # fmt: skip
def test_a_bad_file_is_refused_with_the_line(tmp_path, text):
    refuses(".", from_toml, written(tmp_path, text))


def test_every_error_of_a_file_comes_at_once_in_order_of_the_lines(tmp_path):
    text = '[grid]\nsede = [1]\n# a comment\ngroup = [8, 0]\n[run]\nlag = "3"\nsteps = 0\n'
    assert [line.partition(" ")[0] for line in refusal(tmp_path, text)] == [
        "sweep.toml:2:", "sweep.toml:4:", "sweep.toml:6:", "sweep.toml:7:",
    ]  # fmt: skip


def test_unknown_names_of_tasks_and_recipes_are_refused_with_the_nearest(tmp_path):
    text = '[run]\ntask = "bandti"\n[grid]\nrecipe = ["grpo", "m2p0", "/a/mine.py:f", "none.python"]\n'
    known = {"task": ["chain", "bandit"], "recipe": ["m2po", "grpo"]}
    assert refusal(tmp_path, text, known=known) == [
        "sweep.toml:2: Unknown task 'bandti'. Did you mean 'bandit'? Known: bandit, chain.",
        "sweep.toml:4: Unknown recipe 'm2p0'. Did you mean 'm2po'? Known: grpo, m2po.",
    ]


def test_a_file_that_is_missing_or_not_text_is_refused(tmp_path):
    path = tmp_path / "a.toml"
    told = f"{path} cannot be read: No such file or directory. Expected a TOML sweep file."
    assert refuses("", from_toml, path) == told
    path.write_bytes(b"\xff\xfe\x00")
    assert refuses("", from_toml, path) == f"{path} is not UTF-8 text. Expected a TOML sweep file."


def test_lines_are_found_past_multi_line_text_and_arrays():
    text = '[run]\ntask = """x"""\nmodel = """\nlag = 3\n"""\nlag = 4\n'
    text += '[grid]\nseed = [\n 0,\n 1,\n]\n"recipe_args".eps = [1]\n'
    lines = line_numbers(text)
    named = ("run.task", "run.lag", "grid.seed", "grid.recipe_args.eps")
    assert [lines[name] for name in named] == [2, 6, 8, 12]


def test_words_override_fields_by_their_type():
    words = ["lag=16", "recipe=m2po", "learning_rate=1", "recipe_args.eps=0.1"]
    words += ["recipe_args.flag=True", "recipe_args.off=false"]
    run = override(Run(recipe_args=(("tau", 2),)), words)
    assert (run.lag, run.recipe, run.learning_rate) == (16, "m2po", 1.0)
    assert run.recipe_args == (("eps", 0.1), ("flag", True), ("off", False), ("tau", 2))


def test_a_text_field_keeps_a_number_and_a_range_as_text(tmp_path):
    assert override(Run(policy="hf", model="x"), ["model=7,5"]).model == "7,5"
    assert [run.task for run in expand([Run()], ["task=7,true,0..2"])] == ["7", "true", "0..2"]
    assert from_toml(written(tmp_path, '[grid]\ntask = ["0..2"]\n')) == (Run(task="0..2"),)


def test_a_list_of_values_is_an_axis():
    cells = expand([Run(seed=1), Run(seed=2)], ["lag=0,4", "recipe_args.eps=0.1,0.2"])
    assert [(cell.seed, cell.lag, dict(cell.recipe_args)["eps"]) for cell in cells] == [
        (seed, lag, eps) for seed in (1, 2) for lag in (0, 4) for eps in (0.1, 0.2)
    ]


def test_runs_that_differ_in_the_fields_given_alone_are_expanded_once(tmp_path):
    runs = grid(Run(), lag=range(50), seed=range(50))
    counted = []

    def watch(what, count, made):
        counted.append((what, count))
        return made

    cells = expand(runs, ["lag=0,1", "seed=0,1,2"], watch=watch)
    assert (len(cells), *counted) == (6, ("checking cells", 6))
    expand([*runs[:2], Run(steps=3)], ["lag=0,1"], watch=watch)  # of three runs two have other seeds or steps
    from_toml(written(tmp_path, "[grid]\nlag = [4, 4, 2]\n"), watch=watch)
    assert counted[1:] == [("checking cells", 6), ("making cells", 3), ("checking cells", 3)]


def test_fixing_an_axis_of_a_sweep_leaves_each_cell_once(tmp_path):
    sweep = grid(Run(), recipe=["grpo", "m2po"], seed=range(3))
    assert expand(sweep, ["recipe=cispo"]) == grid(Run(recipe="cispo"), seed=range(3))
    assert expand([Run()], ["lag=4,4"]) == (Run(lag=4),)
    assert from_toml(written(tmp_path, "[grid]\nlag = [4, 4]\n")) == (Run(lag=4),)


@pytest.mark.parametrize(
    "word",
    ["lag=x", "lag=1.5", "lag=", "lag", "lagg=3", "lag.x=3", "steps=0", "task_args.x=\udcff",
    "recipe_args.eps=nan", "policy=hf", "lag=1,2"],
)  # fmt: skip
def test_a_bad_word_is_refused(word):
    refuses(".", override, Run(), [word])


def test_every_wrong_word_is_named():
    told = refuses("", expand, [Run()], ["lag=1", "lag=2", "x"])
    assert told == "'lag=2': 'lag' is given twice.\n'x': expected field=value, as lag=16."
    several = "'lag=1,2 seed=0' gives 2 runs, expected one value per field."
    assert refuses("", override, Run(), ["lag=1,2", "seed=0"]) == several


def test_a_grid_too_large_to_hold_is_refused_before_it_is_made(tmp_path):
    lines = refusal(tmp_path, '[grid]\nseed = "0..1000"\nlag = "0..999"\n')
    assert lines == ["sweep.toml:1: The grid has 1001000 cells, expected at most 1000000."]
    axes = {"seed": list(range(1000)), "lag": list(range(1000))}
    assert list(_wrong_axes(axes, {})) == []
    assert ranged("seed", "1..1000000") == list(range(1, 1_000_001))
    assert ranged("seed", "0..1000000") == ["0..1000000"]


BASE = Run(task="running-sum", policy="toy", task_args=(("digits", 4),), learning_rate=3e-3)


@pytest.mark.parametrize(
    "cells",
    [(BASE,), (Run(),), grid(BASE, recipe=["grpo", "m2po"], lag=[0, 16], seed=range(8)),
     grid(BASE, learning_rate=[1e-3, 0.1], recipe_args=[(("eps", 0.1),), (("eps", 0.2),)]),
     grid(BASE, recipe_args=[(("a", i), ("b", name)) for i in (1, 2) for name in ("x", 'y"\\')]),
     grid(BASE, anchor=["recipe", "old"], steps=[10, 20], seed=[0, 2]),
     grid(BASE, recipe_args=[(("cap", 2.5),), (("cap", float("inf")),)])],
)  # fmt: skip
def test_a_grid_comes_back_from_its_text(cells, tmp_path):
    text = as_toml(cells)
    file = tmp_path / "sweep.toml"
    file.write_text(text)
    assert set(from_toml(file)) == set(cells)
    assert as_toml(cells[::-1]) is not None


def test_eight_seeds_are_a_range():
    assert 'seed = "0..7"' in as_toml(grid(BASE, seed=range(8)))
    assert "seed = [0, 2, 4, 6]" in as_toml(grid(BASE, seed=range(0, 8, 2)))


@pytest.mark.parametrize(
    "cells",
    [(BASE, replace(BASE, lag=8, seed=1)), (BASE, replace(BASE, recipe_args=(("eps", 0.1),))),
     grid(BASE, recipe_args=[(("a", 1), ("b", 2)), (("a", 2), ("b", 1))])],
)  # fmt: skip
def test_what_is_no_grid_has_no_text(cells):
    assert as_toml(cells) is None


def test_recipes_with_other_dials_are_grids_of_their_own():
    grpo, m2po = grid(BASE, recipe=["grpo"], lag=[0, 4]), grid(BASE, recipe=["m2po"], lag=[0])
    assert [set(found) for found in groups([*grpo, *m2po])] == [set(grpo), set(m2po)]
    assert len(groups(grpo)) == 1
