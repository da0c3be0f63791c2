"""Figures that `--figure FILE` of a core command draws: bias splits, effective weights, lags."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.declared_plot import Plot
from testbed.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from testbed.pipeline.simulate import Report


def draw_bias(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Draw the rows of `testbed exact`: bias by part. Raises UserError when the file cannot be written."""
    from paper_figs.bias_split import draw_reports

    _draw(path, lambda: draw_reports(list(rows)))


def draw_weights(axes: Mapping[str, str], path: Path) -> None:
    """Draw the effective weights of objectives, each against its ratio, such as "pi/mu"."""
    from analysis.experiments.cards.objective_weights import frame_of
    from paper_figs.objective_comparison import draw
    from testbed.inspection import atlas

    _check(path)
    curves = [c for name in axes for c in atlas.curves(name) if c.axis == axes[c.objective]]
    _draw(path, lambda: draw(frame_of(curves)))


def draw_lags(found: "Report", path: Path) -> None:
    """Draw a simulated pipeline's shares of tokens, samples and groups by lag."""
    import numpy as np
    import pandas as pd

    from paper_figs.shared_plots import draw

    shares = {"tokens": found.token_K, "samples": found.sample_K, "groups": found.group_K}
    last = max(np.flatnonzero(share_K > 1e-4).max(initial=1) for share_K in shares.values()) + 1
    rows = pd.concat(
        pd.DataFrame({"lag": range(last), "share": share_K[:last], "of": name})
        for name, share_K in shares.items()
    )
    plot = Plot("curves by arm", x="lag: lag (updates)", y="share", arm=("of: ",))
    _draw(path, lambda: draw(rows, plot=plot))


def _draw(path: Path, make: "Callable[[], Figure]") -> None:
    from paper_figs.save_figures import render, style, write_file

    _check(path)
    with style():
        body = render(make(), path.suffix[1:])
    write_file(path, body)


def _check(path: Path) -> None:
    if path.suffix not in (".png", ".pdf"):
        raise UserError(f"--figure {path}: expected a name that ends in .png or .pdf.")
