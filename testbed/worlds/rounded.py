"""A policy of lower precision: the same rounding applies to generation and to training."""

from dataclasses import replace

from torch import Tensor

from envs.tokens.token_task import arguments
from testbed.config.run import Run, Scalar
from testbed.errors import UserError
from testbed.mismatch import Draw, SamplerEngine, engine, mismatch
from testbed.policies.policy import Policy, Reweighted


class Rounded(Reweighted):
    """A policy with a sampler engine's roundings on both sides; gradients pass unchanged.

    The optimizer's weights keep full precision: `initial` is that of the unrounded policy.
    """

    def __init__(self, policy: Policy, rounding: SamplerEngine) -> None:
        self.draw = Draw((0,))
        super().__init__(policy if rounding.forward is None else rounding.forward(policy, self.draw))
        self.full, self.rounding = policy, rounding

    def weights(self, theta_RP: Tensor) -> Tensor:
        """Return theta as the forward pass sees it."""
        change = self.rounding.weights
        return theta_RP if change is None else change(theta_RP, self.layout, self.draw)

    @property
    def full_precision(self) -> Policy:
        return self.full


def split_precision(run: Run) -> tuple[dict[str, Scalar], str]:
    """Split the precision, "" for full, from the arguments of the policy's constructor."""
    given = dict(run.policy_args)
    return given, str(given.pop("precision", ""))


def of_precision(policy: Policy, precision: str) -> Policy:
    """Return the policy at a precision, see `rounding_of`; unchanged at full precision."""
    rounding = rounding_of(precision)
    if rounding is None:
        return policy
    policy, rounding = around_frozen(policy, rounding)
    return Rounded(policy, rounding)


def around_frozen(policy: Policy, engine: SamplerEngine) -> tuple[Policy, SamplerEngine]:
    """Return what is left of an engine, and the policy that it goes around.

    Beneath adapters it changes the frozen weights, once, and adapters keep their precision: so do engines
    that serve LoRA on a quantized model, and so does QLoRA if the trainer shares it (Dettmers et al. 2023,
    arXiv:2305.14314).
    """
    change = engine.weights
    if change is None or not policy.adapted:
        return policy, engine
    changed = policy.with_frozen(lambda frozen_1F, layout: change(frozen_1F, layout, Draw((0,))))
    return changed, replace(engine, weights=None)


def rounding_of(precision: str) -> SamplerEngine | None:
    """Return the engine of a precision: a name with arguments, "fp8-tensor matrices=all"; None for "".

    Source: one precision flow for rollout and training as in Jet-RL, arXiv:2601.14243.

    Raises UserError for an engine that draws numbers, reads older weights or changes the next-token
    distribution: training cannot reproduce these.
    """
    if not precision:
        return None
    name, _, rest = precision.partition(" ")
    made = engine(name, **arguments(rest))
    promises = [mismatch[part].promises for part in name.split("+")]
    unlike = any(p.get("stochastic") or "past" in p.get("needs", ()) for p in promises)
    if made.distribution is not None or unlike:
        raise UserError(
            f"precision is '{precision}', which changes more than rounding, so trainer and sampler cannot "
            "share it; use one that only rounds: bf16, int8, fp8-tensor, fp8-block, fp8-activations, or "
            "two of them joined by '+'."
        )
    return made
