"""Opening a folder that holds a causal language model, without running anything that lies in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import torch

from testbed.errors import UserError

NOT_ADAPTED = ("embed", "wte", "wpe", "lm_head")
"""Parts of the names of matrices that are no linear layer, or the head, which LoRA leaves alone."""
DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def check_model_folder(path: str | Path) -> Path:
    """Return the folder if its weights are safetensors and nothing in it asks to run code of its own.

    Raises UserError: no such folder, no config.json, no weights, weights only as pickles, an `auto_map`
    (the model would need trust_remote_code), an adapter or a quantized model.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise UserError(
            f"Model folder '{folder}' does not exist; give one with config.json and model.safetensors."
        )
    config = read_json(folder / "config.json")
    for name in ("config.json", "tokenizer_config.json"):
        if (folder / name).exists() and "auto_map" in read_json(folder / name):
            raise UserError(
                f"{folder / name} has an 'auto_map': the model wants to run its own Python code, which is "
                "refused; save it as an architecture that transformers knows."
            )
    if "quantization_config" in config:
        raise UserError(
            f"The model in '{folder}' is quantized; give full weights (float32, float16 or bfloat16)."
        )
    if (folder / "adapter_config.json").exists():
        raise UserError(
            f"'{folder}' holds an adapter; merge it into its base model and save that (merge_and_unload)."
        )
    _check_weights(folder)
    return folder


def shapes_of(folder: str | Path) -> dict[str, list[int]]:
    """Return the shapes in a folder of safetensors by its headers; nothing where these say nothing."""
    shapes: dict[str, list[int]] = {}
    for path in Path(folder).glob("*.safetensors"):
        try:
            with path.open("rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            found = {
                name: [int(n) for n in e["shape"]] for name, e in header.items() if name != "__metadata__"
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError):
            return {}  # whoever loads it says what is wrong
        shapes |= found
    return shapes


def parameters_of(folder: str | Path) -> int:
    """Return how many weights a folder of safetensors holds by its headers; 0 where these say nothing."""
    return sum(prod(shape) for shape in shapes_of(folder).values())


def adapter_parameters(folder: str | Path, given: Mapping[str, Any]) -> int:
    """Return about how many weights LoRA trains: r (in + out) for every layer that is adapted.

    given: `lora` and `lora_targets` of the policy, or the `adapter` folder it starts from.
    """
    if given.get("adapter"):
        return parameters_of(str(given["adapter"]))
    targets = str(given.get("lora_targets", "all-linear"))
    names = [] if targets == "all-linear" else [name.strip() for name in targets.split(",")]
    total = 0
    for name, shape in shapes_of(folder).items():
        layer = name.removesuffix(".weight").rpartition(".")[2]
        adapted = layer in names if names else not any(part in name for part in NOT_ADAPTED)
        total += int(given["lora"]) * sum(shape) if len(shape) == 2 and adapted else 0
    return total


def _check_weights(folder: Path) -> None:
    if any((folder / name).exists() for name in ("model.safetensors", "model.safetensors.index.json")):
        return
    pickles = sorted(p.name for pattern in PICKLES for p in folder.glob(pattern))
    if pickles:
        raise UserError(
            f"The weights in '{folder}' are pickles ({', '.join(pickles)}), which can run code when opened; "
            "convert them with save_pretrained(folder) of transformers, which writes model.safetensors."
        )
    raise UserError(f"'{folder}' has no weights; expected model.safetensors or model.safetensors.index.json.")


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; UserError when it is missing or broken."""
    if not path.exists():
        raise UserError(f"'{path.parent}' has no {path.name}; give a folder written by save_pretrained.")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}.") from error
    if not isinstance(content, dict):
        raise UserError(
            f"{path} holds a {type(content).__name__}, expected an object with the model's settings."
        )
    return content


def load_model(path: str | Path, dtype: torch.dtype, attention: str) -> Any:
    """Return the causal LM of a folder, in evaluation mode (no dropout), on the CPU.

    The global random state of torch stays as it was. Raises UserError as `check_model_folder` does, and for
    broken files and weights that do not belong to the configuration.

    attention: "sdpa" or "eager"; "auto" takes sdpa where the architecture has it.
    """
    folder = check_model_folder(path)
    from transformers import AutoModelForCausalLM  # 0.5 s and 500 modules: only when a model is really opened

    options: dict[str, Any] = {
        "local_files_only": True,
        "use_safetensors": True,
        "trust_remote_code": False,
        "dtype": dtype,
        "ignore_mismatched_sizes": True,  # reported below, in one line
        "output_loading_info": True,
    }
    try:
        with torch.random.fork_rng(devices=[]), quiet_transformers():
            model, info = _first_attention(AutoModelForCausalLM, folder, options, attention)
    except Exception as error:  # transformers, safetensors and torch each raise their own kinds
        raise UserError(f"Cannot load the model in '{folder}': {_first_line(error)}") from error
    wrong = sorted(info["missing_keys"]) + sorted(str(entry[0]) for entry in info["mismatched_keys"])
    if wrong:
        raise UserError(
            f"The weights in '{folder}' do not fit its config.json: {len(wrong)} are missing or misshapen, "
            f"{wrong[0]} first; save model and configuration together."
        )
    return model.eval()


def _first_attention(factory: Any, folder: Path, options: dict[str, Any], attention: str) -> Any:
    if attention != "auto":
        return factory.from_pretrained(str(folder), attn_implementation=attention, **options)
    try:
        # Some versions run capped attention (Gemma 2) under sdpa, without the cap.
        if read_json(folder / "config.json").get("attn_logit_softcapping") is None:
            return factory.from_pretrained(str(folder), attn_implementation="sdpa", **options)
    except ValueError:  # some architectures (BLOOM) refuse sdpa
        pass
    return factory.from_pretrained(str(folder), attn_implementation="eager", **options)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence progress bars and notes of transformers, then restore what the user had set."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
