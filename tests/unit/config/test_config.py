"""Run's two other doors, TOML files and field=value words, and the ids of cells.

Arguments are held against what takes them: names, numbers, truth values, choices.
Equal runs have equal ids, however they are written.
Cells written as a sweep file give the same cells again, or are refused.
"""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from support.refusals import refuses

from paper_figs.toml_text import as_toml, groups
from testbed.config.argument_types import signature, types_of, wrong_arguments, wrong_types
from testbed.config.fields import check, coerced, normal
from testbed.config.pack import ADAPTERS, LARGEST, Pack, largest, pack_id, packed, restore
from testbed.config.run import Run, canonical, cell_id, grid
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

FIELDS_NAMED = (
    "Known, 10 of 38: lag, policy_args, learning_rate, task_args, log_every, age_limit, anchor, anchor_args, "
    "critic, critic_args."
)
FINITE = "expected a finite number of at least 0."
NO_MODEL = "model is empty, expected the folder of a Hugging Face model, because policy is 'hf'."
TOP = "stands at the top level, expected only the tables [run] and [grid]."

GOLDEN = {
    Run(): "bandit/grpo/lag0/seed0-9f42fef3b6f6",
    Run(task="running-sum", policy="toy", task_args=(("digits", 12),), recipe="m2po",
        recipe_args=(("tau", 0.04),), lag=64, seed=3,
        learning_rate=1.0): "running-sum/m2po/lag64/seed3-5ec1e62ff7b0",
    Run(policy="hf", model="m", steps=5): "bandit/grpo/lag0/seed0-5e26800d13db",
}  # fmt: skip


def written(folder: Path, text: str) -> Path:
    path = folder / "sweep.toml"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(folder: Path, text: str, **known: object) -> list[str]:
    """Return the lines of the error that a sweep file gives, without the folder."""
    return refuses("", from_toml, written(folder, text), **known).replace(f"{folder}/", "").splitlines()


def outcome(call, *given):
    """Return what the call gives, or its ValueError."""
    try:
        return call(*given)
    except ValueError as error:
        return error


def test_cell_ids_never_change_while_run_version_stays():
    assert {run: cell_id(run) for run in GOLDEN} == GOLDEN


def test_a_toml_file_gives_the_cells_of_the_python_grid(tmp_path):
    start = Run(
        task="running-sum", policy="toy", learning_rate=3e-3, task_args=(("digits", 12), ("modulus", 8)),
        policy_args=(("width", 32),),
    )  # fmt: skip
    arguments = [(("eps", 0.1),), (("eps", 0.2),)]
    cells = grid(start, recipe=["grpo", "m2po"], lag=[0, 16], recipe_args=arguments)
    assert from_toml(written(tmp_path, GOOD)) == cells


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Run(learning_rate=1), Run(learning_rate=1.0)),
        (Run(max_grad_norm=-0.0), Run(max_grad_norm=0.0)),
        (Run(recipe_args=(("a", 1), ("b", 2.5))), Run(recipe_args=(("b", 2.5), ("a", 1.0)))),
        (Run(recipe_args=(("cap", 2.0),)), Run(recipe_args=(("cap", 2),))),
        (Run(recipe_args=(("a", -0.0),)), Run(recipe_args=(("a", 0),))),
    ],
)
def test_equal_cells_have_equal_ids_however_they_are_written(one, other):
    assert one == other
    assert cell_id(one) == cell_id(other) == cell_id(check(one)) == cell_id(check(other))


def test_the_normal_form_of_a_normal_form_is_itself():
    table = {"b": 2.0, "a": "x"}
    run = check(Run(learning_rate=1, recipe_args=table))
    assert check(run) == restore(json.loads(json.dumps(asdict(run)))) == run
    assert isinstance(run.learning_rate, float)
    assert run.recipe_args == (("a", "x"), ("b", 2))


