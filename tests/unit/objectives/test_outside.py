"""A user's objective that misbehaves is refused in one message that names its file and line."""

import numpy as np
import pytest
import torch
from support.command_line import call
from support.refusals import refuses

from testbed.inspection.effective_weights import effective_weights
from testbed.inspection.promise_batches import batch_of
from testbed.objectives import objective

HOSTILE = {
    "nothing": ("return None", "returns NoneType; expected a loss per token"),
    "words": ("return 'loss'", "returns str; expected a loss per token"),
    "table": ("return {'loss': logp_BT}", "returns dict"),
    "total": ("return (logp_BT * batch.adv_BT).sum()", r"returns shape \(\); .*Spread a sequence's loss"),
    "sequence": ("return -(logp_BT * batch.adv_BT).sum(-1, keepdim=True)", r"returns shape \(8, 1\)"),
    "whole": ("return batch.mask_BT.long()", "returns torch.int64"),
    "detached": ("return -logp_BT.detach() * batch.adv_BT", "does not depend on logp_BT"),
    "in_place": ("batch.adv_BT.mul_(2)\n    return -logp_BT * batch.adv_BT", "changes adv_BT in place"),
    "past_torch": ("batch.reward_B.numpy()[:] = 9\n    return -logp_BT", "changes reward_B in place"),
    "back": ("batch.adv_BT.mul_(2).div_(2)\n    return -logp_BT", "changes adv_BT in place"),
    "exits": ("import sys\n    sys.exit(0)", "SystemExit ends the program; expected a loss"),
    "unprintable": ("raise Mute()", "Mute, with a message that cannot be printed"),
    "leaves": ("import os\n    os._exit(0)", "SystemExit ends the program; expected a loss"),
}
"""Function: what it does, and what is answered."""


SETS = """import numpy
import torch

def sets(logp_BT=None, batch=None):
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float16)
    numpy.seterr(all="raise")
    return -logp_BT * batch.adv_BT if batch else None

sets()
"""


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mute = "class Mute(Exception):\n    def __str__(self):\n        raise ValueError\n\n\n"
    functions = [f"def {name}(logp_BT, batch):\n    {body}\n" for name, (body, _) in HOSTILE.items()]
    fine = "def fine(logp_BT, batch):\n    return -logp_BT * batch.adv_BT\n"
    stopped = "def stopped(logp_BT, batch):\n    raise KeyboardInterrupt\n"
    (tmp_path / "mine.py").write_text(mute + "\n\n".join([*functions, fine, stopped, SETS]))
    return tmp_path / "mine.py"


@pytest.mark.parametrize("name", HOSTILE)
def test_what_an_objective_must_not_do_is_one_message_with_its_line(file, name):
    logp, batch = batch_of()
    assert "mine.py:" in refuses(HOSTILE[name][1], effective_weights, f"mine.py:{name}", logp, batch)


def test_a_right_one_is_called_as_it_is(file):
    logp, batch = batch_of()
    torch.testing.assert_close(
        effective_weights("mine.py:fine", logp, batch), batch.adv_BT * batch.mask_BT, check_dtype=False
    )
    assert objective["mine.py:fine"] is objective["mine.py:fine"]


@pytest.mark.parametrize("name", ["fine", "sets"])
def test_settings_that_a_file_makes_for_itself_do_not_outlive_it(file, name):
    """On import and in a call: exact and compare ended in a traceback, and every cell of a run failed."""
    before = torch.is_grad_enabled(), torch.get_default_dtype(), np.geterr()
    logp, batch = batch_of()
    loss = objective[f"mine.py:{name}"].function(logp, batch)
    assert (torch.is_grad_enabled(), torch.get_default_dtype(), np.geterr()) == before
    assert (loss == -logp * batch.adv_BT).all()


def test_ctrl_c_inside_an_objective_ends_the_program(file):
    with pytest.raises(KeyboardInterrupt):
        effective_weights("mine.py:stopped", *batch_of())


def test_a_callable_is_checked_too(file):
    logp, batch = batch_of()
    refuses("the objective|<lambda>", effective_weights, lambda logp_BT, _: logp_BT.sum(), logp, batch)
    refuses("cannot be called", effective_weights, lambda logp_BT, _: logp_BT, logp, batch, cap=1)
    entry = objective["mine.py:fine"]
    assert (entry.name, entry.promises, "mine.py" in entry.source) == ("mine.py:fine", {}, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "words"),
    [("in_place", ("exact", "{}", "drift=0.5")), ("unprintable", ("objectives", "compare", "{}")),
     ("exits", ("card", "{}", "--quick")), ("sequence", ("card", "{}", "--quick")),
     ("exits", ("run", "staleness", "--objective", "{}", "--dry-run")),
     ("sequence", ("run", "staleness", "--objective", "{}", "steps=2", "lag=0", "--yes", "--workers=0"))],
)  # fmt: skip
def test_every_command_refuses_it_and_none_ends_with_0(file, name, words, capsys):
    """A few of the pairs that tests/campaign tries in turn."""
    code, out, err = call(capsys, *(word.format(f"mine.py:{name}") for word in words))
    assert code not in (0, None), out
    assert "Traceback" not in err
    assert "mine.py" in out + err
