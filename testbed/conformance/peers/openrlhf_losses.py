"""OpenRLHF: PolicyLoss of openrlhf.models.loss.

The package imports deepspeed and flash_attn, which need CUDA to build. If they are absent, empty modules
replace them; the losses do not use them.
"""

import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from torch import Tensor

from testbed.conformance.peers import PeerLosses, telling

NEED_CUDA = (
    "deepspeed",
    "flash_attn",
    "flash_attn.bert_padding",
    "flash_attn.utils",
    "flash_attn.utils.distributed",
)


def _module() -> ModuleType:
    """Load openrlhf/models/loss.py and its file of masked means, without the rest of the package."""
    name = "openrlhf_models"
    if f"{name}.loss" in sys.modules:
        return sys.modules[f"{name}.loss"]
    spec = importlib.util.find_spec("openrlhf")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'openrlhf'")
    folder = f"{next(iter(spec.submodule_search_locations))}/models"
    package = ModuleType(name)
    package.__path__ = [folder]
    sys.modules[name] = package
    with _without_cuda():
        return importlib.import_module(f"{name}.loss")


class _Empty(ModuleType):
    """A module that provides any imported name and does nothing."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Empty(name)


@contextmanager
def _without_cuda() -> Iterator[None]:
    """Import packages that need CUDA to build as empty modules, if they are absent."""
    absent = [name for name in NEED_CUDA if importlib.util.find_spec(name.partition(".")[0]) is None]
    sys.modules.update({name: _Empty(name) for name in absent})
    try:
        yield
    finally:
        for name in absent:
            sys.modules.pop(name, None)


def _loss(**options: Any) -> Callable[..., Any]:
    def loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, action_mask: Tensor) -> Any:
        return _module().PolicyLoss(**options)(log_probs, old_log_probs, advantages, action_mask)

    return telling(loss, options)


def _corrected(**options: Any) -> Callable[..., Any]:
    def loss(
        log_probs: Tensor,
        old_log_probs: Tensor,
        rollout_log_probs: Tensor,
        advantages: Tensor,
        action_mask: Tensor,
    ) -> Any:
        policy_loss = _module().PolicyLoss(**options)
        return policy_loss(log_probs, old_log_probs, advantages, action_mask, rollout_log_probs)

    return telling(loss, options)


def losses() -> PeerLosses:
    """Return PolicyLoss with the options that choose a loss."""
    _module()
    found: PeerLosses = {
        "PolicyLoss": _loss(),
        "PolicyLoss token_level_loss=False": _loss(token_level_loss=False),
        "PolicyLoss dual_clip=3": _loss(dual_clip=3.0),
        "PolicyLoss policy_loss_type=gspo": _loss(
            policy_loss_type="gspo", clip_eps_low=3e-3, clip_eps_high=4e-3
        ),
    }
    for level, mode, gating, threshold in (
        ("token", "clip", "ratio", (0.5, 5.0)),
        ("token", "mask", "ratio", (0.5, 5.0)),
        ("seq", "mask", "ratio", (0.5, 5.0)),
        ("token", "mask", "binary_kl", (0.0, 0.05)),
        ("seq", "mask", "binary_kl", (0.0, 0.05)),
        ("token", "mask", "tv", (0.0, 0.1)),
    ):
        options = {"level": level, "mode": mode, "gating": gating, "threshold": threshold}
        name = f"PolicyLoss is_correction {level=!s} {mode=!s} {gating=!s} threshold={list(threshold)}"
        found[name] = _corrected(**{f"is_correction_{key}": value for key, value in options.items()})
    return found
