"""Experiments: every file declares one that its committed table, figure, page and commands agree with."""

import dataclasses
import fnmatch
import json
import re
import sys
from pathlib import Path

import pandas as pd
import pytest
from support.command_line import call, refused, told
from support.refusals import refuses

from analysis.declared_plot import Plot
from analysis.experiment import EXPERIMENTS, Experiment, Experiments, Stop, sweep, sweeps
from analysis.judging import digests, preregistration
from analysis.judging.claims import CLAIMS, Claims, look
from analysis.judging.e_values import MEAN, exceeds
from analysis.judging.replication import columns, of_seeds
from analysis.judging.verdicts import by_claim
from analysis.pages import experiment_page
from analysis.tables.committed import Table, load_committed
from analysis.tables.making import add_tables, make
from paper_figs import save_figures, shared_plots
from paper_figs.figure_registry import FIGURES
from testbed.config.run import Run, grid
from testbed.errors import UserError

DOCS = Path(__file__).parents[2] / "docs"
COMMITTED = set(load_committed())
WITH_TABLE = [name for name, each in EXPERIMENTS.items() if each.keys and (each.claims or name in COMMITTED)]
AWAITED = [name for name, each in EXPERIMENTS.items() if each.keys and name not in COMMITTED]
OF_CELLS = [name for name in WITH_TABLE if EXPERIMENTS[name].cells is not None]
EXAMPLE = Experiments("support.example_experiments")


# What is declared is what is committed


def test_every_experiment_has_the_name_of_its_file_and_its_claims_stand_there_by_name():
    assert set(WITH_TABLE) == COMMITTED
    for name, experiment in EXPERIMENTS.items():
        assert experiment.name == name
        file = Path(sys.modules[EXPERIMENTS.module(name)].__file__ or "").read_text()
        assert not [claim for claim in experiment.claims if claim not in file], name


def test_a_name_belongs_to_one_area(tmp_path, monkeypatch):
    for area in ("one", "other"):
        (tmp_path / "twice" / area).mkdir(parents=True)
        for file in ("__init__.py", "lag.py"):
            (tmp_path / "twice" / area / file).touch()
    monkeypatch.syspath_prepend(tmp_path)
    refuses("Two files have an experiment 'lag'", Experiments("twice").areas)


def test_only_what_claims_nothing_may_still_wait_for_its_table():
    for name in AWAITED:
        assert not EXPERIMENTS[name].claims, f"{name} claims something of a table that is not committed"


@pytest.mark.parametrize("name", WITH_TABLE)
def test_the_committed_table_has_the_declared_columns_and_a_row_per_key(name):
    experiment, frame = EXPERIMENTS[name], load_committed([name])[name].frame
    of_cells = experiment.cells is not None and experiment.from_rows is None
    assert set(frame.columns) == {*experiment.keys, *experiment.metrics, *(["diverged"] if of_cells else [])}
    assert not frame.duplicated(list(experiment.keys)).any()


@pytest.mark.slow
@pytest.mark.parametrize("name", OF_CELLS)
def test_the_committed_table_is_of_the_cells_declared_today(name):
    experiment, table = EXPERIMENTS[name], load_committed([name])[name]
    cells = experiment.table_cells()
    if experiment.stop is not None:  # as many seeds as were needed, the same ones for every arm
        cells = experiment.cells_at(sorted(set(table.frame["seed"])))
    elif experiment.fresh is not None and table.frame["seed"].max() < experiment.fresh.start:
        cells = experiment.first_cells()  # the fresh ones are still awaited
    fields = {each.name for each in dataclasses.fields(Run)}
    plain = [k for k in experiment.keys if k in fields and not k.endswith("_args")]
    wanted = pd.DataFrame([[getattr(cell, key) for key in plain] for cell in cells], columns=plain)
    found = table.frame[plain]
    if experiment.from_rows is not None:
        found, wanted = found.drop_duplicates(), wanted.drop_duplicates()
    pd.testing.assert_frame_equal(
        found.sort_values(plain, ignore_index=True), wanted.sort_values(plain, ignore_index=True), rtol=1e-4,
        check_dtype=False,
    )  # fmt: skip
    assert table.about["cells"] == len(cells)


def test_a_figure_is_drawn_from_the_table_of_the_experiment_that_names_it():
    named = {}
    for name, experiment in EXPERIMENTS.items():
        pattern = name if isinstance(experiment.figure, Plot) else experiment.figure
        found = fnmatch.filter(FIGURES, pattern) if pattern else []
        assert bool(found) == bool(experiment.figure), f"{name} names a figure that there is not"
        named |= dict.fromkeys(found, name)
    assert named == {name: entry.promises["data"] for name, entry in FIGURES.items()}


