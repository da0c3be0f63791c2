"""A worker process: packs come in as canonical JSON, receipts and finished Parquet files go out."""

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import json
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from queue import SimpleQueue
from typing import Any, BinaryIO

from testbed.config.pack import Pack, restore
from testbed.errors import UserError
from testbed.execution.rank_processes import gathered, leave, ranks_of
from testbed.results.fingerprint import difference, fingerprint
from testbed.user_files import line_of_a_user, words_of

TRAIN = "testbed.training.loop:train_pack"
"""Default function that runs a pack."""

REPORT_EVERY = 0.2
"""Seconds between two messages about the steps done."""

Report = Callable[[int, int], None]


@dataclass(frozen=True)
class Receipt:
    """Outcome of a pack. `content` is its Parquet file when kind is "done"."""

    pack: str
    kind: str
    content: bytes = b""
    message: str = ""
    trace: str = ""
    provenance: dict[str, Any] = field(default_factory=dict)


def order(pack: Pack, function: str = TRAIN) -> str:
    """Return the canonical JSON with all that a worker on any machine needs to run a pack."""
    data = {"pack": pack.id, "index": pack.index, "cells": [vars(cell) for cell in pack.cells]}
    data |= {"function": function, "fingerprint": dict(fingerprint())}
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def execute(text: str, report: Report | None = None) -> Receipt:
    """Run an order and return its receipt; errors of the pack also become a receipt."""
    data = json.loads(text)
    began = time.time()
    try:
        content = _run(data, report)
        return Receipt(data["pack"], "done", content, provenance=_provenance(began))
    except UserError as error:
        return Receipt(data["pack"], "failed", message=str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and not _place(error):
            raise  # an exit not caused by a user's file
        out_of_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
        kind, message = "oom" if out_of_memory else "failed", f"{_place(error)}{words_of(error)}"
        return Receipt(data["pack"], kind, message=message, trace=traceback.format_exc())


def _place(error: BaseException) -> str:
    """Return the place of an error in a user's file, "mine.py:17, in my_loss: ", or "" if it is elsewhere."""
    place = line_of_a_user(error)
    return f"{place}: " if place else ""


def prepare(function: str) -> None:
    """Import what a pack needs; an error waits for the first pack, which raises it again."""
    with contextlib.suppress(Exception):
        imported(function)
        importlib.import_module("testbed.results.parquet")
        _provenance(time.time())


def _run(data: Mapping[str, Any], report: Report | None) -> bytes:
    if changed := difference(fingerprint(), data["fingerprint"]):
        raise UserError(
            f"The worker runs different code from the sweep: {changed}. Install the same versions."
        )
    train = imported(data["function"])
    pack = Pack(data["pack"], data["index"], tuple(map(restore, data["cells"])))
    with gathered(data, ranks_of(pack.cells)):
        columns = train(pack.cells, report)
    from testbed.results.parquet import encode  # writing an order does not need pyarrow

    return encode(columns, pack)


def imported(function: str) -> Callable[..., Mapping[str, Any]]:
    module, _, name = function.partition(":")
    train: Callable[..., Mapping[str, Any]] = getattr(importlib.import_module(module), name)
    return train


def _provenance(began: float) -> dict[str, Any]:
    """Return versions, CPU, threads and times, which no number depends on."""
    seconds = round(time.time() - began, 3)
    loaded = tuple(sorted({"numba", "scipy", "torch", "transformers"} & set(sys.modules)))
    return {**_setting(loaded), "began": began, "seconds": seconds}


@cache
def _setting(loaded: tuple[str, ...]) -> dict[str, Any]:
    """Return the parts that are equal for all packs while the same packages are loaded."""
    return {
        "versions": {
            **{name: str(sys.modules[name].__version__) for name in loaded},
            **dict(fingerprint()),
            "python": platform.python_version(),
        },
        "machine": platform.machine(),
        "system": platform.platform(),
        "cpu": _cpu(),
        "threads": _threads(),
    }


def _cpu() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


def _threads() -> dict[str, int]:
    settings = ((name, value) for name, value in os.environ.items() if name.endswith("_NUM_THREADS"))
    found = {name: int(value) for name, value in settings if value.isdigit()}
    with contextlib.suppress(ImportError):
        import threadpoolctl  # missing on minimal machines

        for pool in threadpoolctl.threadpool_info():
            found[str(pool["internal_api"])] = int(pool["num_threads"])
    if "torch" in sys.modules:
        found["torch"] = int(sys.modules["torch"].get_num_threads())
    return found


def main(function: str) -> None:
    """Serve orders, one JSON line each, from standard input; receipts leave by the original standard output.

    The function's imports come before the worker reports ready, so that no pack pays for them. The process
    ends with its parent: the kernel ensures it on Linux, the closed pipe elsewhere.
    """
    faulthandler.enable()
    _die_with_parent()
    source, sink = _private_pipes()
    inbox = _inbox(source)
    prepare(function)
    gc.freeze()
    gc.enable()
    _send(sink, {"kind": "ready"})
    for text in inbox:
        receipt = execute(text, _Reporter(sink))
        fields = vars(receipt) | {"content": len(receipt.content)}
        _send(sink, fields, receipt.content)


def follow() -> None:
    """Run the order on standard input as one of several; report errors on standard error."""
    _die_with_parent()
    receipt = execute(sys.stdin.read())
    leave()
    if receipt.kind != "done":
        print(receipt.message.replace("\n", " "), file=sys.stderr, flush=True)
        os._exit(1)  # the waiting process learns of it at once


def _die_with_parent() -> None:
    """Ask Linux for SIGKILL when the parent ends."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 = PR_SET_PDEATHSIG


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Return the pipes to the parent, and redirect the standard ones so that a print cannot garble them."""
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    return source, sink


def _inbox(source: BinaryIO) -> Iterator[str]:
    """Yield orders as they come; a thread reads them, to notice the parent's death while a pack runs."""
    lines: SimpleQueue[str] = SimpleQueue()

    def watch() -> None:
        for line in source:
            lines.put(line.decode())
        os._exit(0)

    threading.Thread(target=watch, daemon=True).start()
    while True:
        yield lines.get()


class _Reporter:
    """Report the steps done to the parent at intervals, and every line about a row."""

    def __init__(self, sink: BinaryIO) -> None:
        self.sink, self.last = sink, 0.0

    def __call__(self, done: int, total: int) -> None:
        if time.monotonic() - self.last > REPORT_EVERY:
            self.last = time.monotonic()
            _send(self.sink, {"kind": "steps", "done": done, "total": total})

    def line(self, text: str) -> None:
        _send(self.sink, {"kind": "line", "text": text})


def _send(sink: BinaryIO, fields: Mapping[str, Any], content: bytes = b"") -> None:
    sink.write(json.dumps(fields).encode() + b"\n" + content)
    sink.flush()
