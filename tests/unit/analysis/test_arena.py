"""The arena: equal budgets, a grid that grows to its optimum, effects by seed, and input that it refuses."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.command_line import call, refused, told
from support.refusals import refuses

from analysis.arena import arena_queue, curves, foretold_runs, halving, one_setting, own, page, table, tasks
from analysis.arena.arena_queue import cost, run_queue
from analysis.arena.arms import ARMS, Arm, known
from analysis.arena.chosen_settings import cells_of
from analysis.arena.halving import (
    QUICK,
    Effort,
    across,
    best_of,
    between,
    beyond,
    chosen,
    on_tuning_seeds,
    promising,
    unsettled,
)
from analysis.arena.tasks import LAGS, TASKS, refuse_without_headroom, task
from analysis.sweeps.tuning import FIRST_SEED
from analysis.tables.cell_table import words
from analysis.tables.committed import Table
from analysis.tables.making import add_tables
from testbed.config.run import cell_ids
from testbed.errors import UserError
from testbed.execution.runner import run_sweep
from testbed.objectives.clipped import bapo
from testbed.recipes import recipe
from testbed.staleness import plan_for

SMALL = replace(TASKS["sorted"], steps=4, log_every=2, warm_start_steps=2, prompts=2, group=2)


def row(arm: str, seed: int, final: float, lag: int = 64) -> dict[str, object]:
    values = dict.fromkeys(table.COLUMNS, 0.0) | {"final": final}
    keys = dict(zip(table.KEYS, ("sorted", lag, arm, seed), strict=True))
    setting = {"rate": 1e-3, "knob": "x=1", "at_edge": 0}
    return {**keys, **setting, **values, "off_rate": np.nan}


def test_every_arm_has_as_many_settings_and_arguments_that_its_recipe_takes():
    assert len({arm.name for arm in ARMS}) == len(ARMS)
    for arm in ARMS:
        assert len(set(arm.settings)) == 9, arm.name
        for args in arm.knob:
            recipe[arm.recipe].bind(**dict(args))
    cells = [run for arm in ARMS for run in on_tuning_seeds(TASKS["sorted"], arm, 64, arm.settings, (0, 1))]
    assert len(set(cell_ids(cells))) == len(ARMS) * 18
    assert min(run.seed for run in cells) == FIRST_SEED


@pytest.mark.parametrize("arm", ARMS, ids=lambda arm: arm.name)
def test_an_arm_is_marked_at_an_edge_only_where_a_neighbor_was_not_tried(arm):
    marked = table.load().query("arm == @arm.name and at_edge == 1")
    for task_name, lag in {
        (name, lag) for name, lag in zip(marked["task"], marked["lag"], strict=True) if lag >= 0
    }:
        assert beyond(table.tried(task_name, lag, arm), arm.knob), (task_name, lag)


def test_the_chosen_setting_is_the_best_of_those_with_most_seeds():
    lucky, steady, worse = (1e-3, ()), (3e-3, ()), (1e-2, ())
    scores = {lucky: [0.9], steady: [0.5, 0.6], worse: [0.4, 0.6]}
    assert best_of(scores, 2) == [lucky, steady]
    assert chosen(scores) == steady


LADDER = tuple((("cap", x),) for x in (1, 2, 4, 8))


@pytest.mark.parametrize(
    ("best", "expected"),
    [((3e-4, 4), [(9.5e-5, 4), (3e-4, 8)]), ((1e-3, 2), [(1e-3, 1)]), ((3e-3, 4), [(9.5e-3, 4), (3e-3, 8)])],
    ids=["low", "knob alone", "high"],
)
def test_the_grid_grows_beyond_an_optimum_at_its_edge_until_the_ladder_ends(best, expected):
    tried = [(rate, LADDER[place]) for rate in (3e-4, 1e-3, 3e-3) for place in (1, 2)]
    scores = {each: [float(each == (best[0], (("cap", best[1]),)))] for each in tried}
    assert beyond(scores, LADDER) == [(rate, (("cap", cap),)) for rate, cap in expected]
    ended = {each: [float(each == (1e-3, LADDER[0]))] for each in [*tried, (1e-3, LADDER[0])]}
    assert (1e-3, LADDER[1]) in ended
    assert all(args == LADDER[0] for _, args in beyond(ended, LADDER)), "behind the ladder there is nothing"


def test_gains_are_paired_by_seed():
    rows = [row("grpo", s, 0.1 * s) for s in range(4)]
    rows += [row("mine", s, 0.1 * s + gain) for s, gain in enumerate((0.1, 0.2, 0.1, 0.2))]
    found = table.summary(pd.DataFrame(rows)).set_index("arm")
    # mean .15, standard error .1 / sqrt(12), 3.182 the .975 quantile of Student's t with 3 degrees of freedom
    half = 3.18245 * 0.1 / 12**0.5
    assert found.loc["mine", ["gain", "gain_low", "gain_high"]].tolist() == pytest.approx(
        [0.15, 0.15 - half, 0.15 + half], abs=1e-4
    )
    assert np.isnan(found.loc["grpo", "gain"])


def test_steps_to_a_share_of_fresh_data_are_read_from_the_curves(monkeypatch):
    drawn = [("grpo", "own", "0 .3 .41"), ("topr", "own", "0 .4 .3"), ("mis", "own", "0 .1 .39")]
    kept = [("sorted", 64, *each) for each in (*drawn, ("cispo", "one", "1"))]
    monkeypatch.setattr(curves, "load", lambda: pd.DataFrame(kept, columns=[*curves.KEYS, "curve"]))
    found = pd.DataFrame({"task": "sorted", "lag": 64, "arm": ["grpo", "topr", "mis", "cispo"]})
    steps = TASKS["sorted"].steps
    timed = curves.timed(found, {"sorted": 0.5})["steps_to_fresh"].tolist()
    assert timed == pytest.approx([steps, steps / 2, np.inf, np.nan], nan_ok=True)
    assert curves.timed(found, {})["steps_to_fresh"].isna().all()


def test_finals_from_the_first_seed_of_the_replication_on_are_its_run(tmp_path):
    rows = [row("grpo", seed, 0.4) for seed in (0, 1, 1000)]
    pd.DataFrame(rows).to_csv(tmp_path / "sorted-64.csv", index=False)
    assert table.gathered(tmp_path)["run"].tolist() == ["first", "first", "replication"]
    refuses("testbed arena run", table.gathered, tmp_path / "none")


def test_a_rank_counts_better_arms_and_its_interval_holds_ties():
    finals = {"best": (0.9, 0.9), "equal": (0.4, 0.6), "worst": (0.1, 0.1)}
    committed = pd.DataFrame([row(arm, s, x) for arm, xs in finals.items() for s, x in enumerate(xs)])
    committed = pd.concat([committed, pd.DataFrame([row("best", 2, 0.0)])])  # a seed that others lack
    mine = pd.DataFrame([row("mine", s, x) for s, x in enumerate((0.6, 0.41))])
    found = own.ranked(committed, mine).iloc[0]
    assert (found["rank"], found["rank_low"], found["rank_high"], found["of"]) == (2, 2, 3, 4)


@pytest.mark.parametrize(
    "knob",
    ["", "cap", "cap=1", "cap=a,b", "cap=1,nan", "eps_high=1", "eps_high=1,1", "eps_high=1,inf",
     "no_such=1,2"],
)  # fmt: skip
def test_a_recipe_without_a_knob_grid_is_refused(knob):
    with pytest.raises(UserError):
        own.arm_of("cispo", knob)


@pytest.mark.parametrize(
    ("words", "said"),
    [(("add", "cispo", "--knob", "eps_high=1,4", "--lag", "pipeline"), "--lag 16"),
     (("add", "cispo", "--knob", "eps_high=1,4", "--html", "."), "expected a file"),
     (("run", "--lag", "pipeline"), "need --arm"), (("show", "--lag", "soon"), "expected optimizer steps")],
)  # fmt: skip
def test_lags_and_pages_that_cannot_be_are_refused_before_anything_runs(words, said, capsys):
    assert said in refused(capsys, "arena", *words)


def test_rows_on_a_pipelines_ages_run_at_the_settings_of_the_nearest_lag():
    frame = table.load()
    made = cells_of(frame, "sorted", {"topr": (tasks.PIPELINE, tasks.NEAR)}, (3,))
    assert [tasks.lag_of(run) for run in made] == [tasks.PIPELINE, tasks.NEAR]
    assert [dict(run.staleness_args).get("seed") for run in made] == [3, None]
    assert len({(run.learning_rate, run.recipe_args) for run in made}) == 1
    plan = plan_for(made[0])
    plan.check(made[0])
    assert plan.versions(made[0], 10) == 41, "groups older than 40 updates are dropped"
    shown = table.records(table.summary(frame[frame["lag"] == tasks.PIPELINE]))
    assert {row["lag"] for row in shown} == {"pipeline"}


def test_one_setting_is_the_same_at_every_place_and_its_loss_is_to_the_own_final_of_the_seed():
    frame, fixed, lines = table.load(), one_setting.finals(), curves.load()
    chosen = one_setting.settings()
    for arm, rows in fixed.groupby("arm"):
        assert {*zip(rows["rate"], rows["knob"], strict=True)} == {tuple(chosen.loc[arm])}
    keys = ["task", "lag", "arm", "seed"]
    both = fixed.merge(frame, on=keys, suffixes=("", "_own"))
    assert len(both) == len(fixed), "a seed without a final at its own setting"
    assert not fixed.duplicated(keys).any()
    assert ((both["rate"] != both["rate_own"]) | (both["knob"] != both["knob_own"])).all()
    by_cell = both.assign(loss=both["final_own"] - both["final"]).groupby(keys[:3])["loss"].mean()
    found = one_setting.losses(frame).set_index(keys[:3])["loss"]
    assert len(found) == len(one_setting.places()) * len(one_setting.ARMS)
    assert found.drop(by_cell.index).abs().max() == 0
    np.testing.assert_allclose(found[by_cell.index], by_cell)
    points = lines["curve"].str.split().map(len)
    assert set(points) == {10 * curves.FINER + 1}
    last = lines[lines["setting"] == "one"].set_index(keys[:3])["curve"]
    ends = last.map(lambda curve: np.mean([float(at) for at in curve.split()[-5::2]]))
    np.testing.assert_allclose(ends[by_cell.index], fixed.groupby(keys[:3])["final"].mean(), atol=1e-3)


def test_curves_and_finals_at_one_setting_are_shown(capsys):
    shown = ("arena", "show", "--task", "sorted", "--lag", "64")
    out = told(capsys, *shown, "--curve")
    (grpo,) = [line for line in out.splitlines() if " grpo " in line]
    assert {"▁", "▆"} <= set(grpo)
    out = told(capsys, *shown, "--one-setting", "--json")
    assert {row["arm"] for row in json.loads(out)} == set(one_setting.ARMS)
    assert "Give one of" in refused(capsys, *shown, "--curve", "--outcomes")
    drawn = dict(part.split(":") for part in page.curves("sorted", 64).split(";"))
    assert {"grpo", "topr", "topr at one setting"} <= set(drawn)


def test_rates_are_kept_and_shown_as_they_are():
    (shown,) = table.records(pd.DataFrame([{"rate": 1.8e-4, "final": 0.12345}]))
    assert shown == {"rate": 1.8e-4, "final": 0.123}
    tried = table.tuning_of("sums", 64, {"topr": {(3e-5, ()): [0.12345]}})
    assert tried[["rate", "final"]].values.tolist() == [[3e-5, 0.1234]]
    assert (table.load()["rate"] > 0).all()
    assert (table.tuning()["rate"] > 0).all()


def test_settings_that_are_written_once_stand_in_every_row():
    settings = [("x=1", 64), ("x=1", 64), ("x=1", 16), (np.nan, 16), (np.nan, 16), ("x=1", 16)]
    seeds = (0, 1, 2, 1000, 1001, 0)
    drawn = [
        row("grpo", s, 0.5, lag) | {"knob": knob} for s, (knob, lag) in zip(seeds, settings, strict=True)
    ]
    rows = pd.DataFrame(drawn).assign(rate=1.8e-4, curve=0)
    made = Table.of(table.NAME, rows, {"once": ["lag", "rate", "knob", "at_edge"], "counts": "seed"})
    assert (made.csv.count(b"0.00018"), made.csv.count(b"1001")) == (4, 0)
    pd.testing.assert_frame_equal(made.frame, rows, check_dtype=False)


def test_unknown_tasks_and_those_without_headroom_are_refused():
    refuses("no-such", task, "no-such")
    for fresh in (0.49, 0.95):
        refuses("headroom", refuse_without_headroom, "sorted", fresh)
    for fresh in (0.5, 0.9):
        refuse_without_headroom("sorted", fresh)
    frame = pd.DataFrame([row("grpo", 0, 0.95, lag=0), row("grpo", 0, 0.6)])
    refuses("headroom", own.rivals, frame, "sorted", 64, "mine")
    refuses("no runs", own.rivals, frame, "sorted", 7, "mine")


def test_a_table_of_another_version_is_refused(tmp_path):
    add_tables(
        {table.NAME: Table.of(table.NAME, pd.DataFrame([row("grpo", 0, 0.5)]), {"version": 1})}, tmp_path
    )
    refuses("version 1", table.load, tmp_path)


@pytest.mark.slow
def test_the_committed_table_has_grpo_at_every_lag_and_headroom_on_every_task():
    frame = table.load()
    assert not frame.duplicated(list(table.KEYS)).any()
    assert set(frame["arm"]) <= set(known())
    for (name, lag), cells in frame.groupby(["task", "lag"]):
        assert tasks.tuned_at(lag) in LAGS[name]
        assert "grpo" in set(cells["arm"])
        if lag == 0:
            refuse_without_headroom(name, cells.loc[cells["arm"] == "grpo", "final"].mean())
    assert page.PAGE.read_text() == page.page(frame), "write it again: python -m analysis.arena.page"


CAPPED = """
from testbed.losses.ratios import log_token
from testbed.losses.score_loss import score_loss


