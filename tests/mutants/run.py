"""Planted bugs: every one must make a test fail. Run `python tests/mutants/run.py [PATTERN]`.

A mutant is a replacement in one function and the tests that should notice. The tree is copied once; the
working copy is never touched.

Bugs that exact claims must notice are in analysis/planted_bugs/ instead: the suite itself plants those.
"""

import contextlib
import fnmatch
import functools
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from mutants.mutant import Mutant, read_catalog  # noqa: E402

LIMIT = 180.0
"""Seconds after which tests that hang count as failed, unless they take a third of that without any bug."""
PATIENCE = 1800.0
"""Seconds that tests get without any bug: in a fresh tree they compile all that they call."""


MUTANTS = tuple(read_catalog())


def copy_tree(target: Path) -> None:
    """Copy what the tests need."""
    parts = ("envs", "testbed", "analysis", "paper_figs", "docs", "examples", "tests")
    parts += ("pyproject.toml", "mkdocs.yml", "Makefile", "README.md", "CONTRIBUTING.md")
    for name in parts:
        source = ROOT / name
        ignore = shutil.ignore_patterns("__pycache__", "out")
        copy = shutil.copytree if source.is_dir() else shutil.copy2
        copy(source, target / name, **({"ignore": ignore} if source.is_dir() else {}))


def killer(mutant: Mutant, tree: Path, limit: float = LIMIT) -> str | None:
    """Return the first test that fails with the bug planted, None if all pass.

    limit: seconds after which the tests count as hanging.

    Raises ValueError when the bug cannot be planted.
    """
    path = tree / mutant.file
    text = path.read_text()
    path.write_text(mutant.planted(text))
    try:
        return failing(mutant.tests, tree, limit)
    finally:
        path.write_text(text)


def failing(tests: str, tree: Path, limit: float) -> str | None:
    """Return the id of the test that fails or hangs, and leave no process behind that the tests started."""
    words = ["-x", "-q", "-p", "no:cacheprovider", *shlex.split(tests)]
    # No color and no shortening to the width of a terminal: the ids are read.
    environment = {**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "400", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "pytest", *words]
    with tempfile.TemporaryFile("w+") as out:
        quiet = {"stdout": out, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=tree, env=environment, start_new_session=True, **quiet)
        try:
            code = process.wait(timeout=limit)
            # 1 is "tests failed"; 2 is "interrupted", for a bug that breaks the import itself.
            if code < 0:
                return "the process died"
            if code not in (1, 2):
                return None
        except subprocess.TimeoutExpired:
            return "no end within the time limit"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        return first_failure(out.read())


def without_a_bug(tests: str, tree: Path) -> tuple[str | None, float]:
    """Return the test that fails as it is, if any, and the limit that these tests need: three times theirs.

    A bug in compiled code has it compiled anew, as in this first run: a shorter limit would take the compiler
    for a hanging test.
    """
    began = time.monotonic()
    failed = failing(tests, tree, PATIENCE)
    return failed, max(LIMIT, 3 * (time.monotonic() - began))


def first_failure(report: str) -> str:
    """Return the first failing test in pytest's summary, "tests/test_x.py::test_y[z]"."""
    found = re.search(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\])?)(?: - |$)", report, re.M)
    return found[1] if found else "a failure without a name"


def claim_of(test: str) -> str:
    """Return the claim that a test of test_claims_exact.py judged, else the test's own name."""
    found = re.search(r"test_claims_exact\.py::test_an_exact_claim_is_supported\[(.*)\]$", test)
    return found[1] if found else test.rpartition("::")[2]


def catalog(killers: dict[str, str]) -> str:
    """Return the table "mutant, first claim that kills it" of the bugs m1-… to m25-…, in their order."""
    numbered = {name: re.match(r"m(\d+)-", name) for name in killers}
    rows = sorted((int(match[1]), name) for name, match in numbered.items() if match)
    lines = [f"| M{number} | {name} | {claim_of(killers[name]) or 'SURVIVED'} |" for number, name in rows]
    return (
        "\n".join(["", "| | mutant | first claim that kills it |", "|---|---|---|", *lines]) if rows else ""
    )


def main(pattern: str = "*") -> int:
    """Plant every matching bug, print score and table; return the number of survivors."""
    chosen = [mutant for mutant in MUTANTS if fnmatch.fnmatch(mutant.name, pattern)]
    killers: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        copy_tree(Path(folder))
        # Tests that fail without any bug would kill every one.
        healthy = functools.cache(functools.partial(without_a_bug, tree=Path(folder)))
        for index, mutant in enumerate(chosen, start=1):
            failed, limit = healthy(mutant.tests)
            if failed:
                killers[mutant.name] = ""
                print(
                    f"{index:3}/{len(chosen)} NO VERDICT, without it {failed} fails: {mutant.name}",
                    flush=True,
                )
                continue
            test = killers[mutant.name] = killer(mutant, Path(folder), limit) or ""
            word = "killed  " if test else "SURVIVED"
            by = f" by {claim_of(test)}" if test and re.match(r"m\d+-", mutant.name) else ""
            print(f"{index:3}/{len(chosen)} {word} {mutant.name}{by}", flush=True)
    print(catalog(killers))
    dead = sum(map(bool, killers.values()))
    print(f"{dead} of {len(chosen)} planted bugs killed")
    return len(chosen) - dead


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
