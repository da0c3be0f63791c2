"""A policy that is of lower precision itself: what it rounds when it generates, it rounds when it learns."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from envs.tokens.base import arguments
from testbed.config.run import Run
from testbed.errors import UserError
from testbed.mismatch import Draw, Engine, engine, mismatch
from testbed.mismatch.behavior import layout_of


class Rounded:
    """A policy with the same engine on both sides; gradients go straight through to the full weights.

    Every method of the policy that takes theta is served by the rounded one, `initial` by the policy itself:
    training in low precision starts where training in full precision starts.
    """

    def __init__(self, policy: Any, rounding: Engine) -> None:
        self.full, self.rounding, self.draw = policy, rounding, Draw((0,))
        self.inner = policy if rounding.forward is None else rounding.forward(policy, self.draw)
        self.layout = layout_of(policy)

    def weights(self, theta_RP: Tensor) -> Tensor:
        """Return theta as the forward pass sees it."""
        change = self.rounding.weights
        return theta_RP if change is None else change(theta_RP, self.layout, self.draw)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name not in ("logits", "probabilities", "logp", "log_law", "entropy", "score_norm", "sample"):
            return found
        return lambda theta_RP, *given, **named: found(self.weights(theta_RP), *given, **named)


def split_precision(run: Run) -> tuple[dict[str, Any], str]:
    """Return the arguments of the policy's constructor and the precision among them, "" for full."""
    given: dict[str, Any] = dict(run.policy_args)
    return given, str(given.pop("precision", ""))


def of_precision(policy: Any, precision: str) -> Any:
    """Return the policy at a precision: an engine's name, or "fp8-tensor matrices=all" with its arguments.

    Source: one precision flow for rollout and training as in Jet-RL, arXiv:2601.14243.

    Raises UserError for an engine that draws numbers, reads older weights or changes the next-token law: it
    has no second side that could agree with the first.
    """
    if not precision:
        return policy
    name, _, rest = precision.partition(" ")
    made = engine(name, **arguments(rest))
    promises = [mismatch[part].promises for part in name.split("+")]
    if made.law is not None or any(p.get("stochastic") or "past" in p.get("needs", ()) for p in promises):
        raise UserError(
            f"precision is '{precision}', which no trainer can share with the sampler; take one that only "
            "rounds: bf16, int8, fp8-tensor, fp8-block, fp8-activations, or two of them joined by '+'."
        )
    return Rounded(policy, made)
