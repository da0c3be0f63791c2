"""The documentation site builds strictly, no link leads nowhere, and a browser opens it without complaint."""

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from filelock import FileLock
from support.browser import CHROMIUM, FLAGS, opened, with_browser
from support.import_graph import ROOT

DRIVER = shutil.which("chromedriver")
OPENED = ("index.html", "arena.html", "howto/index.html", "architecture.html", "reference/testbed.data.html")
WIDE = ("arena.html", "leaderboard.html", "experiments/lag.html", "experiments/index.html", "systems/18.html")
# What blink calls the reader's wish, and what the theme makes of it.
SCHEMES = {"light": ("preferredColorScheme=1", "default"), "dark": ("preferredColorScheme=0", "slate")}
OPENED_BY = {"light": OPENED, "dark": OPENED[:1]}


@pytest.fixture(scope="session")
def site(tmp_path_factory) -> Path:
    """The site, built once for all processes of a test run."""
    pytest.importorskip("material", reason="mkdocs-material is not installed: pip install -e '.[docs]'")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed: pip install -e '.[docs]'")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "site"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            build(folder)
    return folder


def build(folder: Path) -> None:
    """Build the site; a warning is an error."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "GALLERY": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    if done.returncode:
        shutil.rmtree(folder, ignore_errors=True)
        pytest.fail(f"mkdocs build --strict: {done.stderr[-3000:]}", pytrace=False)


class Links(HTMLParser):
    """The targets that a page refers to and the places in it that can be referred to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.loaded: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places |= {value for key in ("id", "name") if (value := found.get(key))}
        if tag == "a" and found.get("href"):
            self.targets.append(str(found["href"]))
        elif tag == "link" and found.get("rel") in ("stylesheet", "preconnect", "icon"):
            self.loaded.append(str(found["href"]))
        elif found.get("src"):
            self.loaded.append(str(found["src"]))


@functools.cache
def links(page: Path) -> Links:
    return Links(page.read_text())


def broken(site: Path, page: Path, target: str) -> bool:
    """Return whether a link within the site leads nowhere."""
    parts = urlsplit(target)
    if parts.scheme or parts.netloc:
        return False
    file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    file = file / "index.html" if file.is_dir() else file
    if not file.exists() or not file.is_relative_to(site.resolve()):
        return True
    return (
        bool(parts.fragment) and file.suffix == ".html" and unquote(parts.fragment) not in links(file).places
    )


@pytest.mark.slow
def test_the_site_builds_strictly_and_no_link_is_broken(site):
    pages = [page for page in sorted(site.rglob("*.html")) if page.name != "404.html"]
    assert len(pages) > 60
    found = links(site / "index.html")
    assert broken(site, site / "index.html", "no-such-page.html")
    assert broken(site, site / "index.html", "#no-such-place")
    assert len(found.targets) > 20
    dead = [f"{page.relative_to(site)} -> {target}" for page in pages
            for target in {*links(page).targets, *links(page).loaded}
            if broken(site, page, target)]  # fmt: skip
    assert dead == []


@pytest.mark.slow
def test_nothing_is_fetched_from_elsewhere_when_a_page_is_read(site):
    for page in site.rglob("*.html"):
        away = [target for target in links(page).loaded if urlsplit(target).netloc]
        assert away == [], page
    for sheet in site.rglob("*.css"):
        assert not re.search(r"url\(['\"]?https?:|@import ['\"]?https?:", sheet.read_text()), sheet


@pytest.mark.slow
def test_every_package_has_a_page_that_names_its_public_functions(site):
    text = (site / "reference" / "testbed.losses.html").read_text()
    assert 'id="testbed.losses.score_loss.score_loss"' in text
    named = {path.stem for path in (site / "reference").glob("*.html")}
    assert {"envs", "envs.tokens", "testbed", "testbed.objectives.clipped", "analysis", "paper_figs"} <= named
    large = [path.name for path in site.rglob("*.html") if path.stat().st_size > 300_000]
    assert not large, f"pages above 300 kB: {large}"


