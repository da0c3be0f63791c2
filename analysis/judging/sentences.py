"""The four sentences that an experiment says about its table: compare, equal, happens, trend.

    EXPERIMENT.compare("topr-above-grpo", "accuracy", {"recipe": "topr"}, {"recipe": "grpo"}, by=0.05,
                       over={"lag": (16, 64)}, says="At lags 16 and 64 …")
    EXPERIMENT.equal(..., within=0.05)       # both differ by less than a margin
    EXPERIMENT.happens("grpo-collapses", "collapsed", {"recipe": "grpo"}, says="…")
    EXPERIMENT.trend(..., x="log lag", by=0.01)   # least-squares slope within each seed

Units are seeds, which all arms share. A value of an arm, or of `over`, that is a collection gives a cell for
each of its members, and the sentence must hold in every cell.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from analysis.experiment import Gate
    from analysis.judging.comparison import Outcome
    from analysis.judging.comparisons import Arm


class Sentences:
    """What an experiment can say of its table, one sentence each; a base of Experiment.

    All take name: how the claim is asked for, written out, so that a search finds it. outcome: a column, or
    what computes one. a, b: arms, columns and their values. over: columns that both share. says: the sentence
    that is judged. source: who says so; by default the experiment's source. gates: further checks of the
    table by gate (analysis.judging.gates).
    """

    claim: Callable[..., Callable[[Any], Any]]

    def compare(
        self,
        name: str,
        outcome: Outcome,
        a: Arm,
        b: Arm | None = None,
        *,
        says: str,
        by: float = 0.0,
        times: float | None = None,
        below: bool = False,
        over: Arm | None = None,
        typical: str = "median",
        source: str = "",
        gates: Mapping[str, Gate] | None = None,
    ) -> None:
        """Claim that `outcome` of arm a is above that of b, or above `by` itself without b.

        by: by how much, in units of the outcome. times: how many times as large, in place of `by`.
        below: below in place of above. typical: "median" or "mean" over seeds.
        """
        margin = math.log(times) if times is not None else by
        asked: dict[str, Any] = {
            "margin": margin,
            "log": times is not None,
            "typical": typical,
            "over": over or {},
        }
        self._say(name, says, source, gates, "below" if below else "above", outcome, a, b, **asked)

    def equal(
        self,
        name: str,
        outcome: Outcome,
        a: Arm,
        b: Arm,
        *,
        says: str,
        within: float,
        floor: float | None = None,
        over: Arm | None = None,
        typical: str = "median",
        source: str = "",
        gates: Mapping[str, Gate] | None = None,
    ) -> None:
        """Claim that the outcomes of both arms differ by less than `within`.

        floor: value below which no arm can fall.
        """
        asked: dict[str, Any] = {"margin": within, "floor": floor, "typical": typical, "over": over or {}}
        self._say(name, says, source, gates, "equal", outcome, a, b, **asked)

    def happens(
        self,
        name: str,
        event: Outcome,
        a: Arm,
        b: Arm | None = None,
        *,
        says: str,
        over: Arm | None = None,
        source: str = "",
        gates: Mapping[str, Gate] | None = None,
    ) -> None:
        """Claim that an event, a column above 1/2, happens on most seeds; with b, more often than in b."""
        self._say(name, says, source, gates, "happens", event, a, b, over=over or {})

    def trend(
        self,
        name: str,
        outcome: Outcome,
        a: Arm,
        *,
        x: str,
        says: str,
        by: float = 0.0,
        below: bool = False,
        over: Arm | None = None,
        typical: str = "median",
        source: str = "",
        gates: Mapping[str, Gate] | None = None,
    ) -> None:
        """Claim that the least-squares slope of the outcome over column x is above `by` within seeds."""
        asked: dict[str, Any] = {"margin": by, "x": x, "typical": typical, "over": over or {}}
        self._say(name, says, source, gates, "below" if below else "above", outcome, a, None, **asked)

    def _say(
        self, name: str, says: str, source: str, gates: Mapping[str, Gate] | None, *asked: Any, **more: Any
    ) -> None:
        from analysis.judging.comparison import Comparison  # pandas, which lists of names do without

        self.claim(name, statement=says, source=source, gates=gates)(Comparison(*asked, **more))
