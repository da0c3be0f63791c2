"""Drafts of speculative decoding that see all or part of a target's state, trained as they decode or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.kernels.on_use import Tensor, torch
from analysis.lab import Floats, Grid, TunedArms, asks, by_world, strips
from testbed.errors import UserError

if TYPE_CHECKING:
    from testbed.data.batch import Batch


def acceptance(target_xV: Floats, draft_xV: Floats) -> Floats:
    """Return the probability that a drafted token is accepted, sum_v q min(1, p/q) = 1 - TV(p, q); [x].

    Source: Leviathan et al. (2023), arXiv:2211.17192, Theorem 3.5. Raises UserError for distributions of
    unequal vocabularies.
    """
    if target_xV.shape[-1] != draft_xV.shape[-1]:
        raise UserError(
            f"the target has {target_xV.shape[-1]} tokens and the draft {draft_xV.shape[-1]}: a draft of "
            "another vocabulary cannot be accepted. Give both the same."
        )
    found: Floats = np.minimum(target_xV, draft_xV).sum(-1)
    return found


def accepted_length(target_TLV: Sequence[Floats], draft_TLV: Sequence[Floats]) -> float:
    """Return the expected number of leading drafted tokens of a block that are accepted.

    target_TLV, draft_TLV: distributions after every prefix of t tokens, [V^t, V] for t = 0 .. T - 1, prefixes
    in lexicographic order; a prefix of accepted tokens has as weight the product of min(p, q).
    """
    reach_L, total = np.ones(1), 0.0
    for target_LV, draft_LV in zip(target_TLV, draft_TLV, strict=True):
        acceptance(target_LV, draft_LV)  # refuses unequal vocabularies
        reach_L = (reach_L[:, None] * np.minimum(target_LV, draft_LV)).ravel()
        total += float(reach_L.sum())
    return total


NAME = "draft-states"
SOURCE = "Mixture of Attentions for Speculative Decoding (2024), arXiv:2410.03804"
SEEDS, PILOTS, STEPS = 64, 16, 120
V, T, D, SEEN, KEPT = 4, 4, 6, 3, 0.6
"""Vocabulary; drafted places; numbers in a state, and in a partial draft's; weight of the previous state."""
LONGER, SOURCES, FASTER, COST = 0.02, 0.25, 0.095, 0.05
"""Relative gains: the smallest that counts, and the source's in accepted length and in speed; time of a
drafted token, in target calls. Set before the table was made."""
RATES: Grid = {"rate": (0.003, 0.01, 0.03, 0.1, 0.3)}
ARMS: dict[str, Grid] = dict.fromkeys(("part, given", "part, own", "whole, given", "whole, own"), RATES)
"""Part of the state seen at the first place; whether training uses the target's states or the draft's."""


def place_gradients(
    loss: Callable[[Tensor, Batch], Tensor], pi_SV: Tensor, ref_SV: Tensor, drawn_SV: Tensor
) -> Tensor:
    """Return the gradient by logits [S, V] of the mean loss of a token, at every prefix separately.

    The policy of logits drawn_SV draws the token at a prefix, and pi treats it as its own.
    """
    from testbed.data.batch import Batch

    S, V = pi_SV.shape
    flat, zero_B = (lambda x_SV: x_SV.detach().log_softmax(-1).reshape(-1, 1)), pi_SV.new_zeros(S * V)
    leaf_SV = pi_SV.detach().clone().requires_grad_()
    batch = Batch(
        logp_mu_BT=flat(pi_SV), adv_BT=zero_B[:, None], mask_BT=torch.ones(S * V, 1, dtype=torch.bool),
        reward_B=zero_B, group_B=torch.zeros(S * V, dtype=torch.int64), logp_ref_BT=flat(ref_SV),
        origin_B=torch.zeros(S * V, dtype=torch.int64),
    )  # fmt: skip
    loss_BT = loss(leaf_SV.log_softmax(-1).reshape(-1, 1), batch)
    weight_B1 = drawn_SV.detach().softmax(-1).reshape(-1, 1)
    (found,) = torch.autograd.grad((weight_B1 * loss_BT).sum(), leaf_SV)
    return found


def levels(logits_SV: Tensor) -> list[np.ndarray]:
    """Return the probabilities of tokens after every prefix, [V^t, V] for every t."""
    pi_SV = logits_SV.detach().softmax(-1).numpy()
    starts = [sum(V**s for s in range(t)) for t in range(T + 1)]
    return [pi_SV[a:b] for a, b in pairwise(starts)]


def prefixes(target_SV: Tensor) -> Tensor:
    """Return the probability with which the target writes every prefix, [S]; those of one length sum to 1."""
    reach, found = np.ones(1), []
    for p_LV in levels(target_SV):
        found.append(reach)
        reach = (reach[:, None] * p_LV).ravel()
    return torch.from_numpy(np.concatenate(found))


