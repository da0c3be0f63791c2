"""Check the files and headers of a model's weights before anything is built or loaded."""

import copy
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

from testbed.errors import UserError
from testbed.policies.hf.json_files import read_json

ONE = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers")
"""Names of the number of layers in configurations."""


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Return a model's safetensors files: model.safetensors, or those that its index names.

    Raises UserError: neither is there, weights only as pickles, an invalid index, or one that names a missing
    file, a file of another kind, or one outside the folder.
    """
    if (folder / ONE).exists():
        return (_regular(folder / ONE),)
    if (folder / INDEX).exists():
        return _indexed(folder)
    pickles = sorted(p.name for pattern in PICKLES for p in folder.glob(pattern))
    if pickles:
        raise UserError(
            f"The weights in '{folder}' are pickles ({', '.join(pickles)}), which can run code when opened; "
            "convert them with save_pretrained(folder) of transformers, which writes model.safetensors."
        )
    raise UserError(f"'{folder}' has no weights; expected model.safetensors or model.safetensors.index.json.")


def _indexed(folder: Path) -> tuple[Path, ...]:
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise UserError(f"{folder / INDEX} has no weight_map; save the model again with save_pretrained.")
    names = sorted({str(name) for name in places.values()})
    for name in names:
        if not name.endswith(".safetensors") or name != Path(name).name:
            raise UserError(
                f"{folder / INDEX} names {name[:200]!r}, expected names of .safetensors files in the folder; "
                "convert the weights with save_pretrained(folder) of transformers."
            )
    return tuple(_regular(folder / name) for name in names)


def _regular(path: Path) -> Path:
    if not path.is_file():  # follows links of a download cache; refuses loops, pipes, folders
        raise UserError(f"{path} is missing or not a file; download or save the model again.")
    return path


def weight_shapes(folder: Path) -> dict[str, list[int]]:
    """Return the shape of every weight from the headers; UserError for a truncated or invalid file."""
    from safetensors import safe_open

    shapes: dict[str, list[int]] = {}
    for path in weight_files(folder):
        try:
            with safe_open(path, framework="np") as file:
                shapes |= {name: list(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
        except Exception as error:  # safetensors has its own error types
            raise UserError(
                f"Cannot load the model in '{folder}': {path.name} is not a complete safetensors file "
                f"({first_line(error)}). Download or save it again."
            ) from error
    return shapes


def refuse_other_size(folder: Path, config: Mapping[str, Any]) -> None:
    """Raise UserError if config.json describes more weights than the files hold, before any is made.

    The model is built without memory (torch's device "meta"), after its numbers of layers and embeddings were
    compared with the headers, so a large number in a small folder costs nothing.
    """
    shapes = weight_shapes(folder)
    held = sum(map(prod, shapes.values()))
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        layers = max((n for name in LAYERS if isinstance(n := part.get(name), int)), default=0)
        if layers > len(shapes):
            raise UserError(_too_few(folder, f"{layers:,} layers", f"{len(shapes):,} tensors"))
        rows, width = (part.get(name) for name in ("vocab_size", "hidden_size"))
        if isinstance(rows, int) and isinstance(width, int) and rows * width > held:
            raise UserError(_too_few(folder, f"{rows:,} x {width:,} embeddings", f"{held:,} weights"))
    described = _described(folder)
    if (count := sum(map(prod, described.values()))) > held:
        first = next((f"; {n} fits not" for n, shape in described.items() if shapes.get(n) != shape), "")
        raise UserError(_too_few(folder, f"{count:,} weights", f"{held:,}{first}"))


def _too_few(folder: Path, described: str, held: str) -> str:
    return (
        f"The weights in '{folder}' do not fit its config.json, which describes {described}: the files hold "
        f"{held}. Save model and configuration together."
    )


def _described(folder: Path) -> dict[str, list[int]]:
    """Return the shapes of a model's weights by name; UserError for an invalid configuration."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        with torch.random.fork_rng(devices=[]), torch.device("meta"):
            model = AutoModelForCausalLM.from_config(copy.deepcopy(config), trust_remote_code=False)
        model.tie_weights()
    except Exception as error:  # configurations raise any error
        raise UserError(f"Cannot load the model in '{folder}': {first_line(error)}") from error
    return {name: list(each.shape) for name, each in model.named_parameters()}


def first_line(error: BaseException) -> str:
    """Return the start of an error's text, without advice to open pickles."""
    lines = [line.strip()[:500] for line in str(error).splitlines() if line.strip()]
    lines = [line for line in lines if "weights_only" not in line]
    if not lines or isinstance(error, KeyError):
        return ": ".join([type(error).__name__, *lines[:1]])
    return " ".join(lines[:2]) if lines[0].endswith(":") else lines[0]