def capped(logp_BT, batch, *, cap: float = 2.0):
    return score_loss(log_token(logp_BT, batch).exp().clamp(max=cap), logp_BT, batch)
"""


def test_a_recipe_in_a_file_is_called_by_its_file_and_pinned_to_its_text(tmp_path):
    (tmp_path / "mine.py").write_text(CAPPED)
    name = f"{tmp_path}/mine.py:capped"
    arm = own.arm_of(name, "cap=8,1,2.5")
    assert arm.name == "mine.py:capped", "a folder in the name would lead the queue out of its folder"
    assert [dict(args)["cap"] for args in arm.knob] == [1, 2.5, 8]
    (tmp_path / "mine.py").write_text(CAPPED + "# edited\n")
    assert own.arm_of(name, "cap=8,1,2.5").recipe != arm.recipe, "an edited file would keep its old runs"


def test_sweeps_of_another_grid_or_effort_are_kept_apart(tmp_path, monkeypatch):
    places = []
    monkeypatch.setattr(own, "run_queue", lambda *given, effort: places.append(given[4]))
    arm, other = (own.arm_of("cispo", f"eps_high=1,{high}") for high in (4, 2))
    for each, effort in ((arm, halving.FULL), (arm, QUICK), (other, QUICK), (arm, QUICK)):
        own.trained("sorted", SMALL, each, 64, tmp_path, print, effort)
    assert places[1] == places[3]
    assert len(set(places)) == 3


@pytest.fixture
def small(tmp_path, monkeypatch) -> Path:
    """A folder with a user's file, an arena of one small task, and a table of two recipes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(CAPPED)
    frame = pd.DataFrame(
        [row("grpo", s, 0.7, lag=0) for s in (0, 1)]
        + [row(arm, s, final + s / 100) for arm, final in (("grpo", -2.0), ("tis", -1.0)) for s in (0, 1)]
    )
    monkeypatch.setattr(tasks, "TASKS", {**TASKS, "sorted": SMALL})
    monkeypatch.setattr(table, "load", lambda: frame)
    monkeypatch.setattr(halving, "FULL", Effort(growths=0, finals=(0, 1)))
    monkeypatch.setattr(halving, "QUICK", Effort((0,), (1,), 0, (0, 1)))
    return tmp_path


