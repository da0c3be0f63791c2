"""What the arena's table says at the drift of a log, and how its page and pictures show it."""

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import t
from support import made_logs
from support.command_line import refused, told
from support.refusals import refuses
from support.sampled_logs import sampled

from analysis.arena import page, table
from analysis.arena.advice import Drift, advise, drift_of
from analysis.arena.picture import gains, losses
from testbed.logs.readers import read

FRESH, REPEAT = {"sorted": 0.8, "sums": 0.7, "easy": 0.95}, 1000
KL = {"sorted": 0.04, "sums": 0.1, "easy": 0.05}
LOSS = {"grpo": (0.3, 0.3), "lucky": (0.1, 0.35), "steady": (0.15, 0.15), "placebo": (0.0, 0.0)}
"""By arm: loss in the first run and in the replication."""


def frame() -> pd.DataFrame:
    """Two tasks with headroom, one without; "lucky" leads in the first run alone, "half" ran on one task."""
    rows = []
    for task, fresh in FRESH.items():
        cells = [("grpo", 0, (0.0, 0.0))] + [(arm, 64, loss) for arm, loss in LOSS.items()]
        cells += [("half", 64, (-0.1, -0.1))] if task == "sorted" else []
        for arm, lag, lost in cells:
            for seed in (0, 1, REPEAT, REPEAT + 1):
                again = seed >= REPEAT
                final = fresh - lost[again] + (0.02 * (seed % 2) if lag else 0)
                rows.append(
                    dict.fromkeys(table.COLUMNS, 0.0)
                    | {"task": task, "lag": lag, "arm": arm, "seed": seed, "rate": 1e-3, "knob": f"{arm}=1"}
                    | {"run": "replication" if again else "first", "final": final, "at_edge": 0}
                    | {"kl": KL[task] if lag else 0.0, "off_rate": final - 0.2}
                )
    return pd.DataFrame(rows)


def drift(kl: float) -> Drift:
    return Drift(kl=kl, ess=0.5, clip_share=0.1, age=4.0, steps=2, tokens=100)


def test_the_first_run_orders_and_the_replication_says_the_loss():
    found = advise(drift(0.06), frame())
    assert [row["arm"] for row in found.rows] == ["lucky", "steady", "grpo"], "no placebo, no half-run arm"
    # Means of two tasks, each of two seeds .02 apart: standard error .01 / sqrt(2) of the mean, 1 degree.
    half = t.ppf(0.975, 1) * 0.01 / 2**0.5
    for row, loss in zip(found.rows, (0.35, 0.15, 0.3), strict=True):
        assert row["loss"] == pytest.approx(loss - 0.01)
        assert (row["low"], row["high"]) == pytest.approx((loss - 0.01 - half, loss - 0.01 + half))
    assert found.rows[1]["wrong rate"] == pytest.approx(0.15 - 0.01 + 0.2)
    assert found.rows[0]["knob"] == "lucky=1 in 2"
    assert "Compared are recipes that ran in all 2 cells at this drift; 1 others ran" in " ".join(found.says)
    assert {(cell["task"], cell["kl"]) for cell in found.cells} == {("sorted", 0.04), ("sums", 0.1)}


def test_where_the_rate_is_a_guess_the_order_is_that_of_a_wrong_rate():
    every = frame()
    every.loc[every["arm"] == "grpo", "off_rate"] = every["final"] + 0.05
    every.loc[every["seed"] > 0, "off_rate"] = np.nan  # the finals have it on few seeds
    found = advise(drift(0.06), every, guessed=True)
    assert [row["arm"] for row in found.rows] == ["grpo", "lucky", "steady"]
    assert [row["wrong rate"] for row in found.rows] == pytest.approx([0.25, 0.3, 0.35])
    assert "guess" in found.says[0]


def test_the_best_five_and_grpo_are_shown_with_intervals_by_the_fewest_seeds():
    every = frame()
    steady = every[every["arm"] == "steady"]
    more = [steady.assign(arm=f"worse{k}", final=steady["final"] - 0.01 * k) for k in (4, 1, 3, 2)]
    third = every.query("task == 'sums' and seed == 1000 and (arm == 'steady' or lag == 0)").assign(seed=1002)
    third["final"] = third["final"].where(third["lag"] == 0, 0.56)  # the mean of the other two
    found = pd.concat([every, *more, third])
    found.loc[(found["arm"] == "steady") & (found["task"] == "sums"), "rate"] = 3e-3
    rows = {row["arm"]: row for row in advise(drift(0.06), found).rows}
    assert list(rows) == ["lucky", "steady", "worse1", "worse2", "worse3", "grpo"]
    half = t.ppf(0.975, 1) * (0.0002 / 2 + 0.0001 / 3) ** 0.5 / 2
    ends = [rows["steady"][name] for name in ("loss", "low", "high")]
    assert ends == pytest.approx([0.14, 0.14 - half, 0.14 + half])
    assert [rows[arm]["rate / GRPO's"] for arm in ("steady", "worse1")] == ["1 to 3", "1"]


