"""Command lines called in this process, as a terminal would."""

import pytest

from testbed.cli import main


def call(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[object, str, str]:
    """Run a command; return its exit code, what it printed, and what it said of errors and progress."""
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    return stop.value.code, out, err


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Run a command that must end with exit code 2, without a traceback or a result; return what it said."""
    code, out, err = call(capsys, *words)
    assert (code, out, "Traceback" in err) == (2, "", False), err
    return err


def told(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    """Run a command that must end with exit code 0; return what it printed."""
    code, out, err = call(capsys, *words)
    assert code == 0, err
    return out
