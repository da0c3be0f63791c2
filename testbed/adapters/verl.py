"""An objective of this bench as a policy loss of verl."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from testbed.adapters.adapted import Adapted, rescaled
from testbed.data.batch import Batch
from testbed.diagnostics.ratio_metrics import masked_mean
from testbed.errors import UserError, unknown
from testbed.recipes.composition import Term

PolicyLoss: TypeAlias = Callable[..., tuple[Tensor, dict[str, Any]]]

MODES = {
    "token-mean": ("token_mean", 0.0, "batch_num_tokens"),
    "seq-mean-token-sum": ("constant", 1.0, "global_batch_size"),
    "seq-mean-token-mean": ("sequence_mean", 0.0, "global_batch_size"),
    "seq-mean-token-sum-norm": ("constant", 0.0, "global_batch_size"),
}
"""verl's loss_agg_mode -> our aggregation, its length, and its divisor in global_batch_info."""

ABSENT = {
    "ref": "verl adds its own KL term (actor.use_kl_loss), after the policy loss",
    "reward": "rewards are turned into advantages before (algorithm.adv_estimator)",
    "group": "sequences of a prompt may lie in other micro-batches",
    "turn": "turns are not marked",
    "origin": "demonstrations and replays are not marked",
}
"""Fields that verl does not pass to a policy loss, and why."""


def policy_loss(
    objective: str, *, old_is: Literal["anchor", "mu"] = "anchor", terms: Sequence[Term] = (), **hyper: Any
) -> PolicyLoss:
    """Return a function with the signature and the result of verl's policy losses: (loss, metrics).

    Args:
        objective: a registered name or path/to/file.py:function.
        old_is: the policy of verl's old_log_prob: the trainer before the update ("anchor"), or the sampler
            ("mu"), as with rollout_correction.bypass_mode. "mu" uses them for the anchor too.
        terms: losses added with a coefficient.
        hyper: hyperparameters of the objective.

    The function takes (old_log_prob, log_prob, advantages, response_mask, loss_agg_mode, config,
    rollout_is_weights) as verl passes them, and optionally rollout_log_prob. rollout_is_weights multiply the
    objective, not the terms. Micro-batches and processes are counted as in verl, by config.global_batch_info;
    every mean omits sequences without a token.

    Raises UserError for an unknown name, for a field that verl lacks, and, when called, for an objective that
    reads mu without the sampler's log-probabilities, or that would be corrected twice.
    """
    adapted = Adapted(objective, hyper, terms)
    for field, reason in ABSENT.items():
        if adapted.readers(field):
            raise UserError(
                f"{adapted.readers(field)[0]} reads '{field}', which verl hands to no policy loss: {reason}."
            )
    if old_is not in ("anchor", "mu"):
        raise unknown("old_is", old_is, ("anchor", "mu"))

    def loss(
        old_log_prob: Tensor,
        log_prob: Tensor,
        advantages: Tensor,
        response_mask: Tensor,
        loss_agg_mode: str = "token-mean",
        config: Any = None,
        rollout_is_weights: Tensor | None = None,
        rollout_log_prob: Tensor | None = None,
    ) -> tuple[Tensor, dict[str, Any]]:
        _check_correction(adapted, old_is, rollout_is_weights, rollout_log_prob)
        some_B = response_mask.bool().any(-1)
        if not bool(some_B.any()):
            return log_prob.sum() * 0, {}
        mu = old_log_prob if rollout_log_prob is None or not adapted.may_read("mu") else rollout_log_prob
        batch = _batch(old_log_prob[some_B], mu[some_B], advantages[some_B], response_mask[some_B])
        kept_BT = log_prob[some_B]
        weight_BT = None if rollout_is_weights is None else rollout_is_weights[some_B]
        loss_BT = adapted.losses(kept_BT, batch, weight_BT)
        total = aggregated(loss_BT, batch.mask_BT, loss_agg_mode, config)
        drift_BT = (batch.logp_anchor_BT - kept_BT.detach()).float()
        clipped = adapted.silent_share(kept_BT, batch)
        metrics = {"actor/ppo_kl": float(masked_mean(drift_BT, batch.mask_BT)), "actor/pg_clipfrac": clipped}
        return total, metrics

    return loss


def _check_correction(
    adapted: Adapted, old_is: str, weights_BT: Tensor | None, rollout_BT: Tensor | None
) -> None:
    reads = adapted.may_read("mu")
    if reads and rollout_BT is None and old_is != "mu":
        raise UserError(
            f"{reads[0]} reads the sampler's log-probabilities, but verl's old_log_prob are the trainer's. "
            "Pass rollout_log_prob; or set algorithm.rollout_correction.bypass_mode=True, which makes "
            "old_log_prob the sampler's, and say so: register('bypass_mode', policy_loss(..., old_is='mu'))."
        )
    if adapted.corrects and weights_BT is not None:
        raise UserError(
            f"{adapted.objective} corrects for the sampler itself; rollout_is_weights would do it twice. "
            "Switch off algorithm.rollout_correction.rollout_is."
        )


def _batch(old_BT: Tensor, mu_BT: Tensor, adv_BT: Tensor, mask_BT: Tensor) -> Batch:
    rows = torch.arange(len(old_BT), device=old_BT.device)
    return Batch(mu_BT, adv_BT, mask_BT.bool(), torch.zeros_like(adv_BT[:, 0]), rows, old_BT)


def aggregated(loss_BT: Tensor, mask_BT: Tensor, mode: str, config: Any) -> Tensor:
    """Return verl's scalar of per-token losses: its mode's mean, counted over the global batch.

    config.global_batch_info may hold dp_size, batch_num_tokens, global_batch_size and loss_scale_factor.
    Without counts it uses the micro-batch's, as verl does; without loss_scale_factor the width. Raises
    UserError for an unknown mode.
    """
    if mode not in MODES:
        raise unknown("loss_agg_mode", mode, MODES)
    how, length, counter = MODES[mode]
    info = _entry(config, "global_batch_info") or {}
    if mode == "seq-mean-token-sum-norm":
        length = float(_entry(info, "loss_scale_factor") or _entry(config, "loss_scale_factor") or 0)
    own = mask_BT.sum() if counter == "batch_num_tokens" else mask_BT.shape[-2]
    counted, processes = _entry(info, counter), _entry(info, "dp_size") or 1
    if counted is None and processes > 1:
        raise UserError(f"dp_size={processes}, but global_batch_info has no {counter} to divide by.")
    # Gradients are averaged over processes, and the divisor counts all of them.
    return rescaled(loss_BT, mask_BT, how, length, float(own if counted is None else counted)) * processes


def _entry(config: Any, name: str) -> Any:
    if config is None or isinstance(config, Mapping):
        return (config or {}).get(name)
    return getattr(config, name, None)


def register(name: str, loss: PolicyLoss) -> None:
    """Register a policy loss with verl, for actor_rollout_ref.actor.policy_loss.loss_mode=name.

    Call it where verl's workers import it (actor_rollout_ref.model.external_lib names such a module). With
    bypass_mode verl sets loss_mode to "bypass_mode": register under that name, replacing verl's loss.
    """
    importlib.import_module("verl.trainer.ppo.core_algos").register_policy_loss(name)(loss)
