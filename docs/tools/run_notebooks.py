"""Run docs/notebooks from top to bottom: python docs/tools/run_notebooks.py [--write] [FILE…].

Runs are written to out/notebooks; with --write they replace the files themselves.

Needs no Jupyter: code cells run in one namespace; outputs are what they print, and the matplotlib Figure
that a cell leaves under the name `figure`.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "notebooks"
OUT = Path("out/notebooks")
DPI = 70
Cell = dict[str, Any]


def run(notebook: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Run the code cells one after the other and return the outputs of each, as nbformat 4 writes them."""
    namespace: dict[str, Any] = {"__name__": "notebook"}
    return [_outputs(cell, namespace) for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _outputs(cell: Cell, namespace: dict[str, Any]) -> list[dict[str, Any]]:
    printed = io.StringIO()
    namespace.pop("figure", None)
    with contextlib.redirect_stdout(printed):
        exec(compile("".join(cell["source"]), f"<cell {cell['id']}>", "exec"), namespace)
    found: list[dict[str, Any]] = []
    if printed.getvalue():
        found.append(
            {"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(keepends=True)}
        )
    if "figure" in namespace:
        picture = io.BytesIO()
        namespace["figure"].savefig(picture, format="png", dpi=DPI, metadata={"Software": None})
        data = {"image/png": base64.b64encode(picture.getvalue()).decode()}
        found.append({"output_type": "display_data", "data": data, "metadata": {}})
    return found


def write(path: Path, to: Path) -> None:
    """Run a notebook and write it with its outputs to a file."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, outputs) in enumerate(zip(code, run(notebook), strict=True), start=1):
        cell["outputs"], cell["execution_count"] = outputs, number
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--write"]
    for file in [Path(word) for word in words] or sorted(FOLDER.glob("*.ipynb")):
        target = file if "--write" in sys.argv else OUT / file.name
        write(file, target)
        print(target)
