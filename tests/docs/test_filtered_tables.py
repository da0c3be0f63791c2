"""The script of the site's tables, run in a browser: filters choose rows, heads sort, recipes show seeds."""

import html
import json
import re
import shutil
import subprocess

import pytest
from support.import_graph import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PAGE = (ROOT / "tests" / "support" / "filtered_tables.html").read_text()
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
