"""A word to whoever waits: printed only when something takes longer than it may without one."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator

AFTER = 2.0
"""Seconds of silence before the word."""


@contextlib.contextmanager
def patience(text: str, after: float = AFTER) -> Iterator[None]:
    """Print the text on standard error when the block is not done after so many seconds."""
    timer = threading.Timer(after, lambda: print(text, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
