"""Threads are set before anything numeric is imported; nothing may reach a model hub."""

import gc
import os
from pathlib import Path

# Collecting makes millions of objects that stay; looking for garbage among them takes half of its time.
gc.disable()
for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")
os.environ.setdefault("NUMBA_NUM_THREADS", "2")
# Waiting threads that spin cost a factor of 30 on a busy machine.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TESTBED_BASE_MODELS"] = "off"

import numba
import pytest

# Two threads stay available to the tests that compare one thread with two; the others use one.
numba.set_num_threads(1)


WHOLE = 2000
"""Fewest tests of a run that counts as the whole suite."""


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Leave out of a whole suite the tests that contracts/test_results.py runs in processes that record."""
    if len(items) < WHOLE:
        return
    recorded = set()
    for item in items:
        if getattr(item, "originalname", "") == "test_every_function_returns_what_the_golden_files_hold":
            folder = Path(__file__).parent / "golden" / item.callspec.params["folder"]
            recorded |= set((folder / "tests.txt").read_text().splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in recorded])
    items[:] = [item for item in items if item.nodeid not in recorded]


def pytest_collection_finish(session):
    """Have each of two workers compile half of the loops before a suite, so that none compiles all."""
    gc.freeze()
    gc.enable()
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker not in ("gw0", "gw1") or len(session.items) < WHOLE:
        return
    from support.small_runs import CHAIN, TOY, TREE

    from testbed.pipeline.design import Design
    from testbed.pipeline.simulate import simulate, trace_rows
    from testbed.training.loop import train

    if worker == "gw0":
        train(TOY)
    else:
        train(CHAIN)  # first: the other worker begins with tests that need it
        train(TREE)
        simulate([Design()], replicas=1, batches=1)
        trace_rows(Design(), 1)
