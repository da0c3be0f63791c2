"""Counts what each test of a promise tried, and writes the page when the campaign asks for it.

CAMPAIGN: factor on the number of trials of the campaign (1 = all of them); unset, the short form runs.
CAMPAIGN_PAGE: file to write at the end.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from reliability_page import Row, page, promise_of

ROWS = pytest.StashKey[list[Row]]()
BEGAN = pytest.StashKey[float]()


class Campaign:
    """How often to try, and what was tried."""

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._said = request.node.user_properties
        scale = os.environ.get("CAMPAIGN", "")
        self.full = bool(scale)
        self._scale = float(scale or 1)

    def trials(self, short: int, full: int) -> int:
        """Return the number of trials: `short` in the suite, `full` times the factor in the campaign."""
        return max(short, round(full * self._scale)) if self.full else short

    def tried(self, what: str, trials: int) -> None:
        """Note what was tried, how often; the test failing later counts as a failure of it."""
        self._said.append(("tried", (what, trials)))


@pytest.fixture
def campaign(request: pytest.FixtureRequest) -> Campaign:
    return Campaign(request)


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = []
    config.stash[BEGAN] = time.time()
    config.pluginmanager.register(_Recorder(config), "reliability-recorder")


class _Recorder:
    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if "campaign/" in report.nodeid and (report.when == "call" or not report.passed):
            self._config.stash[ROWS].extend(_rows(report))


def _rows(report: pytest.TestReport) -> Iterator[Row]:
    tried = [value for name, value in report.user_properties if name == "tried"]
    name = report.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ")
    for what, trials in tried or [(name, 0)]:
        outcome = "not run here" if report.skipped else "failed" if report.failed else ""
        yield Row(promise_of(report.nodeid), what, trials, outcome, report.duration / max(1, len(tried)))


def pytest_sessionfinish(session: pytest.Session) -> None:
    target = os.environ.get("CAMPAIGN_PAGE")
    if target and not hasattr(session.config, "workerinput"):
        there = Path(target).read_text(encoding="utf-8") if Path(target).exists() else ""
        text = page(session.config.stash[ROWS], time.time() - session.config.stash[BEGAN], there)
        print(f"\n{text}")
        Path(target).write_text(text, encoding="utf-8")
