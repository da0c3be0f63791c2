"""Drafts that read the target's state, which decoding gives them at the first place alone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from analysis.experiments.engines.draft_acceptance import KINDS, LONGER, T, V, levels, prefixes
from analysis.lab import Evidence, Experiment, Part, Plot, exact
from analysis.tables.committed import Table

if TYPE_CHECKING:
    from torch import Tensor

NAME = "draft-states"
D, TARGETS, STEPS, RATE, KEPT = 2, 8, 120, 0.05, 0.6
"""Size of a state; targets; steps of Adam and their length; share of a state that the one before decides."""
FEEDS = ("given", "own", "own, own prefixes")
"""What a draft reads in training: the target's states, or its own, on the target's prefixes or on its own."""


def target_states(seed: int) -> tuple[Tensor, Tensor]:
    """Return a random target's state at every prefix [S, D], and its head [D, V]."""
    import torch

    stream = np.random.default_rng([seed, 3])
    head_DV, turn_DD, word_VD = (stream.standard_normal(shape) for shape in ((D, V), (D, D), (V, D)))
    state = [stream.standard_normal((1, D))]
    for _ in range(T - 1):
        moved = np.tanh((state[-1] @ turn_DD)[:, None] + word_VD).reshape(-1, D)
        state.append(KEPT * moved + (1 - KEPT) * stream.standard_normal(moved.shape))
    return torch.from_numpy(np.concatenate(state)), torch.from_numpy(2.0 * head_DV)


def drafted(state_SD: Tensor, turn_DD: Tensor, word_VD: Tensor, own: bool) -> Tensor:
    """Return the draft's state at every prefix, A x + E_token of the target's state before, or of its own."""
    import torch

    found, start = [state_SD[:1]], 0
    for t in range(T - 1):
        before = found[-1] if own else state_SD[start : start + V**t]
        found.append(((before @ turn_DD)[:, None] + word_VD).reshape(-1, D))
        start += V**t
    return torch.cat(found)


def accepted(seed: int, kind: str, feed: str) -> float:
    """Return the accepted length of a draft with the target's head, fitted by expected gradients.

    When it decodes it has the target's state at the first place and its own behind.
    """
    import torch

    from analysis.worlds.teaching_worlds import place_gradients
    from testbed.exact.speculative import accepted_length
    from testbed.objectives.terms.f_distillation import f_distillation

    state_SD, head_DV = target_states(seed)
    target_SV, whose = state_SD @ head_DV, "own" if feed.endswith("prefixes") else "target"
    turn_DD, word_VD = (torch.zeros(rows, D, dtype=torch.float64, requires_grad=True) for rows in (D, V))
    optimizer = torch.optim.Adam([turn_DD, word_VD], lr=RATE)
    loss: Any = partial(f_distillation, divergence=kind)
    for _ in range(STEPS):
        logits_SV = drafted(state_SD, turn_DD, word_VD, own=feed != "given") @ head_DV
        share_S1 = prefixes(target_SV, logits_SV, whose)[:, None]
        slope_SV = place_gradients(loss, logits_SV, target_SV, logits_SV)
        optimizer.zero_grad()
        (share_S1 * slope_SV * logits_SV).sum().backward()
        optimizer.step()
    return accepted_length(levels(target_SV), levels(drafted(state_SD, turn_DD, word_VD, own=True) @ head_DV))


def table() -> Table:
    """Return accepted lengths by target, divergence and what was read in training."""
    cells = [(seed, kind, feed) for seed in range(TARGETS) for kind in KINDS for feed in FEEDS]
    frame = pd.DataFrame(cells, columns=["target", "divergence", "feed"])
    frame["accepted"] = [accepted(*cell) for cell in cells]
    return Table.of(NAME, frame, {"state": D, "length": T, "steps": STEPS})


EXPERIMENT = Experiment(
    NAME,
    question="Is a draft accepted longer if it is trained on the states that it has when it decodes?",
    source="Mixture of Attentions for Speculative Decoding (2024), arXiv:2410.03804",
    differs="random targets with states of two numbers, linear drafts; no attention, no text",
    compute=table,
    keys=("target", "divergence", "feed"),
    metrics=("accepted",),
    margins={"relative gain in accepted length": LONGER},
    figure=Plot(
        "final by dial", x="feed", y="accepted", arm=("divergence",), x_label="states read in training",
        y_label="accepted tokens of 4",
    ),
    systems={"Mixture of Attentions for Speculative Decoding": Part("what a draft reads in training")},
)  # fmt: skip


def _gains(table: pd.DataFrame, feed: str, over: str) -> dict[str, float]:
    """Return mean relative gains by divergence."""
    wide = table.pivot(index=["divergence", "target"], columns="feed", values="accepted")
    found: Any = (wide[feed] / wide[over] - 1).groupby(level="divergence").mean()
    return {str(kind): float(x) for kind, x in found.items()}


def _said(found: dict[str, float]) -> str:
    return ", ".join(f"{kind} {100 * x:+.2f} %" for kind, x in found.items())


@EXPERIMENT.claim(
    "drafts-gain-on-their-own-states",
    kind="enumerated",
    statement=(
        "Over 8 random targets drafts trained on their own states have on average more tokens accepted than "
        "drafts trained on the target's, under forward, reverse and tv divergences."
    ),
)
def gain(table: pd.DataFrame) -> Evidence:
    """Return what mean relative gains lack of any."""
    found = _gains(table, "own", "given")
    return exact([-x for x in found.values()], -1e-6, f"lacking gain; gains {_said(found)}")


@EXPERIMENT.claim(
    "own-states-lengthen-acceptance-by-a-quarter",
    kind="enumerated",
    statement="The gain is at least the source's 25 % under each divergence.",
)
def quarter(table: pd.DataFrame) -> Evidence:
    """Return what mean relative gains lack of a quarter."""
    found = _gains(table, "own", "given")
    return exact([0.25 - x for x in found.values()], 0.0, f"25 % less the gain; gains {_said(found)}")


@EXPERIMENT.claim(
    "own-prefixes-add-little-to-own-states",
    kind="enumerated",
    statement="With own states own prefixes change the accepted length by less than 1 % for each divergence.",
)
def little(table: pd.DataFrame) -> Evidence:
    """Return the excess of mean relative changes over a hundredth."""
    found = _gains(table, "own, own prefixes", "own")
    return exact([abs(x) - 0.01 for x in found.values()], 0.0, f"change less 1 %; changes {_said(found)}")
