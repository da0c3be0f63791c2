"""The record and its numbers, and the files of other stacks: exact values, exact messages."""

import functools
import json
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from support.refusals import refuses

from testbed.logs import files, record
from testbed.logs.record import FIELDS, Log, LoggedSequence, from_plain, joined, made, write

INF, NAN = np.inf, np.nan


def of(step, sample, group="g", mask=(True,), **more):
    return LoggedSequence(step, sample, group, np.array(mask, bool), **more)


def said(call, *given):
    return refuses("", call, *given)


FULL = of(
    3, "s", "g", [1, 0, 1], source="me", reward=0.5, temperature=0.7, trainer_version=9, prompt=np.array([4]),
    token=np.array([1, 2, 3]), logp_mu=np.array([-1, NAN, -INF]), logp_pi=np.array([-2, INF, 0.0]),
    logp_anchor=np.array([-3.0, -1, -1]), version=np.array([8, 8, 7]), advantage=np.array([0.5, 0, 1]),
    text=("a", "b"), scalar_advantage=1.0,
)  # fmt: skip
PLAIN = {
    "record": 1, "source": "me", "step": 3, "sample": "s", "group": "g", "reward": 0.5, "temperature": 0.7,
    "trainer_version": 9, "length": 2, "prompt": [4], "token": [1, 2, 3], "mask": [True, False, True],
    "logp_mu": [-1, None, "-inf"], "logp_pi": [-2, "inf", 0], "logp_anchor": [-3, -1, -1],
    "version": [8, 8, 7], "advantage": [0.5, 0, 1],
}  # fmt: skip


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_a_sequence_goes_to_its_plain_form_to_a_file_and_back(ending, tmp_path):
    assert list(FULL.plain().items()) == list(PLAIN.items())
    assert tuple(PLAIN) == FIELDS
    path = tmp_path / "new" / f"x.tokens.{ending}"
    write(Log("me", (FULL, of(0, "\ud800"))), path)
    if ending == "jsonl":
        rows = [json.loads(line, parse_constant=pytest.fail) for line in path.read_text().splitlines()]
        assert rows[0] == PLAIN
        assert path.read_text().startswith('{"record":1,"source":"me","step":3,')
    else:
        rows = files.parquet_rows(path)
        assert rows[1]["sample"] == "\\ud800"
        kinds = {name: str(kind) for name, kind in zip(FIELDS, pq.read_schema(path).types, strict=True)}
        ids, words = ("record", "step", "trainer_version", "length"), ("source", "sample", "group")
        assert [kinds[name] for name in (*ids, *words, "reward", "temperature")] == (
            ["int64"] * 4 + ["string"] * 3 + ["double"] * 2
        )
        lists = [
            re.search("<.*: (.*?)>", kinds[name])[1]
            for name in ("prompt", "token", "version", "mask", "logp_pi")
        ]
        assert lists == ["int64"] * 3 + ["bool", "double"]
    back = from_plain(rows[0], "here")
    assert back.plain() == PLAIN
    np.testing.assert_array_equal(back.logp_mu, FULL.logp_mu)
    empty = from_plain({"record": 1, "step": 0, "sample": 1, "group": 2, "mask": [], "source": None}, "here")
    assert {k: v for k, v in empty.plain().items() if v is not None} == {
        "record": 1, "source": "", "step": 0, "sample": "1", "group": "2", "length": 0, "mask": [],
    }  # fmt: skip
    assert said(from_plain, {"record": 2}, "here") == "here: record is 2, this version reads 1."
    assert said(from_plain, {"record": 1, "group": "g"}, "here") == "here: step, sample, mask missing."


def test_a_list_of_another_length_or_kind_is_refused():
    assert said(lambda: of(1, "a", token=np.array([1, 2]))) == (
        "step 1, sample a: token has 2 entries, mask has 1; expected one per token of the response."
    )
    for kind in ("float64", "int32"):
        expected = f"step 1, sample a: version is {kind}, expected int64."
        assert said(lambda kind=kind: of(1, "a", version=np.ones(1, kind))) == expected
    assert of(1, "a", mask=[1, 0, 1]).length == 2