def test_claims_that_an_experiment_refers_to_are_made_by_another():
    for name, experiment in EXPERIMENTS.items():
        assert set(experiment.see) <= set(CLAIMS) - set(experiment.claims), name


@pytest.mark.slow
def test_what_testbed_run_knows_are_the_experiments_with_cells():
    assert sweep("rapid-updates") == sweeps()["rapid-updates"] == EXPERIMENTS["rapid-updates"].cells()
    assert set(sweeps()) == {name for name in EXPERIMENTS if EXPERIMENTS[name].cells is not None}
    refuses("Unknown sweep 'stalenes'. Did you mean 'staleness'", sweep, "stalenes")
    refuses("has no cells. Instead: testbed run staleness", sweep, "ratio-tails")


def test_a_first_look_is_part_of_the_table_that_has_more_seeds():
    staleness = EXPERIMENTS["staleness"]
    first, whole = set(staleness.cells()), staleness.table_cells()
    assert first < set(whole)
    assert (len(first), len(whole)) == (40, 160)


@pytest.mark.parametrize(
    "given",
    [{"name": "My_one"}, {"question": "It is so."}, {"compute": lambda: None},
     {"cells": None, "compute": lambda: None, "keys": ()}, {"cells": None},
     {"figure": Plot("final by setting", x="lag", y="value")}],
)  # fmt: skip
def test_a_contradiction_is_refused_in_one_sentence(given):
    whole = {"name": "x", "question": "Is it?", "source": "y", "cells": tuple, "keys": ("lag",)}
    refuses(".", Experiment, **{**whole, **given})


def test_a_claim_on_a_table_needs_one_and_a_name_of_its_own():
    bare = Experiment("x", question="Is it?", source="y")
    with pytest.raises(UserError, match="takes a table, but experiment 'x' makes none"):
        bare.claim("z", statement="z.")(lambda table: None)
    bare.claim("z", statement="z.")(lambda: None)
    refuses("'z' is already made by x", bare.claim("z", statement="z."), lambda: None)
    refuses("claim 'z' is already registered", len, Claims({"a": bare, "b": bare}))


def test_a_claim_has_the_name_of_its_check_and_says_its_first_paragraph():
    bare = Experiment("x", question="Is it?", source="y")

    @bare.claim()
    def it_is_so():
        """It is so,
        on both lines.

        Return nothing.
        """

    (claim,) = bare.claims.values()
    assert (claim.name, claim.promises["statement"]) == ("it-is-so", "It is so, on both lines.")
    refuses("Claim 'z' says nothing", bare.claim("z"), lambda: None)


def test_a_file_must_declare_the_experiment_of_its_name(tmp_path, monkeypatch):
    (tmp_path / "others").mkdir()
    (tmp_path / "others" / "__init__.py").write_text("")
    (tmp_path / "others" / "a_b.py").write_text("EXPERIMENT = 3\n")
    monkeypatch.syspath_prepend(tmp_path)
    other = "EXPERIMENT = Experiment('x', question='Is it?', source='y')\n"
    other = f"from analysis.experiment import Experiment\n{other}"
    (tmp_path / "others" / "c.py").write_text(other)
    (tmp_path / "others" / "d_e.py").write_text(other.replace("'x', ", ""))
    found = Experiments("others")
    assert list(found) == ["a-b", "c", "d-e"]
    assert found["d-e"].name == "d-e"
    with pytest.raises(UserError, match="declares none, expected EXPERIMENT named 'a-b'"):
        found["a-b"]
    with pytest.raises(UserError, match="declares 'x', expected EXPERIMENT named 'c'"):
        found["c"]


# A complete small one


@pytest.fixture(scope="module")
def example(tmp_path_factory):
    """The example, its table from runs made here, and where they are kept."""
    root = tmp_path_factory.mktemp("runs")
    experiment = EXAMPLE["lag-on-a-bandit"]
    return experiment, make(experiment, root=root, workers=0), root


def test_an_experiment_runs_into_its_table_and_what_is_done_is_not_run_again(example):
    experiment, table, root = example
    packs = sorted((root / experiment.name / "packs").iterdir())
    times = [path.stat().st_mtime_ns for path in packs]
    assert table.frame[["lag", "seed"]].to_numpy().tolist() == [[lag, s] for lag in (0, 8) for s in range(6)]
    assert make(experiment, root=root, workers=0).csv == table.csv
    assert [path.stat().st_mtime_ns for path in packs] == times
    assert make(experiment, [root]).csv == table.csv


