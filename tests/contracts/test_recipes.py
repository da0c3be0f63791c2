"""Recipes by name: their own, those of objectives and variants, and those in a user's file."""

import json
import re
from pathlib import Path

import pytest
from support.command_line import refused, told
from support.refusals import refuses

from analysis.tables.committed import load_results
from testbed.config.run import Run, cell_id
from testbed.errors import UserError
from testbed.objectives import objective
from testbed.recipes import recipe
from testbed.recipes.composition import Recipe, Term
from testbed.user_files import pin

MINE = '''
from testbed.losses.ratios import log_token


def capped(logp_BT, batch, *, cap: float = 2.0):
    """L = -sg[min(rho, cap)] A log pi."""
    return -log_token(logp_BT, batch).detach().exp().clamp(max=cap) * batch.adv_BT * logp_BT
'''
TINY = ["steps=3", "lag=0", "seed=0", "prompts=2", "group=2", "--workers", "0", "--quiet", "--json"]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


def test_every_name_makes_a_recipe_whose_hyperparameters_its_objective_knows():
    for name in recipe.names():
        made = recipe[name].bind()()
        objective[made.objective].bind(**made.hyper(0, 10))
        objective[made.objective].bind(**made.hyper(9, 10))
        assert recipe[name].source, name
        assert recipe[name].formula, name


def test_an_objective_without_a_recipe_gets_the_default_composition():
    made = recipe["bpo"].bind(lam=0.25, aggregation="sequence_mean")()
    assert (made.advantage, made.objective, made.aggregation) == ("group_std", "bpo", "sequence_mean")
    assert made.hyper(0, 1) == {"lam": 0.25}


def test_a_variant_takes_the_composition_of_its_base_and_its_own_loss():
    base, variant = recipe["topr"].bind()(), recipe["topr@trinity"].bind()()
    assert variant.objective == "topr@trinity"
    assert (variant.advantage, variant.advantage_args) == (base.advantage, base.advantage_args)
    assert variant.aggregation == base.aggregation
    other = recipe["topr@trinity"].bind(advantage="group_mean")()
    assert (other.advantage, other.advantage_args) == ("group_mean", ())


@pytest.mark.parametrize(
    "make",
    [lambda: recipe["grop"], lambda: recipe["bpo"].bind(la=1),
     lambda: recipe["bpo"].bind(advantage="group_sd")(), lambda: recipe["bpo"].bind(aggregation="mean")(),
     lambda: Recipe("raw", "ppo_clip", "token_mean", terms=(Term("kl", 1.0),))],
)  # fmt: skip
def test_a_wrong_name_costs_no_training(make):
    refuses(".", make)


@pytest.mark.slow
def test_an_objective_in_a_file_is_swept_under_the_name_of_its_version(capsys, mine):
    words = ["run", "ess-collapse", *TINY, "--out", "mine", "--objective", "mine.py:capped"]
    out = told(capsys, *words)
    assert [row["recipe"] for row in json.loads(out)["summary"]] == ["capped"]
    assert set(load_results(Path("mine"))["recipe"]) == {pin("mine.py:capped")}
    joined = ["run", "ess-collapse", "recipe=grpo,reinforce", *TINY, "--out", "both", *words[-2:]]
    out = told(capsys, *joined)
    assert {row["recipe"] for row in json.loads(out)["summary"]} == {"grpo", "reinforce", "capped"}


def test_a_changed_file_is_another_cell_and_never_a_silent_rerun(mine):
    planned = pin("mine.py:capped")
    first = cell_id(Run(recipe=planned))
    mine.write_text(MINE.replace("2.0", "3.0"))
    assert cell_id(Run(recipe=pin("mine.py:capped"))) != first
    with pytest.raises(UserError, match="the file has changed"):
        recipe[planned]


@pytest.mark.parametrize(
    ("given", "words"),
    [("none.py:capped", "none.py cannot be read"),
     ("mine.py:caped", "has no function 'caped'. Did you mean 'capped'"),
     ("broken.py:f", "broken.py cannot be run: ZeroDivisionError"),
     ("mine.py:three", r"positional parameters a, b, c; expected \(logp_BT, batch")],
)  # fmt: skip
def test_a_file_that_is_no_objective_is_one_message_and_exit_code_two(capsys, mine, given, words):
    mine.write_text(MINE + "\n\ndef three(a, b, c):\n    return a\n")
    (mine.parent / "broken.py").write_text("1 / 0\n")
    err = refused(capsys, "run", "ess-collapse", *TINY, "--out", "mine", "--objective", given)
    assert re.search(words, err)
    assert not (mine.parent / "mine").exists()
