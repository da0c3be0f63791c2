"""The smallest batch on which a loss and an entry differ, as tokens, ratios and weights."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from testbed.conformance.batches import Rows, in_words, tensors
from testbed.conformance.calling import LossError, call
from testbed.conformance.catalogue_entry import Reference
from testbed.conformance.loss_evidence import differs, visible
from testbed.conformance.signature import Binding
from testbed.conformance.strategies import batches, smallest


@dataclass(frozen=True)
class Counterexample:
    """A batch with weights -dLoss/dlogp of the loss and of the entry, one list per row; or an error."""

    rows: Rows
    mine: tuple[tuple[float, ...], ...] = ()
    theirs: tuple[tuple[float, ...], ...] = ()
    problem: str = ""

    def lines(self) -> list[str]:
        """Return it as text, one line per row."""
        found = []
        for index, line in enumerate(in_words(self.rows)):
            if self.mine:
                line += f": weights {_row(self.mine[index])}, expected {_row(self.theirs[index])}"
            found.append(line)
        return [*found, self.problem] if self.problem else found

    def as_dict(self) -> dict[str, Any]:
        rows = [
            {
                "adv": row.adv,
                "reward": row.reward,
                "group": row.group,
                "log_pi_over_anchor": [token.log_ratio for token in row.tokens],
                "log_anchor_over_mu": [token.log_mismatch for token in row.tokens],
                "log_pi_over_ref": [token.log_ref for token in row.tokens],
                "mask": [token.kept for token in row.tokens],
            }
            for row in self.rows
        ]
        numbers = {"rows": rows, "weights": self.mine, "expected": self.theirs}
        return {**numbers, "problem": self.problem, "lines": self.lines()}


def _row(weights: tuple[float, ...]) -> str:
    return "(" + ", ".join(f"{w + 0.0:.6g}" for w in weights) + ")"


def told(binding: Binding, reference: Reference, rows: Rows) -> Counterexample:
    """Return a batch with the weights of both."""
    rows = visible(rows, binding)
    logp, batch = tensors(rows)
    theirs = reference.weights(logp, batch)
    try:
        mine = call(binding, logp, batch).weight_BT
    except LossError as error:
        return Counterexample(rows, problem=str(error))
    return Counterexample(rows, _cut(mine, rows), _cut(theirs, rows))


def _cut(weight_BT: Tensor, rows: Rows) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(w[: len(row.tokens)].tolist()) for w, row in zip(weight_BT, rows, strict=True))


def where_they_part(
    binding: Binding, reference: Reference, tolerance: float, first: Rows | None = None, examples: int = 150
) -> Counterexample | None:
    """Return the smallest batch found with different weights, `first` if no smaller one, or None."""
    parted = failing(differs(binding, reference, tolerance))
    rows = smallest(batches(holes=True, mismatch=not binding.one_old), parted, examples) or first
    return None if rows is None else told(binding, reference, rows)


def failing(parted: Callable[[Rows], bool]) -> Callable[[Rows], bool]:
    """Wrap the condition so that it is also True if the call raises."""

    def condition(rows: Rows) -> bool:
        try:
            return parted(rows)
        except LossError:
            return True

    return condition
