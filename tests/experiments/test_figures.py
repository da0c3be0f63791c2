"""Figures: functions of small tables, byte-identical when drawn twice, drawn without torch."""

import hashlib
import json
import re
from functools import partial

import matplotlib
import numpy as np
import pandas as pd
import pytest
from support.refusals import refuses

from analysis.experiment import EXPERIMENTS
from analysis.tables import committed as load
from analysis.tables import condensed as condense
from analysis.tables import making as table_files
from analysis.tables import outcomes as collapse
from analysis.tables import sampled_ess as ess
from analysis.tables import tails
from paper_figs import figure_registry, save_figures
from testbed.config.run import Run, cell_id, grid
from testbed.errors import UserError

N = 64
OF_RUNS = sorted(
    name
    for name in figure_registry.FIGURES
    if figure_registry.FIGURES[name].promises["data"] in condense.NAMES
)
"""Figures drawn from results; those of the atlas of objectives are tested in test_atlas.py."""


def staleness_rows():
    """2 recipes, 2 lags, 2 seeds, 4 steps: reinforce collapses at lag 64, grpo does not."""
    index = pd.MultiIndex.from_product(
        [("reinforce", "grpo"), (0, 64), (0, 1), (0, 80, 160, 240)], names=["recipe", "lag", "seed", "step"]
    )
    rows = index.to_frame(index=False)
    lost = (rows["recipe"] == "reinforce") & (rows["lag"] == 64) & (rows["step"] > 100)
    rows["accuracy"] = np.where(lost, 0.0, 0.2 + rows["step"] / 400 + rows["seed"] / 50)
    rows[collapse.ESS] = 1 / (1 + rows["lag"] * (1 + rows["seed"]) / 4)
    rows[collapse.ESS_FLOOR] = 1 / N
    rows[tails.HISTOGRAM] = [
        np.bincount([64, 65 + lag // 8, 66 + seed], minlength=tails.BINS).tolist()
        for lag, seed in zip(rows["lag"], rows["seed"], strict=True)
    ]
    return rows


def ess_rows():
    rows = staleness_rows().drop(columns=["accuracy", tails.HISTOGRAM])
    rows[ess.EXACT] = np.exp(-rows["lag"] * (2 + rows["seed"]) / 8) * (1 - rows["step"] / 1000)
    rows[collapse.ESS] = np.maximum(rows[ess.EXACT], 1 / N) * 1.1
    return rows


def small_tables():
    toy = staleness_rows().assign(policy="toy", task="copy")
    tabular = ess_rows().assign(policy="tabular", task="chain")
    return condense.condense(pd.concat([toy, tabular], ignore_index=True))


@pytest.fixture(scope="module")
def tables():
    return small_tables()


@pytest.fixture(scope="module")
def folder(tables, tmp_path_factory):
    made = tmp_path_factory.mktemp("tables")
    table_files.write_tables(tables, made)
    return made


@pytest.fixture(scope="module")
def saved(folder, tmp_path_factory):
    lines = []
    out = tmp_path_factory.mktemp("figures")
    return save_figures.figures(data=folder, out=out, progress=lines.append), out, lines


def drawn(name, tables):
    with save_figures.style():
        return figure_registry.draw(name, tables[figure_registry.FIGURES[name].promises["data"]].frame)


@pytest.mark.parametrize("name", OF_RUNS)
def test_a_figure_leaves_settings_alone_and_fits_the_page(name, tables):
    before = dict(matplotlib.rcParams)
    fig = drawn(name, tables)
    assert dict(matplotlib.rcParams) == before
    assert fig.get_figwidth() in (figure_registry.COLUMN, figure_registry.PAGE)
    assert all(ax.get_xlabel() or ax.get_shared_x_axes().get_siblings(ax) for ax in fig.axes)


def test_a_caption_has_at_most_four_sentences():
    for name in figure_registry.FIGURES:
        promises = figure_registry.FIGURES[name].promises
        caption = promises["caption"] + (" Counted." if isinstance(promises["counted"], partial) else "")
        assert len(re.findall(r"[.!?](?=\s|$)", caption)) <= 4, name


@pytest.mark.parametrize("name", OF_RUNS)
def test_a_caption_names_what_the_bands_are_and_the_claims_exist(name):
    from analysis.judging.claims import CLAIMS

    assert "seeds" in figure_registry.FIGURES[name].promises["caption"]
    assert set(figure_registry.FIGURES[name].promises["supports"]) <= set(CLAIMS)


def test_staleness_draws_medians_of_the_seeds_in_a_panel_per_lag(tables):
    fig = drawn("staleness", tables)
    assert [ax.get_title() for ax in fig.axes[:2]] == ["lag 0", "lag 64"]
    _, reinforce = fig.axes[1].lines
    assert reinforce.get_ydata() == pytest.approx([0.21, 0.41, 0.0, 0.0])
    assert fig.axes[3].get_yscale() == "log"


def test_staleness_counts_a_run_without_accuracy_as_zero():
    rows = staleness_rows().assign(policy="toy", task="copy")
    rows.loc[(rows["recipe"] == "grpo") & (rows["step"] == 240), "accuracy"] = np.nan
    grpo, _ = drawn("staleness", condense.condense(rows)).axes[1].lines
    assert grpo.get_ydata()[-1] == 0.0


def test_ess_collapse_draws_every_row_and_the_smallest_exact_values_at_the_edge(tables):
    (ax,) = drawn("ess-collapse", tables).axes
    equal, floor = (line for line in ax.lines if line.get_marker() == "None")
    assert equal.get_xydata()[0] == pytest.approx(equal.get_xydata()[0][::-1])
    assert set(floor.get_ydata()) == {1 / N}
    shown = np.concatenate([line.get_xydata() for line in ax.lines if line.get_marker() != "None"])
    assert len(shown) == 32
    assert shown[:, 0].min() == pytest.approx(1e-4 / N)


def test_ratio_tails_draws_shares_of_sequences_by_log_ratio(tables):
    fig = drawn("ratio-tails", tables)
    assert [ax.get_title() for ax in fig.axes] == ["GRPO", "REINFORCE"]
    _, curve = fig.axes[0].lines
    # One ratio each in bin 64 (log ratio -0.25 to 0), 65 + 8 and 66 or 67: two of three at or above 1.
    at_one = np.argmin(np.abs(curve.get_xdata()))
    assert curve.get_ydata()[at_one] == pytest.approx(2 / 3)


@pytest.mark.slow
def test_figures_are_saved_with_a_manifest_that_names_their_input(saved, tables):
    made, out, lines = saved
    manifest = json.loads((out / "manifest.json").read_text())["figures"]
    assert [each.name for each in made] == sorted(manifest) == OF_RUNS
    for each in made:
        assert (
            manifest[each.name]["table"]["sha256"]
            == tables[figure_registry.FIGURES[each.name].promises["data"]].sha256
        )
        assert (
            manifest[each.name]["files"][each.pdf.name] == hashlib.sha256(each.pdf.read_bytes()).hexdigest()
        )
        assert each.png.read_bytes().startswith(b"\x89PNG")
        assert b"DejaVuSans" in each.pdf.read_bytes()
    assert lines[-1] == f"figure {len(made)}/{len(made)}: staleness"


@pytest.mark.slow
def test_figures_drawn_one_by_one_share_a_manifest(folder, tmp_path):
    for name in ("ess-collapse", "ratio-tails"):
        save_figures.figures([name], folder, tmp_path)
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert sorted(manifest["figures"]) == ["ess-collapse", "ratio-tails"]
    assert not (tmp_path / "staleness.pdf").exists()


def test_bad_names_and_folders_get_one_clear_message(folder, tables, tmp_path):
    refuses("Did you mean 'staleness'", save_figures.figures, ["stalenes"], folder, tmp_path)
    table_files.write_tables({"staleness": tables["staleness"]}, tmp_path / "partial")
    refuses("only gives staleness", save_figures.figures, ["ess-collapse"], tmp_path / "partial", tmp_path)
    (tmp_path / "file").write_text("")
    refuses("cannot be written", save_figures.figures, ["staleness"], folder, tmp_path / "file")


@pytest.mark.slow
def test_figures_without_names_are_those_that_the_tables_allow(tables, tmp_path):
    table_files.write_tables({"ratio-tails": tables["ratio-tails"]}, tmp_path)
    assert [x.name for x in save_figures.figures(data=tmp_path, out=tmp_path / "out")] == ["ratio-tails"]


def results(folder, task="copy", policy="toy", rows=staleness_rows, finished=True):
    """A results folder with the given rows, as a sweep writes it."""
    from testbed.execution import packs
    from testbed.results import parquet as files
    from testbed.results import store

    cells = grid(Run(task=task, policy=policy), recipe=["reinforce", "grpo"], lag=[0, 64], seed=[0, 1])
    (pack,) = packs.plan(cells)
    frame = rows()
    named = {(cell.recipe, cell.lag, cell.seed): cell_id(cell) for cell in cells}
    keys = zip(frame["recipe"], frame["lag"], frame["seed"], strict=True)
    columns = {"cell": np.array([named[key] for key in keys]), "task": np.repeat(task, len(frame))}
    columns["policy"] = np.repeat(policy, len(frame))
    columns |= {name: list(frame[name]) if "histogram" in name else frame[name].to_numpy() for name in frame}
    store = store.Store.start(folder, [pack])
    if finished:
        store.commit(pack.id, files.encode(columns, pack), {})
    return folder


@pytest.mark.slow
def test_results_folders_become_the_tables_that_figures_read(tmp_path, tables):
    toy = results(tmp_path / "sweeps" / "toy")
    results(tmp_path / "sweeps" / "tabular", "chain", "tabular", ess_rows)
    made = table_files.make(EXPERIMENTS["staleness"], [toy])
    assert made.csv == tables["staleness"].csv
    for name in ("ess-collapse", "ratio-tails"):
        assert table_files.make(EXPERIMENTS[name], [tmp_path / "sweeps"]).csv == tables[name].csv
    (drawn,) = save_figures.figures(["ratio-tails"], tmp_path / "sweeps", tmp_path / "out")
    assert drawn.table["sha256"] == tables["ratio-tails"].sha256


def test_an_unfinished_sweep_makes_no_table_as_if_it_were_whole(tmp_path):
    toy = results(tmp_path / "toy", finished=False)
    with pytest.raises(UserError, match=r"8 of 8 cells have no result \(0 failed, 8 pending\)"):
        table_files.make(EXPERIMENTS["staleness"], [toy])


def test_committed_tables_are_whole_small_and_enough_for_every_figure():
    tables = load.load_committed()
    for name, table in tables.items():
        assert len(table.csv) <= 2**20, name
    awaited = {name for name, each in EXPERIMENTS.items() if each.keys and not each.claims} - set(tables)
    assert {entry.promises["data"] for entry in figure_registry.FIGURES.values()} <= {*tables, *awaited}
