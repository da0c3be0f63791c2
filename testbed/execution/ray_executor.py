"""The same packs as Ray tasks, for many machines: extra [ray]. Results do not depend on it."""

import importlib.util
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

from testbed.config.pack import Pack
from testbed.errors import UserError
from testbed.execution.executors import POLL, Executor, Feed
from testbed.execution.threads import cores, environment
from testbed.execution.worker import TRAIN, Receipt, execute, order, prepare

STORE_BYTES = 256 * 2**20
"""Bytes of a local Ray's shared memory; a finished pack is a few MB at most."""

LOOPBACK = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""At 0 a local Ray listens on 127.0.0.1 only, also on Linux; `_node_ip_address` has no effect (2.60)."""


SWEEPER = """
import os, shutil, signal, sys, time
folder, me = sys.argv[1], os.getpid()
sys.stdin.read()  # ends with the process that holds the other end, however that ends
for _ in range(50):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        try:
            words = open(f"/proc/{pid}/cmdline", errors="replace").read()
            if words.startswith("ray::"):  # agents rename themselves, but keep their log open
                words += str([os.readlink(f"/proc/{pid}/fd/{n}") for n in os.listdir(f"/proc/{pid}/fd")])
            if folder in words and int(pid) != me:
                os.kill(int(pid), signal.SIGKILL)
                found.append(pid)
        except OSError:
            pass
    shutil.rmtree(folder, ignore_errors=True)
    if not found and not os.path.exists(folder):
        break
    time.sleep(0.2)
"""
"""A separate process that ends a local Ray's leftovers and removes its folder, also after SIGKILL."""


