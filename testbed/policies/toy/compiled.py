"""Find the compiled loops that apply; import them late, because they import the compiler."""

import importlib
import importlib.util
from functools import cache
from types import ModuleType

import torch
from torch import Tensor


@cache
def installed() -> bool:
    """Return True if Numba is installed; without it torch computes the same, slower."""
    return importlib.util.find_spec("numba") is not None


def serves(x: Tensor) -> bool:
    """Return True if compiled loops support these numbers: float32 on the CPU."""
    return x.device.type == "cpu" and x.dtype == torch.float32 and installed()


@cache
def attention_loops() -> ModuleType:
    return importlib.import_module("testbed.policies.toy.attention_kernels")


@cache
def block_loops() -> ModuleType:
    """Return the loops of normalization and of gradients through it."""
    return importlib.import_module("testbed.policies.toy.block_kernels")


@cache
def step_loops() -> ModuleType:
    return importlib.import_module("testbed.policies.toy.step_kernels")
