"""verl: every policy loss that verl.trainer.ppo.core_algos registers, and its KL penalties."""

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

from testbed.conformance.peers import PeerLosses, telling

NARROW = {"gspo": {"clip_ratio_low": 3e-3, "clip_ratio_high": 4e-3}}


def _config(**options: Any) -> Any:
    from verl.workers.config import ActorConfig

    config = ActorConfig(strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1, **options)
    object.__setattr__(config.policy_loss, "dro_beta", 0.1)  # the default, 0, is refused
    return config


def _loss(name: str, mode: str, **options: Any) -> Callable[..., Any]:
    def loss(log_prob: Tensor, old_log_prob: Tensor, advantages: Tensor, response_mask: Tensor) -> Any:
        from verl.trainer.ppo.core_algos import get_policy_loss_fn

        function: Any = get_policy_loss_fn(name)
        extra = {"loss_agg_mode": mode, "config": _config(**options)}
        return function(old_log_prob, log_prob, advantages, response_mask, **extra)

    return telling(loss, options)


def _penalty(estimator: str) -> Callable[..., Tensor]:
    def loss(log_prob: Tensor, ref_log_prob: Tensor, response_mask: Tensor) -> Tensor:
        from verl.trainer.ppo.core_algos import agg_loss, kl_penalty

        per_token = kl_penalty(log_prob, ref_log_prob, estimator)
        found: Tensor = agg_loss(per_token, response_mask, "token-mean")
        return found

    return loss


def losses() -> PeerLosses:
    """Return the registered losses with the default aggregation of each, and the penalties by estimator."""
    from verl.trainer.ppo import core_algos

    found: PeerLosses = {}
    for name, function in core_algos.POLICY_LOSS_REGISTRY.items():
        mode = inspect.signature(function).parameters["loss_agg_mode"].default
        options = NARROW.get(name, {})
        found[f"policy_loss {name} {mode}"] = _loss(name, mode, **options)
    found["policy_loss vanilla seq-mean-token-sum-norm"] = _loss("vanilla", "seq-mean-token-sum-norm")
    found["policy_loss vanilla seq-mean-token-sum"] = _loss("vanilla", "seq-mean-token-sum")
    for estimator in ("kl", "abs", "mse", "low_var_kl", "k3+"):
        found[f"kl_penalty {estimator}"] = _penalty(estimator)
    return found
