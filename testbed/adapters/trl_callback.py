"""Log the numbers of `testbed diagnose` in TRL: trainer.add_callback(DiagnosticsCallback(trainer)).

For verl-style trainers: `metrics.update(verl_metrics(batch))` once the batch has old_log_probs and
rollout_log_probs. For TRL: trl_callback.DiagnosticsCallback.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import TrainerCallback

from testbed.diagnostics.metric_aliases import ALIASES
from testbed.errors import UserError, unknown
from testbed.logs.log_tensors import Tokens
from testbed.logs.measure import ratio_numbers, tails
from testbed.logs.scalars import CALLBACK as SHORT
from testbed.logs.scalars import PREFIX

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
    both = log_pi_BT, log_mu_BT
    pi_BT, mu_BT = (torch.where(mask_BT, x.detach()[some_B].double().cpu(), 0.0) for x in both)
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
    missing = [n for n in ("old_log_probs", "rollout_log_probs", "response_mask") if n not in held.keys()]  # noqa: SIM118
    if missing:
        flag = " Set actor_rollout_ref.rollout.calculate_log_probs=True."
        hint = flag if "rollout_log_probs" in missing else ""
        raise UserError(f"The batch lacks {', '.join(missing)}.{hint}")
    return live_metrics(held["old_log_probs"], held["rollout_log_probs"], held["response_mask"], stack)


SCORES = "_get_per_token_logps_and_entropies"


class DiagnosticsCallback(TrainerCallback):
    """Log ESS, KL, the tail and token ratios of every optimizer step of a GRPOTrainer.

    It reads the trainer's forward pass: log pi is the loss's input; mu is TRL's sampling_per_token_logps
    (vLLM), else old_per_token_logps, else log pi, because TRL keeps neither if no update lies between. A
    step's micro-batches are joined, on this process only. Ratios are those before TRL truncates them. Every
    name starts with "testbed/", so none overwrites TRL's.

    Args:
        trainer: a GRPOTrainer, or a subclass.
        everything: log every number of `live_metrics`, as testbed/ and its name in docs/metrics.md, instead
            of only those in SHORT.

    Raises:
        UserError: another trainer, or one whose loss keeps no log-probabilities (use_liger_kernel).
    """

    def __init__(self, trainer: Any, everything: bool = False) -> None:
        if not hasattr(trainer, SCORES) or not hasattr(trainer, "_compute_loss"):
            raise UserError(
                f"{type(trainer).__name__} has no per-token log-probabilities; expected a GRPOTrainer."
            )
        if getattr(trainer.args, "use_liger_kernel", False):
            raise UserError("use_liger_kernel fuses the loss and hides the log-probabilities. Switch it off.")
        self.trainer, self.everything = trainer, everything
        self._heard: list[Tensor] = []
        self._listening = False
        self._parts: list[tuple[Tensor, Tensor, Tensor]] = []
        score, loss = getattr(trainer, SCORES), trainer._compute_loss

        def scores(*args: Any, **kwargs: Any) -> Any:
            found = score(*args, **kwargs)
            if self._listening:
                self._heard.append((found[0] if isinstance(found, tuple) else found).detach())
            return found

        def compute_loss(model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            self._heard, self._listening = [], True
            try:
                found = loss(model, inputs, *args, **kwargs)
            finally:
                self._listening = False
            if self._heard and trainer.model.training:
                logp_BT = self._heard[0]
                held = (inputs.get(name) for name in ("sampling_per_token_logps", "old_per_token_logps"))
                mu_BT = next((each for each in held if each is not None), logp_BT)
                mask_BT = inputs["completion_mask"].bool()
                if "tool_mask" in inputs:
                    mask_BT = mask_BT & inputs["tool_mask"].bool()
                # Differences of bfloat16 numbers would be rounded again.
                self._parts.append((logp_BT.double().cpu(), mu_BT.detach().double().cpu(), mask_BT.cpu()))
            return found

        setattr(trainer, SCORES, scores)
        trainer._compute_loss = compute_loss

    def on_step_begin(self, args: Any, *_args: Any, **_kwargs: Any) -> None:
        """Forget what an interrupted step left; raise UserError in a trainer that this was not made for."""
        if args is not self.trainer.args:
            raise UserError(
                "This DiagnosticsCallback was made for another trainer, whose forward pass it reads. Add it "
                "to that one: trainer.add_callback(DiagnosticsCallback(trainer))."
            )
        self._parts = []

    def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
        """Add the step's numbers to those that TRL averages until it logs."""
        parts, self._parts = self._parts, []
        if not parts:
            return
        width = max(part[0].shape[1] for part in parts)
        padded = ([pad(x, (0, width - x.shape[1])) for x in column] for column in zip(*parts, strict=True))
        pi_BT, mu_BT, mask_BT = map(torch.cat, padded)
        found = live_metrics(pi_BT, mu_BT, mask_BT, stack="")
        log_rho_N = (pi_BT - mu_BT)[mask_BT]
        log_rho_N = log_rho_N[~torch.isnan(log_rho_N)]
        if log_rho_N.numel():
            for name, value in (("min", log_rho_N.min()), ("mean", log_rho_N), ("max", log_rho_N.max())):
                found[f"ratio/{name}"] = float(value.exp().mean())
        if not self.everything:
            found = {name: found[metric] for name, metric in SHORT.items() if metric in found}
        metrics = self.trainer._metrics["train"]
        for name, number in found.items():
            metrics[f"{PREFIX}{name}"].append(number)
