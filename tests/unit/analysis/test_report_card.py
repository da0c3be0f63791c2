"""A report card says what its tables say, in whatever the reader opens; the leaderboard is up to date."""

import json
import re

import numpy as np
import pytest
from support.command_line import call, refused, told
from support.import_graph import ROOT

from analysis.arena import table
from analysis.cards import report_card
from analysis.cards.report_card import EXACT, committed, make_card, percentile
from analysis.experiments.cards import card_cost, card_exact
from analysis.pages import leaderboard_page
from analysis.tables.committed import load_committed
from paper_figs.report_card_page import page, radar
from testbed.objectives import objective

OWN = '''
import torch
from testbed.losses.ratios import log_token


def mine(logp_BT, batch, *, eps=0.2):
    """L = <b>-min</b>(rho A, clip(rho) A)."""
    rho = log_token(logp_BT, batch).exp()
    return -torch.minimum(rho * batch.adv_BT, rho.clamp(1 - eps, 1 + eps) * batch.adv_BT)


def broken(logp_BT, batch):
    return batch.nothing


def averaged(logp_BT, batch):
    return -(logp_BT * batch.adv_BT).mean()


def detached(logp_BT, batch):
    return -logp_BT.detach() * batch.adv_BT


def flat(logp_BT, batch):
    B, T = logp_BT.shape
    return -logp_BT * batch.adv_BT
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text(OWN)
    return "own.py:mine"


def test_percentiles_count_ties_by_half_and_leave_out_what_is_not_known():
    assert percentile(2.0, [1.0, 2.0, 3.0, np.nan, 4.0], 1) == 37.5
    assert percentile(2.0, [1.0, 2.0, 3.0, np.nan, 4.0], -1) == 62.5
    assert percentile(2.0, [1.0], 0) is None
    assert percentile(np.nan, [1.0], 1) is None
    assert percentile(2.0, [], 1) is None


@pytest.mark.slow
def test_every_objective_has_its_committed_row_and_the_rows_are_of_todays_code():
    table = committed()[EXACT]
    assert set(table.index) == set(objective)
    for name in ("cispo", "dpo"):
        found = card_exact.exact_row(name)
        assert dict(table.loc[name][list(found)]) == pytest.approx(found, rel=1e-4, abs=1e-4), name
    assert set(committed()[report_card.COST].index) == set(objective)


def test_the_leaderboard_is_what_the_tables_say():
    again = "out of date: run `testbed evidence pages leaderboard` and commit it"
    text = (ROOT / "docs" / "leaderboard.md").read_text()
    assert text == leaderboard_page.page(), again
    row = next(line for line in text.splitlines() if line.startswith("| `dpo` |"))
    bias = load_committed([EXACT])[EXACT].frame.set_index("objective").loc["dpo", "bias 0.1"]
    assert f"| {bias:.3g} |" in row


def test_the_cost_of_an_objective_is_its_shortest_time_over_the_clips_without_the_first_round(monkeypatch):
    mine, clips = objective["cispo"].function, objective["ppo_clip"].function
    spent = {mine: [(0.1, 0.1), (2, 6), (3, 5)], clips: [(0.1, 0.1), (4, 2), (1, 4)]}
    monkeypatch.setattr(card_cost, "_timer", lambda function: iter(spent[function]).__next__)
    assert card_cost.cost_row("cispo", rounds=3) == {"forward": 2.0, "backward": 2.5, "both": 7 / 3}
    monkeypatch.undo()
    assert all(seconds > 0 for seconds in card_cost._timer(mine)())


@pytest.mark.slow
def test_a_card_has_every_part_and_a_registered_one_its_committed_numbers(own):
    ours = make_card(own, quick=True, said=lambda _: None)
    wrong = {check.what for check in ours.checks if check.kept is False}
    assert wrong == {"extreme ratios give no NaN"}
    assert {line.part for line in ours.lines} == {2, 4}
    assert all(line.low is None for line in ours.lines)
    theirs = make_card("ppo_clip", quick=True, said=lambda _: None)
    assert all(check.kept is not False for check in theirs.checks)
    values = {line.title: line for line in theirs.lines}
    bias = values["bias of the direction at drift 0.5"]
    assert bias.value == pytest.approx(committed()[EXACT].loc["ppo_clip", "bias 0.5"], rel=1e-4)
    # The same weights as ppo_clip's: the same numbers, and one more objective to be compared with.
    same = {line.title: line for line in ours.lines}["bias of the direction at drift 0.5"]
    assert same.value == pytest.approx(bias.value)
    assert same.among == bias.among + 1


@pytest.mark.slow
def test_a_card_has_relatives_and_says_how_to_train_what_the_arena_lacks(own):
    card = make_card(own, quick=False, said=lambda _: None)
    assert card.arena == ()
    assert any("testbed arena add own.py:mine --knob" in line for line in card.left_out)
    assert card.relatives[0].likeness > 0.99
    text = page(card)
    assert text.count("<svg") == 1
    assert "&lt;b&gt;-min" in text
    assert "<b>" not in text
    assert "<script" not in text
    assert not re.search(r'(src|href)="(?!#|data:)', text)
    assert "testbed card own.py:mine</pre>" in text


def test_the_arenas_part_is_its_recipes_with_the_objective():
    rows = report_card.arena_rows("cispo")
    assert {row["arm"] for row in rows} == {"cispo"}
    found = table.summary(table.load()).query("arm == 'cispo' and task == 'sorted' and lag == 64").iloc[0]
    (mine,) = (row for row in rows if (row["task"], row["lag"]) == ("sorted", 64))
    assert (mine["rate"], mine["final"]) == (found["rate"], round(found["final"], 3))
    grpo = {row["arm"] for row in report_card.arena_rows("ppo_clip")}
    assert "grpo" in grpo
    assert "placebo" not in grpo


@pytest.mark.parametrize(
    ("words", "said"),
    [([], "Missing argument"), (["own.py"], "It has: mine, broken, averaged, detached, flat"),
     (["own.py:min"], "Did you mean 'mine'"),
     (["own.py:broken"], r"fails on a batch of 8 answers: .*own\.py:13, in broken"),
     (["own.py:averaged"], r"returns shape \(\); expected a loss per token"),
     (["own.py:detached"], "does not depend on logp_BT"), (["vcpo"], "vcpo is a recipe; its objective is"),
     (["cisp"], "Did you mean 'cispo'")],
)  # fmt: skip
def test_what_has_no_card_ends_with_one_message(own, capsys, words, said):
    assert re.search(said, refused(capsys, "card", *words, "--quick"))


def test_an_objective_without_leading_axes_gets_part_one_with_the_line_that_fails(own, capsys):
    found = json.loads(told(capsys, "card", "own.py:flat", "--quick", "--quiet", "--json"))
    stacked = next(check for check in found["checks"] if check["what"].startswith("stacked"))
    assert "own.py:25, in flat" in stacked["found"]
    assert found["lines"] == []
    assert any("parts 2, 4 and 5" in line for line in found["left_out"])


def test_the_page_lies_where_it_was_asked_for(own, tmp_path, capsys):
    assert "Page: a/b.html" in call(capsys, "card", "own.py:flat", "--quick", "--html", "a/b.html")[1]
    assert (tmp_path / "a" / "b.html").read_text().startswith("<!doctype html>")
    call(capsys, "evidence", "pages", "leaderboard", "--docs", "x")
    assert (tmp_path / "x" / "leaderboard.md").read_text() == leaderboard_page.page()


def test_the_words_around_the_radar_are_whole():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    fig = radar({kind.axis: 50.0 for kind in report_card.kinds() if kind.axis})
    FigureCanvasAgg(fig).draw()
    for label in fig.axes[0].get_xticklabels():
        box = label.get_window_extent()
        assert fig.bbox.x0 <= box.x0 < box.x1 <= fig.bbox.x1, label.get_text()
        assert fig.bbox.y0 <= box.y0 < box.y1 <= fig.bbox.y1, label.get_text()