def add(capsys, *words: str) -> tuple[object, str, str]:
    return call(capsys, "arena", "add", *words)


@pytest.mark.slow
def test_add_ranks_a_recipe_of_a_file_and_writes_its_page(small, capsys):
    code, out, err = add(capsys, "mine.py:capped", "--knob", "cap=1,2,8", "--html", "mine.html", "--json")
    assert code == 0, err
    (found,) = json.loads(out)
    assert (found["arm"], found["rank"], found["rank_low"], found["rank_high"], found["of"]) == (
        "mine.py:capped", 1, 1, 1, 3,
    )  # fmt: skip
    assert found["gain"] == pytest.approx(found["final"] + 1.995, abs=2e-3)
    text = (small / "mine.html").read_text()
    assert "rank 1 of 3" in text
    assert 'font-weight="bold">mine.py:capped<' in text
    (small / "mine.py").write_text(CAPPED.replace("float = 2.0", "float = 3.0"))
    code, out, err = add(
        capsys, "mine.py:capped", "--knob", "cap=1,2", "--quick", "--json", "--html", "mine.html"
    )
    assert code == 0, "an edited file and another grid join what is there"
    assert json.loads(out)[0]["rank"] == 1
    assert "tuned on fewer seeds" in err
    assert "rank 1 of 3" in (small / "mine.html").read_text()
    with pytest.raises(UserError, match="no finals"):
        table.gathered(Path("results/arena"))  # the arena's own rows are kept apart from a user's


