"""The atlas of objectives: effective weight against log-ratio; a figure per family, a panel per objective."""

import pkgutil

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

import testbed.objectives
from analysis.experiments.cards.objective_weights import COLUMNS, NAME
from analysis.palette import BLUE, DASH_DOT, DOT, INK, LONG, RULE, SHORT, SOLID, VERMILION, Dash
from analysis.tables.outcomes import need
from paper_figs.figure_registry import PAGE, figure
from testbed.errors import UserError

FAMILIES = tuple(
    sorted(each.name for each in pkgutil.iter_modules(testbed.objectives.__path__) if each.ispkg)
)
ACROSS = (5, 4, 3)
"""Panels side by side: the first of these that leaves the fewest cells empty."""
TANGLE = 3
"""An objective with so many axes gets a panel for each."""
HEIGHT = 1.16
"""Height of a row of panels, inches."""
TITLE = 17
"""Characters of a panel's title that fit on one line."""
LIMIT = 3.0
"""Half height of a y axis beyond which curves are cut, unless their on-policy points lie there."""
GHOST = "#bdbdbd"
DECOUPLED = "decoupled"
"""The family whose point is the mismatch between engines: that axis is drawn bold there."""

AXES: dict[str, tuple[str, Dash]] = {
    "pi": ("the policy moved: log π/μ", SOLID),
    "anchor/mu": ("engines disagree: log anchor/μ", LONG),
    "mu/ref": ("all moved from ref: log μ/ref", SHORT),
    "expert": ("a demonstration", DASH_DOT),
    "replay": ("a replayed answer", DOT),
}

SHORT_NAMES = {"expert": "demonstration", "replay": "replayed"}

CAPTION = (
    "Exact effective weight w = -dL/dlog π (y) against log-ratio (x) of the objectives of the family "
    "{family} at their defaults, on the atlas's probe: a group of four one-token answers, two with A = +1 "
    "and two with A = -1, one of them moved. Blue: the moved answer has A = +1; red: A = -1; black: both "
    "coincide; dots: on-policy; solid: the policy has moved; dashed: the engines disagree. Gray behind a "
    "variant (name @source): its base; arrows: the largest |w| of a curve that leaves the panel. An "
    "objective that distinguishes more than two origins has a panel for each."
)


def _register(family: str) -> None:
    @figure(f"objectives-{family}", data=NAME, caption=CAPTION.format(family=family))
    def draw(table: pd.DataFrame) -> Figure:
        """Return the page-wide figure of one family; columns as in the table objective-weights."""
        return draw_family(table, family)


for _family in FAMILIES:
    _register(_family)


