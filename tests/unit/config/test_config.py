"""Runs have one form and ids that stay; arguments are held against what takes them; packs and grids."""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Literal

import numpy as np
import pytest
from support.refusals import refuses

from testbed.config.argument_types import signature, types_of, wrong_arguments, wrong_types
from testbed.config.fields import check, coerced, normal
from testbed.config.pack import ADAPTERS, LARGEST, Pack, largest, pack_id, packed, restore
from testbed.config.run import Run, canonical, canonicals, cell_id, grid
from testbed.config.toml_file import override

GOLDEN = {
    Run(): "bandit/grpo/lag0/seed0-9f42fef3b6f6",
    Run(task="running-sum", policy="toy", task_args=(("digits", 12),), recipe="m2po",
        recipe_args=(("tau", 0.04),), lag=64, seed=3,
        learning_rate=1.0): "running-sum/m2po/lag64/seed3-5ec1e62ff7b0",
    Run(policy="hf", model="m", steps=5): "bandit/grpo/lag0/seed0-5e26800d13db",
}  # fmt: skip


def outcome(call, *given):
    """Return what the call gives, or its ValueError."""
    try:
        return call(*given)
    except ValueError as error:
        return error


def test_cell_ids_never_change_while_run_version_stays():
    assert {run: cell_id(run) for run in GOLDEN} == GOLDEN


@pytest.mark.parametrize(
    ("one", "other"),
    [(Run(learning_rate=1), Run(learning_rate=1.0)), (Run(max_grad_norm=-0.0), Run(max_grad_norm=0.0)),
     (Run(recipe_args=(("a", 1), ("b", 2.5))), Run(recipe_args=(("b", 2.5), ("a", 1.0)))),
     (Run(recipe_args=(("cap", 2.0),)), Run(recipe_args=(("cap", 2),))),
     (Run(recipe_args=(("a", -0.0),)), Run(recipe_args=(("a", 0),)))],
)  # fmt: skip
def test_equal_cells_have_equal_ids_however_they_are_written(one, other):
    assert one == other
    assert cell_id(one) == cell_id(other) == cell_id(check(one)) == cell_id(check(other))


def test_the_normal_form_of_a_normal_form_is_itself():
    table = {"b": 2.0, "a": "x"}
    run = check(Run(learning_rate=1, recipe_args=table))
    assert check(run) == restore(json.loads(json.dumps(asdict(run)))) == run
    assert isinstance(run.learning_rate, float)
    assert run.recipe_args == (("a", "x"), ("b", 2))


def test_fields_that_are_read_together_may_stand_together():
    warm, wide = Run(policy="toy", warm_start_steps=5), Run(age_limit=0, too_old="wait")
    assert [check(run) for run in (warm, wide)] == [warm, wide]
    wrong = Run(policy="hf", warm_start_steps=5, too_old="wait")
    told = "warm_start_steps is 5, expected 0 unless policy is 'toy'."
    age = "too_old is 'wait', but without age_limit no sample is too old; set age_limit."
    model = "model is empty, expected the folder of a Hugging Face model, because policy is 'hf'."
    assert refuses("", check, wrong) == f"{model}\n{told}\n{age}"


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
    assert pack_id(two.cells[::-1]) == packed(0, [], [*two.names][::-1]).id != two.id
    assert hash(packed(3, list(two.cells), []))
    assert cell_id(Run(recipe="/a/b/mine.py:f")) == "bandit/mine.py:f/lag0/seed0-c8f90b8fdde4"


def passer(first, /, second, *rest, third="x", fourth=1, fifth=True, **more): ...


def half_known(*, count: int = 1, where: "Nowhere" = None): ...  # noqa: F821


def taker(*, count: int = 1, rate: float = 0.5, on: bool = True, kind: Literal["a", "b"] = "a", bare=2,
          half=0.5, many: int | list[int] = 1, maybe: float | None = None,
          span: tuple[int, int] = (0, 1)): ...  # fmt: skip


class Taker:
    def __init__(self, *, count: int = 1): ...


@pytest.mark.parametrize(
    ("given", "words"),
    [({"count": 2, "rate": 3, "on": False, "kind": "b", "bare": 0.5, "many": (1, 2), "maybe": 1.5}, ""),
     ({"count": 2.5}, "it has count = 2.5 (float), expected a whole number."),
     ({"rate": "much"}, "it has rate = 'much' (str), expected a number."),
     ({"on": 1}, "it has on = 1 (int), expected true or false."),
     ({"rate": True}, "it has rate = True (bool), expected a number."),
     ({"count": True}, "it has count = True (bool), expected a whole number."),
     ({"kind": "c"}, "it has kind = 'c' (str), expected one of 'a', 'b'."),
     ({"maybe": None, "span": (2, 3)}, ""), ({"maybe": 2}, ""),
     ({"maybe": "x"}, "it has maybe = 'x' (str), expected a number or nothing."),
     ({"bare": "x"}, "it has bare = 'x' (str), expected a number."),
     ({"half": "x"}, "it has half = 'x' (str), expected a number."),
     ({"cuont": 2},
      "it has no argument 'cuont'. Did you mean 'count'? It has: count (int), rate (float), on (bool), "
      "kind ('a' | 'b'), bare (float), half (float), many (int | list[int]), maybe (float | None), "
      "span (tuple[int, int]).")],
)  # fmt: skip
def test_an_argument_of_another_name_or_type_is_told_with_what_was_expected(given, words):
    assert list(wrong_arguments("it", taker, given)) == [words] * bool(words)


def test_a_sequence_of_numbers_is_no_number():
    def of_several(x: Sequence[int]) -> None: ...

    assert list(wrong_types("it", of_several, {"x": (1, 2)})) == []


def test_hidden_parameters_cannot_be_given_and_types_alone_pass_unknown_names():
    assert "no argument 'on'" in next(wrong_arguments("it", taker, {"on": True}, hidden=("on",)))
    assert list(wrong_types("it", taker, {"cuont": "x"})) == []
    told = "it has no argument 'onn'. Did you mean 'count'? It has: count (int), rate (float), "
    assert next(wrong_arguments("it", taker, {"onn": 1}, hidden=("on", "bare"))).startswith(told)
    told = "it has on = 0 (int), expected true or false."
    assert list(wrong_types("it", taker, {"on": 0})) == [told]
    assert types_of(half_known) == {"count": float, "where": Any}
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
    assert list(canonicals(changed)) == [canonical(run) for run in changed]  # True is not the 1 before it


def test_a_number_or_text_is_an_axis_of_one_value():
    run = Run(task="chain", seed=7)
    assert grid(run, recipe="grpo", lag=3, seed=(1, 2)) == grid(run, recipe=["grpo"], lag=[3], seed=[1, 2])


def test_a_grid_varies_its_last_axis_fastest_and_names_unknown_axes():
    cells = grid(Run(), lag=[0, 4], seed=[0, 1])
    assert [(cell.lag, cell.seed) for cell in cells] == [(0, 0), (0, 1), (4, 0), (4, 1)]
    told = refuses("", grid, Run(), lagg=[0])
    assert told.startswith(
        "Unknown field of Run 'lagg'. Did you mean 'lag'? Known, 10 of 39: lag, policy_args, "
    )
