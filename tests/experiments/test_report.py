"""The page about a sweep: whole, escaped, without network; it warns of what averages hide."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from support.browser import measured, with_browser
from support.command_line import told
from support.made_sweep import CELLS, STEPS, TOY, accuracy, made

from analysis.sweeps.sweep_table import load
from analysis.sweeps.sweep_warnings import sweep_warnings
from analysis.tables.outcomes import ESS, ESS_FLOOR
from paper_figs.report_page import _own_code, page
from testbed.config.run import grid
from testbed.execution.packs import plan
from testbed.results.store import Failure, Store
from testbed.user_files import pin


class Parts(HTMLParser):
    """What a page is made of: tags, ids, links, whatever it would fetch or run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name in ("href", "xlink:href") and tag in ("a", "use"):
                self.links.append(value)
            elif name in ("src", "href", "xlink:href") and not value.startswith(("data:", "#")):
                self.fetched.append(value)
            assert not name.startswith("on"), (tag, name)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return page(made(tmp_path_factory.mktemp("sweep") / "made"))


@pytest.mark.slow
def test_the_page_holds_every_part_and_fetches_nothing(text):
    parts = Parts(text)
    assert {"what-was-run", "warnings", "comparison", "figures", "collapse-timeline", "reproduce"} <= set(
        parts.ids
    )
    assert parts.fetched == []
    assert "script" not in parts.tags
    assert parts.tags.count("figure") == 8
    assert len(parts.ids) == len(set(parts.ids))
    assert {link.removeprefix("#") for link in parts.links} <= set(parts.ids)
    assert re.search(r"<td>reinforce, lag 64</td><td>2</td>", text)
    assert "24 of 24 cells done" in text


def test_the_source_of_a_users_own_objective_is_on_the_page(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("import math\n\ndef other():\n    pass\n\ndef mine(logp_BT, batch):\n    return 1 < 2\n")
    name = pin(f"{file}:mine")
    folder = made(tmp_path / "s", [*grid(replace(TOY, recipe=name), seed=range(2)), TOY])
    shown = _own_code(folder)["Own code"]
    assert "<pre>def mine(logp_BT, batch):\n    return 1 &lt; 2</pre>" in shown
    assert name in shown
    file.write_text("def mine(logp_BT, batch):\n    return None\n")
    assert "the file has changed" in _own_code(folder)["Own code"]
    assert _own_code(made(tmp_path / "t", CELLS[:2])) == {}


@pytest.mark.slow
def test_names_from_a_users_files_stay_text(tmp_path):
    bad = '<script>alert("1")</script>&'
    own = replace(TOY, recipe=f"a/{bad}.py:f<b>#0123456789ab")
    cells = [*grid(own, seed=range(2)), *grid(TOY, task_args=[(("name", f"$_{bad}"),)], seed=range(2))]
    store = Store.start(made(tmp_path / "a<b>", cells), plan(cells))
    store.fail(Failure(next(iter(store.packs)), "failed", bad, ("x",)))
    text = page(tmp_path / "a<b>")
    assert "<script" not in text
    assert "f<b>" not in text
    assert "f&lt;b&gt;" in text


@pytest.mark.slow
@with_browser
@pytest.mark.parametrize("width", [400, 1400])
@pytest.mark.parametrize("scheme", [0, 1])
def test_a_browser_opens_the_page_without_a_word_in_its_console(text, tmp_path, width, scheme):
    over, drawn = measured(text, tmp_path, width, scheme)
    assert (over <= 0, drawn) == (True, 8)


def test_cells_at_the_floor_limited_and_diverged_are_named(tmp_path):
    def lost(run):
        return np.where((run.lag == 8) & (STEPS > 40), np.nan, accuracy(run))

    rows = load(made(tmp_path / "s", CELLS, lost))
    rows["max_grad_norm"], rows["actor/grad_norm"] = 1.0, np.where(rows["lag"] == 0, 0.5, 2.0)
    rows.loc[rows["lag"] == 64, ESS] = rows[ESS_FLOOR]
    rows["reward/mean"] = rows["reward/mean"].mask(rows["seed"] == 1)
    found = "\n".join(sweep_warnings(rows))
    assert "8 of 24 cells had a sequence ESS at its floor 1/N" in found
    assert "grpo, lag 64 (4)" in found
    assert "grpo, lag 8 (100%)" in found
    assert "lag 0 (" not in found
    assert "8 of 24 cells diverged" in found
    assert "accuracy (8), reward/mean (6)" in found
    assert "Some settings have 4 seeds" in found


def test_a_sound_sweep_has_no_warnings(tmp_path):
    assert sweep_warnings(load(made(tmp_path / "s", grid(TOY, seed=range(6))))) == []


@pytest.mark.slow
def test_the_command_writes_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    made(tmp_path / "s", CELLS[:2])
    assert told(capsys, "report", "s").strip() == "out/s.html"
    assert (tmp_path / "out" / "s.html").read_text().startswith("<!doctype html>")
