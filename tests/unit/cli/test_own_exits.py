"""User code that ends the program, or raises what cannot be printed: one message, never 0 without a word."""

import pytest

from testbed.cli import main

HEAD = """import sys
from envs.tokens.running_sum import RunningSum


class Gone(BaseException):
    pass


class Mute(Exception):
    def __str__(self):
        raise ValueError


class MuteExit(Exception):
    def __str__(self):
        sys.exit(0)


"""
BAD = {
    "sys.exit(0)": "SystemExit: 0",
    "raise Gone('away')": "Gone: away",
    "raise Mute()": "Mute, with a message that cannot be printed",
    "raise MuteExit()": "MuteExit, with a message that cannot be printed",
}
"""What user code does, and what is said of it."""
DRY = ["run", "staleness", "lag=1", "--dry-run"]
PLACES = {
    "load": ("{}", 2, ["exact", "own.py:mine", "drift=0.5"]),
    "schedule": ("def mine(lag):\n    {}\n", 2, [*DRY, "staleness=own.py:mine"]),
    "task": ("def mine(*, digits=4):\n    {}\n", 2, [*DRY, "task=own.py:mine"]),
    "score": (
        "class mine(RunningSum):\n    def __init__(self, *, digits=3):\n        "
        "super().__init__(digits=digits)\n\n    def score(self, *given):\n        {}\n",
        1,
        ["run", "staleness", "task=own.py:mine", "recipe=reinforce", "lag=0", "seed=0", "steps=1",
         "warm_start_steps=0", "prompts=2", "group=2", "--workers", "0", "--yes"],
    ),
}  # fmt: skip
"""Where it does it, the exit code (1: failed cells), and the command that calls it."""


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("body", BAD)
def test_what_would_end_the_program_is_one_message(tmp_path, monkeypatch, capsys, place, body):
    monkeypatch.chdir(tmp_path)
    text, code, words = PLACES[place]
    (tmp_path / "own.py").write_text(HEAD + text.format(body))
    with pytest.raises(SystemExit) as stop:
        main(words)
    out, err = capsys.readouterr()
    assert stop.value.code == code, out + err
    assert BAD[body] in err
    assert "own.py" in err
    assert "Traceback" not in err


def test_an_interrupt_inside_user_code_stays_an_interrupt(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.py").write_text("def mine(lag):\n    raise KeyboardInterrupt\n")
    with pytest.raises(SystemExit) as stop:
        main([*DRY, "staleness=own.py:mine"])
    assert stop.value.code == 130
    assert "error" not in capsys.readouterr().err