def test_only_cells_within_a_factor_of_three_are_evidence():
    found = advise(drift(0.25), frame())
    assert [cell["task"] for cell in found.cells] == ["sums"]
    assert (found.low, found.high) == pytest.approx((0.04 / 3, 0.3))


@pytest.mark.parametrize(("kl", "where"), [(0.01, "below"), (0.4, "above"), (0.0, "below")])
def test_outside_the_tables_range_there_is_no_advice(kl, where):
    found = advise(drift(kl), frame())
    assert not found.inside
    assert found.rows == []
    assert where in found.says[0]
    assert "no advice" in found.says[0]


def test_a_table_without_stale_data_or_without_replications_advises_nothing():
    every = frame()
    refuses("no stale data", advise, drift(0.06), every[every["lag"] == 0])
    first = advise(drift(0.06), every[every["run"] == "first"])
    assert first.rows == []
    assert "no advice" in first.says[0]


def test_the_drift_of_a_log_is_that_of_its_tokens(tmp_path):
    made_logs.own(tmp_path)
    rows = made_logs.sequences()
    found = drift_of(read([tmp_path]))
    kl_by_step, cut, weighs = [], 0, 0
    for step in range(made_logs.STEPS):
        log_rho = []
        for one in (one for one in rows if one["step"] == step):
            for chosen, mu, pi in zip(one["mask"], one["mu"], one["pi"], strict=True):
                if chosen:
                    log_rho.append(pi - mu)
                    weighs += 1
                    ratio = np.exp(pi - mu)
                    cut += bool(ratio > 1.2 if one["advantage"] > 0 else ratio < 0.8)
        kl_by_step.append(np.mean(np.expm1(log_rho) - log_rho))
    assert found.kl == pytest.approx(np.mean(kl_by_step), rel=1e-6)
    assert found.clip_share == pytest.approx(cut / weighs)
    assert (found.steps, found.tokens) == (made_logs.STEPS, weighs)
    ages = [one["step"] + 5 - one["version"] for one in rows for chosen in one["mask"] if chosen]
    assert found.age == pytest.approx(np.mean(ages))
    logs = [(one["step"], np.dot(one["mask"], np.subtract(one["pi"], one["mu"]))) for one in rows]
    weight_SB = [np.exp([log for at, log in logs if at == step]) for step in range(made_logs.STEPS)]
    ess_S = [weight_B.sum() ** 2 / weight_B.size / (weight_B**2).sum() for weight_B in weight_SB]
    assert found.ess == pytest.approx(np.mean(ess_S))


def test_the_command_reads_a_log_and_says_what_loses_least(tmp_path, monkeypatch, capsys):
    made_logs.own(tmp_path)
    monkeypatch.setattr(table, "load", frame)
    found = json.loads(told(capsys, "advise", tmp_path, "--json"))
    assert found["inside"] == (found["low"] <= found["drift"]["kl"] <= found["high"])
    assert [cell["task"] for cell in found["cells"]] == ["sorted"]
    assert found["rows"][0]["arm"] == "half"
    out = told(capsys, "advise", tmp_path)
    assert "Loss of accuracy against fresh data" in out
    assert "7,000 weights" in out
    path, doubt = tmp_path / "mine.jsonl", "The drift below may be wrong, because the log-probabilities look"
    for sign in (1, -1):
        rows = (replace(x, logp_mu=sign * x.logp_mu, logp_pi=sign * x.logp_pi) for x in sampled().sequences)
        path.write_text("\n".join(json.dumps(one.plain()) for one in rows))
        first = json.loads(told(capsys, "advise", path, "--json"))["says"][0]
        assert (first.startswith(doubt), "They look like losses" in first) == (sign < 0, sign < 0)


def test_a_log_without_log_probabilities_is_refused_with_what_to_do(tmp_path, monkeypatch, capsys):
    made_logs.own(tmp_path)
    (path,) = (one for one in tmp_path.rglob("*") if one.suffix == ".jsonl")
    lines = [json.loads(line) | {"logp_pi": None} for line in path.read_text().splitlines()]
    path.write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setattr(table, "load", frame)
    assert "--model" in refused(capsys, "advise", tmp_path)


def texts(svg: str) -> list[str]:
    return [node.text or "" for node in ElementTree.fromstring(svg).iter() if node.tag.endswith("text")]


