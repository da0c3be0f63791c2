"""LoRA through peft: only small matrices are trained, stored and sent; the other weights stay frozen.

W x becomes W x + (alpha / r) B A x with A [r, in] random and B [out, r] zero (Hu et al., 2021,
arXiv:2106.09685, Section 4.1); theta holds only A and B. The adapted model starts equal to the frozen one:
the starting weights are the reference, without a second model.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from testbed import rng
from testbed.errors import UserError, unknown
from testbed.policies.hf.json_files import read_json

NAME = "default"
PREFIX = "base_model.model."
"""Prefix of every name in an adapter saved by peft."""
ALL = "all-linear"
SETTINGS = ("r", "lora_alpha", "target_modules", "rank_pattern", "alpha_pattern", "use_rslora")
"""Fields read from a saved adapter's configuration."""
MOVED = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Starts of adapters that change the weights beneath: such an adapter fits no model that was saved before."""


@dataclass(frozen=True)
class Lora:
    """rank: r. alpha: scale times r; 0 for 2 r. targets: layer names, by commas, or all linear layers.

    folder: a saved adapter to start from; it sets the other three.
    """

    rank: int = 0
    alpha: float = 0.0
    targets: str = ALL
    folder: str = ""

    def __bool__(self) -> bool:
        return bool(self.rank or self.folder)


class StackedLinear(nn.Linear):
    """A linear layer that also takes a weight per replica, [R, out, in], for rows in replicas' order."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the product [rows, …, out]; each of R equal runs of rows meets the weight of its replica."""
        if self.weight.dim() == 2:
            return functional.linear(input, self.weight)
        rows_RNI = input.reshape(len(self.weight), -1, input.shape[-1])
        return (rows_RNI @ self.weight.mT).reshape(*input.shape[:-1], -1)


def add_adapters(model: Any, lora: Lora) -> None:
    """Freeze a model and add adapters to its linear layers; the same arguments give the same weights.

    Raises UserError: peft is missing, a rank below 1, no layer of that name, an adapter of another model.
    """
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise UserError("LoRA needs the package peft: pip install 'off-policy-testbed[llm]'.") from error
    settings = _saved_settings(Path(lora.folder)) if lora.folder else checked_settings(lora)
    model.requires_grad_(False)
    try:
        with warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
            warnings.simplefilter("ignore")  # about Conv1D, whose layout peft then detects
            torch.manual_seed(rng.key(0, "lora") % 2**63)
            # No dropout: sampler and trainer would differ at equal weights.
            inject_adapter_in_model(LoraConfig(lora_dropout=0.0, **settings), model, NAME)
    except (AttributeError, TypeError, ValueError) as error:  # peft trusts the fields of a saved adapter
        raise UserError(f"LoRA cannot be added: {str(error).splitlines()[0]}") from error
    for layer in _layers(model).values():
        for half in (layer.lora_A, layer.lora_B):
            if NAME in half and half[NAME].bias is None:
                # A change of class keeps peft's modules, their names and their weights.
                half[NAME].__class__ = StackedLinear
    if lora.folder:
        _load(model, Path(lora.folder))
    elif lora.targets != ALL:
        # peft refuses targets only if it finds none of them.
        names = [name.rpartition(".")[2] for name in _layers(model)]
        for target in settings["target_modules"]:
            if target not in names:
                linear = (name for name, module in model.named_modules() if isinstance(module, nn.Linear))
                known = {*names, *(name.rpartition(".")[2] for name in linear)} - {"base_layer", NAME}
                raise unknown("layer in lora_targets", target, sorted(known))


def checked_settings(lora: Lora) -> dict[str, Any]:
    """Return the settings of new adapters in peft's names; raise UserError for an invalid rank or scale."""
    whole = isinstance(lora.rank, int) and not isinstance(lora.rank, bool)
    if not whole or lora.rank < 1 or not 0 <= lora.alpha < inf:
        raise UserError(
            f"lora is {lora.rank!r} and lora_alpha {lora.alpha!r}; expected a rank of at least 1, as 16, and "
            "a finite scale of at least 0, where 0 means twice the rank."
        )
    targets = lora.targets if lora.targets == ALL else [name.strip() for name in lora.targets.split(",")]
    return {"r": lora.rank, "lora_alpha": lora.alpha or 2 * lora.rank, "target_modules": targets}


def _saved_settings(folder: Path) -> dict[str, Any]:
    config = read_json(folder / "adapter_config.json")
    odd = {
        "peft_type": config.get("peft_type", "LORA") != "LORA",
        "use_dora": bool(config.get("use_dora")),
        "bias": config.get("bias", "none") != "none",
        "modules_to_save": bool(config.get("modules_to_save")),
        "init_lora_weights": str(config.get("init_lora_weights")).startswith(MOVED),
    }
    if wrong := [name for name, is_odd in odd.items() if is_odd]:
        raise UserError(
            f"The adapter in '{folder}' has {wrong[0]} = {config[wrong[0]]!r}; expected plain LoRA matrices."
        )
    if not (folder / "adapter_model.safetensors").exists():
        raise UserError(f"'{folder}' has no adapter_model.safetensors; pickles are never opened.")
    return {name: config[name] for name in SETTINGS if config.get(name) is not None}


def _load(model: Any, folder: Path) -> None:
    from safetensors.torch import load_file

    try:
        saved = load_file(folder / "adapter_model.safetensors")
    except Exception as error:  # safetensors has its own error types
        raise UserError(f"Cannot read the adapter in '{folder}': {error}") from error
    own = {_saved_name(name): p for name, p in model.named_parameters() if p.requires_grad}
    for name in sorted(own.keys() ^ saved.keys()):
        raise UserError(
            f"The adapter in '{folder}' belongs to another model: {name} is only "
            f"{'in the adapter' if name in saved else 'here'}."
        )
    for name, parameter in own.items():
        if saved[name].shape != parameter.shape:
            raise UserError(
                f"The adapter in '{folder}' belongs to another model: {name} is "
                f"{list(saved[name].shape)} there and {list(parameter.shape)} here."
            )
        parameter.data.copy_(saved[name])


def _saved_name(name: str) -> str:
    return PREFIX + name.replace(f".{NAME}.", ".")


def save_adapter(model: Any, weights: Mapping[str, Tensor], folder: Path) -> None:
    """Write these adapter weights as a folder for peft and for the policy's `adapter`."""
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    model.peft_config[NAME].save_pretrained(str(folder))
    saved = {_saved_name(name): value.contiguous().cpu() for name, value in weights.items()}
    save_file(saved, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def _layers(model: Any) -> dict[str, Any]:
    from peft.tuners.lora import LoraLayer

    return {name: module for name, module in model.named_modules() if isinstance(module, LoraLayer)}


@torch.no_grad()
def merged(model: Any, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of the equivalent plain model, under its names."""
    own = dict(model.named_parameters())
    before = {name: own[name].data for name in weights}
    try:
        for name, value in weights.items():
            own[name].data = value.to(own[name].device, own[name].dtype)
        found = {n.replace(".base_layer.", "."): p.data for n, p in own.items() if n not in weights}
        for name, layer in _layers(model).items():
            weight = layer.get_base_layer().weight
            delta = layer.get_delta_weight(NAME).to(weight.dtype)
            found[f"{name}.weight"] = weight.data + delta
        return found
    finally:
        for name, value in before.items():
            own[name].data = value