def test_logs_are_ordered_counted_and_joined():
    one, two, idle = of(2, "a", "g"), of(1, "b", "h", source="x", reward=1.0), of(0, "c", mask=[0])
    text = of(2, "d", mask=[], text=("p", "r"))
    log = made("s", [one, two, idle, text], ["n", "n", "m"])
    assert [(each.sample, each.source) for each in log.sequences] == [("b", "x"), ("a", "s"), ("d", "s")]
    assert log.notes == ("n", "m", "1 of 4 sequences have no token under their mask: dropped.")
    assert made("s", [one, two], ["n"]).notes == ("n",)
    assert (log.steps, log.has("reward"), log.some("reward"), log.has("sample")) == ([1, 2], False, 1, True)
    assert [each.sample for each in log.at(2).sequences] == ["a", "d"]
    assert log.at(2).notes == log.notes
    assert said(made, "s", [idle]) == "The s log holds no sequence with a token that the policy chose."
    assert said(Log, "s\x1b", ()) == "The s\\x1b log holds no sequence with a token that the policy chose."
    alone = joined([log])
    assert (alone.source, alone.sequences, alone.notes) == ("s", log.sequences, log.notes)
    both = joined([log, made("t", [of(1, "e"), of(0, "f")], ["m", "o"]), made("s", [of(3, "h")])])
    assert both.source == "s, t"
    assert [(each.step, each.group) for each in both.sequences] == [
        (0, "t/g"), (1, "s/h"), (1, "t/g"), (2, "s/g"), (2, "s/g"), (3, "s/g"),
    ]  # fmt: skip
    assert both.notes == ("n", "m", log.notes[2], "o")


DEEP = functools.reduce(lambda inner, _: [inner], range(100_000), [])
BEYOND = "w holds numbers that are not whole, or beyond 2^53; expected ids."


@pytest.mark.parametrize(
    ("read", "given", "wanted"),
    [(record.floats, None, None), (record.floats, [1, None, "-inf"], [1, NAN, -INF]), (record.floats, [], []),
     (record.floats, np.array([1.5]), [1.5]), (record.floats, torch.tensor([2]), [2]),
     pytest.param(record.floats, DEEP, "w is a list that cannot be shown…, expected a list of numbers.",
                  id="nested"),
     (record.floats, 5, "w is 5…, expected a list of numbers."),
     (record.floats, ["x" * 99], "w is ['" + "x" * 58 + "…, expected a list of numbers."),
     (record.floats, [[1]], "w has lists inside its list, expected a list of numbers."),
     (record.ints, None, None), (record.ints, [2**53, -(2**53), 3.0], [2**53, -(2**53), 3]),
     (record.ints, [2**53 + 2], BEYOND), (record.ints, [-(2**53) - 2], BEYOND), (record.ints, [0.5], BEYOND),
     (record.ints, [None], BEYOND), (record.ints, ["inf"], BEYOND),
     (record.bools, [0, True, 1.0], [False, True, True]), (record.bools, [], []),
     (record.bools, None, "w is None, expected a list of 0 and 1."),
     (record.bools, [2], "w is [2], expected a list of 0 and 1."), (record.number, None, None),
     (record.number, "1.5", 1.5), (record.number, NAN, None),
     (record.number, "x", "w is x, expected a number."),
     (record.number, 10**400, f"w is 1{'0' * 59}, expected a number."),
     pytest.param(record.number, 10**5000, "w is a int that cannot be shown, expected a number.", id="long"),
     pytest.param(record.number, DEEP, "w is a list that cannot be shown, expected a number.", id="deep"),
     (record.number, -INF, "w is infinite, expected a finite number."), (record.whole, None, None),
     (record.whole, 2.0, 2), (record.whole, -(2**53), -(2**53)),
     (record.whole, 0.5, "w is 0.5, expected a whole number of at most 2^53."),
     (record.whole, -(2**53) - 2, f"w is {-(2**53) - 2}, expected a whole number of at most 2^53."),
     (record.bools, [1, 0.5], "w is [1, 0.5], expected a list of 0 and 1.")],
)  # fmt: skip
def test_numbers_have_one_form_or_one_message(read, given, wanted):
    if isinstance(wanted, str):
        assert said(read, given, "w") == wanted
        return
    found = read(given, "w")
    if isinstance(wanted, list):
        kind = {"floats": np.float64, "ints": np.int64, "bools": np.bool_}[read.__name__]
        np.testing.assert_array_equal(found, np.array(wanted, dtype=kind), strict=True)
    else:
        assert (found, type(found)) == (wanted, type(wanted))


