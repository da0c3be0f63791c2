"""Print a notice when a block takes longer than 2 s."""

import contextlib
import sys
import threading
from collections.abc import Iterator

AFTER = 2.0
"""Seconds before the notice."""


@contextlib.contextmanager
def slow_notice(text: str, after: float = AFTER) -> Iterator[None]:
    """Print the text on standard error if the block is not done after that many seconds."""
    timer = threading.Timer(after, lambda: print(text, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