def draw_family(table: pd.DataFrame, family: str) -> Figure:
    """Return small multiples of a family's effective weights, variants right after their base."""
    need(table, list(COLUMNS))
    rows = table[table["family"] == family]
    names = list(dict.fromkeys(rows["objective"]))
    if not names:
        raise UserError(
            f"The table has no objective of family '{family}'. Make it with: testbed evidence pages atlas"
        )
    panels = [panel for name in names for panel in _split(rows[rows["objective"] == name])]
    across = min(ACROSS, key=lambda columns: -len(panels) % columns)
    down = -(-len(panels) // across)
    handles = _handles(rows)
    fig = Figure(figsize=(PAGE, HEIGHT * down + 0.35 + 0.16 * -(-len(handles) // 3)))
    axes = fig.subplots(down, across, sharex=True, squeeze=False).ravel()
    for ax, (title, own) in zip(axes, panels, strict=False):
        name = own["objective"].iloc[0]
        base = name.partition("@")[0]
        _panel(ax, own, rows[rows["objective"] == base] if base != name else None)
        _title(ax, title)
    for ax in axes[len(panels) :]:
        ax.set_axis_off()
    for index, ax in enumerate(axes[: len(panels)]):
        if index + across >= len(panels):
            ax.tick_params(labelbottom=True)
    fig.supxlabel("log-ratio", fontsize=8)
    fig.supylabel("effective weight w", fontsize=8)
    fig.legend(handles=handles, loc="outside upper center", ncols=3, columnspacing=1.4)
    return fig


def _split(rows: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Return an objective's panels as (title, rows): one, or one per axis if the curves would tangle."""
    name, axes = str(rows["objective"].iloc[0]), list(dict.fromkeys(rows["axis"]))
    if len(axes) < TANGLE:
        return [(name, rows)]
    return [(f"{name}: {SHORT_NAMES.get(axis, axis)}", rows[rows["axis"] == axis]) for axis in axes]


def _kind(axis: str) -> str:
    return "pi" if axis.startswith("pi/") else axis


def _panel(ax: Axes, rows: pd.DataFrame, base: pd.DataFrame | None) -> None:
    limit = _limit(rows)
    axes = list(dict.fromkeys(rows["axis"]))
    main = "anchor/mu" if "anchor/mu" in axes and (rows["family"] == DECOUPLED).all() else axes[0]
    ax.axhline(0, color=RULE, linewidth=0.5, zorder=1)
    ax.axvline(0, color=RULE, linewidth=0.5, zorder=1)
    if base is not None:
        _ghost(ax, base[base["axis"].map(_kind) == _kind(main)])
    plain = True
    for axis in axes:
        both = [rows[(rows["axis"] == axis) & (rows["advantage"] == sign)] for sign in (1, -1)]
        colors = (INK, None) if _same(*both) else (BLUE, VERMILION)
        plain &= colors[0] == INK
        for curve, color in zip(both, colors, strict=True):
            if color:
                ax.plot(
                    curve["log_ratio"],
                    curve["weight"],
                    color=color,
                    linestyle=AXES[_kind(axis)][1],
                    linewidth=1.3 if axis == main else 0.8,
                )
                here = curve[(curve["on_policy"] == 1) & (curve["weight"].abs() <= 1.1 * limit)]
                ax.plot(here["log_ratio"], here["weight"], "o", color=color, markersize=3.4, zorder=4)
    _arrows(ax, rows, limit, plain)
    ax.set_xlim(-3, 3)
    ax.set_ylim(-1.12 * limit, 1.12 * limit)
    ax.set_xticks([-2, 0, 2])
    tick = 2.0 if limit == LIMIT else limit
    ax.set_yticks([-tick, 0, tick], [f"−{tick:g}", "0", f"{tick:g}"])


def _ghost(ax: Axes, base: pd.DataFrame) -> None:
    for _, curve in base.groupby("advantage"):
        ax.plot(curve["log_ratio"], curve["weight"], color=GHOST, linewidth=2.6, solid_capstyle="butt")


def _arrows(ax: Axes, rows: pd.DataFrame, limit: float, plain: bool) -> None:
    """Write the extremes of curves that leave the panel at its top and bottom."""
    for up, side in ((True, rows[rows["weight"] > 0]), (False, rows[rows["weight"] < 0])):
        if not len(side) or side["weight"].abs().max() <= 1.12 * limit:
            continue
        top = side.iloc[int(side["weight"].abs().argmax())]
        left = _free_side(rows, limit, up, preferred=bool(top["log_ratio"] < 0))
        ax.annotate(
            f"{'↑' if up else '↓'} {_brief(top['weight'])}",
            (0.03 if left else 0.99, 1.0 if up else 0.01),
            xycoords="axes fraction",
            ha="left" if left else "right",
            va="top" if up else "bottom",
            fontsize=7,
            color=INK if plain else BLUE if top["advantage"] > 0 else VERMILION,
            bbox={"boxstyle": "square,pad=0.1", "facecolor": "white", "edgecolor": "none", "alpha": 0.8},
        )


def _free_side(rows: pd.DataFrame, limit: float, up: bool, preferred: bool) -> bool:
    """Return whether to put the text in the left corner: the preferred one unless only the other is free."""
    taken = {True: False, False: False}
    for _, curve in rows.groupby(["axis", "advantage"]):
        for left in taken:
            x = np.linspace(-3.0, -1.3, 40) if left else np.linspace(1.3, 3.0, 40)
            height = np.interp(x, curve["log_ratio"], curve["weight"]) * (1 if up else -1)
            taken[left] |= bool(((height > 0.68 * limit) & (height < 1.12 * limit)).any())
    return preferred if not taken[preferred] or taken[not preferred] else not preferred


def _same(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    return len(first) == len(second) and np.array_equal(
        first[["log_ratio", "weight"]].to_numpy(), second[["log_ratio", "weight"]].to_numpy()
    )


def _limit(rows: pd.DataFrame) -> float:
    """Return a panel's half height: its largest weight, limited so that the middle stays readable."""
    size = rows["weight"].abs()
    wanted = min(float(size.max()), max(LIMIT, 1.5 * float(size[rows["on_policy"] == 1].max())))
    if wanted <= 0:
        return 1.0
    power = 10.0 ** np.floor(np.log10(wanted))
    return next(
        float(f"{step * power:.3g}") for step in (1, 2, 3, 5, 10, 20) if wanted <= 1.02 * step * power
    )


def _brief(weight: float) -> str:
    size = abs(weight)
    return f"{size:.0f}" if 10 <= size < 1e4 else f"{size:.2g}"


def _title(ax: Axes, name: str) -> None:
    base, _, source = name.partition("@")
    if not source:
        broken = base.replace(": ", ":\n") if len(base) > TITLE else base
        ax.set_title(broken, fontsize=7, pad=2, fontweight="bold")
        return
    broken = "\n" if len(name) > TITLE else " "
    ax.set_title(f"{base}{broken}@{source}", fontsize=7, pad=2, color=RULE)


def _handles(rows: pd.DataFrame) -> list[Line2D]:
    # Groups are sorted, advantage last: neighbors are both signs of one curve.
    curves = [curve for _, curve in rows.groupby(["objective", "axis", "advantage"])]
    handles = [Line2D([], [], color=INK, marker="o", linestyle="none", label="on-policy")]
    if not all(_same(*pair) for pair in zip(curves[::2], curves[1::2], strict=True)):
        handles = [
            Line2D([], [], color=BLUE, label="A = +1"),
            Line2D([], [], color=VERMILION, label="A = −1"),
            *handles,
        ]
    kinds = {_kind(axis) for axis in rows["axis"]}
    if len(kinds) > 1:
        handles += [
            Line2D([], [], color=INK, linestyle=AXES[k][1], label=AXES[k][0]) for k in AXES if k in kinds
        ]
    if rows["objective"].str.contains("@").any():
        handles.append(Line2D([], [], color=GHOST, linewidth=2.6, label="its base"))
    return handles