@pytest.mark.parametrize(
    ("text", "expected"),
    [("[run]\nlagg = 3\n", "sweep.toml:2: Run has no field 'lagg'. Did you mean 'lag'?"),
     ('[run]\n\nlag = "3"\n', "sweep.toml:3: lag is '3' (str), expected a valid integer."),
     ("[run]\nlag = 3.0\n", "sweep.toml:2: lag is 3.0 (float), expected a valid integer."),
     ("[run]\nlag = true\n", "sweep.toml:2: lag is True (bool), expected a valid integer."),
     ("[run]\nlag = -1\n", "sweep.toml:2: lag is -1, expected at least 0."),
     ("[run]\nlearning_rate = inf\n", f"sweep.toml:2: learning_rate is inf, {FINITE}"),
     ("[run]\nlearning_rate = nan\n", f"sweep.toml:2: learning_rate is nan, {FINITE}"),
     ("[run]\nteacher_noise = 1.5\n", "sweep.toml:2: teacher_noise is 1.5, expected at most 1."),
     ("[run]\nsteps = 2147483648\n", "sweep.toml:2: steps is 2147483648, expected at most 2147483647."),
     ('[run]\npolicy = "toi"\n',
      "sweep.toml:2: policy is 'toi' (str), expected 'tabular', 'toy' or 'hf'. Did you mean 'toy'?"),
     ("[run]\npolicy = 3\n", "sweep.toml:2: policy is 3 (int), expected 'tabular', 'toy' or 'hf'."),
     ('[run]\npolicy = "hf"\n', f"sweep.toml:1: {NO_MODEL}"),
     ('[run]\nmodel = "m"\n',
      "sweep.toml:2: model is 'm', but policy is 'tabular'; set policy to 'hf' or leave model out."),
     ("[run]\nwarm_start_steps = 5\n",
      "sweep.toml:2: warm_start_steps is 5, expected 0 unless policy is 'toy'."),
     ("lag = 3\n", f"sweep.toml:1: 'lag' {TOP} Put it under [run] as lag = …"),
     ("[rum]\nlag = 3\n", f"sweep.toml:1: 'rum' {TOP} Did you mean 'run'?"),
     ("run = 3\n", "sweep.toml:1: 'run' is 3, expected a table: [run]."),
     ("[grid]\nlag = 3\n", "sweep.toml:2: lag is 3, expected a list of at least one value."),
     ("[grid]\nlag.a = [3]\n", "sweep.toml:2: lag is {'a': [3]}, expected a list of at least one value."),
     ("[grid]\nlag = [0]\nrecipe_args = {eps = []}\n",
      "sweep.toml:3: recipe_args.eps is [], expected a list of at least one value."),
     ("[grid]\nlag = []\n", "sweep.toml:2: lag is [], expected a list of at least one value."),
     ('[grid]\nlag = [0, "4"]\n', "sweep.toml:2: lag is '4' (str), expected a valid integer."),
     ("[grid]\nlagg = [3]\n", "sweep.toml:2: Run has no field 'lagg'. Did you mean 'lag'?"),
     ("[grid]\nrecipe_args.eps = [[1]]\n",
      "sweep.toml:2: recipe_args has eps = [1], expected a number, text, or true or false."),
     ("[run]\nrecipe_args = 3\n",
      "sweep.toml:2: recipe_args is 3, expected a table of names and values, as eps = 0.2."),
     ("[run.recipe_args]\neps = nan\n", "sweep.toml:1: recipe_args has eps = nan, expected a number."),
     ("[run]\nlag = 3\nlag = 4\n",
      "sweep.toml:3: Cannot overwrite a value. Each key and each table may appear once."),
     ("[run]\nlag =\n", "sweep.toml:2: Invalid value."),
     ("run = [", "sweep.toml:1: Invalid value."),
     ("a = {b = 1, b = 2}\n",
      "sweep.toml:1: Duplicate inline table key 'b'. Each key and each table may appear once."),
     ("[[run]]\nlag = 1\n[run]\n",
      "sweep.toml:3: Cannot declare ('run',) twice. Each key and each table may appear once."),
     ("", "sweep.toml is empty, expected a table [run] and, for a sweep, a table [grid]."),
     ('[grid]\nlag = "9..3"\n',
      "sweep.toml:2: lag is 9..3, expected as in 0..7: the smaller first, at most 1,000,000 numbers."),
     ("[run]\nmodel = '''\nlag = 3\n'''\nlag = -4\n", "sweep.toml:5: lag is -4, expected at least 0."),
     ('[run]\ntask_args = ["ab"]\n[run.recipe_args]\n"" = 3\n',
      "sweep.toml:3: recipe_args has the name '', expected text."),
     ("[run]\nlag = 1e3x\n", "sweep.toml:2: Expected newline or end of document after a statement.")],
)  # fmt: skip
def test_a_bad_file_is_refused_with_the_line(tmp_path, text, expected):
    assert refusal(tmp_path, text) == [expected + f" {FIELDS_NAMED}" * ("no field" in expected)]


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
    text = (
        '[run]\nmodel = """\nlag = 3\n"""\nlag = 4\n[grid]\nseed = [\n 0,\n 1,\n]\n"recipe_args".eps = [1]\n'
    )
    lines = line_numbers(text)
    assert lines["run.lag"] == 5
    assert lines["grid.seed"] == 7
    assert lines["grid.recipe_args.eps"] == 11


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
    ("word", "expected"),
    [
        ("lag=x", "'lag': lag is 'x' (str), expected a valid integer."),
        ("lag=1.5", "'lag': lag is 1.5 (float), expected a valid integer."),
        ("lag=", "'lag': lag is '' (str), expected a valid integer."),
        ("lag", "'lag': expected field=value, as lag=16."),
        ("lagg=3", "'lagg': Run has no field 'lagg'. Did you mean 'lag'?"),
        ("lag.x=3", "'lag.x': Run has no field 'lag.x'. Did you mean 'lag'?"),
        ("steps=0", "'steps': steps is 0, expected at least 1."),
        ("task_args.x=\udcff", "'task_args.x': task_args has x = '\\udcff', which is not UTF-8 text."),
        ("recipe_args.eps=nan", "'recipe_args.eps': recipe_args has eps = nan, expected a number."),
        ("policy=hf", NO_MODEL),
        ("lag=1,2", "'lag=1,2' gives 2 runs, expected one value per field."),
    ],
)
def test_a_bad_word_is_refused(word, expected):
    assert refuses("", override, Run(), [word]) == expected + f" {FIELDS_NAMED}" * ("no field" in expected)


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


