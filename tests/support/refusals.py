"""A line for every call that must be refused; what it says is compared whole with golden/refusals.tsv.

`TESTBED_WRITE_REFUSALS=1 pytest TESTS` writes their messages anew; read the difference before you commit it.
A test that is not in the file compares its pattern alone.
"""

import json
import os
import re
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from testbed.errors import UserError

GOLDEN = Path(__file__).parents[1] / "golden" / "refusals.tsv"
PLACES = re.compile(rf"[^\s'\"]*/pytest-\d+/(?:popen-gw\d+/)?[^/\s'\"]+|{re.escape(str(GOLDEN.parents[2]))}")
"""Folders of a run, and of the repository."""
_MET: Counter[str] = Counter()


def refuses(says: str, call: Callable, /, *given: object, error: type = UserError, **named: object) -> str:
    """Assert that the call raises the error with a message in which the pattern is found; return it.

    says: "" for a message that the caller reads, "." for one that refusals.tsv alone holds.
    """
    with pytest.raises(error, match=says or None) as told:
        call(*given, **named)
    if says:
        as_written(str(told.value), says)
    return str(told.value)


def as_written(message: str, says: str = ".") -> None:
    """Compare a message of the running test with its row."""
    test = os.environ["PYTEST_CURRENT_TEST"].rpartition(" ")[0]
    _MET[test] += 1
    place, message = f"{test} {_MET[test]}", PLACES.sub("…", message)
    if os.environ.get("TESTBED_WRITE_REFUSALS"):
        rows = {**_whole.__wrapped__(), place: message}
        lines = (f"{name}\t{json.dumps(said, ensure_ascii=False)}\n" for name, said in sorted(rows.items()))
        GOLDEN.write_text("".join(lines))
    else:
        held = _whole().get(place, None if says == "." else message)
        assert message == held, f"{place} says something else, see {GOLDEN.name}"


@cache
def _whole() -> dict[str, str]:
    """Return the message of every refusal by test and number."""
    rows = (line.rpartition("\t") for line in GOLDEN.read_text().splitlines()) if GOLDEN.exists() else ()
    return {name: json.loads(said) for name, _, said in rows}