@pytest.mark.slow
def test_a_run_that_fails_is_told_by_the_line_of_the_users_file(small, capsys):
    (small / "mine.py").write_text(
        "def late(logp_BT, batch, *, cap: float = 2.0):\n"
        "    if logp_BT.dim() > 2:\n"
        "        raise ValueError('too deep')\n"
        "    return -logp_BT\n"
    )
    err = refused(capsys, "arena", "add", "mine.py:late", "--knob", "cap=1,2", "--quick")
    assert "mine.py:3, in late: ValueError: too deep" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [(["mine.py:capped"], "--knob width="), (["mine.py:caped", "--knob", "cap=1,2"], "capped"),
     (["none.py:capped", "--knob", "cap=1,2"], "none.py"),
     (["mine.py:capped", "--knob", "width=1,2"], "width"), (["tis", "--knob", "cap=1,2"], "another name"),
     (["mine.py:capped", "--knob", "cap=1,2", "--lag", "7"], "at lag 7"),
     (["mine.py:capped", "--knob", "cap=1,2", "--task", "no-such"], "no-such")],
)  # fmt: skip
def test_what_cannot_be_added_is_refused_before_anything_runs(small, capsys, words, said):
    err = refused(capsys, "arena", "add", *words)
    assert said in err
    assert err.startswith("error: ")
    assert err.count("\n") <= 2
    assert not (small / "results").exists()


