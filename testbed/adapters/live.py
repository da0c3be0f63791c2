"""Compute the metrics of `testbed diagnose` during training in another stack, under its metric names.

For verl-style trainers: `metrics.update(verl_metrics(batch))` once the batch has old_log_probs and
rollout_log_probs. For TRL: trl_callback.DiagnosticsCallback.
"""

from typing import Any

import torch
from torch import Tensor

from testbed.diagnostics.metric_aliases import ALIASES
from testbed.errors import UserError, unknown
from testbed.logs.log_tensors import Tokens
from testbed.logs.measure import ratio_numbers, tails

STACKS = ("verl", "VCPO", "PipelineRL", "ms-swift", "rLLM", "tinker-cookbook", "TRL")
COUNTS = ("sequences", "tokens")


def names_of(stack: str) -> dict[str, str]:
    """Return {our metric: the stack's key} if a stack logs the same number under another name.

    Aliases with any difference are excluded: `testbed list metrics` shows it. Raises UserError for a stack
    that has no names for ratios.
    """
    if stack not in STACKS:
        raise unknown("stack", stack, STACKS)
    return {
        ours: alias.key
        for ours, known in ALIASES.items()
        for alias in known
        if alias.stack == stack and not alias.differs
    }


def live_metrics(
    log_pi_BT: Tensor, log_mu_BT: Tensor, mask_BT: Tensor, stack: str = "verl"
) -> dict[str, float]:
    """Return ESS by name with floors, KL, chi2, quantiles and Pareto-k of a batch; see docs/metrics.md.

    Args:
        log_pi_BT: the trainer's log-probabilities [B, T].
        log_mu_BT: the sampler's.
        mask_BT: tokens that the policy chose; rows without any are left out.
        stack: its names are used for equal numbers; others, and all with "", keep our names,
            `rollout_corr/…`.

    All numbers cover only the given sequences: for a part of a batch, the floor is 1/N of the part. {}
    without a token. Raises UserError for shapes that differ and for an unknown stack.
    """
    renamed = names_of(stack) if stack else {}
    if not log_pi_BT.shape == log_mu_BT.shape == mask_BT.shape or mask_BT.dim() != 2:
        raise UserError(
            f"log-probabilities have shapes {tuple(log_pi_BT.shape)} and {tuple(log_mu_BT.shape)}, the mask "
            f"{tuple(mask_BT.shape)}; expected one [B, T]."
        )
    known_BT = mask_BT.bool() & ~torch.isnan(log_pi_BT) & ~torch.isnan(log_mu_BT)
    some_B = known_BT.any(-1)
    if not bool(some_B.any()):
        return {}
    mask_BT = known_BT[some_B].cpu()
    pi_BT, mu_BT = (
        torch.where(mask_BT, value.detach()[some_B].double().cpu(), 0.0) for value in (log_pi_BT, log_mu_BT)
    )
    length_B = torch.full((len(mask_BT),), mask_BT.shape[1])
    tokens = Tokens(mask_BT.flatten(), pi_BT.flatten(), mu_BT.flatten(), length_B)
    found = {name: value for name, value in ratio_numbers(tokens).items() if name not in COUNTS}
    sequence = tails(tokens)["sequence"]
    if "k" in sequence:
        found["rollout_corr/pareto_k_sequence"] = sequence["k"]
        found["rollout_corr/pareto_k_threshold_sequence"] = sequence["threshold"]
    return {renamed.get(name, name): value for name, value in found.items()}


def verl_metrics(data: Any, stack: str = "verl") -> dict[str, float]:
    """Return `live_metrics` of a verl-style batch: a DataProto, or a mapping of its tensors.

    Args:
        data: holds old_log_probs (the trainer's before the update), rollout_log_probs (the engine's) and
            response_mask, each [B, T].
        stack: verl, or one that keeps verl's tensors under other metric names.

    Raises UserError if one of the three is missing: rollout_log_probs need
    actor_rollout_ref.rollout.calculate_log_probs=True.
    """
    held = getattr(data, "batch", data)
    missing = [n for n in ("old_log_probs", ("rollout_log_probs"), "response_mask") if n not in held.keys()]  # noqa: SIM118
    if missing:
        hint = (
            " Set actor_rollout_ref.rollout.calculate_log_probs=True."
            if "rollout_log_probs" in missing
            else ""
        )
        raise UserError(f"The batch lacks {', '.join(missing)}.{hint}")
    return live_metrics(held["old_log_probs"], held["rollout_log_probs"], held["response_mask"], stack)
