"""Names are looked up whatever they are of: nobody has to know that grpo is a recipe and gspo both.

What packages above the core add to the command line, and the core without them.
"""

import json

import pytest
from support.command_line import call, refused, told

from testbed.cli import commands, show_command
from testbed.cli.extensions import GROUP, Command, Extension, installed
from testbed.recipes import recipe


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "kinds"),
    [("grpo", ["recipe"]), ("gspo", ["objective", "recipe"]), ("cispo@verl", ["objective", "recipe"]),
     ("TRL", ["stack"]), ("running-sum", ["task"]), ("uniform", ["schedule"]),
     ("ess-collapse", ["sweep", "experiment", "figure"]), ("18", ["system"]),
     ("m2po", ["objective", "recipe", "system"]), ("MinPRO", ["objective", "recipe", "system"]),
     ("tree-opo", ["recipe", "advantage", "system"]), ("PPO-EWMA", ["recipe", "system"]),
     ("gepo", ["system"]), ("nested-reft", ["system"]), ("actor/pg_clipfrac", ["metric"]),
     ("group_std", ["advantage"]), ("token_mean", ["aggregation"])],
)  # fmt: skip
def test_a_name_is_shown_as_everything_that_it_is(name, kinds):
    assert list(show_command.look_up(name)) == kinds


def test_a_recipe_says_what_it_composes(capsys):
    out = told(capsys, "show", "vcpo")
    assert "testbed run staleness recipe=vcpo\n" in call(capsys, "show", "VCPO", "--kind", "recipe")[1]
    for words in ("importance_reinforce(level=sequence, cap=8.0)", "ess_reference=1.0", "recipe=vcpo"):
        assert words in out


def test_every_recipe_can_be_shown():
    assert all(show_command.composition(recipe[name])["objective"] for name in recipe.names())


def test_a_name_can_be_asked_for_as_one_kind(capsys):
    out = told(capsys, "show", "m2po", "--kind", "recipe")
    assert "m2po, a recipe" in out
    assert "an objective" not in out
    assert "stack" in json.loads(call(capsys, "show", "verl", "--kind", "stack", "--json")[1])


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("show", "grpoo"), ("show", "m2p", "--cite"), ("run", "staleness", "recipe=grop")]
)
def test_an_unknown_name_gets_at_most_ten_candidates(capsys, words):
    err = refused(capsys, *words)
    assert "Did you mean" in err
    assert len(err.partition("Known, ")[2].split(", ")) == 10


TINY = ["steps=4", "lag=0", "prompts=2", "group=2", "log_every=2"]


def install(monkeypatch, *added: Extension):
    for module in ("testbed.cli", "testbed.cli.extensions", "testbed.cli.listing"):
        monkeypatch.setattr(f"{module}.installed", lambda: added)


def test_the_core_alone_lists_shows_runs_and_counts(capsys, monkeypatch, tmp_path):
    install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text('[run]\ntask = "bandit"\nrecipe = "reinforce"\n')
    out = told(capsys, "--help")
    assert "exact" in out
    assert " evidence   " not in out
    assert call(capsys, "show", "reinforce", "--json")[0] == 0
    code, out, err = call(capsys, "run", "mine.toml", *TINY, "--workers", "0", "--quiet", "--json")
    assert (code, json.loads(out)["done"]) == (0, 1), err
    assert call(capsys, "status", "results/mine")[:2] == (0, "1 of 1 cell done, 0 failed, 0 pending.\n")


@pytest.mark.parametrize("words", [["run", "staleness"], ["exact", "ppo_clip", "--figure", "x.png"]])
def test_what_only_another_package_adds_is_one_message_without_it(capsys, monkeypatch, tmp_path, words):
    install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    assert "No installed package adds" in refused(capsys, *words)
    assert list(tmp_path.iterdir()) == []


def hello(name: str) -> None:
    """Greet."""
    print(f"hello {name}")


def test_a_package_adds_a_command_by_an_extension(capsys, monkeypatch):
    install(monkeypatch, Extension((Command("Read", "hello", "Greet.", f"{__name__}:hello"),)))
    assert call(capsys, "hello", "you") == (0, "hello you\n", "")
    assert "hello      Greet." in call(capsys, "--help")[1]


def test_the_extensions_of_this_project_are_its_entry_points():
    import tomllib

    from support.import_graph import ROOT

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][GROUP]
    assert {name.partition(".")[0] for name in declared.values()} == {"analysis", "paper_figs"}
    assert len(installed()) == len(declared), "install the package again: make setup"
    assert {"evidence run", "compare", "plot"} <= {command.name for command in commands()}
