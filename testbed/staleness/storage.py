"""Store many versions of the weights: in memory up to a limit, or in a mapped file."""

import os
import tempfile
from pathlib import Path

import torch
from torch import Tensor

from testbed.errors import UserError

SPILL = "TESTBED_SPILL"
"""Environment variable: folder for versions of the weights that do not fit in memory."""


CPU = torch.device("cpu")


def allocate(
    rows: int, like_RP: Tensor, what: str, limit: int | None = None, dtype: torch.dtype | None = None
) -> Tensor:
    """Allocate rows of weights, [rows, P], uninitialized.

    If SPILL names a folder, the rows lie in a file there. The file is unlinked once mapped, so it vanishes
    with the process however that ends.

    Args:
        rows: their number.
        like_RP: weights that give width, type and device; rows in a file, or too large for the GPU, are on
            the CPU.
        what: purpose of the rows, for the message.
        limit: most bytes of memory; by default half of the memory now available.
        dtype: their type, if it differs from like_RP's.

    Raises:
        UserError: the rows exceed the limit, or do not fit in the folder.
    """
    shape = (rows, like_RP.shape[1])
    dtype = dtype or like_RP.dtype
    size = shape[0] * shape[1] * dtype.itemsize
    folder = os.environ.get(SPILL, "")
    if folder:
        return _mapped(Path(folder), shape, size, dtype)
    device = like_RP.device
    most = available(device) // 2 if limit is None else limit
    if size > most and device.type != "cpu":
        device, most = CPU, available(CPU) // 2 if limit is None else limit
    if size > most:
        raise UserError(
            f"{what} x {shape[1]:,} weights of {dtype.itemsize} bytes need {readable(size)}, more "
            f"than the {readable(most)} that may be used. Take a smaller lag, run fewer cells at a time, or "
            f"set {SPILL}=FOLDER to keep them in a file there."
        )
    return torch.empty(shape, dtype=dtype, device=device)


def available(device: torch.device) -> int:
    """Return the bytes of memory available now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):  # not Linux: count all memory
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def readable(size: int) -> str:
    """Format bytes: 1610612736 becomes "1.5 GiB"."""
    value, units = float(size), ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB"]
    while value >= 1024 and len(units) > 1:
        value, units = value / 1024, units[1:]
    return f"{value:.4g} {units[0]}"


def _mapped(folder: Path, shape: tuple[int, int], size: int, dtype: torch.dtype) -> Tensor:
    if not folder.is_dir():
        raise UserError(f"{SPILL} is '{folder}', which is not a folder; make it, or unset {SPILL}.")
    try:
        descriptor, name = tempfile.mkstemp(prefix="versions-", dir=folder)
    except OSError as error:
        raise UserError(f"{SPILL} is '{folder}', where no file can be made: {error}.") from error
    try:
        # Reserve now: a map into a file too large for the disk would crash at its first write.
        os.posix_fallocate(descriptor, 0, max(size, 1))
        rows: Tensor = torch.from_file(name, shared=True, size=shape[0] * shape[1], dtype=dtype)
        return rows.view(shape)
    except OSError as error:
        raise UserError(f"{SPILL} is '{folder}', which cannot hold {readable(size)}: {error}.") from error
    finally:
        os.close(descriptor)
        os.unlink(name)
