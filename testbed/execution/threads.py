"""Set the environment of a process before it starts, because threads and caches read it only then."""

import os
from pathlib import Path

from testbed.errors import counted
from testbed.results import user_cache

COMPILED = "TORCHINDUCTOR_CACHE_DIR"
BLAS = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "BLIS_NUM_THREADS",
)


def cores() -> int:
    """Return the number of cores for this process: its affinity, limited by the control group's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(count, int(quota) // int(period)))
    except (OSError, ValueError):
        return count


def environment(workers: int, threads: int = 1) -> dict[str, str]:
    """Return the variables that limit a worker's threads and keep torch's compiled files private.

    torch and BLAS get `threads`, because the last bits of their sums depend on the number of threads, and a
    result must not depend on the number of workers. The kernels of `envs` promise the same bits for any
    number of threads, so Numba gets the remaining cores. Loading transformers makes torch create its
    compiler's folder, by default a readable one in the temporary folder; here it is private, unless
    TORCHINDUCTOR_CACHE_DIR is set.
    """
    numba = max(threads, cores() // max(workers, 1))
    kept = None if COMPILED in os.environ else user_cache.private("compiled")
    limits = dict.fromkeys(BLAS, str(threads)) | {
        "NUMBA_NUM_THREADS": str(numba),
        "OMP_WAIT_POLICY": "PASSIVE",  # spinning threads take cores from working ones
        "TOKENIZERS_PARALLELISM": "false",
    }
    return limits if kept is None else limits | {COMPILED: str(kept)}


def advice(workers: int, threads: int) -> str:
    """Return a warning if workers x threads exceed the cores, else ""."""
    if workers * threads <= cores():
        return ""
    return (
        f"{counted(workers, 'worker')} x {counted(threads, 'thread')} on {cores()} cores: waiting threads "
        f"spin, so 2 workers x 2 threads on 2 cores measured 50 times slower than 2 x 1. Use at most "
        f"{cores()} threads in all."
    )
