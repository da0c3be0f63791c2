"""The process in which a user's loss runs: reads a job as JSON, writes each call, then the answer."""

import importlib
import json
import math
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

from testbed.conformance.signature import bind
from testbed.errors import UserError
from testbed.user_files import in_a_file, outside_callable

IMPORT = "nothing yet: its file was being imported"


def load(target: str) -> Callable[..., Any]:
    """Return the callable of "path/to/file.py:function" or "package.module:function", or raise UserError."""
    if in_a_file(target):
        return outside_callable(target).function
    module, _, name = target.partition(":")
    if not name:
        raise UserError(
            f"'{target}' names no function; expected FILE.py:FUNCTION or package.module:function."
        )
    sys.path.insert(0, os.getcwd())
    try:
        found: Any = importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:
        raise UserError(f"{target} cannot be imported: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise UserError(f"{target} is a {type(found).__name__}; expected a function.")
    loss: Callable[..., Any] = found
    return loss


def answer(job: dict[str, Any]) -> dict[str, Any]:
    """Return the findings of identify or conform in their JSON form."""
    from testbed.conformance.calling import announce
    from testbed.conformance.conformance_check import conform
    from testbed.conformance.nearest_entries import identify

    for listener in announce:
        listener(IMPORT)
    try:
        function = load(job["target"])
    finally:
        for listener in announce:
            listener("")
    binding = bind(function, job["target"], job["inputs"], job["given"], job["layout"])
    if job["command"] == "identify":
        return identify(binding).as_dict()
    given = (job[name] for name in ("as", "aggregation", "length", "hyper", "strict"))
    return conform(binding, *given).as_dict()


def plain(value: Any) -> Any:
    """Return a value that JSON supports; numbers that are not finite become words."""
    if isinstance(value, dict):
        return {str(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def main(out: int) -> None:
    """Answer the job on standard input through the file descriptor `out`."""
    import torch

    from testbed.conformance import calling

    torch.set_num_threads(1)

    def say(message: dict[str, Any]) -> None:
        os.write(out, json.dumps(plain(message)).encode() + b"\n")

    calling.announce.append(lambda words: say({"call": words}))
    try:
        result = answer(json.loads(sys.stdin.read()))
    except UserError as error:
        say({"error": str(error)})
    except Exception:
        say({"crash": traceback.format_exc()})
    else:
        say({"result": result})


if __name__ == "__main__":
    main(int(sys.argv[1]))