def test_kinds_of_claims_follow_from_what_they_take():
    claims = Claims(EXAMPLE)
    assert {n: e.promises["kind"] for n, e in claims.items()} == {
        "every-sample-is-as-old-as-the-lag": "identity",
        "lag-slows-a-bandit": "statistical",
        "lag-starts-alike": "statistical",
    }
    assert claims["every-sample-is-as-old-as-the-lag"].function().holds


def test_its_claims_are_judged_on_its_table(example):
    experiment, table, _ = example
    same = experiment.claims["lag-starts-alike"].function(table.frame)
    assert (same.n, same.effect, same.asks) == (6, 0.0, "within 0.02")
    slower = experiment.claims["lag-slows-a-bandit"].function(table.frame)
    value = table.frame.pivot(index="seed", columns="lag", values="mean exact/value")
    assert slower.effect == pytest.approx((value[0] - value[8]).median())


def test_its_shared_plot_is_a_figure(example, tmp_path, monkeypatch):
    experiment, table, _ = example
    monkeypatch.setattr(FIGURES, "_entries", dict(FIGURES._load()))
    shared_plots.register(experiment)
    add_tables({experiment.name: table}, tmp_path)
    (saved,) = save_figures.figures([experiment.name], tmp_path, tmp_path / "out")
    assert saved.caption.startswith(f"{experiment.question} Drawn: mean exact/value against lag")


def test_survivors_alone_make_no_table(tmp_path, monkeypatch):
    def fails(runs, report=None):
        raise UserError("no such luck")

    monkeypatch.setattr("testbed.training.loop.train_pack", fails)
    with pytest.raises(UserError, match="12 of 12 cells have no result, so there is no table"):
        make(EXAMPLE["lag-on-a-bandit"], root=tmp_path, workers=0)


def test_the_contributors_page_shows_the_example_as_it_is():
    page = (DOCS.parent / "CONTRIBUTING.md").read_text()
    (shown,) = re.findall(
        r"`analysis/experiments/lag/lag_on_a_bandit.py`:\n\n```python\n(.*?)```", page, re.S
    )
    assert shown == (DOCS.parent / "tests/support/example_experiments/lag_on_a_bandit.py").read_text()


# The page and the commands


@pytest.mark.slow
def test_list_and_show_say_what_is_declared_to_people_and_machines(capsys):
    listed = json.loads(told(capsys, "list", "experiments", "--json"))
    assert sorted(row["name"] for row in listed) == list(EXPERIMENTS)
    assert {row["name"]: row["area"] for row in listed}["batch-invariance"] == "lag"
    out = told(capsys, "show", "batch-invariance", "--kind", "experiment")
    assert "margins      change of the mean value over training that counts as invariant=0.01" in out
    _, out, _ = call(capsys, "show", "batch-invariance", "--kind", "experiment", "--json")
    assert list(json.loads(out)["experiment"]["margins"].values()) == [0.01]


@pytest.fixture
def only_example(monkeypatch):
    for module in ("claims", "verdicts", "digests"):
        monkeypatch.setattr(f"analysis.judging.{module}.EXPERIMENTS", EXAMPLE)
    for module in ("claims", "verdicts"):
        monkeypatch.setattr(f"analysis.judging.{module}.CLAIMS", Claims(EXAMPLE))
    for module in ("commands.evidence_commands", "commands.judge", "commands.kinds", "experiment"):
        monkeypatch.setattr(f"analysis.{module}.EXPERIMENTS", EXAMPLE)  # last what the others import it from


def test_run_judges_the_claims_on_the_table_that_it_makes(capsys, only_example, example):
    _, _, root = example
    words = ["lag-on-a-bandit", "--results", str(root), "--workers", "0", "--json"]
    found = json.loads(told(capsys, "evidence", "run", *words))
    assert found["rows"] == {"lag-on-a-bandit": 12}
    assert [row["claim"] for row in found["claims"]] == list(EXAMPLE["lag-on-a-bandit"].claims)
    slows = found["claims"][0]
    assert (slows["asks"], slows["kind"]) == ("> 0.02", "small world")
    assert slows["verdict"] == "invalid: tuned", "nobody says how its arms are set"


