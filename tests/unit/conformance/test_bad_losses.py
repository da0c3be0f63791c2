"""A loss that cannot be judged gets one message with what was passed, and exit code 2."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from support import bad_losses
from support.command_line import refused, told
from support.refusals import refuses

from testbed.conformance import calling, child
from testbed.conformance.calling import LossError
from testbed.conformance.nearest_entries import identify
from testbed.conformance.sandbox import run
from testbed.conformance.signature import bind
from testbed.errors import UserError

FILE = Path(bad_losses.__file__)
PASSED = "It was passed logp float64 [6, 5], old_logp float64 [6, 5], advantages float64 [6, 5]"
MESSAGES = {
    "raises": ("raises", "raised KeyError: 'beta'", PASSED),
    "mute": ("raises", "raised Gone, with a message that cannot be printed", PASSED),
    "elsewhere": ("type", "torch.strided, on meta; expected dense floating numbers on cpu", PASSED),
    "not_a_number": ("nan", "returned a loss of nan", "logp float64 [6, 5]"),
    "wrong_shape": ("shape", "returned shape [5] for a batch of 6 responses, 5 tokens wide", PASSED),
    "numpy_number": ("type", "returned numpy.float64; expected a torch tensor", PASSED),
    "changes": ("changed", "changes its inputs in place: advantages", PASSED),
    "changes_a_batch": ("changed", "changes its inputs in place: batch.adv_BT", "batch Batch of [6, 5]"),
    "detached": ("detached", "no gradient leads back to them", PASSED),
    "a_leaf": ("detached", "a gradient of 0 in every batch"),
}


def job(name: str, command: str = "identify") -> dict[str, object]:
    return {"command": command, "target": f"{FILE}:{name}", "inputs": {}, "given": {}, "layout": ""}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_wrong_loss_is_told_with_what_was_passed(name):
    kind, *words = MESSAGES[name]
    with pytest.raises(LossError) as found:
        identify(bind(getattr(bad_losses, name), name))
    assert found.value.kind == kind
    for word in words:
        assert word in str(found.value)


def test_a_parameter_that_no_stack_knows_is_told_and_how_to_say_it():
    with pytest.raises(UserError, match="name of 'widget' does not say what it holds.*--input widget=ROLE"):
        bind(bad_losses.other_signature, "loss")
    refuses("no parameter holds the policy's log-probabilities", bind, bad_losses.no_policy, "loss")
    with pytest.raises(UserError, match="has no parameter 'widgets'. Did you mean 'widget'"):
        bind(bad_losses.other_signature, "loss", {"widgets": "adv"})
    refuses("'advs' is not an input", bind, bad_losses.other_signature, "loss", {"widget": "advs"})
    assert bind(bad_losses.other_signature, "loss", {"widget": "adv"}).arguments["widget"] == "adv"


@pytest.mark.slow
def test_what_hangs_or_dies_ends_its_own_process_alone():
    refuses("hangs did not come back within 1 s. It was passed logp float64", run, job("hangs"), call_limit=1)
    refuses("dies ended its process with exit code 3. It was passed logp", run, job("dies"))


@pytest.mark.slow
def test_the_command_answers_in_json_and_ends_with_2_for_a_bad_loss(capsys):
    assert refused(capsys, "identify", f"{FILE}:raises").count("\n") == 1
    found = json.loads(told(capsys, "identify", f"{FILE}:fine", "--json"))
    assert {"equals", "nearest", "counterexample"} <= set(found)
    assert found["equals"][0]["objective"] == "importance_reinforce@tinker"


def test_a_job_says_how_its_loss_is_called_and_what_it_is_held_against(monkeypatch):
    heard = []
    monkeypatch.setattr(calling, "announce", [heard.append])
    told = lambda *given: SimpleNamespace(as_dict=lambda: given)  # noqa: E731
    monkeypatch.setattr("testbed.conformance.conformance_check.conform", told)
    monkeypatch.setattr("testbed.conformance.nearest_entries.identify", told)
    call = {"inputs": {"old_logp": "mu"}, "given": {"mask": 1.0}, "layout": "packed"}
    as_ = {"as": "grpo", "aggregation": "constant", "length": 7.0, "hyper": {"eps_low": 0.1}, "strict": True}
    binding, *rest = child.answer(job("fine", "conform") | call | as_)
    assert rest == list(as_.values())
    assert binding.arguments == {"logp": "logp", "old_logp": "mu", "advantages": "adv"}
    assert (binding.given, binding.layout, heard) == ({"mask": 1.0}, "packed", [child.IMPORT, ""])
    (binding,) = child.answer(job("fine"))
    assert (binding.name, binding.given, binding.layout) == (f"{FILE}:fine", {}, "padded")
