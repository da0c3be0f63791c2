"""Problems from a user's file: what is read, what is refused with its line, who judges, and what it costs."""

import hashlib
import json
import time
from pathlib import Path

import numpy as np
import pytest
from support.refusals import refuses

from envs.tokens.jsonl import ERROR, TIMEOUT, Jsonl, file_digest
from envs.tokens.verifiers import VerifierError, choice, last_number, number, open_verifier

SOUND = '{"prompt": "2+2=", "answer": 4}'


def rng(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture
def write(tmp_path):
    def write(*lines, name="mine.jsonl"):
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n")
        return str(path)

    return write


def grade(task, *texts, ended=True):
    return task.grade([0] * len(texts), texts, [ended] * len(texts)).tolist()


def test_the_teacher_scores_one_and_nonsense_nothing(write):
    lines = [json.dumps({"prompt": f"{a}+{a}=", "answer": str(2 * a)}) for a in range(20)]
    task = Jsonl(file=write(*lines))
    prompt_NQ = task.prompts(rng(), 30)
    answers = task.teacher(prompt_NQ, rng(1), 0.0)
    assert task.score(prompt_NQ, *answers).tolist() == [1.0] * 30
    assert task.score(prompt_NQ, *task.teacher(prompt_NQ, rng(1), 1.0)).sum() == 0
    unfinished_NT = answers[1].copy()
    unfinished_NT[np.arange(30), answers[1].sum(1) - 1] = False
    assert task.score(prompt_NQ, answers[0], unfinished_NT).sum() == 0


def test_held_out_lines_are_never_trained_on(write):
    task = Jsonl(
        file=write(*[json.dumps({"prompt": f"q{i:02d}", "answer": i}) for i in range(20)]), held_out=0.25
    )
    trained = {task.text(row) for row in task.prompts(rng(), 500)}
    held_out = {task.text(row) for row in task.held_out_prompts(rng(), 500)}
    assert trained == {f"q{i:02d}" for i in range(15)}
    assert held_out == {f"q{i:02d}" for i in range(15, 20)}


@pytest.mark.parametrize(
    "lines",
    [[SOUND, '{"prompt": "x"'], [SOUND, "", "[1, 2]"], ['{"question": "x", "answer": "y"}'],
     ['{"prompt": "x", "answer": null}'], ['{"prompt": "x", "answer": NaN}'], [SOUND, "[" * 100_000],
     ['{"prompt": "x", "answer": ' + "9" * 5000 + "}"],
     [SOUND, '{"prompt": "x", "answer": " "}', '{"prompt": "y", "answer": ""}'],
     ['{"prompt": "  ", "answer": "y"}'], ['{"prompt": [{"role": "user"}], "answer": "y"}'],
     [SOUND, '{"prompt": "2+2=", "answer": 5}'], ["1"] * 9, [""]],
)  # fmt: skip
def test_broken_lines_are_told_by_number(write, lines):
    refuses(".", Jsonl, file=write(*lines), error=ValueError)


def test_files_that_cannot_be_read_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"nowhere\.jsonl cannot be read: No such file"):
        Jsonl(file=str(tmp_path / "nowhere.jsonl"))
    (tmp_path / "latin.jsonl").write_bytes(SOUND.encode() + b'\n{"prompt": "\xe9"}')
    refuses(r"latin\.jsonl, line 2: not UTF-8", Jsonl, file=str(tmp_path / "latin.jsonl"), error=ValueError)


def test_a_file_that_has_changed_is_refused(write):
    path = write(SOUND)
    digest = file_digest(path)
    assert len(Jsonl(file=f"{path}#{digest}").problems) == 1
    write(SOUND, '{"prompt": "1+1=", "answer": 2}')
    with pytest.raises(ValueError, match=f"expected {digest}: the file has changed"):
        Jsonl(file=f"{path}#{digest}")


@pytest.mark.parametrize("digits", [6, 64])
def test_any_number_of_a_digest_s_first_digits_names_the_file(write, digits):
    path = write(SOUND)
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:digits]
    assert len(Jsonl(file=f"{path}#{digest}").problems) == 1


def test_the_digest_of_a_file_with_a_colon_in_its_name_is_added(write):
    from testbed.config.run import Run
    from testbed.worlds.task_registry import pin_data

    path = write(SOUND, name="12:30.jsonl")
    pinned = pin_data(Run(task="jsonl", policy="toy", task_args=(("file", path),)))
    assert dict(pinned.task_args) == {"file": f"{path}#{file_digest(path)}"}