def test_fields_that_are_read_together_may_stand_together():
    warm, wide = Run(policy="toy", warm_start_steps=5), Run(age_limit=0, too_old="wait")
    assert [check(run) for run in (warm, wide)] == [warm, wide]
    wrong = Run(policy="hf", warm_start_steps=5, too_old="wait")
    told = "warm_start_steps is 5, expected 0 unless policy is 'toy'."
    age = "too_old is 'wait', but without age_limit no sample is too old; set age_limit."
    assert refuses("", check, wrong) == f"{NO_MODEL}\n{told}\n{age}"


def test_an_age_limit_of_zero_is_one_and_makes_batches_ragged():
    run = Run(age_limit=0, too_old="truncate")
    assert check(run) == run
    assert (largest(run), largest(replace(run, too_old="wait"))) == (1, LARGEST["tabular"])


def test_wide_toy_models_share_packs_with_fewer_others():
    """Blocks have 12 layers width^2 weights: 24 * 656^2 = 10.3 million leave room for seven."""
    wide = {width: replace(Run(policy="toy"), policy_args=(("width", width),)) for width in (32, 656, 3000)}
    assert [largest(run) for run in wide.values()] == [LARGEST["toy"], 7, 1]
    assert largest(replace(wide[656], policy_args=(("layers", 4), ("width", 656)))) == 3
    ends = (31, 32, 33, 500, 530, 1690, 1700, 1830)
    room = [largest(replace(wide[32], policy_args=(("layers", 1), ("width", width)))) for width in ends]
    assert room == [min(32, max(1, 80_000_000 // (12 * width**2))) for width in ends]
    assert largest(replace(wide[32], policy_args=(("width", 600), ("layers", 1)))) == 18
    for invalid in (("width", 0), ("layers", -1), ("width", "x")):  # refused elsewhere, with a reason
        assert largest(Run(policy="toy", policy_args=(invalid,))) == LARGEST["toy"]


def test_adapters_share_packs_on_a_gpu_alone():
    model = Run(policy="hf", model="folder", device="cuda", policy_args=(("lora", 2),))
    others = (replace(model, device="cpu"), replace(model, policy_args=()))
    assert (largest(model), *map(largest, others)) == (ADAPTERS, 1, 1)
    refuses("no sample is too old; set age_limit", check, Run(too_old="wait"))


def test_check_names_every_wrong_field_of_a_run_made_in_python():
    run = Run(lag=-1, steps=0, group="8", recipe_args=(("a", 1), ("a", 2)))  # type: ignore[arg-type]
    assert [line.partition(" ")[0] for line in refuses("", check, run).splitlines()] == [
        "recipe_args", "lag", "steps", "group",
    ]  # fmt: skip


def test_every_cell_is_brought_into_its_normal_form_though_neighbors_share_values():
    three = np.int64(3)
    runs = [Run(seed=three, lag=lag) for lag in (0, 4)]  # type: ignore[arg-type]
    assert [type(run.seed) for run in normal(runs)[0]] == [int, int]
    invalid = Run(lag=-1)
    sound, wrong = normal([Run(lag=0), invalid, replace(invalid, seed=1)])
    assert (sound, wrong) == ((Run(lag=0),), ["lag is -1, expected at least 0."] * 2)


def test_the_ends_of_a_field_are_allowed_and_nothing_beyond():
    ends = Run(teacher_noise=1.0, seed=2**63 - 1, steps=2**31 - 1, age_limit=-1)
    assert check(ends) == ends
    for name, value in (("teacher_noise", 1.1), ("seed", 2**63), ("steps", 2**31), ("age_limit", -2)):
        refuses(f"{name} is {value}", check, replace(ends, **{name: value}))


def test_a_scalar_of_numpy_is_a_number_and_an_array_of_one_is_not():
    assert check(Run(seed=np.array(3))).seed == 3  # type: ignore[arg-type]
    mixed = {"b": np.array(2.5), "c": np.int64(2), "a": True}
    assert repr(coerced("recipe_args", mixed)) == "(('a', True), ('b', 2.5), ('c', 2))"
    assert cell_id(check(Run(lag=np.int64(3)))) == cell_id(Run(lag=3))  # type: ignore[arg-type]
    assert (
        refuses("", check, Run(seed=np.array([3])))
        == "seed is array([3]) (ndarray), expected a valid integer."
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [({"a": 2.0**53 - 1}, "(('a', 9007199254740991),)"), ({"a": 2.0**53}, "(('a', 9007199254740992.0),)"),
     ({"a": -(2.0**53)}, "(('a', -9007199254740992.0),)"), ({"a": np.inf}, "(('a', inf),)"),
     ({"é": "ü"}, "(('é', 'ü'),)"), (["ab"], "(('a', 'b'),)"), ({"": 1}, "has the name '', expected text."),
     ({3: 1}, "has the name 3, expected text."),
     ([("a", 1), ("b", 1), ("a", 2)], "sets 'a' twice, expected each name once."),
     ("ab", "is 'ab', expected a table of names and values, as eps = 0.2."),
     ([("a", [1])], "has a = [1], expected a number, text, or true or false.")],
)  # fmt: skip
def test_arguments_are_pairs_of_text_and_plain_values(given, expected):
    assert (repr if expected[0] == "(" else str)(outcome(coerced, "recipe_args", given)) == expected


def test_a_pack_is_named_by_its_cells_and_spoken_of_by_its_place():
    two = Pack("i", 3, (Run(), Run(seed=1)))
    assert str(two) == "pack 3 (bandit/grpo/lag0/seed0-9f42fef3b6f6 and 1 more)"
    assert str(packed(0, [Run()], ["x"])) == "pack 0 (x)"
    assert repr(packed(0, [Run()], ["x"]).names) == "('x',)"
    assert two.names == tuple(map(cell_id, two.cells))
    assert pack_id(two.cells) == packed(3, list(two.cells), list(two.names)).id == "8c33a9e8daa218f7"
    assert hash(packed(3, list(two.cells), []))
    assert cell_id(Run(recipe="/a/b/mine.py:f")) == "bandit/mine.py:f/lag0/seed0-c8f90b8fdde4"


def passer(first, /, second, *rest, third="x", fourth=1, fifth=True, **more): ...


def taker(*, count: int = 1, rate: float = 0.5, on: bool = True, kind: Literal["a", "b"] = "a", bare=2,
          half=0.5, many: int | list[int] = 1, maybe: float | None = None,
          span: tuple[int, int] = (0, 1)): ...  # fmt: skip


class Taker:
    def __init__(self, *, count: int = 1): ...


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"count": 2, "rate": 3, "on": False, "kind": "b", "bare": 0.5, "many": (1, 2), "maybe": 1.5}, ""),
        ({"count": 2.5}, "it has count = 2.5 (float), expected a whole number."),
        ({"rate": "much"}, "it has rate = 'much' (str), expected a number."),
        ({"on": 1}, "it has on = 1 (int), expected true or false."),
        ({"rate": True}, "it has rate = True (bool), expected a number."),
        ({"count": True}, "it has count = True (bool), expected a whole number."),
        ({"kind": "c"}, "it has kind = 'c' (str), expected one of 'a', 'b'."),
        ({"maybe": None, "span": (2, 3)}, ""),
        ({"maybe": 2}, ""),
        ({"maybe": "x"}, "it has maybe = 'x' (str), expected a number or nothing."),
        ({"bare": "x"}, "it has bare = 'x' (str), expected a number."),
        ({"half": "x"}, "it has half = 'x' (str), expected a number."),
        (
            {"cuont": 2},
            "it has no argument 'cuont'. Did you mean 'count'? It has: count (int), rate (float), on (bool), "
            "kind ('a' | 'b'), bare (float), half (float), many (int | list[int]), maybe (float | None), "
            "span (tuple[int, int]).",
        ),
    ],
)
def test_an_argument_of_another_name_or_type_is_told_with_what_was_expected(given, words):
    assert list(wrong_arguments("it", taker, given)) == [words] * bool(words)


