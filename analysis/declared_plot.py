"""Shared kinds of plots of a table; `paper_figs.shared_plots` draws them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

from testbed.errors import UserError, unknown

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "curves by arm": "lines: median over {over}; bands: order-statistic 95% interval of it",
        "final by setting": "points: mean over {over}; bars: its 95% interval (Student's t)",
        "heat map": "colors and numbers: mean over {over}",
        "distribution": "dots: {over}; marks and bars: their median and quartiles",
        "strips": "dots: {over}; marks and bars: their {center}",
        "ROC": "shares of runs with, and without, the event whose score is at or above a threshold",
        "frontier": "points: mean over {over}; line: points that no other point beats in both",
        "scatter": "marks: {over}",
    }
)
"""Shared kinds with the meaning of their marks.

over: the units behind a mean or a dot, such as seeds. center: one of CENTERS.
"""
CENTERS: Mapping[str, str] = MappingProxyType(
    {
        "mean": "mean and its 95% interval (Student's t)",
        "geometric mean": "geometric mean and its 95% interval (Student's t of the logarithm)",
        "median": "median and its order-statistic 95% interval",
    }
)
"""What the marks of strips show."""


@dataclass(frozen=True)
class Plot:
    """A plot that needs no file of its own.

    kind: one of KINDS. x, y: columns; of a ROC the score and the event, 0 or 1; of a frontier the cost,
    less is better, and the gain; of strips the value and the column whose values stand below each other;
    "column: words" where its axis says something else than the column's name, as x_label and y_label do.
    arm: columns whose combinations are drawn apart; "column: words" where the legend's title says
    something else than the column's name, or nothing, as arm_labels do. value: the color of a heat map,
    "column: words". where: only rows with these values, a tuple for several. names: what values are
    called where not as in the table or by paper_figs.value_names. x_label, y_label: in place of the
    columns' names. log: axes with a logarithmic scale, "x", "y" or "xy"; values of a setting stand side
    by side at equal distances. order: the arms' labels in the order of their looks, where a panel may
    lack some of them. panel: a column whose values have a panel each, titled by them behind panel_label,
    or by their names. equal: a scatter has the line y = x. floor: a column whose least value is a line
    below the marks of a scatter. also: further panels, each by what differs from the first. of: what makes
    the rows that are drawn of the table. says: a sentence of the caption in place of what x and y are
    called. center: what the marks of strips show, one of CENTERS; a registered figure has what its
    claims compare.

    Raises UserError for an unknown kind, a heat map without a value, or another kind with one.
    """

    kind: str
    x: str
    y: str
    arm: tuple[str, ...] = ()
    value: str = ""
    value_label: str = ""
    where: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    x_label: str = ""
    y_label: str = ""
    log: str = ""
    order: tuple[str, ...] = ()
    arm_labels: Mapping[str, str] = field(default_factory=dict)
    panel: str = ""
    panel_label: str = ""
    equal: bool = False
    floor: str = ""
    also: tuple[Mapping[str, Any], ...] = ()
    of: "Callable[[pd.DataFrame], pd.DataFrame] | None" = None
    says: str = ""
    center: str = "median"

    def __post_init__(self) -> None:
        """Raise UserError for what cannot be drawn."""
        for axis in ("x", "y", "value", "panel"):
            column, _, words = getattr(self, axis).partition(": ")
            object.__setattr__(self, axis, column)
            object.__setattr__(self, f"{axis}_label", words or getattr(self, f"{axis}_label"))
        parts = [each.partition(": ") for each in self.arm]
        words = {column: text for column, given, text in parts if given}
        object.__setattr__(self, "arm", tuple(column for column, _, _ in parts))
        object.__setattr__(self, "arm_labels", {**self.arm_labels, **words})
        if self.kind not in KINDS:
            raise unknown("kind of plot", self.kind, KINDS)
        if (self.kind == "heat map") != bool(self.value):
            raise UserError(f"A {self.kind} has value={self.value!r}; heat maps have one, and nothing else.")

    @property
    def plots(self) -> tuple["Plot", ...]:
        unnamed = [
            {f"{axis}_label": "" for axis in ("x", "y", "value") if axis in each} for each in self.also
        ]
        return (
            self,
            *(replace(self, also=(), **{**no, **each}) for no, each in zip(unnamed, self.also, strict=True)),
        )

    @property
    def columns(self) -> set[str]:
        """The columns that it reads, of the table or of the result of `of`."""
        found = {self.x, self.y, *self.arm, *self.where, self.value, self.panel, self.floor} - {""}
        return found.union(*(each.columns for each in self.plots[1:]))


def strips(x: str, says: str, *, y: str = "arm", **more: Any) -> Plot:
    """Return the strips of a number, "column: words", one below the other by arm; more: as in `Plot`."""
    return Plot("strips", x, y, says=says, **more)
