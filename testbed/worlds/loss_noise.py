"""ALP: the loss reads log-probabilities through learned noise on hidden states."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from testbed.errors import UserError
from testbed.mismatch import Draw
from testbed.policies.policy import Layout, Policy, Reweighted
from testbed.policies.toy.toy_transformer import ToyTransformer

if TYPE_CHECKING:
    from testbed.policies.hf.hf_policy import HuggingFacePolicy

ALPHA = BETA = 0.001
"""Weights of the regularizer in the authors' code."""
MOST_PASSES = 64
"""Number of passes over one batch with separate noise."""


class Perturbed(Reweighted):
    """A transformer with noise in K places and K more weights: theta = (its weights, log sigma_1 … sigma_K).

    Only `loss_logp` is noisy: sampling, mu, anchors and diagnostics use the plain transformer.

    Args:
        policy: the toy transformer, or a Hugging Face model without micro-batches.
        sigma: initial size of the noise, in every place.
        where: "all" for every layer's input, "first" or "last" for that half of the layers, "logits" for the
            toy transformer's logits.

    Raises UserError for a size that is not positive, and for places that the policy lacks.

    Source: ALP (2026), arXiv:2603.19470; the authors' code.
    """

    def __init__(
        self, policy: "ToyTransformer | HuggingFacePolicy", sigma: float, where: str = "all"
    ) -> None:
        if not sigma > 0:
            raise UserError(f"perturb is {sigma}, the size of the noise at the start; expected above 0.")
        super().__init__(policy)
        self.inside, self.sigma = policy, sigma
        toy = isinstance(policy, ToyTransformer)
        count = policy.shape.layers if isinstance(policy, ToyTransformer) else policy.layers
        ends = {"all": (0, count), "first": (0, count // 2), "last": (count // 2, count)}
        if toy:
            ends["logits"] = (count, count + 1)
        if where not in ends or not range(*ends[where]):
            raise UserError(
                f"perturb_where is '{where}', which is not a layer of this policy; expected one of "
                f"{', '.join(ends)}."
            )
        self.places = range(*ends[where])
        self.layers = len(self.places)
        self.parameters = policy.parameters + self.layers

    @property
    def layout(self) -> Layout:
        return {**self.policy.layout, "log_sigma": (self.layers,)}

    def weights(self, theta_RP: Tensor) -> Tensor:
        """Return the transformer's weights."""
        return theta_RP[..., : -self.layers]

    def initial(self, seeds: Sequence[int]) -> Tensor:
        """Return the transformer's weights and log sigma, [R, P + K]."""
        theta_RP = self.policy.initial(seeds)
        log_sigma_RK = theta_RP.new_full((len(seeds), self.layers), self.sigma).log()
        return torch.cat([theta_RP, log_sigma_RK], 1)

    def loss_logp(
        self, theta_RP: Tensor, prompt_RNQ: Tensor, token_RBT: Tensor, mask_RBT: Tensor, draw: Draw
    ) -> Tensor:
        """Return log pi(token | before), [R, B, T], with sigma_l eps_l added at place l.

        Differentiable in all of theta: sigma learns through the noise (reparameterized). eps ~ N(0, 1)
        depends only on the draw's seed and step and on the place.
        """
        own_RP, log_sigma_RK = theta_RP.split([self.inside.parameters, self.layers], -1)

        def noisy(layer: int, x_RDM: Tensor) -> Tensor:
            if layer not in self.places:
                return x_RDM
            k = self.places.index(layer)
            eps_RDM = draw.normal("alp", k, x_RDM.detach().transpose(1, 2)).transpose(1, 2)
            return x_RDM + log_sigma_RK[:, k, None, None].exp() * eps_RDM

        def of_real_model(layer: int, x_MTH: Tensor, again: int) -> Tensor:
            if layer not in self.places:
                return x_MTH
            k = self.places.index(layer)
            purpose = "alp" if again == 0 else "alp/responses"
            wide_RMH = x_MTH.detach().flatten(0, 1)[None].to(log_sigma_RK.dtype)
            eps_RMH = draw.normal(purpose, k, wide_RMH)
            return x_MTH + (log_sigma_RK[0, k].exp() * eps_RMH.view_as(x_MTH)).to(x_MTH.dtype)

        inside = self.inside
        change = (
            inside.with_hidden(noisy)
            if isinstance(inside, ToyTransformer)
            else inside.with_hidden(of_real_model)
        )
        return change.logp(own_RP, prompt_RNQ, token_RBT, mask_RBT)

    def penalty(self, theta_RP: Tensor) -> Tensor:
        """Return sum_l ALPHA sigma_l^2 - BETA log sigma_l^2, [R]: stationary at sigma^2 = BETA / ALPHA."""
        log_sigma_RK = theta_RP[:, self.inside.parameters :]
        return (ALPHA * (2 * log_sigma_RK).exp() - 2 * BETA * log_sigma_RK).sum(-1)


def perturb_of(arguments: dict[str, Any]) -> tuple[float, str]:
    """Split the noise's size, 0 for none, and its places from a policy's arguments."""
    if "perturb_where" in arguments and "perturb" not in arguments:
        raise UserError("policy_args has perturb_where, but no perturb; give the size of the noise too.")
    return arguments.pop("perturb", 0), str(arguments.pop("perturb_where", "all"))


def check_perturbable(policy: Policy, precision: str) -> None:
    """Raise UserError for a policy that rounds, or shares batches among processes."""
    if precision:
        raise UserError("policy_args has perturb and precision; expected one of them.")
    if policy.ranks is not None:
        raise UserError(
            "policy_args has perturb and ranks; noise per place needs the whole batch, so take one."
        )


def loss_noise_draw(seeds: tuple[int, ...], layers: int, step: int, pass_index: int) -> Draw:
    """Return the stream of one pass over one batch. Raises UserError for more passes than streams."""
    if pass_index >= MOST_PASSES:
        raise UserError(
            f"pass {pass_index + 1} over a batch is too many for loss noise; take at most {MOST_PASSES}."
        )
    return Draw(seeds, step * MOST_PASSES + pass_index, layers)
