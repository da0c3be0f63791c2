"""Draw docs/architecture.svg from the plan in tests/test_architecture.py and the imports as they are.

    python docs/tools/draw_architecture.py

Rows are the plan's, the ground below. An arrow says that a package imports another; those that a longer way
says too are left out.
"""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from support.import_graph import module_files, module_graph, package_graph, reduced  # noqa: E402
from test_architecture import LAYERS  # noqa: E402

WIDTH, BOX_WIDTH, BOX_HEIGHT, ROW = 1000, 140, 36, 80
MARGIN = 12
COLORS = {  # what a package is for, its fill, the packages
    "ground": ("#64748b", "errors rng registry user_files config data envs"),
    "losses": ("#2f6db5", "losses objectives advantages recipes inspection adapters"),
    "sampling, training": ("#2b8a6b", "policies worlds mismatch staleness anchors pipeline training"),
    "measuring": ("#8250b8", "exact estimators diagnostics testing conformance"),
    "running": ("#b4632a", "execution results sweeps cli"),
    "answers": ("#b03a5b", "analysis paper_figs"),
}


def color(package: str) -> str:
    """Return the fill of a package's box: what kind of work it does."""
    name = package.rpartition(".")[2]
    return next((fill for fill, names in COLORS.values() if name in names.split()), COLORS["ground"][0])


def ordered(arrows: dict[str, frozenset[str]]) -> list[list[str]]:
    """Return the rows with each package near its imports and its importers, so that few arrows cross."""
    rows = [list(row) for row in LAYERS]
    near = {
        package: others | {name for name, below in arrows.items() if package in below}
        for package, others in arrows.items()
    }
    for _ in range(12):
        place = {package: (i + 0.5) / len(row) for row in rows for i, package in enumerate(row)}
        for row in rows:
            row.sort(key=lambda package: sum(map(place.get, near[package])) / max(len(near[package]), 1))
    return rows


def places(rows: list[list[str]]) -> dict[str, tuple[float, float]]:
    """Return the middle of every package's box."""
    found = {}
    for number, row in enumerate(reversed(rows)):
        for index, package in enumerate(row):
            found[package] = (WIDTH * (index + 0.5) / len(row), MARGIN + BOX_HEIGHT / 2 + ROW * number)
    return found


def arrow(start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return an arrow from the foot of one box to the head of another."""
    (x1, y1), (x2, y2) = start, end
    y1, y2 = y1 + BOX_HEIGHT / 2, y2 - BOX_HEIGHT / 2 - 3
    bend = max(26.0, (y2 - y1) * 0.45)
    x1, x2 = x1 + max(-40.0, min(40.0, (x2 - x1) * 0.12)), x2 + max(-40.0, min(40.0, (x1 - x2) * 0.12))
    path = f"M{x1:.0f},{y1:.0f} C{x1:.0f},{y1 + bend:.0f} {x2:.0f},{y2 - bend:.0f} {x2:.0f},{y2:.0f}"
    return f'<path d="{path}" marker-end="url(#head)"/>'


def box(package: str, middle: tuple[float, float]) -> str:
    """Return a package's box with its name."""
    x, y = middle
    name = package.removeprefix("testbed.") + ("" if package.count(".") and is_module(package) else "/")
    return (
        f'<rect x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" '
        f'height="{BOX_HEIGHT}" rx="6" fill="{color(package)}"/>'
        f'<text x="{x:.0f}" y="{y + 5:.0f}" class="name">{escape(name)}</text>'
    )


def is_module(package: str) -> bool:
    """Return whether a package is a single file."""
    return module_files()[package].name != "__init__.py"


def legend(y: float) -> list[str]:
    """Return what the colors mean, in one line."""
    step = WIDTH / len(COLORS)
    return [
        f'<rect x="{step * i + 6:.0f}" y="{y - 10:.0f}" width="12" height="12" rx="2" fill="{fill}"/>'
        f'<text x="{step * i + 24:.0f}" y="{y:.0f}" class="key">{escape(name)}</text>'
        for i, (name, (fill, _)) in enumerate(COLORS.items())
    ]


def picture() -> str:
    """Return the picture as SVG: legible on a light and on a dark page."""
    packages = package_graph(module_graph())
    arrows = reduced({name: others - {"testbed"} for name, others in packages.items() if name != "testbed"})
    middle = places(ordered(arrows))
    height = 2 * MARGIN + BOX_HEIGHT + ROW * (len(LAYERS) - 1) + 34
    lines = [arrow(middle[name], middle[other]) for name in sorted(arrows) for other in sorted(arrows[name])]
    boxes = [box(package, middle[package]) for package in sorted(middle)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">',
            "<title>Packages and their imports, low to high</title>",
            "<style>.name{font:600 16px system-ui,sans-serif;fill:#fff;text-anchor:middle}"
            ".key{font:13px system-ui,sans-serif;fill:#8a94a6}"
            "path{fill:none;stroke:#8a94a6;stroke-width:1.3}</style>",
            '<marker id="head" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" '
            'orient="auto"><path d="M0,0 L8,4 L0,8 z" style="fill:#8a94a6;stroke:none"/></marker>',
            *lines,
            *boxes,
            *legend(height - MARGIN),
            "</svg>",
            "",
        ]
    )


if __name__ == "__main__":
    (ROOT / "docs" / "architecture.svg").write_text(picture())
