"""Model folders that are broken or hostile, one way each: what a copy of a sound folder becomes."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

Breaking = Callable[[Path], object]


class Hostile:
    """A pickle of this makes a file when it is loaded."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return open, (str(self.marker), "w")


WEIGHTS, CONFIG, INDEX = "model.safetensors", "config.json", "model.safetensors.index.json"


def edited(name: str = CONFIG, **changes: Any) -> Breaking:
    def change(folder: Path) -> None:
        path = folder / name
        there = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**there, **changes}))

    return change


def written(name: str, content: bytes) -> Breaking:
    return lambda folder: (folder / name).write_bytes(content)


def cut(name: str, share: float) -> Breaking:
    def change(folder: Path) -> None:
        content = (folder / name).read_bytes()
        (folder / name).write_bytes(content[: int(len(content) * share)])

    return change


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Breaking:
    def rewrite(folder: Path) -> None:
        held = load_file(folder / WEIGHTS)
        change(held)
        save_file(held, folder / WEIGHTS, metadata={"format": "pt"})

    return rewrite


def indexed(shard: Any) -> Breaking:
    """An index that says where the weights are."""

    def change(folder: Path) -> None:
        names = list(load_file(folder / WEIGHTS))
        (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, shard)}))

    return change


def special(name: str, make: Callable[[Path], object]) -> Breaking:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        make(folder / name)

    return change


def header(length: int, body: bytes = b"{}") -> bytes:
    return length.to_bytes(8, "little") + body


DEEP = b"[" * 200_000
LARGE = {"num_hidden_layers": 10**6, "hidden_size": 10**5, "vocab_size": 10**7, "intermediate_size": 10**6}
SPECIAL: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a loop of links": lambda path: path.symlink_to(path.name),
    "a folder": Path.mkdir,
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}
BROKEN: dict[str, Breaking] = {
    **{
        f"{name} is {what}": special(name, make)
        for name in (CONFIG, WEIGHTS)
        for what, make in SPECIAL.items()
    },
    **{f"config.json with {name} {value}": edited(**{name: value}) for name, value in LARGE.items()},
    **{
        f"{name} cut at {share}": cut(name, share) for name in (CONFIG, WEIGHTS) for share in (0.0, 0.4, 0.99)
    },
    **{
        f"an index that names {shard!r}": indexed(shard)
        for shard in (
            "pytorch_model.bin",
            "../model.safetensors",
            "/etc/passwd",
            "absent.safetensors",
            3,
            None,
        )
    },
    **{
        f"config.json with {name} {value!r}": edited(**{name: value})
        for name, value in (
            ("_attn_implementation", "owner/kernel"),
            ("attn_implementation", "owner/kernel@main:module"),
            ("text_config", {"_attn_implementation": "owner/kernel"}),
            ("model_type", "never-heard-of"),
            ("model_type", "bert"),
            ("model_type", 7),
            ("hidden_size", "32"),
            ("hidden_size", 31),
            ("hidden_size", -32),
            ("num_attention_heads", 0),
            ("num_hidden_layers", 3),
            ("vocab_size", 5),
            ("rope_scaling", {"type": "no such"}),
            ("hidden_act", "no such"),
            ("quantization_config", {}),
            ("auto_map", {"AutoModelForCausalLM": "x.M"}),
        )
    },
    "config.json nested deeply": written(CONFIG, DEEP),
    "config.json is a list": written(CONFIG, b"[]"),
    "config.json in another encoding": written(CONFIG, '{"model_type": "llama"}'.encode("utf-16")),
    "an index nested deeply": lambda f: ((f / WEIGHTS).unlink(), (f / INDEX).write_bytes(DEEP)),
    "an index without a map": lambda f: ((f / WEIGHTS).unlink(), (f / INDEX).write_bytes(b"{}")),
    "no weights": lambda f: (f / WEIGHTS).unlink(),
    "only pickles": lambda f: (f / WEIGHTS).rename(f / "pytorch_model.bin"),
    "a header longer than the file": written(WEIGHTS, header(2**62)),
    "a header of no JSON": written(WEIGHTS, header(4, b"{{{{")),
    "a header nested deeply": written(WEIGHTS, header(len(DEEP), DEEP)),
    "a pickle by another name": written(WEIGHTS, b"\x80\x04cos\nsystem\n."),
    "no tensors": tensors(dict.clear),
    "a tensor less": tensors(lambda held: held.pop("model.norm.weight")),
    "a renamed tensor": tensors(lambda held: held.update(other=held.pop("model.norm.weight"))),
    "a tensor of another shape": tensors(lambda held: held.update({"model.norm.weight": torch.ones(33)})),
    "a weight of NaN": tensors(lambda held: held["model.norm.weight"].view(-1)[:1].fill_(torch.nan)),
    "an infinite weight": tensors(lambda held: held["lm_head.weight"].view(-1)[7:8].fill_(torch.inf)),
    "a weight in int8": tensors(lambda held: held.update({"lm_head.weight": held["lm_head.weight"].char()})),
    "all weights in eight-bit floats": tensors(
        lambda held: held.update({n: w.to(torch.float8_e4m3fn) for n, w in held.items()})
    ),
    "an adapter": edited("adapter_config.json", r=4),
    "a tokenizer cut": written("tokenizer.json", b'{"version": "1.0", "model": {'),
    "a tokenizer of no kind": written("tokenizer.json", b"{}"),
    "a tokenizer nested deeply": written("tokenizer.json", DEEP),
}
"""Name to what is done to the folder; every one must be refused before anything is written."""