class Ray(Executor):
    """Run packs as Ray tasks, one core each, and one GPU each for cells on "cuda".

    Only the packs and their finished files travel, so the machines need testbed but no shared disk.

    Args:
        address: a cluster, as "auto" or "10.0.0.1:6379"; None starts a local Ray that listens only on
            127.0.0.1 and stops with the sweep. Token authentication is on in both cases.
        workers: packs in flight; by default the cores here, or the cluster's.
        threads: threads of torch and BLAS per pack.
        timeout: seconds a pack may take once a worker has it; None waits forever.
    """

    name = "ray"
    here = False

    def __init__(
        self,
        address: str | None = None,
        workers: int | None = None,
        threads: int = 1,
        timeout: float | None = None,
        function: str = TRAIN,
    ) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UserError("Ray is not installed. Install it: pip install 'off-policy-testbed[ray]'.")
        self._address, self._threads, self._timeout = address, threads, timeout
        self._given = workers
        super().__init__(workers or cores(), function)
        self._ray: Any = None
        self._sweeper: subprocess.Popen[bytes] | None = None
        self._task: Any = None
        self._running: dict[Any, _Flight] = {}

    def open(self) -> None:
        """Connect unless connected; raise UserError if the cluster does not answer."""
        if self._ray is None:
            folder = None if self._address else self._private_folder()
            self._ray = _connect(self._address, self.workers, folder)
            self.workers = self._given or int(self._ray.cluster_resources().get("CPU", 1))
            variables = environment(self.workers if self._address is None else cores(), self._threads)
            if self._address is None:
                variables["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
            self._task = self._ray.remote(_stream).options(
                num_returns="streaming", num_cpus=1, max_retries=0, runtime_env={"env_vars": variables}
            )

    def _private_folder(self) -> str:
        """Return a new folder inside one that only this user can enter; both are removed with this process.

        Ray opens its folder to everybody, so the outer one has to be closed.
        """
        folder = tempfile.mkdtemp(prefix="ray-")
        words = [sys.executable, "-c", SWEEPER, folder]
        self._sweeper = subprocess.Popen(words, stdin=subprocess.PIPE, start_new_session=True)
        return os.path.join(folder, "r")

    def run(self, feed: Feed) -> Generator[Receipt, None, None]:
        """Connect, then yield a receipt per pack as packs end."""
        self.open()
        yield from super().run(feed)

    def submit(self, pack: Pack) -> None:
        gpus = int(any(cell.device == "cuda" for cell in pack.cells))
        task = self._task.options(num_gpus=gpus) if gpus else self._task
        self._running[task.remote(order(pack, self.function))] = _Flight(pack.id)

    def wait(self, feed: Feed) -> Iterator[Receipt]:  # noqa: ARG002  Ray tasks do not tell their steps
        """Yield the receipts that come within POLL seconds."""
        self._refuse_a_dead_ray()
        if not self._running:
            return
        streams = list(self._running)
        if self._ray.wait(streams, num_returns=1, timeout=POLL)[0]:
            for stream in self._ray.wait(streams, num_returns=len(streams), timeout=0)[0]:
                yield from self._hear(stream)
        for stream, flight in list(self._running.items()):
            if time.monotonic() > flight.deadline:
                del self._running[stream]
                self._ray.cancel(stream, force=True)
                message = f"The pack ran longer than its limit of {self._timeout:g} s."
                yield Receipt(flight.pack, "timeout", message=message)

    def _refuse_a_dead_ray(self) -> None:
        """Raise UserError once a local Ray's processes have ended, because every later pack would fail."""
        if self._address is None and (dead := _dead_parts(self._ray)):
            raise UserError(
                f"The local Ray has lost its {dead[0]}: stopped. Finished packs are kept; run the same "
                "command again."
            )

    def _hear(self, stream: Any) -> Iterator[Receipt]:
        """Start a pack's clock at the first item of its stream; yield its receipt, the second."""
        flight = self._running[stream]
        receipt = self._item(stream, flight.pack)
        if receipt is not None:
            del self._running[stream]
            yield receipt
        elif self._timeout:
            flight.deadline = time.monotonic() + self._timeout

    def _item(self, stream: Any, pack: str) -> Receipt | None:
        errors = self._ray.exceptions
        try:
            item: Receipt | None = self._ray.get(next(stream))
        except errors.OutOfMemoryError as error:
            return Receipt(pack, "oom", message=str(error))
        except (errors.WorkerCrashedError, errors.NodeDiedError) as error:
            self._refuse_a_dead_ray()
            return Receipt(pack, "died", message=str(error))
        except (errors.RayError, StopIteration) as error:
            self._refuse_a_dead_ray()
            return Receipt(pack, "failed", message=f"{type(error).__name__}: {error}")
        return item

    def close(self) -> None:
        """Cancel running packs and leave the cluster; a local one stops."""
        if self._ray is None:
            return
        alive = self._address is not None or not _dead_parts(self._ray)
        for stream in self._running if alive else ():
            self._ray.cancel(stream, force=True)
        self._running.clear()
        self._ray.shutdown()
        if self._sweeper is not None:
            self._sweeper.communicate()
            self._sweeper = None


def _dead_parts(ray: Any) -> list[str]:
    """Return the processes of a local Ray that have ended, e.g. "raylet"."""
    node = ray._private.worker._global_node
    return [] if node is None else [str(kind) for kind, _ in node.dead_processes()]


@dataclass
class _Flight:
    """A pack at Ray, and its deadline."""

    pack: str
    deadline: float = float("inf")


def _stream(text: str) -> Iterator[Receipt | None]:
    """Yield None when a worker is about to run the order, then the receipt."""
    prepare(json.loads(text)["function"])
    yield None
    yield execute(text)


def _connect(address: str | None, cpus: int, folder: str | None) -> Any:
    """Return the ray module, connected; raise UserError if the cluster does not answer."""
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    if address is None:
        os.environ[LOOPBACK] = "0"
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    import ray  # reads the variables above

    options = {"log_to_driver": False, "logging_level": "error"}
    if address is None:
        local = {"include_dashboard": False, "object_store_memory": STORE_BYTES, "_temp_dir": folder}
        ray._private.worker.print_to_stdstream = lambda *_, **__: None  # else a dead raylet's log is printed
        ray.init("local", num_cpus=cpus, **local, **options)
        if ray.util.get_node_ip_address() not in ("127.0.0.1", "::1"):
            ray.shutdown()
            raise UserError(
                "Ray was imported before, so it would listen on every interface; start Python anew."
            )
        return ray
    try:
        ray.init(address, **options)
    except (ConnectionError, ValueError, RuntimeError, ray.exceptions.RayError) as error:
        raise UserError(
            f"No Ray cluster answers at '{address}' ({error}). Expected host:port or auto, and the cluster's "
            "token in RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH."
        ) from None
    return ray
