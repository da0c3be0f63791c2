"""P16: figures regenerate byte for byte, whatever the user's settings, offline, without LaTeX and torch."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DRAW = """
import sys
from pathlib import Path
import matplotlib
matplotlib.rcParams.update({'font.size': 20, 'axes.labelpad': 30, 'savefig.dpi': 50, 'text.usetex': False})
from paper_figs.save_figures import figures
figures(sys.argv[2:], out=Path(sys.argv[1]))
print(sorted({'torch', 'matplotlib.pyplot', 'seaborn', 'numba'} & set(sys.modules)))
"""
HOSTILE = "font.size: 31\nfigure.facecolor: red\ntext.usetex: True\nsavefig.bbox: tight\n"
SETTINGS = (
    {"SOURCE_DATE_EPOCH": "0", "TZ": "UTC", "PYTHONHASHSEED": "0"},
    {"SOURCE_DATE_EPOCH": "1900000000", "TZ": "Pacific/Apia", "LC_ALL": "C", "PYTHONHASHSEED": "5"},
)


def drawn(folder: Path, names: list[str], variables: dict[str, str]) -> dict[str, str]:
    """Draw the figures in a process of its own, with no program on the path; return the files' digests."""
    folder.mkdir()
    (folder / "matplotlibrc").write_text(HOSTILE)
    kept = {n: os.environ[n] for n in ("PYTHONPATH", "HOME", "OMP_NUM_THREADS") if n in os.environ}
    done = subprocess.run(
        [sys.executable, "-c", DRAW, folder / "out", *names],
        env={"PYTHONPATH": str(ROOT), **kept, **variables, "PATH": "/nonexistent",
             "MPLCONFIGDIR": str(folder)}, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"
    files = sorted((folder / "out").iterdir())
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.slow
def test_figures_are_the_same_bytes_in_other_places_and_times(tmp_path, campaign):
    from paper_figs.figure_registry import FIGURES
    from paper_figs.save_figures import figures

    names = list(FIGURES) if campaign.full else ["ratio-tails"]
    figures(names, out=tmp_path / "here")
    files = {path.name: path.read_bytes() for path in (tmp_path / "here").iterdir()}
    here = {name: hashlib.sha256(body).hexdigest() for name, body in files.items()}
    assert len(here) == 2 * len(names) + 1
    for number, said in enumerate(SETTINGS if campaign.full else SETTINGS[1:]):
        assert drawn(tmp_path / str(number), names, said) == here
    campaign.tried("figures as PDF and PNG, twice, by date, zone, locale and matplotlibrc", len(names))