def test_hidden_parameters_cannot_be_given_and_types_alone_pass_unknown_names():
    assert "no argument 'on'" in next(wrong_arguments("it", taker, {"on": True}, hidden=("on",)))
    assert list(wrong_types("it", taker, {"cuont": "x"})) == []
    told = "it has no argument 'x'. It has: none."
    assert list(wrong_arguments("it", lambda: None, {"x": 1})) == [told]
    found = {"second": Any, "third": str, "fourth": float, "fifth": bool}
    assert (types_of(passer), types_of(3)) == (found, {})
    spelled = signature({"a": list[int], "b": float | None, "c": Any, "d": Literal["x", 2]})
    assert spelled == "It has: a (list[int]), b (float | None), c (Any), d ('x' | 2)."
    told = "it has count = 2.5 (float), expected a whole number."
    assert list(wrong_arguments("it", Taker, {"count": 2.5})) == [told]


def test_an_argument_called_law_is_the_distribution_and_keeps_its_id():
    old = Run(prefix="teacher", prefix_args=(("law", "staged"), ("tokens", 5)))
    new = Run(prefix="teacher", prefix_args=(("distribution", "staged"), ("tokens", 5)))
    assert old == new
    assert cell_id(new) == "bandit/grpo/lag0/seed0-6a9ee2243dba"  # the id of release 0.1
    words = ["prefix=teacher", "prefix_args.law=staged", "prefix_args.tokens=5"]
    assert override(Run(), words) == override(new, ["prefix_args.law=staged"]) == new
    later = Run(prefix="teacher", prefix_args=(("first", 1), ("law", "staged")))
    assert '"prefix_args":[["first",1],["law","staged"]]' in canonical(later)  # sorted by the old name
    theirs = Run(prefix="mine.py:start", prefix_args=(("law", "staged"),))
    assert theirs.prefix_args == (("law", "staged"),)


