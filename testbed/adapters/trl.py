"""A GRPOTrainer of TRL with an objective of this bench as its loss."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from testbed.adapters.adapted import PER_SEQUENCE, PER_TOKEN, Adapted, check_aggregation, dense, rescaled
from testbed.data.batch import Batch
from testbed.errors import UserError
from testbed.recipes.composition import Term

REPLACED = (
    "loss_type", "epsilon", "epsilon_high", "delta", "importance_sampling_level", "off_policy_mask_threshold",
    "use_bias_correction_kl", "top_entropy_quantile", "entropy_coef", "use_adaptive_entropy",
    "sapo_temperature_pos", "sapo_temperature_neg", "vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg",
    "vespo_lambda_neg",
)  # fmt: skip
"""Options of TRL's loss; they would be ignored, so any non-default value raises."""

FORWARD = (
    "pixel_values", "image_grid_thw", "num_images", "pixel_attention_mask", "spatial_shapes", "num_tiles",
    "image_sizes", "token_type_ids", "mm_token_type_ids", "image_position_ids",
)  # fmt: skip
"""Optional inputs of TRL's forward pass besides tokens."""

READ = (
    "completion_mask", "tool_mask", "advantages", "old_per_token_logps", "sampling_per_token_logps",
    "ref_per_token_logps", "importance_sampling_ratio", "testbed_reward", "testbed_group",
)  # fmt: skip
"""Inputs of TRL that the loss reads, besides tokens."""


def grpo_trainer(
    objective: str,
    *,
    aggregation: str = "token_mean",
    length: float = 0.0,
    terms: Sequence[Term] = (),
    **hyper: Any,
) -> type:
    """Return a subclass of TRL's GRPOTrainer that minimizes an objective; use it as you use GRPOTrainer.

    Args:
        objective: a registered name or path/to/file.py:function.
        aggregation: a name in testbed.losses.aggregate. Divisors are those of the whole update, not of a
            micro-batch: token_mean and length_weighted divide by all its tokens, sequence_mean and
            constant by all its sequences.
        length: the constant of aggregation "constant"; 0 means TRL's max_completion_length.
        terms: losses added with a coefficient, e.g. Term("kl_penalty", 0.04). Terms that read the reference
            need a positive `beta` in the GRPOConfig, so that TRL scores it; its value is not used.
        hyper: hyperparameters of the objective.

    mu is TRL's sampling_per_token_logps if it has them (vLLM), else the anchor. The anchor is
    old_per_token_logps, or the current ones if TRL keeps none because no update lies between. TRL's
    importance_sampling_ratio multiplies the objective (not the terms) unless the objective reads mu and so
    corrects for it.

    Raises UserError here for an unknown name or a field that TRL's batches lack, and at the trainer's
    creation for an option that contradicts the objective.
    """
    from trl import GRPOTrainer

    check_aggregation(aggregation)
    adapted = Adapted(objective, hyper, terms)
    for name in ("turn", "origin"):
        if adapted.readers(name):
            raise UserError(f"{adapted.readers(name)[0]} reads '{name}', which TRL's batches do not have.")

    class ObjectiveTrainer(GRPOTrainer):
        """GRPOTrainer with the loss of `adapted`."""

        def __init__(
            self, model: Any, reward_funcs: Any = None, args: Any = None, *rest: Any, **kwargs: Any
        ) -> None:
            if args is not None:
                check_options(args, adapted)  # before loading a model
            super().__init__(model, reward_funcs, args, *rest, **kwargs)
            check_options(self.args, adapted)

        def _calculate_rewards(self, *args: Any, **kwargs: Any) -> Tensor:
            rewards: Tensor = super()._calculate_rewards(*args, **kwargs)
            weighted = rewards * self.reward_weights.to(rewards.device)
            missing = torch.isnan(rewards).all(1)
            self._testbed_rewards = weighted.nansum(1).masked_fill(missing, torch.nan)
            return rewards

        def _generate_and_score_completions(self, inputs: Any) -> dict[str, Any]:
            # TRL shuffles sequences before it splits them; data added here are shuffled along.
            output: dict[str, Any] = super()._generate_and_score_completions(inputs)
            size = self.num_generations if self.model.training else self.num_generations_eval
            rows = len(output["advantages"])
            first = self.accelerator.process_index * rows
            output["testbed_reward"] = self._testbed_rewards[first : first + rows]
            output["testbed_group"] = torch.arange(rows, device=output["advantages"].device) // size
            return output

        def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Tensor:
            return objective_loss(self, model, inputs, adapted, aggregation, length)

    return ObjectiveTrainer