def test_an_area_has_a_page_with_every_claim_effect_first():
    area = next(iter(EXPERIMENTS.areas()))
    pages = experiment_page.pages(by_claim())
    text, whole = pages[f"experiments/{area}.md"], pages["experiments/index.md"]
    rows = [line.count("|") for line in whole.partition("| claim | verdict |")[2].split("\n") if "|" in line]
    assert set(rows[1:]) == {rows[0] + 3}
    for name in EXPERIMENTS.areas()[area]:
        for claim in EXPERIMENTS[name].claims:
            assert f"`{claim}` | " in text


def test_table_writes_beside_the_others(capsys, only_example, example, tmp_path):
    _, table, root = example
    add_tables({"other": Table.of("other", table.frame)}, tmp_path)
    words = ["lag-on-a-bandit", "--from", str(root), "--data", str(tmp_path)]
    code, out, _ = call(capsys, "evidence", "run", "--write", *words)
    assert (code, out.strip()) == (0, str(tmp_path / "lag-on-a-bandit.csv"))
    assert sorted(load_committed(folder=tmp_path)) == ["lag-on-a-bandit", "other"]


def test_a_computed_table_that_was_judged_is_kept_without_computing_it_again(capsys, monkeypatch, tmp_path):
    made = []

    def once():
        made.append(1)
        return of_seeds("regimes", lambda seeds: [columns(seeds, score=0.5)], 2)()

    regimes = dataclasses.replace(EXPERIMENTS["regimes"], compute=once)
    monkeypatch.setattr("analysis.commands.evidence_commands.EXPERIMENTS", {"regimes": regimes})
    words = ["evidence", "run", "regimes", "--results", str(tmp_path / "runs")]
    _, out, _ = call(capsys, *words)
    assert "Keep it: testbed evidence run regimes --write" in out
    data = tmp_path / "data"
    add_tables({"other": Table("other", b"x\n1\n")}, data)
    assert call(capsys, *words, "--write", "--data", str(data))[0] == 0
    assert (len(made), load_committed(["regimes"], data)["regimes"].frame["score"].tolist()) == (1, [0.5] * 4)
    monkeypatch.setattr(digests, "of_code", lambda *_, **__: "other code")
    call(capsys, *words, "--write", "--data", str(data))
    assert len(made) == 2


@pytest.mark.parametrize(
    ("words", "answer"),
    [(["show", "batch-invarance", "--kind", "experiment"], "Did you mean 'batch-invariance'"),
     (["evidence", "run", "batch-invarance"], "Did you mean 'batch-invariance'"),
     (["evidence", "run", "--write", "regimes", "batch-invarance"], "Did you mean 'batch-invariance'"),
     (["evidence", "run"], "No experiment was given"),
     (["evidence", "run", "--write", "regimes", "--from", "."], "is computed"),
     (["evidence", "run", "real-model"], "Run instead: testbed demo")],
)  # fmt: skip
def test_a_mistake_is_answered_with_one_line_and_code_two(capsys, words, answer):
    assert answer in refused(capsys, *words)


# Fresh seeds of an experiment that had one run


def test_fresh_seeds_split_a_table_and_leave_the_design_that_was_written():
    def cells():
        return grid(Run(task="bandit", steps=1), lag=[0, 1], seed=range(4))

    def made(**more):
        found = Experiment("e", question="Is it?", source="s", cells=cells, keys=("lag", "seed"), **more)

        @found.claim()
        def gains(table):
            """It gains."""
            return exceeds(table["gain"], 0.0, "gain", MEAN)

        return found

    once, twice = made(), made(fresh=range(1000, 1008))
    assert [len(each.table_cells()) for each in (once, twice)] == [8, 8 + 16]
    assert preregistration.design(once) == preregistration.design(twice)
    seeds = [*range(4), *range(1000, 1008)]
    table = pd.DataFrame({"seed": seeds, "gain": [1.0 + seed % 4 / 10 for seed in seeds]})
    one, two = (look(each.claims["gains"], table) for each in (once, twice))
    assert not one.runs
    assert [each.n for each in two.runs] == [4, 8]
    replicas = table.rename(columns={"seed": "replica"})
    assert [each.n for each in look(twice.claims["gains"], replicas).runs] == [4, 8]
    refuses("fresh seeds from 3 on, but the first goes to seed 3", made(fresh=range(3, 9)).table_cells)
    refuses("it has fresh seeds, but a stopping rule", made, fresh=range(1000, 1008), stop=Stop())