def test_lines_are_objects_with_their_places(tmp_path):
    path, notes = tmp_path / "a.jsonl", []

    def lines(text):
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return files.json_lines(path, notes)

    assert lines('\n{"a": 1}\n \n[{"a": 2}, {"a": 3}]\n') == [
        ("a.jsonl:2", {"a": 1}), ("a.jsonl:4", {"a": 2}), ("a.jsonl:4", {"a": 3}),
    ]  # fmt: skip
    assert lines('[\n{"a": 1},\n{"a": 2}]') == [("a.jsonl:1", {"a": 1}), ("a.jsonl:2", {"a": 2})]
    assert notes == []
    assert lines('{"a": 1}\n{"a": 2}\n{"a": \n\n') == [("a.jsonl:1", {"a": 1}), ("a.jsonl:2", {"a": 2})]
    assert notes == ["a.jsonl is cut short: its last line, 3, is incomplete and was dropped."]
    for text in ('{\n"a": 1}\n{\n"a": 2\n}', ' {"a": 1}{"a": 2}\n{"a"\n:', '{"a": 1}\n{"a":\n2}\n{"a":\n'):
        assert lines(text) == [("a.jsonl:1", {"a": 1}), ("a.jsonl:2", {"a": 2})]
    assert notes[1:] == ["a.jsonl is cut short: its last object is incomplete and was dropped."] * 2
    convert = "Unpack or convert it first, as with gunzip or iconv."
    for text, message in (
        ("", f"{path} is empty; expected JSON lines."), ("[]", f"{path} is empty; expected JSON lines."),
        ("{",
           f"{path}:1 is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char "
           "1)); expected one object per line."),
        ('{"a": 1}\nx\n{"a": 1}',
         f"{path}:2 is not JSON (Expecting value: line 1 column 1 (char 0)); expected one object per line."),
        ('{\n"a": 1}\n{\n"a"}\n{\n"a": 1}',
         f"{path}:1 is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char "
         "1)); expected one object per line."),
        ('{"a": 1}\n[1]', f"{path}:2 holds [1]; expected objects, one or a list per line."),
        ('{"a": 1}\n' + "[" * 99_999 + "\n{}",
         f"{path}:2 is not JSON (brackets are nested too deeply); expected one object per line."),
        ('{"a": 1}\n' + "1" * 4_301 + "\n{}",
         f"{path}:2 is not JSON (a whole number has over 4,300 digits); expected one object per line."),
        ('{"a": 1}\nnull', f"{path}:2 holds null; expected objects, one or a list per line."),
        (b"\xff", f"{path} cannot be read as UTF-8 text (UnicodeDecodeError); expected JSON lines. "
         f"{convert}"),
    ):  # fmt: skip
        assert said(lines, text) == message
    path.unlink()
    assert said(files.json_lines, path, []) == (
        f"{path} cannot be read as UTF-8 text (FileNotFoundError); expected JSON lines. {convert}"
    )


def test_files_are_found_in_the_order_of_their_numbers(tmp_path):
    for name in ("b/step_10.jsonl", "b/step_9.jsonl", "a_2.jsonl", "a_10.x", "c.jsonl/d.jsonl", "a.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = files.inside(tmp_path, "*.jsonl", "*.x", "a_*")
    names = ["a_2.jsonl", "a_10.x", "b/step_9.jsonl", "b/step_10.jsonl", "c.jsonl/d.jsonl"]
    assert [str(path.relative_to(tmp_path)) for path in found] == names
    assert files.inside(tmp_path / "a.txt", "*.x") == [tmp_path / "a.txt"]
    assert files.number_in(Path("step_4/step_12.x"), r"step_(\d+)\.x") == 12
    assert files.number_in(Path("x"), r"(\d+)") is None


def test_parquet_and_torch_files_are_whole_or_refused(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1, 2], "b": ["x", None]}), path)
    assert files.parquet_rows(path) == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    path.write_bytes(path.read_bytes()[:-9])
    message = said(files.parquet_rows, path)
    assert message.startswith(f"{path} is not a complete Parquet file (")
    assert message.endswith("). Was its writer stopped?")
    assert len(message) < 300 + len(str(path))
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), path)
    assert said(files.parquet_rows, path) == f"{path} has no rows."
    held = tmp_path / "a.pt"
    torch.save({"a": torch.ones(2), "b": [1]}, held)
    assert files.tensors(held)["a"].tolist() == [1, 1]
    held.write_bytes(held.read_bytes()[:-200])
    assert re.fullmatch(
        rf"{held} is not a complete torch file \(.+\)\. Was its writer stopped\?", said(files.tensors, held)
    )
    torch.save({"a": Path("x")}, held)
    before, _, after = said(files.tensors, held).partition(" refuses: ")
    assert before == f"{held} holds more than tensors and plain values, which weights_only loading"
    assert "GLOBAL pathlib" in after.partition(". ")[0]
    assert after.endswith(
        ". Where you trust it, load it beside the stack that wrote it and torch.save a dictionary of "
        "tensors, lists and numbers."
    )


def test_files_are_opened_safely_and_an_error_gives_its_first_line(monkeypatch, tmp_path):
    def failing(path):
        raise pa.ArrowInvalid("x" * 201 + "\nmore")

    monkeypatch.setattr(pq, "read_table", failing)
    assert f"file ({'x' * 200}). Was" in said(files.parquet_rows, tmp_path / "a.parquet")
    monkeypatch.setattr(torch, "load", lambda path, **options: (path, options))
    safe = {"map_location": "cpu", "weights_only": True}
    assert files.tensors(tmp_path / "a.pt") == (tmp_path / "a.pt", safe)
