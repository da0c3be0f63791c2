"""Names are looked up whatever they are of: nobody has to know that grpo is a recipe and gspo both."""

import json

import pytest

from testbed.cli import look_up, main
from testbed.recipes import recipe


def call(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    out, err = capsys.readouterr()
    return stop.value.code, out, err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("grpo", ["recipe"]),
        ("gspo", ["objective", "recipe"]),
        ("cispo@verl", ["objective", "recipe"]),
        ("TRL", ["stack"]),
        ("running-sum", ["task"]),
        ("uniform", ["schedule"]),
        ("ess-collapse", ["sweep", "experiment", "figure"]),
        ("18", ["system"]),
        ("m2po", ["objective", "recipe", "system"]),
        ("actor/pg_clipfrac", ["metric"]),
        ("group_std", ["advantage"]),
        ("token_mean", ["aggregation"]),
    ],
)
def test_a_name_is_shown_as_everything_that_it_is(name, kinds):
    assert list(look_up.look_up(name)) == kinds


def test_a_recipe_says_what_it_composes(capsys):
    code, out, _ = call(capsys, "show", "vcpo")
    assert code == 0
    for words in ("importance_reinforce(level=sequence, cap=8.0)", "ess_reference=1.0", "recipe=vcpo"):
        assert words in out


def test_every_recipe_can_be_shown():
    assert all(look_up.composition(recipe[name])["objective"] for name in recipe.names())


def test_a_name_can_be_asked_for_as_one_kind(capsys):
    code, out, _ = call(capsys, "show", "m2po", "--kind", "recipe")
    assert code == 0
    assert "m2po, a recipe" in out
    assert "an objective" not in out
    assert "stack" in json.loads(call(capsys, "show", "verl", "--kind", "stack", "--json")[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("show", "grpoo"), ("show", "m2p", "--cite"), ("run", "staleness", "recipe=grop")]
)
def test_an_unknown_name_gets_at_most_ten_candidates(capsys, words):
    code, _, err = call(capsys, *words)
    assert code == 2
    assert "Did you mean" in err
    assert len(err.partition("Known, ")[2].split(", ")) == 10