class Handler(SimpleHTTPRequestHandler):
    """Serves the site and remembers what was not found."""

    missing: list[str]

    def log_message(self, *_: object) -> None:
        pass

    def send_error(self, code: int, *rest: object, **named: object) -> None:
        self.missing.append(f"{code} {self.path}")
        super().send_error(code, *rest, **named)


@pytest.fixture
def served(site) -> Iterator[tuple[str, list[str]]]:
    """The address of a file server over the site, and the requests that it refused."""
    missing: list[str] = []
    handler = type("SiteHandler", (Handler,), {"missing": missing})
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(handler, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", missing
    server.shutdown()
    server.server_close()


@pytest.mark.slow
@with_browser
@pytest.mark.parametrize("wish", SCHEMES)
def test_a_browser_opens_the_pages_in_the_readers_colors_without_an_error(site, served, tmp_path, wish):
    address, missing = served
    setting, scheme = SCHEMES[wish]
    for page in OPENED_BY[wish]:
        profile = tmp_path / page.replace("/", "_")
        dom, console = opened(f"{address}/{page}", profile, f"--blink-settings={setting}")
        assert console == [], page
        assert f'data-md-color-scheme="{scheme}"' in re.search(r"<body[^>]*>", dom)[0], page
    assert missing == []


@contextlib.contextmanager
def driven(profile: Path) -> Iterator[Callable[[str, dict[str, object]], Any]]:
    """A browser under the control of chromedriver: a function that posts one WebDriver command."""
    driver = subprocess.Popen([str(DRIVER), "--port=0"], stdout=subprocess.PIPE, text=True)
    assert driver.stdout is not None
    port = next(found[1] for line in driver.stdout if (found := re.search(r"success.* on port (\d+)", line)))
    base = f"http://127.0.0.1:{port}/session"

    def post(url: str, body: dict[str, object], method: str = "POST") -> Any:
        data, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(url, data, kind, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    try:
        options = {"binary": CHROMIUM, "args": [*FLAGS, f"--user-data-dir={profile}"]}
        session = post(base, {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}})["sessionId"]
        try:
            yield lambda command, body: post(f"{base}/{session}/{command}", body)
        finally:
            post(f"{base}/{session}", {}, "DELETE")  # else the browser outlives its driver
    finally:
        driver.terminate()
        driver.wait(timeout=30)
        driver.stdout.close()


@pytest.mark.slow
@pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="chromedriver is missing: the search is not tried"
)
def test_the_search_puts_what_was_asked_for_first_and_no_page_is_cut(site, served, tmp_path):
    address, _ = served
    type_words = """
        const [words, done] = arguments;
        document.querySelector("[data-md-toggle=search]").checked = true;
        const input = document.querySelector("[data-md-component=search-query]");
        input.focus(); input.value = words; input.dispatchEvent(new Event("keyup", {bubbles: true}));
        input.dispatchEvent(new Event("input", {bubbles: true}));
        const timer = setInterval(() => {
            const found = [...document.querySelectorAll(".md-search-result__link")].map(link => link.href);
            const marked = [...document.querySelectorAll(".md-search-result mark")];
            const asked = marked.some(mark => mark.textContent.toLowerCase() === words.split(" ")[0]);
            if (found.length && asked) { clearInterval(timer); done(found); }
        }, 50);
    """
    with driven(tmp_path / "profile") as browser:
        browser("timeouts", {"script": 60_000})
        browser("url", {"url": f"{address}/index.html"})
        for words, page, most in (
            ("synchronous trainer", "staleness.html", 99),
            ("m2po", "systems/18.html", 1),
        ):
            found = browser("execute/async", {"script": type_words, "args": [words]})
            assert any(page in link for link in found[:most]), found
        for width in (400, 1366):
            browser("window/rect", {"width": width, "height": 900})
            for page in WIDE:
                browser("url", {"url": f"{address}/{page}"})
                script = "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
                assert browser("execute/sync", {"script": script, "args": []}) == 0, (page, width)
