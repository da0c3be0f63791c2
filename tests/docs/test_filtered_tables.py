"""The script of the site's tables, run in a browser: filters choose rows, heads sort, recipes show seeds."""

import html
import json
import re

from support.browser import opened, with_browser
from support.import_graph import ROOT

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


@with_browser
def test_filters_heads_and_recipes_do_what_they_promise(tmp_path):
    page = PAGE.replace("SCRIPT", (ROOT / "docs" / "assets" / "tables.js").as_uri())
    (tmp_path / "page.html").write_text(page.replace("WANTED", json.dumps([wanted for wanted, *_ in SHOWN])))
    dom, _ = opened((tmp_path / "page.html").as_uri(), tmp_path / "profile")
    found = json.loads(html.unescape(re.search(r"<pre>(.*?)</pre>", dom, re.S)[1]))
    for wanted, rows, count in SHOWN:
        assert found[json.dumps(wanted, separators=(",", ":"))] == [rows, count], wanted
    assert found["options"] == [
        ["", "sorted", "sums"], ["", "16", "64"], ["", "invalid", "supported"], ["", "grpo", "topr", "vcpo"]
    ]  # fmt: skip
    assert found["sorted"] == ["vcpo", "grpo"]
    assert found["seeds"] == ["vcpo", 5], "two seeds each, and one of fresh data"
    assert found["closed"]
