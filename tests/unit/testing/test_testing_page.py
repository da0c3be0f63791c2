"""docs/testing-your-estimator.md: its snippets are a conftest and tests; they run, pass, and can fail."""

import re
from pathlib import Path

import numpy as np
import pytest

from testbed.testing.assertions import assert_unbiased

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "testing-your-estimator.md").read_text()
CONFTEST, FIRST, *OTHERS = re.findall(r"```python\n(.*?)```", PAGE, re.S)


pytest_plugins = ["pytester"]


@pytest.fixture
def run(pytester, monkeypatch):
    """What pytest prints in a folder of the reader's own, with the conftest of the page."""
    monkeypatch.setenv("COLUMNS", "300")

    def printed(tests: dict[str, str], *options: str) -> str:
        for name, text in {"conftest.py": CONFTEST, **tests}.items():
            (pytester.path / name).write_text(text)
        done = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", *options)
        return "\n".join(done.outlines + done.errlines)

    return printed


def test_every_snippet_passes_in_a_suite_of_the_readers_own(run):
    tests = {f"test_{index}.py": text for index, text in enumerate([FIRST, *OTHERS])}
    assert "5 passed" in run(tests)


def test_an_estimator_with_the_ratio_inverted_fails_with_the_message_on_the_page(run):
    wrong = FIRST.replace("PI[action] / MU[action]", "MU[action] / PI[action]")
    assert wrong != FIRST
    text = run({"test_wrong.py": wrong})
    assert "1 failed" in text
    for line in re.search(r"```text\nAssertionError: (.*?)```", PAGE, re.S)[1].splitlines():
        numbers = re.sub(r"[-\d.]+\d", "#", line.split(" (z")[0])
        assert numbers in re.sub(r"[-\d.]+\d", "#", text)


def test_the_first_snippet_has_ten_lines():
    assert len([line for line in FIRST.splitlines() if line]) <= 10


def test_the_options_set_the_rates_and_the_seed_is_the_tests_own(run):
    test = (
        "import numpy as np\n"
        "def draw(rates):\n"
        "    first = np.random.default_rng(rates['seed']).random()\n"
        "    print('SEEN', rates['false_alarm'], rates['missed'], first)\n"
        "def test_a(declared_rates): draw(declared_rates)\n"
        "def test_b(declared_rates): draw(declared_rates)\n"
    )

    def seen(*options):
        return re.findall(r"SEEN (\S+) (\S+) (\S+)", run({"test_c.py": test}, "-s", *options))

    plain, again = seen(), seen("--false-alarm", "1e-3", "--missed", "0.2")
    rotated = seen("--estimator-seed", "1")
    assert [(float(a), float(m)) for a, m, _ in plain] == [(1e-6, 1e-2)] * 2
    assert [(float(a), float(m)) for a, m, _ in again] == [(1e-3, 0.2)] * 2
    draws = [[x for _, _, x in each] for each in (plain, again, rotated)]
    assert draws[0] == draws[1]
    assert len({*draws[0], *draws[2]}) == 4


def test_the_standard_deviation_on_the_page_is_that_of_the_bandit():
    mu, pi = np.array([0.75, 0.25]), np.array([0.25, 0.75])
    estimate = pi / mu * np.array([0.0, 1.0])
    assert_unbiased(None, 27 / 16, exact=mu @ estimate**2 - (mu @ estimate) ** 2)
    with pytest.raises(AssertionError):
        assert_unbiased(None, 0.75, exact=mu @ (mu / pi * np.array([0.0, 1.0])))
