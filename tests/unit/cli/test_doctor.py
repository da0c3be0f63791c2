"""testbed doctor: says what is wrong with a machine, and what to do about it."""

import json
import sys

import pytest
from support.command_line import call, told

from testbed.cli import doctor


@pytest.mark.slow
def test_this_machine_is_found_fit_and_told_so_to_people_and_programs(capsys, tmp_path):
    out = told(capsys, "doctor", "--folder", str(tmp_path / "new" / "results"), "--json")
    found = {finding["what"]: finding for finding in json.loads(out)["findings"]}
    assert {"python", "torch", "cores", "gpu", "write access", "disk", "memory", "self-test"} <= set(found)
    assert found["self-test"]["found"].startswith("trained twice, bit for bit, in")
    assert found["write access"]["found"] == str(tmp_path)
    assert "This machine can run the bench." in call(capsys, "doctor")[1]


def test_what_is_broken_is_named_with_what_to_do_and_ends_in_one(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "NEEDED", ("no-such-package",))
    monkeypatch.setattr(doctor, "self_test", lambda: doctor.Finding("self-test", "2 differ", "broken", "so"))
    code, out, _ = call(capsys, "doctor")
    assert code == 1
    assert "BAD   no-such-package missing: pip install -e ." in out
    assert "2 of" in out.splitlines()[-1]


def test_every_line_is_printed_before_the_next_check_starts(capsys, monkeypatch):
    seen = []

    def self_test():
        seen.append(capsys.readouterr())
        return doctor.Finding("self-test", "well")

    monkeypatch.setattr(doctor, "self_test", self_test)
    assert call(capsys, "doctor")[0] == 0
    (before,) = seen
    assert [line.split()[1] for line in before.out.splitlines()][-2:] == ["disk", "memory"]
    assert "Training twice" in before.err


def test_a_training_that_does_not_repeat_itself_is_broken(monkeypatch):
    monkeypatch.setattr(doctor, "_trained_twice", lambda: False)
    assert doctor.self_test().grade == "broken"
    monkeypatch.setattr(doctor, "_trained_twice", lambda: 1 / 0)
    assert doctor.self_test().found == "ZeroDivisionError: division by zero"


def test_columns_are_compared_by_their_bits():
    assert doctor._same({"a": [0.1, float("nan")]}, {"a": [0.1, float("nan")]})
    assert not doctor._same({"a": [0.1 + 2**-54]}, {"a": [0.1]})
    assert not doctor._same({"a": [0.0]}, {"a": [-0.0]})


def test_completion_names_the_commands(capsys, monkeypatch):
    monkeypatch.setenv("_TESTBED_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "testbed d")
    monkeypatch.setenv("COMP_CWORD", "1")
    assert call(capsys)[1].split() == ["doctor", "demo", "diagnose"]


def test_without_torch_the_other_checks_still_report(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    found = [*doctor.gpu(), *doctor.room(tmp_path)]
    assert [each.what for each in found] == ["torch loads", "write access", "disk"]
    assert (found[0].grade, found[0].found) == ("broken", "import of torch halted; None in sys.modules")


def test_threads_that_others_set_are_told_in_order(monkeypatch):
    given = {"OMP_NUM_THREADS": "8", "MKL_NUM_THREADS": "4", "X_NUM_THREADS": "1"}
    with monkeypatch.context() as patch:
        patch.setattr(doctor.os, "environ", given)
        assert [*doctor.threads()][1].found == "MKL_NUM_THREADS=4, OMP_NUM_THREADS=8"
