"""testbed doctor: check whether this machine can run the bench, and say what to do where it cannot."""

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from testbed import __version__
from testbed.cli import show
from testbed.config.run import Run
from testbed.execution.memory import Room
from testbed.execution.threads import cores

if TYPE_CHECKING:
    from testbed.training.recorder import Columns

NEEDED = ("torch", "numpy", "scipy", "pandas", "pyarrow", "numba", "matplotlib", "transformers")
EXTRAS = {
    "ray": "sweeps on a cluster",
    "trl": "the adapter for TRL",
    "reasoning_gym": "the task reasoning-gym",
}
ROOM = 1.0
"""GiB on the disk below which a sweep's folder may not fit."""
MEMORY = 2.0
"""GiB of memory below which the toy sweeps may not fit."""
LONGEST = 5.0
"""Seconds that the self-test should take at most, loading torch included."""


MARKS = {"ok": "ok  ", "note": "note", "broken": "BAD "}


@dataclass(frozen=True)
class Finding:
    """One check's result. grade: "ok", "note" (works, but not all or not fast) or "broken"."""

    what: str
    found: str
    grade: str = "ok"
    advice: str = ""


def doctor(
    folder: Annotated[Path, typer.Option(help="Folder for results; its disk is checked.")] = Path(),
    json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False,
) -> None:
    """Check versions, threads, GPU, memory and disk, and train for a few seconds; exit code 1 if broken.

    Examples: testbed doctor

    testbed doctor --folder /scratch/me --json
    """
    findings = []
    for finding in checks(folder):
        findings.append(finding)
        if not json:
            advice = f": {finding.advice}" if finding.advice else ""
            print(f"{MARKS[finding.grade]}  {finding.what:<14} {finding.found}{advice}", flush=True)
    broken = [finding for finding in findings if finding.grade == "broken"]
    if json:
        show.as_json({"broken": len(broken), "findings": [vars(finding) for finding in findings]})
    else:
        print(f"{len(broken)} of {len(findings)} broken." if broken else "This machine can run the bench.")
    if broken:
        raise typer.Exit(1)


def checks(folder: Path) -> Iterator[Finding]:
    """Yield each finding at once; announce on stderr what takes longer than a second."""
    yield from versions()
    yield from threads()
    print("Loading torch …", file=sys.stderr, flush=True)
    yield from gpu()
    yield from room(folder)
    print("Training twice for the self-test; the first call compiles …", file=sys.stderr, flush=True)
    yield self_test()


def versions() -> Iterator[Finding]:
    """Check versions: Python, the bench and the packages that it needs; missing extras are notes."""
    old = sys.version_info < (3, 11)
    yield Finding("python", platform.python_version(), "broken" if old else "ok", "take 3.11" if old else "")
    yield Finding("testbed", f"{__version__} at {Path(__file__).resolve().parents[1]}")
    for name in NEEDED:
        try:
            yield Finding(name, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, "missing", "broken", "pip install -e . in the repository installs it")
    for name, what in EXTRAS.items():
        if importlib.util.find_spec(name) is None:
            yield Finding(name, "missing", "note", f"only {what} needs it")


def threads() -> Iterator[Finding]:
    """Check cores and threads; BLAS threads that multiply with the workers are a note."""
    yield Finding("cores", f"{cores()}, {platform.machine()} {platform.system()}")
    given = {k: v for k, v in os.environ.items() if k.endswith("_NUM_THREADS") and v != "1"}
    text = ", ".join(f"{name}={value}" for name, value in sorted(given.items()))
    if given:
        yield Finding("threads", text, "note", "workers set 1 each; other programs here may take the cores")


def gpu() -> Iterator[Finding]:
    """Check the GPU that torch sees; a machine without one passes too."""
    try:
        import torch
    except Exception as error:  # torch libraries that do not load raise here
        yield Finding("torch loads", str(error).splitlines()[0], "broken", "install torch again")
        return
    if torch.cuda.is_available():
        yield Finding("gpu", f"{torch.cuda.get_device_name(0)}, {torch.cuda.device_count()} in all")
    else:
        yield Finding("gpu", "none", "ok", "the bench runs on device=cpu")


def room(folder: Path) -> Iterator[Finding]:
    """Check disk space, write access, and memory."""
    there = next(path for path in (folder.resolve(), *folder.resolve().parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"x")
        yield Finding("write access", str(there))
    except OSError as error:
        yield Finding("write access", f"{there}: {error.strerror}", "broken", "give another --folder")
    free = shutil.disk_usage(there).free / 2**30
    yield Finding(
        "disk", f"{free:.1f} GiB free", *_scarce(free < ROOM, "make room, or give another --folder")
    )
    try:
        memory = Room.now("cpu").memory / 2**30
    except Exception:  # torch does not load, as the line on the GPU has said
        return
    yield Finding("memory", f"{memory:.1f} GiB free", *_scarce(memory < MEMORY, "take fewer --workers"))


def _scarce(scarce: bool, advice: str) -> tuple[str, str]:
    return ("note", advice) if scarce else ("ok", "")


def self_test() -> Finding:
    """Train a tabular cell and a toy model for a few steps, twice, and compare every number."""
    began = time.monotonic()
    try:
        equal = _trained_twice()
    except Exception as error:  # report any error
        return Finding("self-test", f"{type(error).__name__}: {error}", "broken", "see the versions above")
    seconds = time.monotonic() - began
    if not equal:
        return Finding(
            "self-test",
            "two equal trainings differ",
            "broken",
            "training does not repeat bit for bit on this machine",
        )
    late = seconds > LONGEST
    advice = f"slower than {LONGEST:g} s: the first call compiles, or the machine is busy" if late else ""
    said = f"trained twice, bit for bit, in {seconds:.1f} s"
    return Finding("self-test", said, "note" if late else "ok", advice)


def _trained_twice() -> bool:
    from testbed.results.parquet import encode  # imports needed to write a result
    from testbed.training.loop import train

    assert callable(encode)
    small = Run(steps=3, prompts=2, group=2, log_every=1)
    toy = Run(
        task="running-sum", policy="toy", task_args=(("digits", 3),), steps=3, prompts=2, group=2, lag=1,
        learning_rate=1e-3, optimizer="adam",
    )  # fmt: skip
    return all(_same(train(run), train(run)) for run in (small, toy))


def _same(first: "Columns", second: "Columns") -> bool:
    return first.keys() == second.keys() and all(_bytes(first[k]) == _bytes(second[k]) for k in first)


def _bytes(column: object) -> bytes:
    import numpy as np

    return np.asarray(column).tobytes()
