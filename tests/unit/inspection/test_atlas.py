"""The atlas of objectives: its curves are the effective weights, and what is committed is up to date."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from support.fixtures import batch_of, rows_of
from support.refusals import refuses

from analysis import palette
from analysis.experiments.cards import objective_weights as objective_table
from analysis.pages import atlas_page
from analysis.tables import committed as load
from paper_figs import figure_registry, save_figures, weight_figures
from testbed.errors import UserError
from testbed.inspection import atlas
from testbed.inspection.effective_weights import effective_weights
from testbed.objectives import Objectives, objective

ROOT = Path(__file__).parents[3]
AGAIN = "out of date: run `testbed evidence pages atlas` and commit what it writes"
x = np.array([-2.0, -0.3, -0.1, 0.0, 0.1, 0.3, 2.0])


def u_where(inside):
    return np.where(inside, np.exp(x), 0.0)


@pytest.mark.parametrize(
    ("name", "positive", "negative"),
    [
        ("reinforce", np.ones(7), np.ones(7)),
        ("importance_reinforce", np.exp(x), np.exp(x)),
        ("ppo_clip", u_where(x < np.log(1.2)), u_where(x > np.log(0.8))),
        ("dual_clip", u_where(x < np.log(1.2)), u_where((x > np.log(0.8)) & (x < np.log(3)))),
        ("cispo", np.minimum(np.exp(x), 1.28), np.minimum(np.exp(x), 1.28)),
        ("topr", np.ones(7), np.minimum(np.exp(x), 1)),
        # The budget of one moved token: x^2 <= 0.04.
        ("m2po", u_where(x <= 0.2), u_where(x >= -0.2)),
    ],
)
def test_weights_on_the_probe_are_those_of_the_formula(name, positive, negative):
    found = atlas.weights(name, x)
    np.testing.assert_allclose(found, [positive, -negative], rtol=1e-12)


def test_the_probe_moves_one_answer_and_leaves_three_on_policy():
    logp, batch = atlas.probe(x)
    assert logp.shape == (2, 7, 4, 1)
    moved = (logp - batch.logp_mu_BT)[..., 0]
    np.testing.assert_allclose(moved[:, :, 0], np.stack([x, x]), atol=1e-12)
    assert (moved[:, :, 1:] == 0).all()
    assert batch.adv_BT[0, 0, :, 0].tolist() == [1, 1, -1, -1]
    assert (batch.adv_BT[1] == -batch.adv_BT[0]).all()
    assert torch.equal(batch.reward_B, batch.adv_BT[..., 0])
    assert (logp <= 0).all()


def moved(axis):
    """Which of pi/mu, anchor/mu and ref/mu differ from 1 for the probed answer."""
    logp, batch = atlas.probe(np.array([0.5]), axis)
    others = (logp, batch.logp_anchor_BT, batch.logp_ref_BT)
    return [round(float((other - batch.logp_mu_BT)[0, 0, 0, 0]), 6) for other in others]


def test_each_axis_moves_what_it_says():
    assert moved("pi/mu") == moved("pi/anchor") == moved("pi/ref") == moved("expert") == [0.5, 0, 0]
    assert moved("anchor/mu") == [0.5, 0.5, 0.5]
    assert moved("mu/ref") == [0, 0, -0.5]
    origins = [int(atlas.probe(x, axis)[1].origin_B[0, 0, 0]) for axis in ("pi/mu", "expert", "replay")]
    assert origins == [0, 1, 2]


def test_axes_follow_from_what_an_objective_reads():
    assert atlas.axes(objective["reinforce"]) == ("pi/mu",)
    assert atlas.axes(objective["ppo_clip"]) == ("pi/anchor",)
    assert atlas.axes(objective["decoupled_ppo"]) == ("pi/mu", "anchor/mu")
    for entry in objective.values():
        assert set(atlas.axes(entry)) <= set(atlas.AXES)
        assert ("expert" in atlas.axes(entry)) == ("origin" in entry.promises["reads"])


def test_the_worked_example_has_the_published_weights():
    assert atlas.example_weights("ppo_clip") == (pytest.approx([0, 0.5]), pytest.approx([0, -1.25, -4]))
    first, second = atlas.example_weights("importance_reinforce")
    assert (first, second) == (pytest.approx([0.75, 0.75]), pytest.approx([-2.5, -2.5, -2.5]))


@pytest.mark.parametrize(
    ("name", "adv", "edges"),
    [("gspo", 1, [np.log(1.0004)]), ("dual_clip", -1, [np.log(0.8), np.log(3)]), ("reinforce", 1, [])],
)
def test_clip_edges_are_found_between_grid_points(name, adv, edges):
    (curve,) = [c for c in atlas.curves(name) if c.advantage == adv]
    jump = np.abs(np.diff(curve.weight)) > 0.3 * np.maximum(np.diff(curve.log_ratio), 0.1)
    at = curve.log_ratio[:-1][jump & (np.diff(curve.log_ratio) < 1e-3)]
    np.testing.assert_allclose(at, edges, atol=1e-5)
    assert jump[np.diff(curve.log_ratio) >= 1e-3].sum() == 0 or name != "reinforce"


def test_a_slope_jumps_where_it_is_steep_beside_one_flat_neighbor():
    assert atlas._jumps(np.arange(6.0), np.array([0.0, 0.0, 1.0, 2.0, 2.0, 2.0])).tolist() == [1, 2]


@pytest.mark.parametrize("name", ["ppo_clip", "importance_reinforce", "m2po", "minpro"])
def test_points_left_out_are_on_the_lines_between_those_kept(name):
    for index, curve in enumerate(atlas.curves(name)):
        exact = atlas.weights(name, atlas.GRID)[index]
        drawn = np.interp(atlas.GRID, curve.log_ratio, curve.weight)
        np.testing.assert_allclose(drawn, exact, rtol=0.01, atol=0.005)
        assert len(curve.log_ratio) < 50
        assert (curve.log_ratio[0], curve.log_ratio[-1]) == (-3, 3)


@pytest.fixture(scope="module")
def table():
    try:
        return load.load_committed([objective_table.NAME])[objective_table.NAME]
    except UserError as error:
        raise AssertionError(f"paper_figs/data is {AGAIN} ({error})") from error


def test_the_table_names_every_objective_and_marks_one_on_policy_point_per_curve(table):
    frame = table.frame
    found = set(map(tuple, frame[["family", "objective", "axis"]].drop_duplicates().to_numpy()))
    wanted = {(e.family, name, axis) for name, e in objective.items() for axis in atlas.axes(e)}
    assert found == wanted, f"the table is {AGAIN}: {sorted(found ^ wanted)[:5]}"
    counts = frame.groupby(objective_table.CURVE)["on_policy"].agg(["sum", "size"])
    assert (counts["sum"] == 1).all()
    assert (frame.loc[frame["on_policy"] == 1, "log_ratio"] == 0).all()
    assert np.isfinite(frame["weight"]).all()


def test_the_table_holds_the_weights_of_the_registry(table):
    wrong = []
    for (name, axis), rows in table.frame.groupby(["objective", "axis"], sort=False):
        exact = atlas.weights(str(name), atlas.GRID, str(axis))
        for adv, weight in zip(atlas.ADVANTAGES, exact, strict=True):
            curve = rows[rows["advantage"] == adv]
            drawn = np.interp(atlas.GRID, curve["log_ratio"], curve["weight"])
            scale = min(1.0, np.abs(weight).max()) + 1e-9
            if (np.abs(drawn - weight) > 0.01 * (np.abs(weight) + scale)).any():
                wrong.append((name, axis, adv))
    assert not wrong, f"the table is {AGAIN}: {wrong[:5]}"


def test_the_page_is_what_the_registry_says():
    written = (ROOT / "docs" / "objectives.md").read_text()
    assert written == atlas_page.page(), f"docs/objectives.md is {AGAIN}"


def test_the_page_has_every_objective_and_its_pictures_are_there():
    page = atlas_page.page()
    for name, entry in objective.items():
        assert f"`{name}`" in page
        assert entry.source.replace("|", "\\|") in page
    pictures = re.findall(r"\((objectives-\w+\.png)\)", page)
    assert set(pictures) == {f"objectives-{entry.family}.png" for entry in objective.values()}
    assert page.count("\n## ") == len(pictures) + 1


def test_pictures_are_drawn_from_the_committed_table(table):
    for family in {entry.family for entry in objective.values()}:
        body = (ROOT / "docs" / atlas_page.picture(family)).read_bytes()
        assert f"{objective_table.NAME} {table.sha256}".encode() in body, f"objectives-{family}.png {AGAIN}"
        assert len(body) < 300 * 1024


def test_a_table_row_has_as_many_cells_as_its_head_even_where_formulas_have_bars():
    rows = [line for line in atlas_page.page().splitlines() if line.startswith("| ")]
    cells = {len(re.findall(r"(?<!\\)\|", row)) for row in rows}
    assert cells == {9}


def small():
    return objective_table.table_of(atlas.atlas(["ppo_clip", "dual_clip", "m2po", "reinforce"])).frame


def drawn(frame, family):
    with save_figures.style():
        fig = figure_registry.draw(f"objectives-{family}", frame)
        fig.draw_without_rendering()
    return fig


def test_every_family_has_a_figure_of_the_committed_table():
    named = {f"objectives-{entry.family}" for entry in objective.values()}
    assert named <= set(figure_registry.FIGURES)
    assert all(figure_registry.FIGURES[name].promises["data"] == objective_table.NAME for name in named)
    assert set(weight_figures.FAMILIES) == {entry.family for entry in objective.values()}


def test_a_figure_has_one_panel_per_objective_with_both_signs_and_the_on_policy_points():
    fig = drawn(small(), "clipped")
    panels = {ax.get_title(): ax for ax in fig.axes if ax.get_title()}
    assert list(panels) == ["dual_clip", "m2po", "ppo_clip"]
    ax = panels["ppo_clip"]
    for sign, color in ((1, palette.BLUE), (-1, palette.VERMILION)):
        curve, dot = [line for line in ax.lines if to_hex(line.get_color()) == color]
        expected = small().query("objective == 'ppo_clip' and advantage == @sign")
        np.testing.assert_array_equal(curve.get_ydata(), expected["weight"])
        assert (list(dot.get_xdata()), list(dot.get_ydata())) == ([0], [sign])
    assert ax.get_ylim() == pytest.approx((-3.36, 3.36))
    assert [text.get_text() for text in ax.texts] == ["↓ 20"]
    assert not panels["dual_clip"].texts


def test_curves_that_coincide_are_drawn_once_and_a_variant_lies_on_its_base():
    frame = small()
    rows = frame[frame["objective"] == "reinforce"]
    same = rows.assign(family="clipped", weight=0.5)
    ghosted = frame[frame["objective"] == "ppo_clip"].assign(objective="ppo_clip@there")
    with save_figures.style():
        fig = weight_figures.draw_family(frame.merge(same, "outer").merge(ghosted, "outer"), "clipped")
    panels = {ax.get_title(): ax for ax in fig.axes if ax.get_title()}
    assert {to_hex(line.get_color()) for line in panels["reinforce"].lines} == {palette.INK, palette.RULE}
    colors = [to_hex(line.get_color()) for line in panels["ppo_clip @there"].lines]
    assert colors.count(weight_figures.GHOST) == 2


def test_a_family_that_the_table_lacks_is_named():
    with pytest.raises(UserError, match="no objective of family 'terms'.*testbed evidence pages atlas"):
        drawn(small(), "terms")


def test_the_example_of_contributing_works():
    # In a registry of its own, so that no other test meets it.
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "CONTRIBUTING.md").read_text(), re.S)
    example, row = blocks[0], blocks[1]
    variant = next(block for block in blocks if "objective.variant" in block)
    own = Objectives("objective")
    code = (example + "\n\n" + variant).replace(
        "from testbed.objectives import objective", "objective = own_registry"
    )
    names = {"own_registry": own, "__name__": "example"}
    exec(compile(code, "CONTRIBUTING.md", "exec"), names)
    exec(compile(row, "CONTRIBUTING.md", "exec"), names)
    assert list(own) == ["capped", "capped@there"]
    assert own["capped@there"].promises == own["capped"].promises
    logp, batch = batch_of()
    weight = effective_weights(own["capped"].function, logp, batch)
    for b, sequence in enumerate(rows_of()):
        expected = names["WEIGHTS"]["capped"](sequence, rows_of())
        np.testing.assert_allclose(weight[b, : sequence.n].numpy(), expected, rtol=1e-12)
    assert own["capped"].formula.startswith("L = ")
    assert len([line for line in example.splitlines() if line.strip()]) <= 15


def test_a_weight_may_be_infinite_somewhere_but_not_everywhere():
    logp, batch = batch_of()
    places = torch.arange(logp.numel()).reshape(logp.shape)

    def infinite(first):
        return lambda logp_BT, batch: -logp_BT * batch.adv_BT / (places < first)

    found = atlas._weights(infinite(1), logp, batch)
    assert torch.isfinite(found).sum() >= 1
    assert torch.isinf(found).any()
    refuses(
        "has no finite weight on any token of a small batch; expected finite losses",
        atlas._weights,
        infinite(0),
        logp,
        batch,
    )
