"""Run a user's loss in a separate process, so that a hang or a crash ends only that process."""

import json
import os
import select
import subprocess
import sys
import time
from typing import IO, Any

from testbed.errors import UserError

CALL_LIMIT = 20.0
"""Time limit in seconds of one call, or of the import."""
LIMIT = 300.0
"""Time limit in seconds of the whole job."""


def run(job: dict[str, Any], call_limit: float = CALL_LIMIT, limit: float = LIMIT) -> dict[str, Any]:
    """Return the answer of `testbed.conformance.child` to a job; UserError if it fails, hangs or dies."""
    read, write = os.pipe()
    command = [sys.executable, "-m", "testbed.conformance.child", str(write)]
    child = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(write,),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        # The child alone may hold it: its end is read as the end of the stream.
        os.close(write)
        assert child.stdin is not None
        child.stdin.write(json.dumps(job).encode())
        child.stdin.close()
        with os.fdopen(read, "rb", buffering=0) as stream:
            return _answer(stream, child, job["target"], call_limit, limit)
    finally:
        child.kill()
        child.wait()


def _answer(
    stream: IO[bytes], child: subprocess.Popen[bytes], target: str, call_limit: float, limit: float
) -> dict[str, Any]:
    begun = time.monotonic()
    end, since, last, buffer = begun + limit, 0.0, "", b""
    while True:
        until = min(since + call_limit, end) if last else end
        if not select.select([stream], [], [], max(until - time.monotonic(), 0))[0]:
            reason, more = f"did not come back within {call_limit:g} s", "More time: --timeout SECONDS."
            if until == end:
                reason = f"took over {limit:g} s in all"
                more = "In Python, conform and identify of testbed have no limit."
            raise UserError(f"{target} {reason}. {_passed(last)}{more}")
        chunk = stream.read(1 << 16)
        if not chunk:
            code = child.wait()
            raise UserError(f"{target} ended its process with exit code {code}. {_passed(last)}".strip())
        buffer += chunk
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "call" in message:
                last, since = message["call"], time.monotonic()
            elif "error" in message:
                raise UserError(message["error"])
            elif "crash" in message:
                raise RuntimeError(message["crash"])
            else:
                found: dict[str, Any] = message["result"]
                return found


def _passed(last: str) -> str:
    return f"It was passed {last}. " if last else ""
