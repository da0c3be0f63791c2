"""torchrl: GRPOLoss, DAPO and CISPOLoss of torchrl.objectives.llm, without entropy bonus and KL."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from torch import Tensor

from testbed.conformance.peers import PeerLosses


def _loss(name: str, **options: Any) -> Callable[..., Tensor]:
    def loss(log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
        import torchrl.objectives.llm as llm
        from tensordict import TensorDict
        from torchrl.objectives.llm.grpo import DAPO

        base: Any = DAPO if name == "DAPO" else getattr(llm, name)

        class Given(base):
            """The loss with log-probabilities in place of an actor."""

            def _get_cur_log_prob(self, tensordict: Any) -> Any:  # noqa: ARG002
                return log_probs, SimpleNamespace(mask=mask.bool()), False

        data = TensorDict(
            {
                ("tokens", "full"): mask.long(),
                ("log_probs", "full"): old_log_probs,
                "advantage": advantages[..., None],
            },
            batch_size=[len(log_probs)],
        )
        found: Tensor = Given(None, entropy_bonus=False, **options)(data).loss_objective
        return found.reshape(())

    return loss


def losses() -> PeerLosses:
    """Return the three losses at their defaults, and the mean over prompts."""
    import torchrl.objectives.llm  # noqa: F401

    return {
        "GRPOLoss": _loss("GRPOLoss"),
        "GRPOLoss aggregation=prompt_mean": _loss("GRPOLoss", aggregation="prompt_mean"),
        "DAPO clip_epsilon=(0.2, 0.28)": _loss("DAPO", clip_epsilon=(0.2, 0.28)),
        "CISPOLoss": _loss("CISPOLoss"),
        "CISPOLoss clip_epsilon=(0.2, 0.28)": _loss("CISPOLoss", clip_epsilon=(0.2, 0.28)),
    }
