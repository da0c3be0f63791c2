"""Find the registered objectives with the most similar effective weights, and where they differ."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from envs.arrays import Floats
from testbed.data.batch import Batch
from testbed.inspection.effective_weights import effective_weights
from testbed.inspection.promise_batches import F1, SEQUENCES, Sequence, batch_of, changed
from testbed.objectives import objective

POWERS = (1, 2, -1)
"""Powers of the small batch's ratios, so that every side of a clip is covered."""


@dataclass(frozen=True)
class Relative:
    """An objective similar to another one.

    likeness: cosine of their weights, 1 if equal up to a factor. where: the token at which they differ most
    after that factor; mine, theirs: its weights there, theirs with the factor.
    """

    name: str
    likeness: float
    where: str
    mine: float
    theirs: float


def batches() -> list[tuple[Tensor, Batch]]:
    """Return the batches for comparing weights: the worked example, and the small batch at several powers."""
    found = [batch_of(F1)]
    for power in POWERS:
        rows = changed(SEQUENCES, ratios=lambda s, power=power: tuple(x**power for x in s.ratios))
        found.append(batch_of(rows))
    return found


def fingerprint(name: str) -> Floats:
    """Return the effective weights of all tokens of `batches`, infinite ones as 0; [N]."""
    parts = []
    for logp, batch in batches():
        weight_N = effective_weights(name, logp, batch)[batch.mask_BT].numpy()
        parts.append(np.where(np.isfinite(weight_N), weight_N, 0.0))
    joined: Floats = np.concatenate(parts)
    return joined


def nearest(name: str, among: Iterable[str] | None = None, count: int = 5) -> list[Relative]:
    """Return the most similar of the named objectives, by default all registered ones except itself.

    Raises what the objective raises.
    """
    mine_N = fingerprint(name)
    own = float(np.linalg.norm(mine_N))
    found = []
    for other in objective if among is None else among:
        if other == name:
            continue
        theirs_N = fingerprint(other)
        norm = float(np.linalg.norm(theirs_N))
        if own == 0 or norm == 0:
            continue
        likeness = float(mine_N @ theirs_N) / (own * norm)
        factor = float(mine_N @ theirs_N) / norm**2
        at = int(np.argmax(np.abs(mine_N - factor * theirs_N)))
        found.append(Relative(other, likeness, places()[at], float(mine_N[at]), float(factor * theirs_N[at])))
    return sorted(found, key=lambda each: (-each.likeness, each.name))[:count]


def places() -> list[str]:
    """Describe the token of each number in a fingerprint."""
    words = [text for sequence in F1 for text in _tokens(sequence, 1)]
    return words + [text for power in POWERS for sequence in SEQUENCES for text in _tokens(sequence, power)]


def _tokens(sequence: Sequence, power: int) -> list[str]:
    anchors = sequence.anchor or (1.0,) * len(sequence.ratios)
    each = zip((ratio**power for ratio in sequence.ratios), anchors, strict=True)
    return [f"A = {sequence.adv:+g}, pi/mu = {x:.3g}, anchor/mu = {anchor:.3g}" for x, anchor in each]
