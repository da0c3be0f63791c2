"""A toy transformer as a table: next-token distributions at every prefix, gradients back to its weights."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from envs.arrays import Floats, Ints
from envs.tokens.token_task import every_response
from envs.tokens.token_tree import TokenTree
from testbed.exact.response_tree import check_size
from testbed.policies.toy.toy_transformer import ToyTransformer

CHUNK = 4096
"""Number of responses per pass of the model."""


def transformer_distribution(policy: ToyTransformer, theta_P: Tensor, tree: TokenTree) -> Floats:
    """pi(a | s) of one model at every prefix of the tree, float64 [S, A].

    One pass over a response gives the distributions at all its prefixes, so (V')^(T - 1) responses suffice
    for V'^T leaves, in chunks of 4096 (V' tokens that go on). Valid for the given weights; a float32 model's
    distribution is normalized again in float64. Raises UserError if the tree is too large.
    """
    check_size(tree.actions, tree.horizon, len(tree.prompt_NQ))
    pi_SA = np.empty((tree.states, tree.actions))
    with torch.no_grad():
        for state_LT, new_LT, law_LTV in _passes(policy, theta_P, tree):
            pi_SA[state_LT[new_LT]] = law_LTV.double().softmax(-1).numpy()[new_LT]
    return pi_SA


def weight_gradient(policy: ToyTransformer, theta_P: Tensor, tree: TokenTree, gradient_SA: Floats) -> Tensor:
    """Return the gradient in the model's weights from one in the logits of every prefix, [P].

    sum_{s,a} G(s, a) dlogits(s, a)/dtheta, taken through log pi. The normalizer cancels because every row of
    G sums to 0, as in every mean of scores, so in grad J and in GradientReport.mean_SA.
    """
    theta = theta_P.detach().clone().requires_grad_()
    total = torch.zeros_like(theta)
    for state_LT, new_LT, law_LTV in _passes(policy, theta, tree):
        share = torch.from_numpy(np.where(new_LT[..., None], gradient_SA[state_LT], 0.0))
        (part,) = torch.autograd.grad((share.to(law_LTV.dtype) * law_LTV).sum(), theta)
        total += part
    return total


def _passes(
    policy: ToyTransformer, theta_P: Tensor, tree: TokenTree
) -> Iterator[tuple[Ints, np.ndarray, Tensor]]:
    """Yield (state_LT, new_LT, log law_LTV) of chunks of responses; new: first response with the prefix."""
    going, T = tree.going, tree.horizon
    early_LT, _ = every_response(going.size, T - 1, None)
    place_LT = np.concatenate([early_LT, np.zeros((len(early_LT), 1), dtype=np.int64)], 1)
    node_LT = np.zeros_like(place_LT)
    new_LT = np.ones(place_LT.shape, dtype=bool)
    for t in range(T - 1):
        node_LT[:, t + 1] = node_LT[:, t] * going.size + 1 + place_LT[:, t]
        # In lexicographic order the first response of a prefix always continues it with the first token.
        new_LT[:, t] = (place_LT[:, t : T - 1] == 0).all(-1)
    for prompt, prompt_Q in enumerate(tree.prompt_NQ):
        prompt_RNQ = torch.from_numpy(prompt_Q)[None, None]
        for start in range(0, len(place_LT), CHUNK):
            rows = slice(start, start + CHUNK)
            token_RBT = torch.from_numpy(going[place_LT[rows]])[None]
            law = policy.log_distribution(theta_P[None], prompt_RNQ, token_RBT)[0]
            yield node_LT[rows] + prompt * tree.nodes, new_LT[rows], law
