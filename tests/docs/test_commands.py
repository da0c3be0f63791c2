"""Every code block of README and docs runs, in the order of its page, or says why it cannot."""

import contextlib
import io
import re
import runpy
import shutil
import subprocess
import sys
from collections import Counter
from itertools import groupby, pairwise
from pathlib import Path

import pytest
import torch
from support.doc_blocks import COMMANDS, PYTHON, ROOT, Block, all_blocks, blocks, pages

from testbed.cli import main

BLOCKS = all_blocks()
BY_PAGE = {page: list(found) for page, found in groupby(BLOCKS, lambda block: block.page)}
RUNNABLE = (*COMMANDS, *PYTHON)
NOT_RUN_AT_MOST = 15
PROGRAMS = ("testbed", "make", "python", "source", "torchrun")


@pytest.mark.slow
@pytest.mark.parametrize("page", sorted(BY_PAGE))
def test_the_blocks_of_a_page_run_and_print_what_it_says(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = torch.get_default_dtype()
    namespace: dict[str, object] = {"__name__": "page"}
    printed = ""
    try:
        for block in BY_PAGE[page]:
            if block.marker == "file":
                (tmp_path / block.words).write_text(block.text)
            elif block.marker == "output":
                assert matches(block.text, printed), f"{block.where} prints something else:\n{printed}"
            elif block.marker not in ("not run", "run by"):
                printed = run(block, namespace, monkeypatch)
    finally:
        torch.set_default_dtype(before)


def run(block: Block, namespace: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> str:
    """Run a block and return what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        if block.language in PYTHON:
            exec(compile(block.text, block.where, "exec"), namespace)
        elif block.language in COMMANDS:
            for words in block.commands():
                with monkeypatch.context() as environment:
                    while re.match(r"^[A-Z_]+=", words[0]):
                        environment.setenv(*words.pop(0).split("=", 1))
                    run_command(words, block)
    return out.getvalue()


def run_command(words: list[str], block: Block) -> None:
    """Run one command: testbed in this process, make by its dry run."""
    program, *rest = words
    if program == "testbed":
        rest = small(rest, block)
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            try:
                main(rest)
            except SystemExit as stop:
                said = errors.getvalue()[-2000:]
                if stop.code:
                    raise AssertionError(
                        f"{block.where}: {' '.join(words)} exits {stop.code}\n{said}"
                    ) from stop
    elif program == "make":
        needs_make()
        done = subprocess.run(["make", "-n", *rest], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{block.where}: {done.stderr}"
    elif program == "python":
        done = subprocess.run([sys.executable, *rest], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{block.where}: {done.stderr[-2000:]}"
    else:
        raise AssertionError(f"{block.where}: no way is known to run '{program}'")


def small(rest: list[str], block: Block) -> list[str]:
    """Return the words of a command as a test runs it: small where the block says so, else dry.

    One verdict is judged and none written: the tree that a test runs in stays as it is.
    """
    if rest == ["evidence", "judge", "--write"]:
        return ["evidence", "judge", "sampled-ess-never-below-floor"]
    sweeps = [word for word in ("run", "tune") if word in rest]
    if block.marker == "run with" and sweeps:
        given = block.words.split()
        fields = {word.partition("=")[0] for word in given if "=" in word}
        start = rest.index(sweeps[0])
        kept = [word for word in rest[start:] if word.partition("=")[0] not in fields]
        return [*rest[:start], *kept, *given]
    assert "--then" not in rest, f"{block.where}: --then has no dry run; give the block a 'run with' marker"
    return [*rest, "--dry-run"] if rest[0] in ("run", "tune") and "--dry-run" not in rest else rest


def needs_make() -> None:
    if shutil.which("make") is None or not (ROOT / "Makefile").exists():
        pytest.skip("make or the Makefile is missing")


def matches(shown: str, printed: str) -> bool:
    """Return whether the output is the one shown, where a line "…" stands for any lines."""
    text = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines())
    parts = [re.escape(part.strip("\n")) for part in re.split(r"(?m)^\s*…\s*$", shown)]
    return re.fullmatch(r"[\s\S]*".join(parts), text) is not None


def test_a_block_that_is_not_run_says_why():
    reasons = [(block.where, block.words) for block in BLOCKS if block.marker == "not run"]
    assert [where for where, reason in reasons if len(reason.split()) < 3] == []
    # So that running stays the rule. Raise it only for what really cannot run in a test.
    assert len(reasons) <= NOT_RUN_AT_MOST, "\n".join(where for where, _ in reasons)


def test_a_block_that_another_test_runs_names_a_test_that_reads_the_page():
    for block in BLOCKS:
        if block.marker == "run by":
            test = ROOT / block.words
            assert test.exists(), f"{block.where} names {block.words}, which does not exist"
            assert Path(block.page).name in test.read_text(), f"{block.words} does not read {block.page}"


def test_a_block_without_a_language_holds_commands():
    for block in BLOCKS:
        if block.language in COMMANDS and block.marker != "not run":
            for words in block.commands():
                first = next(word for word in words if not re.match(r"^[A-Z_]+=", word))
                assert first in PROGRAMS, f"{block.where} begins with '{first}'; is it text, python or toml?"


def test_an_output_follows_the_block_that_prints_it():
    for before, block in pairwise(BLOCKS):
        if block.marker == "output":
            assert before.page == block.page
            assert before.language in RUNNABLE, f"{block.where} follows no block that runs"
            assert before.marker in ("", "run with"), f"{block.where} follows a block that is not run"


def test_no_command_hides_in_an_indented_block():
    # Only fenced blocks are run.
    for path in pages():
        fenced = {line for block in blocks(path) for line in block.text.splitlines()}
        for line in path.read_text().splitlines():
            if re.match(r"^ {4,}(\$ )?(testbed|make|python) ", line) and line.strip() not in {
                s.strip() for s in fenced
            }:
                raise AssertionError(f"{path}: put this into a fenced block: {line.strip()}")


def test_a_marker_is_spelled_as_the_runner_reads_it():
    for path in pages():
        count = Counter(block.marker for block in blocks(path) if block.language != "output")
        text = re.sub(r"(?ms)^```.*?^```$", "", path.read_text())
        for kind in ("not run", "run by", "run with", "file", "output"):
            written = len(re.findall(rf"<!-- {kind}\b", text))
            assert written == count[kind], f"{path} has {written} markers '{kind}', {count[kind]} above"


def test_no_command_of_a_page_finds_the_sweep_of_another_in_its_folder():
    taken: dict[tuple[str, str], set[str]] = {}
    for block in BLOCKS:
        reader = "newcomer" if block.page in ("README.md", "docs/tutorial.md") else block.page
        for words in block.commands() if block.language in COMMANDS else ():
            if "run" in words[1:2] and not {"--extend", "--dry-run"} & set(words):
                place = words[words.index("--out") + 1] if "--out" in words else Path(words[2]).stem
                fields = {word for word in words[3:] if "=" in word}
                first = taken.setdefault((reader, place), fields)
                assert first == fields, f"{block.where}: --extend or --out is missing"


def test_the_campaign_imports_nothing_of_the_project_before_pytest_starts():
    """Pytest refuses to rewrite plugins that are imported already, and the campaign would end at once."""
    code = "import sys, reliability_page; sys.exit('testbed' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tests" / "campaign", check=False)
    assert ended.returncode == 0


def test_a_whole_campaign_keeps_what_the_page_says_of_earlier_runs():
    notes = "## What earlier runs found\n\nTwo bugs.\n"
    there = (ROOT / "docs" / "reliability.md").read_text()
    page = runpy.run_path(str(ROOT / "tests" / "campaign" / "reliability_page.py"))["page"]
    assert page([], 60.0, f"old rows\n{notes}").endswith(f"---:|\n\n{notes}")
    assert "What earlier runs found" in there
    assert "What earlier" not in page([], 60.0)
