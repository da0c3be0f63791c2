"""Names of commands up to release 0.1, each with the command that replaced it."""

from collections.abc import Sequence

MOVED = {
    "validate": "run --model FOLDER [FIELD=VALUE]...", "watch": "status RESULTS --watch",
    "train-base": "pretrained scratch FOLDER", "metrics": "list metrics [PATTERN]", "version": "--version",
    "figures": "evidence figures NAME", "objectives list": "list objectives",
    "objectives show": "show NAME", "objectives cite": "show NAME --cite",
    "objectives atlas": "evidence pages atlas", "experiments list": "list experiments",
    "experiments show": "show NAME", "experiments run": "evidence run NAME",
    "experiments table": "evidence run NAME --write", "experiments": "evidence",
    "claims list": "list claims", "claims show": "show NAME", "claims run": "evidence judge PATTERN",
    "claims judge": "evidence judge --write", "claims": "evidence", "systems show": "show NAME",
    "systems index": "evidence pages systems", "systems": "list systems",
}  # fmt: skip


def moved(words: Sequence[str]) -> str:
    """Return a sentence with the new command for an old one's words, "" for current commands."""
    for size in (2, 1):
        old = " ".join(words[:size])
        if len(words) >= size and old in MOVED:
            return f"`testbed {old}` is now `testbed {MOVED[old]}`."
    return ""
