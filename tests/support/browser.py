"""Pages in a browser without a window: what it makes of them, and what its console says."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
with_browser = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium is installed: nothing is opened in it"
)
PROBE = (
    "<script>addEventListener('load', () => { const d = document.documentElement; d.dataset.over ="
    " d.scrollWidth - innerWidth; d.dataset.drawn = [...document.querySelectorAll('svg')].filter("
    "s => s.getBoundingClientRect().height > 40).length; })</script></body>"
)


def opened(url: str, profile: Path, *flags: str) -> tuple[str, list[str]]:
    """Return a page as a browser has made it, and what its console says."""
    dump = ["--enable-logging=stderr", "--virtual-time-budget=4000", "--dump-dom"]
    command = [str(CHROMIUM), *FLAGS, *dump, f"--user-data-dir={profile}", *flags, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, re.findall(r".*CONSOLE.*", done.stderr)


def measured(text: str, folder: Path, width: int, scheme: int) -> tuple[int, int]:
    """Return by how much a page is wider than its window, and how many drawings it shows.

    The page itself runs nothing; a probe in it, with the page's policy lifted, measures it.
    """
    probed = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text).replace("</body>", PROBE)
    flags = f"--window-size={width},900", f"--blink-settings=preferredColorScheme={scheme}"
    for name, content in (("page", text), ("probed", probed)):
        (folder / f"{name}.html").write_text(content)
        dom, console = opened(f"file://{folder}/{name}.html", folder / "profile", *flags)
        assert console == [], name
    over, drawn = (int(re.search(rf'data-{key}="(-?\d+)"', dom)[1]) for key in ("over", "drawn"))
    return over, drawn