def target_states(seed: int) -> tuple[Tensor, Tensor]:
    """Return a random target's state at every prefix [S, D], and its head [D, V]."""
    stream = np.random.default_rng([seed, 3])
    head_DV, turn_DD, word_VD = (stream.standard_normal(shape) for shape in ((D, V), (D, D), (V, D)))
    state = [stream.standard_normal((1, D))]
    for _ in range(T - 1):
        moved = np.tanh((state[-1] @ turn_DD / np.sqrt(D / 2))[:, None] + word_VD).reshape(-1, D)
        # Noise that no prefix foretells: a draft sees it only in the states that it is given.
        state.append(KEPT * moved + (1 - KEPT) * stream.standard_normal(moved.shape))
    return torch.from_numpy(np.concatenate(state)), torch.from_numpy(2.0 * head_DV * np.sqrt(2 / D))


def drafted(state_SD: Tensor, turn_DD: Tensor, word_VD: Tensor, own: bool) -> Tensor:
    """Return the draft's state at every prefix, A x + E_token; x: the target's previous state, or its own."""
    found, start = [state_SD[:1]], 0
    for t in range(T - 1):
        before = found[-1] if own else state_SD[start : start + V**t]
        found.append(((before @ turn_DD)[:, None] + word_VD).reshape(-1, D))
        start += V**t
    return torch.cat(found)


@by_world("log accepted", "log speed")
def learn(seed: int, arm: str, rate: float) -> tuple[float, float]:
    """Return the logs of accepted length and speed of a draft with the target's head.

    Adam fits it to expected gradients of KL(target, draft) at the prefixes that the target writes. In
    decoding the draft sees its part of the target's state at the first place, and its own states afterwards.
    The speed is (accepted + 1) / (1 + COST T), in target calls saved per call, as in arXiv:2211.17192.
    """
    from testbed.objectives.terms.f_distillation import f_distillation

    state_SD, head_DV = target_states(seed)
    target_SV = state_SD @ head_DV
    seen_SD = state_SD * (torch.arange(D) < SEEN) if arm.startswith("part") else state_SD
    share_S1 = prefixes(target_SV)[:, None]
    turn_DD, word_VD = (torch.zeros(rows, D, dtype=torch.float64, requires_grad=True) for rows in (D, V))
    optimizer = torch.optim.Adam([turn_DD, word_VD], lr=rate)
    loss: Any = partial(f_distillation, divergence="forward")
    for _ in range(STEPS):
        logits_SV = drafted(seen_SD, turn_DD, word_VD, own=arm.endswith("own")) @ head_DV
        slope_SV = place_gradients(loss, logits_SV, target_SV, logits_SV)
        optimizer.zero_grad()
        # The slopes are constants here, so that the draft gets them as the gradient of this product.
        (share_S1 * slope_SV * logits_SV).sum().backward()
        optimizer.step()
    draft_SV = drafted(seen_SD, turn_DD, word_VD, own=True) @ head_DV
    accepted = accepted_length(levels(target_SV), levels(draft_SV))
    return np.log(accepted), np.log((accepted + 1) / (1 + COST * T))


EXPERIMENT = TunedArms(ARMS, learn, "log accepted", PILOTS, fine=True).experiment(
    NAME, SEEDS, ("log accepted", "log speed"), {"state": D, "seen": SEEN, "length": T},
    question="Is a draft accepted longer if it sees the whole state and is trained as it decodes?",
    source=SOURCE,
    differs="random targets of 4 tokens and places with states of six numbers, linear drafts; no text",
    margins={"gain that counts": LONGER, "the source's gain in length": SOURCES, "in speed": FASTER},
    figure=strips("log accepted: log of the accepted tokens of 4", "Shows the log of the number of drafted "
        "tokens, of 4, that a random target with 4 tokens accepts from a linear draft; the draft sees half "
        "of the target's state at the first place (part) or all of it (whole), and is trained on the "
        "target's states at later places (given) or on its own, as when it decodes (own); each arm has its "
        "best rate."),
    systems={"Mixture of Attentions for Speculative Decoding": "no attention, no text; hiding half of the "
             "state determines how much the whole state adds"},
)  # fmt: skip
BEST, EAGLE = "whole, own", "part, given"
asks(EXPERIMENT,
    ("whole-states-and-own-training-lengthen-acceptance", "A draft that sees the target's whole state and is "
     "trained on its own states has 25 % more tokens accepted than one that sees half of the state and is "
     "trained on the target's.", BEST, EAGLE, float(np.log1p(SOURCES)), "log accepted"),
    ("whole-states-and-own-training-decode-faster", "A draft that sees the target's whole state and is "
     "trained on its own states decodes 9.5 % faster than one that sees half of the state and is trained on "
     "the target's.", BEST, EAGLE, float(np.log1p(FASTER)), "log speed"),
    ("own-training-lengthens-acceptance", "Of drafts that see the whole state, those trained on their own "
     "states have 2 % more tokens accepted.", BEST, "whole, given", float(np.log1p(LONGER)), "log accepted"),
)  # fmt: skip
