"""Statements of an experiment about its table: a name, a sentence, and one of four kinds of evidence.

    EXPERIMENT.claim("topr-above-grpo", "At lags 16 and 64 TOPR ends 0.05 above GRPO.").compare(
        "accuracy", {"recipe": "topr"}, {"recipe": "grpo"}, by=0.05, over={"lag": (16, 64)}
    )
    EXPERIMENT.claim(…).equal("accuracy", a, b, within=0.05)    # they differ by less than a margin
    EXPERIMENT.claim(…).happens("collapsed", a)                 # on most seeds; with b, more often than there
    EXPERIMENT.claim(…).trend("accuracy", a, x="lag", by=0.01)  # least-squares slope within each seed

Units are seeds, which all arms share. A value of an arm, or of `over`, that is a collection gives a cell for
each of its members, and the statement must hold in every cell. A quantity that two arms' columns do not give,
such as a rank correlation within each seed, is a function of the table that returns a number per unit, or
{cell: numbers}:

    EXPERIMENT.claim(…).compare(taus, by=0.5)

For evidence of another kind, write a check:

    @EXPERIMENT.claim("another")
    def another(table: pd.DataFrame) -> Evidence:
        \"\"\"The statement.\"\"\"
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.experiment import Check
    from analysis.judging.comparison import Outcome, Way
    from analysis.judging.comparisons import Arm


@dataclass(frozen=True)
class Statement:
    """A statement without evidence yet; each method adds it and registers the claim.

    register: takes the check. typical: "mean" or "median" over seeds, where a method is not told.
    outcome: a column, or what computes one from the table. a, b: arms, columns and their values.
    over: columns that both arms share.
    """

    register: Callable[[Check], Check]
    typical: str

    def __call__(self, check: Check) -> Check:
        """Judge by check() or check(table) -> Evidence; for use as a decorator."""
        return self.register(check)

    def compare(
        self,
        outcome: Outcome,
        a: Arm | None = None,
        b: Arm | None = None,
        *,
        by: float = 0.0,
        times: float | None = None,
        below: bool = False,
        over: Arm | None = None,
        typical: str = "",
        off: Arm | None = None,
        rival: Arm | None = None,
        null: float | None = None,
    ) -> None:
        """Say that the outcome of a is above that of b by `by`; without b, that it is above `by` itself.

        Without a, the outcome is a function that returns a number per unit; it is above `by`, and `null` is
        its value without an effect, 0 by default. times: ratio, in place of `by`. below: below in place of
        above. off, rival: arms for which, in place of a, the same must not hold; otherwise the claim is
        invalid.
        """
        margin = math.log(times) if times is not None else by
        more = {"log": times is not None, "off": off, "rival": rival, "null": null}
        self._by("below" if below else "above", outcome, a, b, margin, over, typical, **more)

    def equal(
        self,
        outcome: Outcome,
        a: Arm | None = None,
        b: Arm | None = None,
        *,
        within: float,
        floor: float | None = None,
        over: Arm | None = None,
        typical: str = "",
    ) -> None:
        """Say that outcomes of both arms differ by less than `within`; floor: value none can fall below.

        Without arms, the outcome computes a difference per unit.
        """
        self._by("equal", outcome, a, b, within, over, typical, floor=floor)

    def happens(
        self,
        event: Outcome,
        a: Arm | None = None,
        b: Arm | None = None,
        *,
        over: Arm | None = None,
        spared: bool = False,
        alone: bool = False,
        times: float | None = None,
        off: Arm | None = None,
    ) -> None:
        """Say that an event, a column above 1/2, happens on most seeds; with b, more often than in b.

        spared: say that it does not happen on most seeds. alone: that on most seeds it happens in a and not
        in b. times: that on most seeds a needs under 1/times of what b needs, in the column; a run without a
        number needs infinitely much. off: as `compare` takes it.
        """
        way: Way = "sooner" if times is not None else "alone" if alone else "spared" if spared else "happens"
        self._by(way, event, a, b, times or 0.0, over, "", off=off)

    def trend(
        self,
        outcome: Outcome,
        a: Arm,
        *,
        x: str,
        by: float = 0.0,
        below: bool = False,
        over: Arm | None = None,
        typical: str = "",
    ) -> None:
        """Say that the least-squares slope of the outcome over column x, in each seed, is above `by`."""
        self._by("below" if below else "above", outcome, a, None, by, over, typical, x=x)

    def _by(
        self,
        way: Way,
        outcome: Outcome,
        a: Arm | None,
        b: Arm | None,
        margin: float,
        over: Arm | None,
        typical: str,
        **more: Any,
    ) -> None:
        from analysis.judging.comparison import Comparison  # pandas, which listing names does not need

        self.register(Comparison(way, outcome, a, b, margin, over or {}, typical or self.typical, **more))
