"""Generation for stacked cells: an engine around the policy, with weights per part of a batch."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

import torch
from torch import Tensor

from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.mismatch import SamplerEngine, engine, mismatch
from testbed.mismatch.behavior import Behavior
from testbed.mismatch.perturbed_engines import skipped
from testbed.policies.policy import Policy
from testbed.policies.token_versions import logp_by_version
from testbed.worlds.rounded import around_frozen

NARROW = {"bfloat16": torch.bfloat16, "float16": torch.float16}
Logp: TypeAlias = Callable[[Tensor, Rollout], Tensor]


class Generation:
    """The engine that generates for stacked cells; records log-probabilities that their anchors need."""

    def __init__(self, runs: tuple[Run, ...], policy: Policy) -> None:
        first = runs[0]
        self.seeds = tuple(run.seed for run in runs)
        self.policy, self.engine = around_frozen(policy, engine_of(first))
        self.notes_trainer = first.anchor == "snapshot"
        self.sliced(1)  # raises before any training if the policy cannot have the engine

    def sliced(self, slices: int) -> Behavior:
        """Return the engine around the weights of `slices` parts per replica."""
        return Behavior(self.policy, self.engine, self.seeds, slices)

    def noted(self, theta_XP: Tensor, rollout: Rollout, slices: int, logp: Logp) -> Rollout:
        """Return the rollout with the trainer's log-probabilities at the generating weights, if asked for."""
        if not self.notes_trainer:
            return rollout
        logp_XBT = logp(theta_XP, rollout.split(slices)).detach()
        return replace(rollout, logp_trainer_RBT=whole(logp_XBT, slices))

    def noted_in_flight(
        self, theta_RWP: Tensor, version_RBT: Tensor, rollout: Rollout, logp: Logp
    ) -> Rollout:
        """Return the rollout with the trainer's log-probabilities at each token's version, if asked for."""
        if not self.notes_trainer:
            return rollout
        logp_RBT = logp_by_version(
            lambda theta_RP: logp(theta_RP, rollout), theta_RWP, version_RBT, rollout.mask_RBT
        )
        return replace(rollout, logp_trainer_RBT=logp_RBT.detach())


def engine_of(run: Run) -> SamplerEngine:
    """Return the engine that generates for a run; UserError before training if its policy cannot have it."""
    made = engine(run.mismatch, **dict(run.mismatch_args))
    needs = {need for part in run.mismatch.split("+") for need in mismatch[part].promises.get("needs", ())}
    if run.policy == "tabular" and (made.forward is not None or "layers" in needs):
        raise UserError(
            f"engine '{run.mismatch}' acts inside a transformer, and policy 'tabular' is a table; take "
            "policy 'toy', or an engine for tables: bf16, fp8-tensor, int8, temperature, top-p, logit-noise."
        )
    if "perturb" in dict(run.policy_args) and made.forward is not None:
        raise UserError(
            f"engine '{run.mismatch}' changes the forward pass, and so does policy_args.perturb; take one."
        )
    if run.policy == "hf" and made.forward is not None:
        raise UserError(
            f"engine '{run.mismatch}' has a forward pass written for the toy transformer; policy 'hf' runs "
            "any architecture as transformers computes it. Take one that changes weights (bf16, "
            "fp8-block, int8, skip-layers) or the next-token distribution (top-p, top-k, temperature, "
            "logit-noise), or policy 'toy'."
        )
    _refuse_redrawn_adapters(run)
    layers = dict(run.policy_args).get("layers", 2)
    if run.policy == "toy" and "skip-layers" in run.mismatch.split("+") and isinstance(layers, int):
        given = {**mismatch["skip-layers"].defaults, **dict(run.mismatch_args)}
        skipped(float(given["ratio"]), layers)
    return made


def narrow_versions(run: Run) -> torch.dtype | None:
    """Return the 16-bit type to which a run's model rounds its weights before any use.

    Versions stored in it generate the same bits. None without such a type: weights of 32 bits, or an engine
    or precision that would round other numbers.
    """
    given = dict(run.policy_args)
    name = str(given.get("dtype", ""))
    if run.policy != "hf" or name not in NARROW or given.get("precision"):
        return None
    return None if engine_of(run).weights is not None else NARROW[name]


def _refuse_redrawn_adapters(run: Run) -> None:
    """Refuse an engine that would change a frozen model anew for every batch."""
    given = dict(run.policy_args)
    promises = [mismatch[part].promises for part in run.mismatch.split("+")]
    redrawn = any(p["level"] == "weights" and (p.get("stochastic") or p.get("needs")) for p in promises)
    if redrawn and (given.get("lora") or given.get("adapter")):
        raise UserError(
            f"engine '{run.mismatch}' changes the weights again for every batch, but with LoRA the frozen "
            "model is changed only once. Train all weights, or use an engine that rounds (bf16, int8, "
            "fp8-block, q4-0) or changes the next-token distribution."
        )


def cut(value_RB: Tensor, slices: int) -> Tensor:
    """Split axis 1 into equal parts as separate replicas, [R * slices, B / slices, ...]."""
    return value_RB.unflatten(1, (slices, -1)).flatten(0, 1)


def whole(value_XB: Tensor, slices: int) -> Tensor:
    """Undo `cut`, [R, B, ...]."""
    return value_XB.unflatten(0, (-1, slices)).flatten(1, 2)
