"""File locks that the kernel releases when a process is killed."""

import contextlib
import errno
import fcntl
import os
import stat
from pathlib import Path

from testbed.results.atomic_files import mended

UNSUPPORTED = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP)
"""For mounts without locks: work may be done twice, but commits still keep the first result."""


class Locks:
    """Named exclusive locks in a folder, held until released or until this process ends."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Return True if the lock is now held here, False if another process holds it."""
        if name in self._held:
            return True
        path = self._folder / name
        with mended(path):
            self._folder.mkdir(exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                os.close(descriptor)
                raise OSError(errno.EINVAL, "is not a regular file", str(path))
        if not _lock(descriptor) or not _same_file(descriptor, path):
            os.close(descriptor)
            return False
        os.ftruncate(descriptor, 0)  # a killed holder's note
        self._held[name] = descriptor
        return True

    def note(self, name: str, text: str) -> None:
        """Publish a text of constant length to readers of `noted` while the lock is held here."""
        if (descriptor := self._held.get(name)) is not None:
            with contextlib.suppress(OSError):  # a full disk: results matter, this does not
                os.pwrite(descriptor, text.encode(), 0)

    def noted(self, name: str) -> str:
        """Return the note of the process that holds the lock; "" if none holds it."""
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            descriptor = os.open(self._folder / name, flags)
        except OSError:
            return ""
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return os.read(descriptor, 100).decode(errors="replace")
        finally:
            os.close(descriptor)
        return ""

    def release(self, name: str) -> None:
        """Release the lock and remove its file; do nothing if it is not held."""
        descriptor = self._held.pop(name, None)
        if descriptor is not None:
            # Removed while still locked: whoever opened it before sees in `take` that it is gone.
            (self._folder / name).unlink(missing_ok=True)
            os.close(descriptor)

    def __contains__(self, name: str) -> bool:
        return name in self._held

    def close(self) -> None:
        for name in list(self._held):
            self.release(name)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in UNSUPPORTED
    return True


def _same_file(descriptor: int, path: Path) -> bool:
    """Return False if the previous holder removed the file between our opening and locking it."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False