def check_options(args: Any, adapted: Adapted) -> None:
    """Raise UserError for options of a GRPOConfig that the objective would ignore or does not support."""
    fields = type(args).__dataclass_fields__
    for name in REPLACED:
        if name in fields and getattr(args, name) != fields[name].default:
            raise UserError(
                f"{name}={getattr(args, name)} belongs to the loss of TRL, which '{adapted.objective}' "
                f"replaces. Leave it at {fields[name].default}; give hyperparameters to grpo_trainer."
            )
    ref = adapted.readers("ref")
    if ref and not args.beta:
        raise UserError(
            f"{ref[0]} reads the reference policy, which TRL scores only with beta > 0. Set beta above 0."
        )
    if args.beta and not adapted.may_read("ref"):
        raise UserError(f"beta={args.beta} would do nothing: add terms=[Term('kl_penalty', {args.beta})].")
    whole = {name: scope for name, scope in adapted.scopes().items() if scope in ("group", "batch")}
    whole |= dict.fromkeys(adapted.readers("group"), "group")
    for name, what in whole.items():
        if args.steps_per_generation != 1 or args.world_size != 1:
            raise UserError(
                f"{name} looks at a whole {what}, but TRL shuffles the generation batch and splits it into "
                f"{args.steps_per_generation} parts on {args.world_size} processes. Set "
                "steps_per_generation=1 on one process."
            )


def objective_loss(
    trainer: Any, model: Any, inputs: dict[str, Any], adapted: Adapted, aggregation: str, length: float
) -> Tensor:
    """Return the micro-batch's share of the update's loss; gradients of micro-batches sum to it."""
    logp_BT, entropy_BT, router_loss = _forward(trainer, model, inputs)
    some_B = _mask(inputs).any(-1)
    if not bool(some_B.any()):
        return logp_BT.sum() * 0 + router_loss  # every completion was truncated and masked
    kept_BT, entropy_BT = logp_BT[some_B], entropy_BT[some_B]
    kept = {name: inputs[name][some_B] for name in READ if inputs.get(name) is not None}
    batch = batch_of(kept, kept_BT, adapted)
    weight_BT = None if adapted.corrects else kept.get("importance_sampling_ratio")
    loss_BT = adapted.losses(kept_BT, batch, weight_BT)
    if aggregation == "constant" and not length:
        length = float(trainer.max_completion_length)
    counted = _divisor(trainer, aggregation, inputs, len(some_B))
    loss = rescaled(loss_BT, batch.mask_BT, aggregation, length, counted)
    if aggregation not in PER_TOKEN + PER_SEQUENCE:
        loss = loss * trainer.accelerator.num_processes  # gradients are averaged over processes
    _log(trainer, entropy_BT, adapted.silent_share(kept_BT, batch), batch)
    return loss + router_loss


def _mask(inputs: dict[str, Any]) -> Tensor:
    mask: Tensor = inputs["completion_mask"].bool()
    return mask & inputs["tool_mask"].bool() if "tool_mask" in inputs else mask


def _forward(trainer: Any, model: Any, inputs: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """Return log-probabilities, entropies, and this micro-batch's share of a router's auxiliary loss."""
    tokens = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    attention = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    width = inputs["completion_ids"].size(1)
    more = {name: inputs.get(name) for name in FORWARD} | {"compute_aux_loss": trainer.aux_loss_enabled}
    logp_BT, entropy_BT, router = trainer._get_per_token_logps_and_entropies(
        model, tokens, attention, width, compute_entropy=True, **more
    )
    if router is None:
        return logp_BT, entropy_BT, logp_BT.new_zeros(())
    return logp_BT, entropy_BT, trainer.router_aux_loss_coef * router / _parts(trainer)


def _parts(trainer: Any) -> int:
    """Return the number of micro-batches of an update."""
    return int(trainer.current_gradient_accumulation_steps) if trainer.model.training else 1


def batch_of(inputs: dict[str, Any], logp_BT: Tensor, adapted: Adapted) -> Batch:
    """Return TRL's inputs as a Batch with the fields that the objective may read.

    Raises UserError if a log-probability that is read is not finite; vLLM writes NaN for tokens that it could
    not score.
    """
    anchor_BT = inputs.get("old_per_token_logps", logp_BT.detach())
    mu_BT = inputs.get("sampling_per_token_logps", anchor_BT) if adapted.may_read("mu") else anchor_BT
    adv = inputs["advantages"]
    adv_BT = (adv[:, None] if adv.dim() == 1 else adv).expand(logp_BT.shape)
    reward_B = inputs.get("testbed_reward") if adapted.may_read("reward") else None
    return Batch(
        logp_mu_BT=mu_BT,
        adv_BT=adv_BT,
        mask_BT=_mask(inputs),
        reward_B=torch.zeros_like(adv_BT[:, 0]) if reward_B is None else reward_B,
        group_B=dense(inputs.get("testbed_group", torch.arange(len(adv), device=adv.device))),
        logp_anchor_BT=anchor_BT,
        logp_ref_BT=inputs.get("ref_per_token_logps"),
    )


def _divisor(trainer: Any, aggregation: str, inputs: dict[str, Any], rows: int) -> float:
    """Return the update's divisor, tokens or sequences per process."""
    if aggregation in PER_TOKEN:
        # num_items_in_batch spans the generation batch and all processes.
        tokens: float = float(inputs["num_items_in_batch"].clamp(min=1)) / trainer.accelerator.num_processes
        if not trainer.model.training:
            return tokens
        return float(tokens * _parts(trainer) / trainer.args.steps_per_generation)
    return float(rows * _parts(trainer))


def _log(trainer: Any, entropy_BT: Tensor, silent: float, batch: Batch) -> None:
    metrics = trainer._metrics["train" if trainer.model.training else "eval"]
    metrics["entropy"].append(float(entropy_BT.detach()[batch.mask_BT].mean()))
    metrics["testbed/silent_share"].append(silent)
