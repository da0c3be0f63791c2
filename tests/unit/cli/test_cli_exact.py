"""`testbed exact` and its figure."""

import json

import pytest
from support.command_line import refused, told
from support.refusals import as_written

from paper_figs import save_figures
from paper_figs.bias_split import draw_reports
from testbed.exact.gradient_report import Bench, gradient_report
from testbed.exact.response_tree import random_policies, random_tree


def test_it_prints_a_row_per_objective_and_what_the_tree_is(capsys):
    out = told(capsys, "exact", "ppo_clip,ratio:sequence", "vocabulary=3", "length=2", "drift=0.5")
    assert "9 responses, 4 prefixes" in out
    assert "ppo_clip" in out
    assert "ratio:sequence" in out


def test_its_json_is_the_report(capsys):
    words = ("cispo", "vocabulary=3", "length=2", "drift=0.8", "signal=R-b", "baseline=0.25", "seed=2")
    found = json.loads(told(capsys, "exact", *words, "--json"))
    (row,) = found["reports"]
    from testbed.exact.response_tree import random_policies, random_tree

    tree = random_tree(3, 2, 2)
    expected = gradient_report("cispo", tree, *random_policies(tree, 0.8, 2), signal="R-b", baseline=0.25)
    assert row == pytest.approx(expected.row())
    assert row["bias_state"] + row["bias_suffix"] + row["bias_clipping"] == pytest.approx(
        row["relative_bias"]
    )
    assert found["settings"]["drift"] == 0.8
    assert found["tree"]["leaves"] == 9


def test_groups_and_end_tokens_can_be_asked_for(capsys):
    words = (
        "ratio:sequence", "vocabulary=3", "length=2", "end_token=2", "group=3", "advantage=leave_one_out",
    )  # fmt: skip
    found = json.loads(told(capsys, "exact", *words, "--json"))
    assert found["tree"]["leaves"] == 7
    assert found["reports"][0]["size"] == 3
    assert found["reports"][0]["relative_bias"] < 1e-9


def test_hyperparameters_go_to_the_objectives_that_have_them(capsys):
    words = (
        "ppo_clip,ratio:token,cispo",
        "vocabulary=3",
        "length=2",
        "drift=1",
        "eps_high=0.7",
        "eps_low=0.1",
    )
    found = json.loads(told(capsys, "exact", *words, "--json"))
    tree = random_tree(3, 2)
    policies = random_policies(tree, 1.0)
    own = ({"eps_low": 0.1, "eps_high": 0.7}, {}, {"eps_high": 0.7, "eps_low": 0.1})
    for name, row, hyper in zip(words[0].split(","), found["reports"], own, strict=True):
        assert row == pytest.approx(gradient_report(name, tree, *policies, **hyper).row())
    grouped = json.loads(told(capsys, "exact", *words[:1], *words[1:], "group=2", "--json"))
    assert grouped["reports"][0]["relative_bias"] == pytest.approx(found["reports"][0]["relative_bias"])


def test_it_draws_a_figure(capsys, tmp_path):
    path = tmp_path / "new" / "split.png"
    assert str(path) in told(capsys, "exact", "ppo_clip,gspo", "vocabulary=2", "length=2", "--figure", path)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "words",
    ["ppo_clip length=40", "ppo_clip vocabulary=1", "ppo_clp", "ppo_clip drft=1", "ppo_clip drift",
     "ppo_clip drift=far", "ppo_clip drift=-1", "ppo_clip length=2.5", "ppo_clip seed=-1",
     "ppo_clip signal=Q", "ppo_clip aggregation=sum", "ppo_clip end_token=9", "ppo_clip signal=R-b drift=1",
     "ppo_clip group=0", "ppo_clip --figure x.gif", ",", "ppo_clip,cispo eps=0.3", "reinforce eps_low=0.3",
     "ppo_clip eps_high=wide", "ppo_clip eps_high=-1", "ratio:token eps_high=1", "ppo_clip baseline=0.5",
     "ppo_clip signal=A advantage=group_std group=2", "ppo_clip advantage=group_std"],
)  # fmt: skip
def test_a_mistake_is_answered_with_one_line(capsys, words):
    as_written(refused(capsys, "exact", *words.split()))


def test_bars_end_at_the_bias():
    bench = Bench(tree := random_tree(3, 3), *random_policies(tree, 0.5))
    rows = [gradient_report(name, bench).row() for name in ("ppo_clip", "minpro", "topr")]
    with save_figures.style():
        left = draw_reports(rows).axes[0]
    ends = {}
    for bar in left.patches:
        y = round(bar.get_y() + bar.get_height() / 2)
        ends[y] = ends.get(y, 0.0) + bar.get_width()
    assert [ends[2 - i] for i in range(3)] == pytest.approx([row["relative_bias"] for row in rows])
