"""The process in which a user's verifier runs: one JSON line in, one out. Started by `UserVerifier`."""

import importlib.util
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def load(path: Path, name: str) -> Callable[..., Any]:
    """Return the function; raises any error of the file."""
    spec = importlib.util.spec_from_file_location("user_verifier", path)
    if spec is None or spec.loader is None:
        raise ValueError("this is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.parent))
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise ValueError(f"the file has no function {name!r}")
    found: Callable[..., Any] = function
    return found


def reply(function: Callable[..., Any], line: str) -> dict[str, Any]:
    """Return the score of one question, or the error."""
    question = json.loads(line)
    try:
        score = function(question["response"], question["problem"])
        number = float(score)
    except (Exception, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    if not 0 <= number <= 1:
        return {"error": f"it returned {score!r}, expected a number from 0 to 1"}
    return {"score": number}


def main() -> None:
    """Answer lines until there are no more; discards output printed by the user's code."""
    # Answers keep the pipe for themselves: a print of the user's code would be read as one.
    sink = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def send(answer: dict[str, Any]) -> None:
        sink.write(json.dumps(answer) + "\n")
        sink.flush()

    try:
        function = load(Path(sys.argv[1]), sys.argv[2])
    except (Exception, SystemExit) as error:
        send({"error": f"{type(error).__name__}: {error}"})
        return
    send({"ready": True})
    for line in sys.stdin:
        send(reply(function, line))


if __name__ == "__main__":
    main()