def test_a_queue_whose_runs_fail_says_which_and_why(tmp_path):
    arms = [Arm("spear", "spear", tuple((("share", x),) for x in (0.001, 0.002)))]
    said = r"small, screen: \d+ of \d+ runs failed, as \S+: .*raise `prompts` or the share\. Change what"
    with pytest.raises(UserError, match=said):
        run_queue("small", SMALL, arms, 0, tmp_path, print)


@pytest.mark.slow
def test_a_queue_keeps_its_budget_and_goes_on_from_what_is_done(tmp_path):
    arms = [Arm("cispo", "cispo", tuple((("eps_high", x),) for x in (1, 2, 4)))]
    said: list[str] = []
    first = run_queue("small", SMALL, arms, 0, tmp_path, said.append)
    ran = sum(int(line.split(": ")[1].split()[0]) for line in said[1:] if "cells" in line)
    assert 18 + 9 + 32 + 4 <= ran <= cost(1)[0]
    assert cost(1, QUICK)[0] / cost(1)[0] == pytest.approx(1 / 5, abs=0.02)
    assert sorted(first["seed"]) == [*range(16), *range(1000, 1016)]
    assert first["off_rate"].notna().sum() == 2
    tried = pd.read_csv(tmp_path / "small-0-tuning.csv")
    assert set(tried["seeds"]) == {2, 5}
    assert len(tried) >= 9
    again = run_queue("small", SMALL, arms, 0, tmp_path, said.append)
    pd.testing.assert_frame_equal(first, again)


