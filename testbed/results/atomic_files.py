"""Write files under a temporary name, flush, then rename, so that a kill leaves no partial file."""

import contextlib
import errno
import json
import os
import secrets
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from testbed.errors import UserError

ASIDE = ".tmp-"
"""Prefix of an unfinished file's name; readers skip such files."""

STALE = 3600.0
"""Age in seconds at which an unfinished file is abandoned; writing one takes milliseconds."""

TODO = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "Free some space"),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR, errno.EISDIR), "Move away what stands in its place"),
    errno.ENOENT: "Make its folder",
}
"""What the user can do about an error of the system, by number; about any other: make the folder writable."""
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def create(path: Path, content: bytes) -> bool:
    """Write a new file; return False and change nothing if the name exists.

    When this returns True, the file survives a crash of the machine.
    """
    with mended(path):
        for last in (False, True):
            aside = _aside(path, content)
            try:
                try:
                    # A link never replaces a file that another process made meanwhile, as a rename would.
                    os.link(aside, path)
                except OSError as error:
                    if error.errno not in NO_LINKS:
                        raise
                    if path.exists():
                        raise FileExistsError(errno.EEXIST, "exists", str(path)) from None
                    os.rename(aside, path)
                break
            except FileExistsError:
                return False
            except FileNotFoundError:  # a runner whose clock is hours ahead took it for one left behind
                if last:
                    raise
            finally:
                aside.unlink(missing_ok=True)
        flush_folder(path.parent)
        return True


def replace(path: Path, content: bytes, flush: bool = True) -> None:
    """Replace a file; a reader sees the old or the new one, whole.

    Without flush the file survives a kill of the process, but maybe not a crash of the machine.
    """
    with mended(path):
        for last in (False, True):
            aside = _aside(path, content, flush)
            try:
                os.replace(aside, path)
                break
            except FileNotFoundError:
                if last:
                    raise
            finally:
                aside.unlink(missing_ok=True)
        if flush:
            flush_folder(path.parent)


def read(path: Path) -> bytes:
    """Return a file's content; OSError for a symbolic link or a pipe, which are never opened."""
    # Without O_NONBLOCK, opening a pipe waits for its writer before it can be refused.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    with open(os.open(path, flags), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "is not a regular file", str(path))
        return file.read()


def record(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file for readers, such as provenance; {} if it is unreadable."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        found = json.loads(read(path))
        return found if isinstance(found, dict) else {}
    return {}


def sweep_aside(folder: Path) -> None:
    """Remove unfinished files that a killed process left long ago."""
    for path in folder.glob(f"{ASIDE}*"):
        with contextlib.suppress(OSError):
            if path.lstat().st_mtime < time.time() - STALE:
                path.unlink()


@contextlib.contextmanager
def mended(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into one UserError that names the path and what to do."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        todo = TODO.get(error.errno or 0, "Make the folder writable")
        raise UserError(
            f"Cannot write {path}: {reason}. {_kept(path)}{todo} and run the same command again."
        ) from error


def _kept(path: Path) -> str:
    """Return a sentence about the results in this file's folder, "" without any."""
    for folder in (path.parent, path.parent.parent):
        with contextlib.suppress(OSError):
            if any(name.endswith(".parquet") for name in os.listdir(folder / "packs")):
                return "Results so far are kept. "
    return ""


def _aside(path: Path, content: bytes, flush: bool = True) -> Path:
    aside = path.parent / f"{ASIDE}{secrets.token_hex(8)}"
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(aside, flags, 0o666), "wb") as file:
            file.write(content)
            if flush:
                file.flush()
                os.fsync(file.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            aside.unlink()
        raise
    return aside


def flush_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
