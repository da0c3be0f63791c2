"""Open a folder with a causal language model, without running code in it."""

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from math import isfinite, prod
from pathlib import Path
from typing import Any

import torch

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


def refuse_other_size(folder: Path, config: Mapping[str, Any]) -> dict[str, list[int]]:
    """Return the described shapes; UserError if they exceed the weights in the files, before any is made.

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
        first = next((f"; {n} does not fit" for n, shape in described.items() if shapes.get(n) != shape), "")
        raise UserError(_too_few(folder, f"{count:,} weights", f"{held:,}{first}"))
    return described


def _too_few(folder: Path, described: str, held: str) -> str:
    return (
        f"The weights in '{folder}' do not fit its config.json, which describes {described}: the files hold "
        f"{held}. Save model and configuration together."
    )


def _described(folder: Path) -> dict[str, list[int]]:
    """Return the shapes of a model's weights by name; UserError for an invalid configuration."""
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


NOT_ADAPTED = ("embed", "wte", "wpe", "lm_head")
"""Name parts of matrices that are not linear layers, or are the head, which LoRA leaves alone."""
DTYPES = {name: getattr(torch, name) for name in ("float32", "bfloat16", "float16", "float64")}


def check_model_folder(path: str | Path) -> Path:
    """Return the folder if its weights are safetensors and nothing in it requests to run code.

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
                f"{folder / name} has an 'auto_map': the model asks to run Python code of its folder, "
                "which is refused; save it as an architecture that transformers knows."
            )
    if "quantization_config" in config:
        raise UserError(
            f"The model in '{folder}' is quantized; give full weights (float32, float16 or bfloat16)."
        )
    if (folder / "adapter_config.json").exists():
        raise UserError(
            f"'{folder}' holds an adapter; merge it into its base model and save that (merge_and_unload)."
        )
    _refuse_kernels(folder / "config.json", config)
    weight_files(folder)
    return folder


def _refuse_kernels(path: Path, config: Mapping[str, Any]) -> None:
    """Raise UserError for an implementation of attention that would be downloaded: owner/name."""
    for name, value in config.items():
        if name.endswith("attn_implementation") and "/" in str(value):
            raise UserError(
                f"{path} has {name} {str(value)[:200]!r}: the model wants to download code, which is "
                "refused; take the entry out."
            )
        if isinstance(value, dict):
            _refuse_kernels(path, value)


def shapes_of(folder: str | Path) -> dict[str, list[int]]:
    """Return the shapes in a folder of safetensors from the headers; empty if these are unreadable."""
    shapes: dict[str, list[int]] = {}
    # Mistral's folders hold the same weights again, under other names, in consolidated.safetensors.
    paths = [*Path(folder).glob("model*.safetensors")] or Path(folder).glob("*.safetensors")
    for path in paths:
        if not path.is_file():
            continue
        try:
            with path.open("rb") as file:
                header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
            entries = {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}
            found = {name: [int(n) for n in shape] for name, shape in entries.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, MemoryError):
            return {}  # loading reports the error
        shapes |= found
    return shapes


def parameters_of(folder: str | Path) -> int:
    """Return the number of weights in a folder of safetensors from the headers; 0 if unreadable."""
    return sum(prod(shape) for shape in shapes_of(folder).values())


def adapter_parameters(folder: str | Path, given: Mapping[str, Any]) -> int:
    """Return the approximate number of weights that LoRA trains: r (in + out) per adapted layer.

    given: the policy's `lora` and `lora_targets`, or the `adapter` folder it starts from.
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


def load_model(path: str | Path, dtype: torch.dtype, attention: str) -> Any:
    """Return the causal LM of a folder, in evaluation mode (no dropout), on the CPU.

    Torch's global random state is unchanged. Raises UserError as `check_model_folder` does, and for broken
    files and weights that do not fit the configuration.

    attention: "sdpa" or "eager"; "auto" uses sdpa if the architecture supports it.
    """
    folder = check_model_folder(path)
    refuse_unloadable(folder)
    from transformers import AutoModelForCausalLM  # takes 0.5 s and 500 modules: only to open a model

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
    except Exception as error:  # transformers, safetensors and torch have separate error types
        raise UserError(f"Cannot load the model in '{folder}': {first_line(error)}") from error
    wrong = sorted(info["missing_keys"]) + sorted(str(entry[0]) for entry in info["mismatched_keys"])
    if wrong:
        raise UserError(
            f"The weights in '{folder}' do not fit its config.json: {len(wrong)} are missing or misshapen, "
            f"{wrong[0]} first; save model and configuration together."
        )
    return model.eval()


def refuse_unloadable(folder: Path) -> None:
    """Raise UserError if headers, configuration and architecture do not match, or weights are no numbers."""
    with quiet_transformers():
        described = refuse_other_size(folder, read_json(folder / "config.json"))
    for path in weight_files(folder):
        state = path.stat()
        for name, fault in _faults(path, state.st_size, state.st_mtime_ns):
            if any(f".{known}".endswith(f".{name}") for known in described):  # files may hold buffers, too
                raise UserError(
                    f"Weight '{name}' in {path} {fault}; expected finite numbers of type "
                    f"{', '.join(DTYPES)}. The model cannot be trained; take a sound copy of it."
                )


# Size and time are only in the cache's key, so that a file written again is read again.
@cache
def _faults(path: Path, _size: int, _changed_ns: int) -> tuple[tuple[str, str], ...]:
    """Return the tensors of a file that have another type or are not finite; a gigabyte takes about 0.1 s."""
    from safetensors import safe_open

    found = []
    with safe_open(path, framework="pt") as file:
        for name in file.keys():  # noqa: SIM118
            tensor = file.get_tensor(name)
            if tensor.dtype not in DTYPES.values():
                found.append((name, f"has type {str(tensor.dtype).removeprefix('torch.')}"))
            elif tensor.numel() and not all(map(isfinite, map(float, tensor.aminmax()))):
                found.append((name, "holds NaN or infinity"))
    return tuple(found)


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


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Silence progress bars and notes of transformers, then restore the user's settings."""
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
