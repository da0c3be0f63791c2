"""Trinity-RFT: its policy losses that take log-probabilities, advantages and a mask."""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from testbed.conformance.peers import PeerLosses, telling

OPTIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("ppo", {"clip_range": 0.2}),
    ("ppo", {"clip_range": 0.2, "enable_sequence_masking": True}),
    ("gspo", {"clip_range_low": 3e-3, "clip_range_high": 4e-3}),
    ("opmd", {}),
    ("topr", {}),
    ("cispo", {}),
    ("cispo", {"enable_mask_clip": True}),
    ("sppo", {}),
    ("rec", {"clip_mode": "one-side"}),
    ("rec", {"clip_mode": "two-side"}),
    ("rec", {"clip_mode": "ring"}),
    ("sapo", {}),
    ("importance_sampling", {}),
)


def _loss(name: str, options: dict[str, Any]) -> Callable[..., Any]:
    def loss(logprob: Tensor, old_logprob: Tensor, advantages: Tensor, action_mask: Tensor) -> Any:
        from trinity.algorithm.policy_loss_fn import POLICY_LOSS_FN

        function = POLICY_LOSS_FN.get(name)(**options)
        return function(
            logprob=logprob, old_logprob=old_logprob, action_mask=action_mask, advantages=advantages
        )

    return telling(loss, options)


def losses() -> PeerLosses:
    """Return every loss by name, with its options."""
    import trinity.algorithm.policy_loss_fn  # noqa: F401

    found: PeerLosses = {}
    for name, options in OPTIONS:
        words = " ".join(f"{key}={value}" for key, value in options.items())
        found[f"policy_loss_fn {name} {words}".strip()] = _loss(name, options)
    return found