def test_cells_at_the_chosen_settings_are_the_finals_of_the_table():
    frame = table.load()
    found = cells_of(frame, "sorted", {"grpo": (0, 64), "placebo": (64,)}, (0, 1))
    assert [each.lag for each in found] == [0, 0, 64, 64, 64, 64]
    assert [each.seed for each in found] == [0, 1, 0, 1, 500, 501]
    for each, arm in zip(found[::2], ("grpo", "grpo", "placebo"), strict=True):
        row = frame[(frame["task"] == "sorted") & (frame["lag"] == each.lag) & (frame["arm"] == arm)].iloc[0]
        assert (each.learning_rate, words(each.recipe_args)) == (row["rate"], row["knob"])


def test_more_seeds_run_at_the_settings_of_the_table_and_join_its_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("analysis.arena.chosen_settings.TASKS", {"sorted": SMALL})
    committed = table.load()
    had = committed.query("task == 'sorted' and lag == 64 and arm == 'grpo'")
    count = (had["run"] == "first").sum() + 1
    other = had.index[had["seed"] == 3]
    older = committed.assign(rate=committed["rate"].mask(committed.index.isin(other), 0.0006))
    rows = arena_queue.run_more("sorted", [known()["grpo"]], 64, older, tmp_path, count)
    assert list(rows["seed"]) == [3, count - 1, 1000 + count - 1], "what ran at another rate runs again"
    assert set(rows["rate"]) == {had["rate"].iloc[0]}
    assert set(rows["knob"]) == {had["knob"].iloc[0]}
    joined = table.gathered(tmp_path, committed)
    assert len(joined) == len(committed) + 2
    kept = committed.drop(other)
    pd.testing.assert_frame_equal(
        joined.merge(kept[list(table.KEYS)]), kept.reset_index(drop=True), check_dtype=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(("target", "least", "most"), [(0.4, 0.0, 0.0), (0.6, 0.1, 0.9)])
def test_bapos_bounds_move_at_the_targets_of_the_arena_alone(target, least, most, tmp_path):
    """With the paper's target of .4 the start of the search suffices in every update."""
    solve, bounds = bapo.BOUNDS.solve, []

    def spy(pool, **hyper):
        found = solve(pool, **hyper)
        bounds.extend(found.reshape(-1, 2).tolist())
        return found

    object.__setattr__(bapo.BOUNDS, "solve", spy)
    args = (("share", "gradient"), ("target", target))
    made = replace(TASKS["sorted"], recipe="bapo", recipe_args=args, lag=16, steps=60, log_every=30)
    try:
        run_sweep([made], tmp_path, workers=0)
    finally:
        object.__setattr__(bapo.BOUNDS, "solve", solve)
    moved = np.mean([abs(low - 0.6) + abs(high - 1.2) > 1e-3 for low, high in bounds])
    assert least <= moved <= most


def test_foretold_runs_have_a_folder_for_every_seed_and_lag(monkeypatch):
    seen = []
    monkeypatch.setattr(foretold_runs, "make", lambda models: None)
    monkeypatch.setattr(foretold_runs, "runs", lambda task, seed, lag: (task, seed, lag))
    monkeypatch.setattr("testbed.execution.runner.run_sweep", lambda runs, f, workers: seen.append((runs, f)))
    foretold_runs.run_all(next(iter(foretold_runs.MODELS)))
    asked = [(lag, seed) for lag in foretold_runs.LAGS for seed in foretold_runs.SEEDS]
    assert [(lag, seed) for (_, seed, lag), _ in seen] == asked
    assert len({folder for _, folder in seen}) == len(asked)


def test_rates_halfway_to_far_neighbors_are_tried_and_near_ones_are_not():
    knob = ((("cap", 1),), (("cap", 2),))
    far = {(rate, args): [score] for rate, score in ((1e-3, 0.1), (3e-3, 0.9), (9e-3, 0.2)) for args in knob}
    assert between(far, knob) == [(0.0017, knob[0]), (0.0052, knob[0])]
    near = {(rate, knob[0]): [score] for rate, score in ((1e-3, 0.1), (2e-3, 0.9), (4e-3, 0.2))}
    assert between(near, knob) == [(2e-3, knob[1])]  # beyond: the knob's other value at this rate


def test_finer_tuning_goes_on_from_what_is_committed():
    grpo = known()["grpo"]
    settings = table.tried("long", 400, grpo)
    rows = table.tuning().query("task == 'long' and lag == 400 and arm == 'grpo'")
    assert len(settings) == len(rows)
    assert {len(each) for each in settings.values()} == {2, 5, 32}
    with pytest.raises(UserError, match="without --finer"):
        table.tried("long", 16, grpo)


def test_finer_tuning_without_a_better_rate_runs_no_finals_and_writes_no_table(tmp_path, monkeypatch, capsys):
    arm = Arm("grpo", "grpo", ((("eps_low", 0.2), ("eps_high", 0.2)),))
    args = halving.cell(SMALL, arm, 0, (1e-3, arm.knob[0]), 0).recipe_args
    scores = {(rate, args): [score] * 5 for rate, score in ((6e-4, 0.1), (1e-3, 0.9), (1.7e-3, 0.2))}
    monkeypatch.setattr(table, "tried", lambda *_: scores)
    said: list[str] = []
    assert run_queue("small", SMALL, [arm], 0, tmp_path, said.append, finer=True).empty
    assert said[1:] == ["small lag 0: grpo at rate 0.001, eps_high=0.2,eps_low=0.2, as before"]
    assert not (tmp_path / "small-0.csv").exists()
    assert len(pd.read_csv(tmp_path / "small-0-tuning.csv")) == 3
    assert "leave out --seeds" in refused(capsys, "arena", "run", "--finer", "--seeds", "64", "--arm", "grpo")
    lacks = ("--task", "sorted", "--lag", "256", "--arm", "rec", "--seeds", "64")
    assert "need --arm" in refused(capsys, "arena", "run", *lacks)
    both = ("--seeds", "64", "--arm", "grpo", "--shard", "1/2")
    assert "Leave --shard out" in refused(capsys, "arena", "run", *both)
    for given in (("--pilots", "32"), ("--finer", "--pilots", "5")):
        assert "as in --finer --pilots 32" in refused(capsys, "arena", "run", *given)


def test_new_finals_replace_those_of_another_setting(tmp_path):
    old = table.load().query("task == 'sorted' and lag == 64 and arm in ('grpo', 'topr')")
    fresh = old[(old["arm"] == "grpo") & (old["seed"] < 2)].drop(columns="run")
    for rate, kept in ((fresh["rate"].iloc[0], len(old)), (0.5, 2 + (old["arm"] == "topr").sum())):
        fresh.assign(rate=rate).to_csv(tmp_path / "sorted-64.csv", index=False)
        assert len(table.gathered(tmp_path, old)) == kept


def test_an_arm_that_has_not_learned_tries_its_whole_knob():
    knob = tuple((("cap", cap),) for cap in (1, 2, 8))
    tried = {(rate, knob[1]): [score] * 5 for rate, score in ((3e-4, 0.01), (1e-3, 0.0), (3e-3, 0.0))}
    new = [(rate, args) for args in (knob[0], knob[2]) for rate in (3e-4, 1e-3, 3e-3)]
    assert across(tried, knob) == new
    assert across(tried, (knob[1],)) == []
    assert across({**tried, (3e-4, knob[1]): [0.05] * 5}, knob) == [], "it has learned"
    seen = {**tried, new[0]: [0.3, 0.1], new[1]: [0.5, 0.3], new[2]: [0.01, 0.01]}
    assert promising(seen, 2) == [new[1], new[0]], "the last equals the chosen setting"
    assert promising(seen, 5) == []


def searched(scores, score_of, knob, start=0.0):
    """Return the chosen setting after a finer search with 32 pilots, and its number of seeds."""
    found = {at: [score] * 5 for at, score in scores.items()}

    def tune(_, settings, seeds):
        for at in settings["mine"]:
            found.setdefault(at, []).extend([score_of(at)] * len(seeds))

    effort = replace(halving.FULL, pilots=32)
    arena_queue._search(tune, [Arm("mine", "grpo", knob)], {"mine": found}, effort, start, new=False)
    return halving.chosen(found), len(found[halving.chosen(found)])


def test_what_a_finer_round_makes_promising_runs_on_all_pilots_too():
    narrow, wide = knob = ((("eps", 0.2),), (("eps", 1.0),))
    better = {(1.7e-3, narrow): 0.7, (1.7e-3, wide): 0.8}
    known = {(1e-3, narrow): 0.5, (3e-3, narrow): 0.6, (1e-2, narrow): 0.1, (3e-3, wide): 0.2}
    assert searched(known, lambda at: (known | better).get(at, 0.0), knob) == ((1.7e-3, wide), 32)


def test_an_arm_that_ends_below_the_base_model_tries_a_third_of_its_smallest_rate():
    (args,) = knob = ((("cap", 1.0),),)
    scores = {(rate, args): score for rate, score in ((1e-3, 0.1), (1.7e-3, 0.2), (3e-3, 0.1))}
    assert searched(scores, lambda at: 0.4 * (at[0] < 1e-3), knob, 0.37) == ((3.2e-4, args), 32)
    assert halving.lower({at: [score] for at, score in scores.items()}, 0.2) == [], "it does not end below"


def test_the_best_four_settings_with_most_seeds_get_further_pilots_once():
    tried = {(10.0**-k, ()): [0.1 * k] * 5 for k in range(1, 7)} | {(1.0, ()): [0.9] * 2}
    assert unsettled(tried, 32) == [(1e-6, ()), (1e-5, ()), (1e-4, ()), (1e-3, ())]
    like = {(1e-6, (("eps", 0.2),)): tried[1e-6, ()]}
    found = unsettled({**like, **tried}, 32)
    assert found[:2] == [(1e-6, (("eps", 0.2),)), (1e-5, ())], "a knob that does nothing"
    assert unsettled({**tried, (1e-2, ()): [0.2] * 32}, 32) == []
    assert unsettled(tried, 0) == []
    assert replace(halving.FULL, pilots=32).cells - halving.FULL.cells == (4 + 3 * 3) * 27 + 3 * 5 * 5
    assert replace(halving.FULL, pilots=2).cells == halving.FULL.cells


def test_a_row_of_finals_has_its_arms_own_seed_and_the_mean_of_both_wrong_rates():
    arms = known()["grpo"], known()["placebo"]
    settings = {arm: (rate, arm.knob[at]) for arm, rate, at in zip(arms, (1e-3, 2e-3), (3, 0), strict=True)}
    wanted, wrong = arena_queue._finals(SMALL, 2, settings, (1, 2))
    told = [(run.seed, run.learning_rate) for _, run in (*wanted, *wrong)]
    assert told[:4] == [(1, 1e-3), (2, 1e-3), (501, 2e-3), (502, 2e-3)]
    assert told[4:] == [(1, 3.2e-4), (1, 3.2e-3), (501, 6.3e-4), (501, 6.3e-3)]
    cells = [*cell_ids([run for _, run in (*wanted, *wrong)])]
    rows = pd.DataFrame([(cell, step) for cell in cells for step in (3, 0, 1, 2)], columns=["cell", "step"])
    k, step = rows["cell"].map(cells.index), rows["step"]
    logged = {"accuracy": 0.1 * k + 0.02 * step, "val/entropy": step.where(k != 1)}
    logged |= {"val/pass@8": (0.25 * k).where(step == 2), "actor/clip_share": 0.5}
    logged |= {table.COLUMNS["kl"].split()[1]: 0.00125 * step, table.COLUMNS["ess"].split()[1]: 0.12345}
    rows = rows.assign(**logged)
    found = table.rows_of("sorted", rows, wanted, wrong, {"grpo": True, "placebo": False})
    grpo, placebo = ("grpo", 1, "eps_high=3,eps_low=0.9"), ("placebo", 0, "eps_high=0.1,eps_low=0.1")
    assert found[["task", "lag", "seed", "arm", "at_edge", "knob"]].values.tolist() == [
        ["sorted", 2, seed, *arm] for arm in (grpo, placebo) for seed in (1, 2)
    ]
    columns = ["final", "pass@8", "area", "collapsed", "entropy", "length", "kl", "ess", "off_rate"]
    more = zip((2, np.nan, 2, 2), (0.49, np.nan, 0.69, np.nan), strict=True)
    expected = [
        (0.1 * k + 0.04, 0.25 * k, 0.1 * k + 0.03, 0, entropy, np.nan, 0.0019, 0.123, off)
        for k, (entropy, off) in enumerate(more)
    ]
    np.testing.assert_allclose(found[columns], expected, rtol=1e-12)
    assert table.scores(rows, "pass@8") == {cell: 0.25 * k for k, cell in enumerate(cells)}
