"""Folder in the user's cache for files that can be rebuilt and are kept between runs."""

import os
from pathlib import Path


def place(name: str) -> Path | None:
    """Return the folder of that name in the user's cache; None without an absolute path to one."""
    caches = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache")
    try:
        caches = caches.expanduser()
    except RuntimeError:  # no home
        return None
    return caches / "off-policy-testbed" / name if caches.is_absolute() else None


def private(name: str) -> Path | None:
    """Return `place(name)`, made with access for its owner only; None if it cannot be made."""
    folder = place(name)
    if folder is None:
        return None
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return None
    return folder