def placed(svg: str) -> tuple[list[float], dict[str, float]]:
    """Where the dots lie, and each text."""
    nodes = list(ElementTree.fromstring(svg).iter())
    dots = [float(node.get("cx") or 0) for node in nodes if node.get("r") == "2.6"]
    return dots, {node.text or "": float(node.get("x") or 0) for node in nodes if node.tag.endswith("text")}


def test_the_picture_has_a_dot_per_task_and_best_recipes_first():
    found = table.summary(frame())
    svg = gains(found, 64, mine="steady")
    shown = [text for text in texts(svg) if text in {*LOSS, "half"}]
    assert shown == ["placebo", "steady", "lucky", "half"], "recipes on fewer tasks come last"
    assert svg.count("<title>") == len(FRESH) * 3 + 1
    assert 'font-weight="bold">steady<' in svg
    assert gains(found, 7) == ""


def test_a_dot_lies_where_its_gain_is():
    row = {"task": "sorted", "lag": 64, "arm": "x", "gain": 0.1, "gain_low": -0.2, "gain_high": 0.2}
    svg = gains(pd.DataFrame([row, row | {"arm": "<y>", "gain": 0.0}]), 64)
    dots, ticks = placed(svg)
    assert dots == pytest.approx([ticks["+0.1"], ticks["0"]], abs=0.1)
    ends = [ticks["-0.2"], ticks["+0.2"]]
    nodes = ElementTree.fromstring(svg).iter()
    spans = [re.findall(r"[\d.]+", n.get("d") or "")[::2] for n in nodes if n.get("stroke-width") == "2"]
    assert [list(map(float, span)) for span in spans] == [pytest.approx(ends, abs=0.1)] * 2
    assert "<y>" in texts(svg)


def test_what_to_use_is_drawn_and_told_by_drift():
    chosen = page.choices(frame())
    assert {kl for kl, _, _ in chosen} == {kl for kl in page.DRIFTS if 0.04 / 3 <= kl <= 0.1 * 3}
    svg = losses(chosen)
    assert "KL 0.08, tuned: lucky" in texts(svg)
    dots, ticks = placed(svg)
    zero, scale = ticks["0"], (ticks["+0.1"] - ticks["0"]) / 0.1
    for at, (_, guessed, advice) in enumerate(chosen):
        grpo = next(row for row in advice.rows if row["arm"] == "grpo")
        shown = [row["wrong rate" if guessed else "loss"] for row in (grpo, advice.rows[0])]
        assert dots[2 * at : 2 * at + 2] == pytest.approx([zero + scale * x for x in shown], abs=0.5)
    assert len(dots) == 2 * len(chosen)
    assert "| 0.08 | rate and knob | lucky | 0.34 (" in page.page(frame())
    assert losses([]) == ""


def test_one_setting_for_all_is_chosen_among_those_tried_everywhere():
    scores = {(1, 64): (0.6, 0.2), (2, 64): (0.5, 0.5), (3, 64): (None, 0.9)}
    tried = [{"task": task, "lag": lag, "arm": "x", "rate": float(rate), "knob": "default", "final": final}
             for (rate, lag), finals in scores.items()
             for task, final in zip(("a", "b"), finals, strict=True) if final is not None]  # fmt: skip
    (row,) = table.joint(pd.DataFrame(tried)).to_dict("records")
    assert (row["rate"], row["joint"], row["own"]) == (2.0, 0.5, 0.75)
    assert row["loss"] == pytest.approx(0.25)


def test_the_page_has_blocks_that_its_script_can_filter(tmp_path):
    (tmp_path / "assets").mkdir()
    old = frame().query("lag == 64 and task == 'sorted'").assign(lag=65)
    unranked = frame().query("lag == 64 and task == 'easy'").assign(lag=16)
    assert list(page.pictures(pd.concat([frame(), old, unranked]))) == [64, 65]
    stale = tmp_path / "assets" / "arena-400.svg"
    stale.write_text("of a lag that is gone")
    page.write(frame(), tmp_path / "arena.md")
    text = (tmp_path / "arena.md").read_text()
    assert not stale.exists()
    assert "\n## Gains at lag 64\n" in text
    assert "](assets/arena-64.svg)" in text
    svg = (tmp_path / "assets" / "arena-64.svg").read_text()
    assert "sorted" in svg
    assert "easy" not in svg, "without headroom nothing is decided"
    for task in FRESH:
        assert f'<div class="block sortable" data-task="{task}" data-lag="64" markdown>' in text
    assert text.count("<div") == text.count("</div>")
    first, *_, fresh = page.seeds(frame(), "sorted", 64).split(";")
    assert re.fullmatch(r"\w+:\d+( \d+)*", first)
    assert fresh.startswith("fresh:"), "fresh data stand last"
