"""The script of the site's tables, run in a browser: filters choose rows, heads sort, recipes show seeds."""

import html
import json
import re
import shutil
import subprocess

import pytest
from support.import_graph import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PAGE = """
<div class="filters" data-by="task lag verdict" data-methods="grpo topr vcpo" data-words="grpo"></div>
<div class="block" data-lag="64"><p>picture</p></div>
<div class="block sortable" data-task="sorted" data-lag="64"
 data-finals="grpo:500 700;vcpo:900 800;fresh:1000">
<table><thead><tr><th>arm</th><th>verdict</th></tr></thead><tbody>
<tr><td>grpo</td><td>supported</td></tr><tr><td>vcpo</td><td>invalid: tuned</td></tr></tbody></table></div>
<div class="block sortable" data-task="sums"><h2>GRPO-like</h2>
<table><thead><tr><th>arm</th><th>lag</th></tr></thead><tbody>
<tr><td>topr</td><td>16, 64</td></tr><tr><td>m2po</td><td></td></tr></tbody></table></div>
<pre></pre><script src="SCRIPT"></script><script>
const out = {};
const shown = () => [...document.querySelectorAll(".block:not([hidden])")].map(
  (block) => [...block.querySelectorAll("tbody tr:not([hidden])")].map((row) => row.cells[0].textContent));
addEventListener("load", () => {
  const form = document.querySelector("form");
  for (const wanted of WANTED) {
    for (const field of form.elements) field.value = wanted[field.name] ?? "";
    form.dispatchEvent(new Event("input"));
    out[JSON.stringify(wanted)] = [shown(), form.querySelector("output").textContent];
  }
  out.options = [...form.querySelectorAll("select")].map((one) => [...one.options].map((each) => each.value));
  form.reset();
  form.dispatchEvent(new Event("input"));
  document.querySelector("th").click();
  document.querySelector("th").click();
  out.sorted = shown()[1];
  document.querySelector("td[role=button]").click();
  const seeds = document.querySelector("tr.seeds");
  out.seeds = [seeds.previousElementSibling.cells[0].textContent, seeds.querySelectorAll("circle").length];
  document.querySelector("td[role=button]").click();
  out.closed = document.querySelector("tr.seeds") === null;
  document.querySelector("pre").textContent = JSON.stringify(out);
});
</script>
"""
ALL = [[], ["grpo", "vcpo"], ["topr", "m2po"]]
SHOWN = [
    ({}, ALL, "4 of 4 rows"),
    ({"task": "sorted"}, [[], ["grpo", "vcpo"]], "2 of 4 rows"),
    ({"lag": "16"}, [["topr"]], "1 of 4 rows"),
    ({"verdict": "invalid"}, [[], ["vcpo"], ["topr", "m2po"]], "3 of 4 rows"),
    ({"method": "grpo"}, [[], ["grpo"], ["topr", "m2po"]], "3 of 4 rows"),
    ({"words": "VC, topr", "lag": "64"}, [[], ["vcpo"], ["topr"]], "2 of 4 rows"),
]


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: the script is not run")
def test_filters_heads_and_recipes_do_what_they_promise(tmp_path):
    page = PAGE.replace("SCRIPT", (ROOT / "docs" / "assets" / "tables.js").as_uri())
    (tmp_path / "page.html").write_text(page.replace("WANTED", json.dumps([wanted for wanted, *_ in SHOWN])))
    flags = [
        "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--dump-dom",
    ]  # fmt: skip
    done = subprocess.run(
        [str(CHROMIUM), *flags, (tmp_path / "page.html").as_uri()], capture_output=True, text=True, timeout=60
    )
    found = json.loads(html.unescape(re.search(r"<pre>(.*?)</pre>", done.stdout, re.S)[1]))
    for wanted, rows, count in SHOWN:
        assert found[json.dumps(wanted, separators=(",", ":"))] == [rows, count], wanted
    assert found["options"] == [
        ["", "sorted", "sums"], ["", "16", "64"], ["", "invalid", "supported"], ["", "grpo", "topr", "vcpo"]
    ]  # fmt: skip
    assert found["sorted"] == ["vcpo", "grpo"]
    assert found["seeds"] == ["vcpo", 5], "two seeds each, and one of fresh data"
    assert found["closed"]
