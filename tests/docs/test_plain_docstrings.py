"""Docstrings with formulas survive the way into the site."""

import importlib.util

import pytest
from support.import_graph import ROOT

pytest.importorskip("griffe", reason="mkdocstrings is not installed: pip install -e '.[docs]'")
markdown = pytest.importorskip("markdown", reason="mkdocs is not installed: pip install -e '.[docs]'")

spec = importlib.util.spec_from_file_location(
    "plain_docstrings", ROOT / "docs" / "tools" / "plain_docstrings.py"
)
plain_docstrings = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plain_docstrings)


def read(docstring: str) -> str:
    """Return a docstring as a reader of the page sees it, tags left out but for lists and code."""
    return markdown.markdown(plain_docstrings.to_markdown(docstring), extensions=["tables"])


@pytest.mark.parametrize(
    "formula",
    ["L = -sg[min(rho, cap)] A_t * B_t, rho_t = pi_t/mu_t", "bias^2 + x_1[i][j] # {a}", "1*2*3 ~ 4"],
)
def test_a_formula_reads_as_it_was_written(formula):
    assert read(f"Title.\n\n{formula}") == f"<p>Title.</p>\n<p>{formula}</p>"


def test_an_inequality_is_no_tag():
    assert read("Holds for a<b and <c>.") == "<p>Holds for a&lt;b and &lt;c&gt;.</p>"
    assert read("Title.\n\n<div x> y") == "<p>Title.</p>\n<p>&lt;div x&gt; y</p>"


def test_code_in_backticks_is_left_alone():
    assert read("See `a_b[c]`.") == "<p>See <code>a_b[c]</code>.</p>"


def test_fields_become_a_list_and_the_first_line_never_does():
    html = read("batch: what objectives read.\n\nadv_B: advantages\n    of sequences.\nmask_BT: bool.")
    assert html.count("<li>") == 2
    assert html.startswith("<p>batch: what objectives read.</p>")
    assert "<code>adv_B</code>" in html


def test_an_example_of_a_session_is_code():
    assert "<pre><code>&gt;&gt;&gt; 1 + 1\n2" in read("Title.\n\n>>> 1 + 1\n2")
