"""P20: an objective of the user's that is wrong ends in one message, whatever reads it."""

import pytest
from support.command_line import call
from support.hostile_objectives import COMMANDS, OBJECTIVES
from support.sampled_logs import sampled

from testbed.logs.record import write

RECORDED = "float('nan')", "float('inf')", "logp_BT / 0"
"""Losses that are not finite: a divergence, which runs report as one."""
PUBLIC = "{'loss': logp_BT}", "(logp_BT, logp_BT)", "def mine(logp_BT)"
"""Forms in which public code returns or takes what `identify` reads."""
SLOW = "card", "identify", "conform"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
def test_a_wrong_objective_ends_in_one_bounded_message_naming_its_file(
    tmp_path, monkeypatch, capsys, campaign
):
    """Every command in turn; `identify` and `conform` judge in a process of their own, and may say 1."""
    monkeypatch.chdir(tmp_path)
    write(sampled(many=24, longest=6), tmp_path / "log.jsonl")
    every = [(words, text) for words in COMMANDS for text in OBJECTIVES]
    if not campaign.full:
        every = [(words, text) for words, text in every if words not in SLOW]
    tried = every[:: max(1, len(every) // campaign.trials(40, len(every)))]
    campaign.tried(f"{len(OBJECTIVES)} wrong objectives through {', '.join(COMMANDS)}", len(tried))
    wrong = []
    for words, text in tried:
        (tmp_path / "own.py").write_text(text)
        code, out, err = call(capsys, *COMMANDS[words])
        known = "own.py" in out + err or "mine" in err
        # `identify` takes totals, whose weight outside the mask it reports, and the forms of public losses.
        judged = words == "identify" and ("outside the mask" in out or any(form in text for form in PUBLIC))
        ended = ((code in (1, 2) or judged) and known) or any(each in text for each in RECORDED)
        if not ended or "Traceback" in out + err or "\x1b" in err or len(err) > 30_000:
            wrong.append((words, text.rpartition("\n\n\n")[2], code, err[-300:]))
    assert wrong == []
