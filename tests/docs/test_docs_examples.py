"""Worked examples in docs: every python block with an output block behind it runs and prints exactly that.

A page joins by following a ```python block with an ```output block; blocks of a page share their names, in
order. `python tests/docs/test_docs_examples.py docs/exact/groups.md` prints what its blocks print today.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAIR = re.compile(r"```python\n(?P<code>.*?)```\n\s*```output\n(?P<output>.*?)```", re.S)
PAGES = [
    str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md")) if PAIR.search(path.read_text())
]
ALL_RUN = sorted((ROOT / "docs" / "exact").glob("*.md"))
"""Pages on which every python block must run."""


def printed(page: str) -> list[tuple[str, str, str]]:
    """(code, output on the page, output of running it) of every pair on a page, in order."""
    names: dict[str, object] = {"__name__": "docs"}
    found = []
    for match in PAIR.finditer((ROOT / page).read_text()):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(match["code"], page, "exec"), names)
        found.append((match["code"], match["output"], out.getvalue()))
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_example_prints_what_the_page_shows(page):
    for code, shown, found in printed(page):
        assert found, f"prints nothing:\n{code}"
        assert found == shown, code


@pytest.mark.parametrize("page", ALL_RUN, ids=lambda page: page.stem)
def test_no_example_about_an_oracle_is_left_out(page):
    text = page.read_text()
    blocks = re.findall(r"^```python$", text, re.M)
    assert blocks
    assert len(blocks) == len(PAIR.findall(text)) == len(re.findall(r"^```output$", text, re.M))


def test_every_link_between_pages_leads_to_a_file():
    for path in sorted(ROOT.glob("docs/**/*.md")):
        # Outside code, where brackets and parentheses mean something else.
        prose = re.sub(r"```.*?```|`[^`\n]*`", "", path.read_text(), flags=re.S)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", prose):
            if "://" not in target:
                assert (path.parent / target).exists(), f"{path.relative_to(ROOT)} links to {target}"


def test_every_page_that_source_names_is_there():
    named = set()
    for package in ("envs", "testbed", "analysis", "paper_figs", "tests"):
        for path in (ROOT / package).rglob("*.py"):
            named |= set(re.findall(r"docs/theory/[a-z-]+\.md", path.read_text()))
    assert len(named) >= 6
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]


if __name__ == "__main__":
    for _, _, output in printed(sys.argv[1]):
        print(output, end="-----\n")
