"""Files of checkpoints: where they lie, whole or absent, checked when they are read; without running code."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import UserError
from testbed.results.atomic_files import flush_folder, mended
from testbed.results.fingerprint import difference, fingerprint

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINT = "TESTBED_CHECKPOINT"
"""Environment variable: folder for the checkpoints of packs that are under way."""
EVERY = "TESTBED_CHECKPOINT_EVERY"
"""Environment variable: steps between two of them, or the time as "60s"."""


def checkpoint_path(pack: str) -> Path | None:
    """Return the file for a pack's checkpoint, None where no folder is set; UserError for no folder."""
    folder = os.environ.get(CHECKPOINT, "")
    if not folder:
        return None
    with mended(Path(folder)):
        Path(folder).mkdir(parents=True, exist_ok=True)
    return Path(folder) / f"{pack}.safetensors"


def forget(pack: str) -> None:
    """Remove the checkpoint of a pack whose results are kept."""
    path = checkpoint_path(pack)
    if path is not None:
        path.unlink(missing_ok=True)


def _digest(tree: str, tensors: dict[str, Tensor]) -> str:
    import torch

    found = hashlib.sha256(tree.encode())
    for key, value in tensors.items():
        found.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.reshape(-1).view(torch.uint8).numpy().data if value.numel() else b"")
    return found.hexdigest()


def write_checkpoint(path: Path, tree: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Put a checkpoint in place of the one before, or leave that one."""
    from safetensors.torch import save_file

    text = json.dumps({**tree, "fingerprint": dict(fingerprint())})
    aside = path.parent / f".tmp-{secrets.token_hex(8)}"
    with mended(path):
        path.parent.mkdir(parents=True, exist_ok=True)  # another run on the folder may have tidied up
        try:
            save_file(tensors, aside, metadata={"tree": text, "digest": _digest(text, tensors)})
            with open(aside, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(aside, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                aside.unlink()
        flush_folder(path.parent)


def read_checkpoint(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return JSON and tensors; UserError for a file that is damaged, or written by other code."""
    from safetensors import safe_open

    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata()
            names = sorted(file.keys(), key=lambda name: int(name[1:]))
            tensors = {name: file.get_tensor(name) for name in names}
        text = metadata["tree"]
        whole = _digest(text, tensors) == metadata["digest"]
    except Exception as error:  # safetensors raises its own kinds
        raise UserError(f"The checkpoint {path} cannot be read: {error}. Delete it to start anew.") from error
    if not whole:
        raise UserError(f"The checkpoint {path} is damaged: its digest differs. Delete it to start anew.")
    tree: dict[str, Any] = json.loads(text)
    if changed := difference(fingerprint(), tree["fingerprint"]):
        raise UserError(
            f"The checkpoint {path} was written by other code: {changed}. Install the same versions, "
            "or delete it to start anew."
        )
    return tree, tensors
