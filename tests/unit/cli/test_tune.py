"""testbed tune: which cells it runs, what tells their arms apart, what it writes and prints."""

import json

import pandas as pd
import pytest
from support.command_line import call, refused

from analysis.commands.tune import brief, split, tuning_cells
from analysis.sweeps.tuning import best_rates
from analysis.sweeps.tuning_knobs import KNOBS
from testbed.config.run import Run, grid


def test_a_grid_of_rates_is_the_sweep_s_own_and_one_rate_becomes_five():
    cells = grid(Run(), recipe=["grpo", "rloo"], learning_rate=[0.3, 0.1], seed=[0, 1])
    arms, rates, own = split(cells)
    assert {arm.recipe for arm in arms} == {"grpo", "rloo"}
    assert len(arms) == 2
    assert (rates, own) == ((0.1, 0.3), None)
    _, rates, own = split([Run(learning_rate=0.01)])
    assert (len(rates), rates[3], own) == (5, 0.01, 0.01)


def test_knobs_are_tried_beside_the_default_unless_arms_bring_arguments():
    arms = (Run(recipe="cispo"), Run(recipe="grpo"))
    cells = tuning_cells(arms, (0.1, 0.3), range(2), knobs=True)
    tried = {(cell.recipe, cell.recipe_args) for cell in cells}
    assert tried == {("grpo", ()), *(("cispo", args) for args in ((), *KNOBS["cispo"].others))}
    assert len(cells) == len(tried) * 4
    given = (*arms, Run(recipe="cispo", recipe_args=(("eps_high", 2),)))
    assert len(tuning_cells(given, (0.1,), (0,), knobs=True)) == 3
    assert len(tuning_cells(arms, (0.1,), (0,), knobs=False)) == 2


def test_a_row_shows_own_and_common_side_by_side():
    row = {"recipe": "grpo", "learning_rate": 0.1, "score": 0.9, "common_rate": 0.3, "common_score": 0.5}
    shown = brief({**row, "width": 0.5, "at_edge": "low", "seeds": 3}, "last")
    assert shown == {
        "recipe": "grpo", "learning_rate": 0.1, "last, best": "0.900", "last, common": "0.500",
        "width": "0.50", "edge": "low",
    }  # fmt: skip


def test_seeds_are_the_tuning_s_own(capsys):
    assert "Tuning uses seeds from 10000 up" in refused(capsys, "tune", "bandit-grid", "seed=0,1")


@pytest.mark.parametrize(
    ("words", "why"),
    [(("--outcome", "finl"), "Unknown outcome 'finl'"), (("--outcome", "most accuracy"), "Unknown reduction"),
     (("--outcome", "steps_to 8"), "names no accuracy"), (("--common", "7"), "No run has the common rate 7"),
     (("--csv", "nowhere/x.csv"), "the folder nowhere does not exist")],
)  # fmt: skip
def test_what_could_not_be_reported_is_refused_before_anything_runs(
    capsys, tmp_path, monkeypatch, words, why
):
    monkeypatch.chdir(tmp_path)
    assert why in refused(capsys, "tune", "bandit-grid", "recipe=grpo", "lag=0", "--seeds", "1", *words)
    assert not list(tmp_path.iterdir())


def test_a_rate_at_which_runs_collapse_is_not_the_best():
    frame = pd.DataFrame({"recipe": "grpo", "lag": 0, "learning_rate": [0.1, 1.0], "seed": 0})
    for outcome in ("collapsed", "entropy_collapsed", "length_collapsed", "diverged"):
        (row,) = best_rates(frame.assign(**{outcome: [0.0, 1.0]}), outcome=outcome).to_dict("records")
        assert row["learning_rate"] == 0.1


@pytest.mark.slow
def test_a_small_sweep_is_tuned_from_the_command_line(tmp_path, capsys):
    words = ["recipe=cispo,reinforce", "lag=0", "steps=12", "prompts=4", "learning_rate=0.01,1.0", "--json"]
    options = ["--seeds", "3", "--workers", "0", "--quiet", "--out", str(tmp_path / "runs")]
    code, out, _ = call(capsys, "tune", "bandit-grid", *words, *options)
    told = json.loads(out)
    rates = [(row["recipe"], row["learning_rate"], row["at_edge"]) for row in told["rates"]]
    assert (code, rates) == (0, [("cispo", 1.0, "high"), ("reinforce", 1.0, "high")])
    written = pd.read_csv(told["csv"])
    assert len(written) == 2 * (3 + 1), "every rate of three settings of CISPO and of one of REINFORCE"
    assert written["seeds"].unique().tolist() == [3]
    assert written.groupby("recipe")["chosen"].sum().tolist() == [1, 1]
    assert set(written["recipe_args"]) == {"default", "eps_high=1", "eps_high=4"}