def test_every_field_is_part_of_the_id():
    changed = [
        Run(seed=1), Run(lag=1), Run(steps=201), Run(recipe="m2po"), Run(task="chain"), Run(log_every=5),
        Run(recipe_args=(("a", 1),)), Run(recipe_args=(("a", True),)),
    ]  # fmt: skip
    assert len({cell_id(run) for run in [Run(), *changed]}) == len(changed) + 1


def test_a_grid_varies_its_last_axis_fastest_and_names_unknown_axes():
    cells = grid(Run(), lag=[0, 4], seed=[0, 1])
    assert [(cell.lag, cell.seed) for cell in cells] == [(0, 0), (0, 1), (4, 0), (4, 1)]
    told = refuses("", grid, Run(), lagg=[0])
    assert told == f"Unknown field of Run 'lagg'. Did you mean 'lag'? {FIELDS_NAMED}"


BASE = Run(task="running-sum", policy="toy", task_args=(("digits", 4),), learning_rate=3e-3)


@pytest.mark.parametrize(
    "cells",
    [(BASE,), (Run(),), grid(BASE, recipe=["grpo", "m2po"], lag=[0, 16], seed=range(8)),
     grid(BASE, learning_rate=[1e-3, 0.1], recipe_args=[(("eps", 0.1),), (("eps", 0.2),)]),
     grid(BASE, recipe_args=[(("a", i), ("b", name)) for i in (1, 2) for name in ("x", 'y"\\')]),
     grid(BASE, anchor=["recipe", "old"], steps=[10, 20], seed=[0, 2])],
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
