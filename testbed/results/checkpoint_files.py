"""Write and read checkpoint files: atomically, checked when read, without running code."""

import contextlib
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import UserError
from testbed.results.atomic_files import ASIDE, flush_folder, mended, sweep_aside
from testbed.results.fingerprint import difference, fingerprint

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINT = "TESTBED_CHECKPOINT"
"""Environment variable: folder for the checkpoints of unfinished packs."""
EVERY = "TESTBED_CHECKPOINT_EVERY"
"""Environment variable: steps between two checkpoints, or the time as "60s"."""


class Damaged(ValueError):
    """A damaged checkpoint; the pack restarts without it."""


def checkpoint_path(pack: str) -> Path | None:
    """Return a pack's checkpoint file, None if no folder is set; UserError for an invalid folder."""
    folder = os.environ.get(CHECKPOINT, "")
    if not folder:
        return None
    with mended(Path(folder)):
        Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) / f"{pack}.safetensors"


def forget(pack: str) -> None:
    """Remove the checkpoint of a pack with stored results, and unfinished files."""
    path = checkpoint_path(pack)
    if path is not None:
        path.unlink(missing_ok=True)
        sweep_unfinished(path)


def sweep_unfinished(path: Path) -> None:
    """Remove half-written files of killed processes; only one process at a time runs a pack."""
    for left in path.parent.glob(f"{ASIDE}{path.stem}-*"):
        with contextlib.suppress(OSError):
            left.unlink()
    sweep_aside(path.parent)


def _digest(tree: str, tensors: "dict[str, Tensor]") -> str:
    import torch

    found = hashlib.sha256(tree.encode())
    for key, value in tensors.items():
        found.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().data if value.numel() else b"")
    return found.hexdigest()


def write_checkpoint(path: Path, tree: dict[str, Any], tensors: "dict[str, Tensor]") -> None:
    """Replace the checkpoint, or keep the old one."""
    from safetensors.torch import save_file

    text = json.dumps({**tree, "fingerprint": dict(fingerprint())})
    aside = path.parent / f"{ASIDE}{path.stem}-{secrets.token_hex(8)}"
    with mended(path):
        path.parent.mkdir(parents=True, exist_ok=True)  # another run may have removed the empty folder
        try:
            save_file(tensors, aside, metadata={"tree": text, "digest": _digest(text, tensors)})
            with open(aside, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(aside, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                aside.unlink()
        flush_folder(path.parent)


def read_checkpoint(path: Path) -> "tuple[dict[str, Any], dict[str, Tensor]]":
    """Return JSON and tensors; Damaged for a damaged file, UserError for one of other code."""
    from safetensors import safe_open

    try:
        if not path.is_file():
            raise Damaged("no file")
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            # The digest depends on the order, and as text t10 stands before t2.
            names = sorted(file.keys(), key=lambda name: int(name[1:]))
            tensors = {name: file.get_tensor(name) for name in names}
        text = metadata["tree"]
        whole = _digest(text, tensors) == metadata["digest"]
        tree: dict[str, Any] = json.loads(text)
    except Exception as error:  # safetensors has its own error types
        raise Damaged(str(error)) from error
    if not whole:
        raise Damaged("its digest differs")
    if changed := difference(tree["fingerprint"], fingerprint()):
        raise UserError(
            f"The checkpoint {path} was written by other code: {changed}. Install the same versions, "
            "or delete it to start anew."
        )
    return tree, tensors
