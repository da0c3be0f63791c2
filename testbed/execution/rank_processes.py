"""Start the other processes of a pack with shared batches, and end them with it.

`policy_args.ranks` gives their number. Each gets the same order and trains the same pack; only the first
one's log is kept. They find each other as processes of `accelerate launch` do: see policies.hf.ranks.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

from testbed.config.run import Run
from testbed.errors import UserError

START = "import sys; sys.path[:] = {path!r}; from testbed.execution.worker import follow; follow()"
MEET = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
PATIENCE = 5.0
"""Seconds to wait for a follower's last output."""


def ranks_of(cells: Sequence[Run]) -> int:
    """Return the number of processes that train a pack of these cells together."""
    given = dict(cells[0].policy_args).get("ranks", 1) if cells[0].policy == "hf" else 1
    return given if type(given) is int else 1  # the policy reports other values


@dataclass(frozen=True)
class _Follower:
    rank: int
    process: subprocess.Popen[bytes]
    words: IO[bytes]

    def said(self) -> str:
        """Return its last error; "" if it has none."""
        with suppress(subprocess.TimeoutExpired):
            if self.process.wait(timeout=PATIENCE) == 0:
                return ""
        self.words.seek(0)
        lines = self.words.read().decode(errors="replace").strip().splitlines()
        return f"rank {self.rank}: {lines[-1]}" if lines else ""


@contextmanager
def gathered(order: Mapping[str, Any], ranks: int) -> Iterator[None]:
    """Context in which several processes run an order, this one first; UserError if another dies.

    If a launcher started this process among others, these already run.
    """
    if ranks < 2 or "WORLD_SIZE" in os.environ:
        yield
        return
    port, before = _free_port(), dict(os.environ)
    followers: list[_Follower] = []
    try:
        for rank in range(1, ranks):
            followers.append(_start(order, _meeting(rank, ranks, port)))
        os.environ.update(_meeting(0, ranks, port))
        yield
    except UserError:
        raise
    except Exception as error:
        if said := [words for follower in followers if (words := follower.said())]:
            raise UserError(f"Another process of this pack ended. {said[0]}") from error
        raise
    finally:
        leave()
        for name in MEET:
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]
        for follower in followers:
            _end(follower)


def _start(order: Mapping[str, Any], meeting: Mapping[str, str]) -> _Follower:
    words = tempfile.TemporaryFile()  # noqa: SIM115  lives as long as the process
    process = subprocess.Popen(
        [sys.executable, "-c", START.format(path=sys.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=words,
        env={**os.environ, **meeting},
    )
    assert process.stdin is not None, "every follower is started with a pipe"
    with suppress(BrokenPipeError), process.stdin as pipe:
        pipe.write(json.dumps(order).encode())
    return _Follower(int(meeting["RANK"]), process, words)


def _meeting(rank: int, ranks: int, port: int) -> dict[str, str]:
    values: tuple[Any, ...] = (rank, rank, ranks, "127.0.0.1", port)
    return dict(zip(MEET, map(str, values), strict=True))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def leave() -> None:
    """Leave this process's group, if it is in one."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def _end(follower: _Follower) -> None:
    """End a follower that has not ended by itself, as it does when the pack is done."""
    try:
        # After an error here the others may wait for this process for good.
        follower.process.wait(timeout=PATIENCE if sys.exc_info()[0] is None else 0.1)
    except subprocess.TimeoutExpired:
        follower.process.kill()
        follower.process.wait()
    follower.words.close()