@pytest.mark.parametrize(
    "arguments",
    [{"verifier": "numbr"}, {"verifier": "no/such.py:f"}, {"limit": 0.0}, {"chat": "maybe"},
     {"stop": '[""]'}, {"verifier": "choice"}, {"stop": "["}],
)  # fmt: skip
def test_arguments_that_cannot_be_are_refused(arguments):
    refuses(".", Jsonl, error=ValueError, **arguments)


def test_a_number_is_the_last_one_and_need_not_be_spelled_alike():
    for text, value in [("so 1,234.50 $", 1234.5), ("#### -7", -7.0), ("1e3", 1000.0), ("none", None)]:
        assert last_number(text) == value
    problem = {"answer": "#### 1,200"}
    assert number("3 + 4 gives 1200.0", problem) == 1.0
    assert number("1200 or 1201", problem) == 0.0
    assert number("no idea", problem) == 0.0
    with pytest.raises(VerifierError, match="holds no number"):
        number("1", {"answer": "many"})


def test_a_choice_is_the_last_single_capital_letter():
    for response, right in [
        ("(B)", 1.0), ("A? No, B.", 1.0), ("B, or C", 0.0), ("I think ABBA", 0.0), ("b", 0.0),
    ]:  # fmt: skip
        assert choice(response, {"answer": "B"}) == right


def test_reasoning_gym_scores_its_own_lines(write):
    problem = {"prompt": "1 + 2 =", "question": "1 + 2 =", "answer": "3"}
    problem["metadata"] = {"source_dataset": "chain_sum"}
    task = Jsonl(file=write(json.dumps(problem)), verifier="reasoning-gym")
    assert grade(task, "3", "4") == [1.0, 0.0]
    refuses(r"no metadata\.source_dataset", Jsonl, verifier="reasoning-gym", error=ValueError)
    with pytest.raises(VerifierError, match="no data set 'chain_summ'"):
        open_verifier("reasoning-gym", 1.0)("3", {**problem, "metadata": {"source_dataset": "chain_summ"}})


JUDGE = """
import os, time
print("hello")
def judge(response, problem):
    print("noise on standard output")
    if response == "hang":
        time.sleep(60)
    if response == "die":
        os._exit(3)
    if response == "leave":
        raise SystemExit
    if response == "many":
        return 7
    if response == "nan":
        return float("nan")
    if response == "raise":
        raise RuntimeError("broken")
    return response == str(problem["answer"])
"""


def test_a_verifier_that_raises_hangs_or_dies_costs_that_response_and_is_counted(write):
    verifier = f"{write(JUDGE, name='mine.py')}:judge"
    task = Jsonl(file=write(SOUND), verifier=verifier, limit=0.4)
    began = time.monotonic()
    texts = ("4", "hang", "4", "raise", "die", "5", "leave", "many", "nan", "4")
    assert grade(task, *texts) == [1.0, 0, 1.0, 0, 0, 0, 0, 0, 0, 1.0]
    assert task.failures_N.tolist() == [0, TIMEOUT, 0, ERROR, ERROR, 0, ERROR, ERROR, ERROR, 0]
    assert task.failed == {TIMEOUT: 1, ERROR: 5}
    assert time.monotonic() - began < 10
    assert grade(task, "4", ended=False) == [0.0]


def test_a_verifier_that_cannot_start_is_refused_with_its_reason(write):
    for content, says in [
        ("def other(a, b): return 1", "the file has no function 'judge'"),
        ("import nowhere_to_be_found", "ModuleNotFoundError"),
        ("raise SystemExit(1)", "SystemExit"),
        ("def judge(response): return 1", "cannot judge the reference answer of line 1: TypeError"),
    ]:
        with pytest.raises(ValueError, match=says):
            Jsonl(file=write(SOUND), verifier=f"{write(content, name='mine.py')}:judge")


def test_repeated_prompts_are_kept_with_a_note_or_dropped_if_asked(write):
    other = '{"prompt": "3+3=", "answer": 6}'
    file = write(SOUND, other, SOUND, other, SOUND)
    task = Jsonl(file=file, held_out=0.4)
    assert len(task.problems) == 5
    (note,) = task.notes
    assert note.startswith("3 lines repeat the prompt and answer of an earlier line and are kept")
    assert "also trained on: 2." in note
    prompt_NQ = task.prompts(rng(), 20)
    response_NT, mask_NT = task.teacher(prompt_NQ, rng(), 0.0)
    assert task.score(prompt_NQ, response_NT, mask_NT).tolist() == [1.0] * 20
    short = Jsonl(file=file, dedupe=True)
    assert [problem.line for problem in short.problems] == [1, 2]
    assert short.notes == []
    conflict = write(SOUND, '{"prompt": "2+2=", "answer": 5}', name="conflict.jsonl")
    assert [problem.answer for problem in Jsonl(file=conflict, dedupe=True).problems] == ["4"]
