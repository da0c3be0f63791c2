"""Log the numbers of `testbed diagnose` in TRL: trainer.add_callback(DiagnosticsCallback(trainer))."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from transformers import TrainerCallback

from testbed.adapters.live import live_metrics
from testbed.errors import UserError
from testbed.logs.scalars import CALLBACK as SHORT
from testbed.logs.scalars import PREFIX

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
                return loss(model, inputs, *args, **kwargs)
            finally:
                self._listening = False
                if self._heard and trainer.model.training:
                    logp_BT = self._heard[0]
                    old_BT = inputs.get("old_per_token_logps")
                    mu_BT = inputs.get("sampling_per_token_logps", logp_BT if old_BT is None else old_BT)
                    mask_BT = inputs["completion_mask"].bool()
                    if "tool_mask" in inputs:
                        mask_BT = mask_BT & inputs["tool_mask"].bool()
                    self._parts.append((logp_BT.cpu(), mu_BT.detach().cpu(), mask_BT.cpu()))

        setattr(trainer, SCORES, scores)
        trainer._compute_loss = compute_loss

    def on_step_end(self, *_args: Any, **_kwargs: Any) -> None:
        """Add the step's numbers to those that TRL averages until it logs."""
        parts, self._parts = self._parts, []
        if not parts:
            return
        width = max(part[0].shape[1] for part in parts)
        pi_BT, mu_BT, mask_BT = (
            torch.cat([pad(part[i], (0, width - part[i].shape[1])) for part in parts]) for i in range(3)
        )
        found = live_metrics(pi_BT, mu_BT, mask_BT, stack="")
        log_rho_N = (pi_BT - mu_BT)[mask_BT].double()
        log_rho_N = log_rho_N[~torch.isnan(log_rho_N)]
        if log_rho_N.numel():
            for name, value in (("min", log_rho_N.min()), ("mean", log_rho_N), ("max", log_rho_N.max())):
                found[f"ratio/{name}"] = float(value.exp().mean())
        if not self.everything:
            found = {name: found[metric] for name, metric in SHORT.items() if metric in found}
        metrics = self.trainer._metrics["train"]
        for name, number in found.items():
            metrics[f"{PREFIX}{name}"].append(number)
