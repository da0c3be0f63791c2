"""What functions return while chosen tests run, and afterwards at edges, each compared with its golden row.

The tests stand in tests.txt of golden/results, golden/more (what those do not reach) and golden/edges.
`TESTBED_WRITE_RESULTS=1 pytest tests/contracts/test_results.py` writes the rows anew; read the difference
before you commit it. A row has the function, the number of its results, a checksum of their texts and whole
numbers, a weighted sum of all others with its size, and the first result. The tests run in a process of their
own: what others left in caches would change what is called.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.results import ROOT

GOLDEN = ROOT / "tests" / "golden"
ROUNDING = 5e-5
"""Share of its size by which float32 on another processor may move a sum."""
Rows = dict[str, list]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("folder", ["results", "more", pytest.param("edges", marks=pytest.mark.slow)])
def test_every_function_returns_what_the_golden_files_hold(tmp_path, folder):
    """Compare each function's row: a slip anywhere in the areas moves one where these tests go."""
    found = _recorded(tmp_path / "rows.json", folder)
    if os.environ.get("TESTBED_WRITE_RESULTS"):
        _write(found, GOLDEN / folder)
    held = {name: row for path in (GOLDEN / folder).glob("*.tsv") for name, row in _read(path)}
    wrong = [name for name in sorted(held | found) if not _same(held.get(name), found.get(name))]
    told = "\n".join(f"{name}\n  was {held.get(name)}\n  is  {found.get(name)}" for name in wrong[:12])
    assert not wrong, f"{len(wrong)} functions return something else:\n{told}"


def _recorded(path: Path, folder: str) -> Rows:
    environment = {**os.environ, "TESTBED_RESULTS": str(path), "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"}
    environment = {name: each for name, each in environment.items() if not name.startswith("PYTEST_")}
    environment.setdefault("TESTBED_CHECKPOINT_EVERY", "10000s")  # on a slow machine none is due by the clock
    plugin = "support.edges" if folder == "edges" else "support.results"
    without = ("-p", "no:cacheprovider", "-p", "no:unraisableexception")  # moved calls leave files open
    options = ("-q", "-p", plugin, *without, f"@{GOLDEN / folder / 'tests.txt'}")
    command = (sys.executable, "-m", "pytest", *options)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return json.loads(path.read_text())


def _write(found: Rows, folder: Path) -> None:
    for path in folder.glob("*.tsv"):
        path.unlink()
    for name, row in sorted(found.items()):
        area = ".".join(name.split("/")[:-1][:2])
        with (folder / f"{area}.tsv").open("a") as file:
            file.write("\t".join((name, *map(json.dumps, row))) + "\n")


def _read(path: Path) -> Iterator[tuple[str, list]]:
    for line in path.read_text().split("\n")[:-1]:
        name, *row = line.split("\t")
        yield name, list(map(json.loads, row))


def _same(held: list | None, found: list | None) -> bool:
    if held is None or found is None:
        return False
    return held[:2] == found[:2] and abs(held[2] - found[2]) <= ROUNDING * (1 + held[3])
