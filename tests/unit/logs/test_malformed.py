"""Malformed logs end in one message or lose no number; mutated ones by the hundred: tests/campaign."""

import json
import re

import numpy as np
import pytest
import torch
from support import made_logs
from support.refusals import refuses

from analysis.logs.diagnosis import diagnose
from paper_figs.diagnosis_page import page
from testbed.errors import UserError
from testbed.logs import files
from testbed.logs.readers import read, read_any
from testbed.logs.record import LoggedSequence, parquet_bytes


@pytest.mark.parametrize("text", ["\ud800", "\x1b[31m"])
def test_names_that_cannot_be_written_or_that_a_terminal_obeys_are_escaped(text, tmp_path):
    made_logs._lines(tmp_path / "a.jsonl", [one_row(source=text, group=text, logp_pi=[-1.0, -1.0])])
    log = read([tmp_path / "a.jsonl"])
    result = diagnose(log, [])
    assert text not in result.facts["written by"]
    page(result).encode()
    parquet_bytes([one.plain() for one in log.sequences])
    made_logs._lines(tmp_path / "b.jsonl", [{"step": 1, "data": {f"{text}/loss": None, "actor/entropy": 1}}])
    result = diagnose(read_any([tmp_path / "b.jsonl"]))
    assert result.verdict.startswith("Look at \\")
    assert "/loss: it is not finite" in result.verdict


@pytest.mark.parametrize("stack", ["slime", "trinity", "pipeline-rl"])
def test_a_version_beyond_64_bits_is_refused(stack, tmp_path):
    """numpy would make an array of objects of it, which fails much later."""
    (made_logs.BOTH | made_logs.MU_ONLY)[stack](tmp_path / "log")
    for path in sorted(tmp_path.rglob("*.jsonl")):
        path.write_text(re.sub(r'("model_version": )\d+', rf"\g<1>{2**70}", path.read_text()))
    for path in sorted(tmp_path.rglob("rollout_*.pt")):
        held = torch.load(path, weights_only=True)
        held["samples"][0]["weight_versions"] = [2**70]
        torch.save(held, path)
    refuses("version.* is 1180591620717411303424, expected a whole number", read, [tmp_path / "log"])
    with pytest.raises(UserError, match="version is object, expected int64"):
        LoggedSequence(0, "a", "g", np.ones(1, dtype=bool), version=np.full(1, 2**70))


def one_row(**changed):
    row = {"record": 1, "step": 0, "sample": "a", "group": "g", "mask": [1, 1], "logp_mu": [-1.0, -1.0]}
    return row | changed


@pytest.mark.parametrize(
    ("field", "text"),
    [("token", "[1e300, 1]"), ("token", f"[{-(2**70)}, 1]"), ("token", "[1.5, 1]"),
     ("version", "[null, 1]"), ("token", f"[{10**400}, 1]"), ("logp_mu", "[[-1.0], [-1.0]]"),
     ("step", "1e400"), ("step", "0.5"), ("trainer_version", "1e300"), ("reward", f"{10**400}")],
)  # fmt: skip
def test_a_number_that_has_no_exact_place_is_refused(field, text, tmp_path):
    path = tmp_path / "a.tokens.jsonl"
    path.write_text(json.dumps(one_row(**{field: "HERE"})).replace('"HERE"', text) + "\n")
    refuses(".", read, [path])


def test_line_separators_inside_strings_and_a_byte_order_mark_are_read(tmp_path):
    path = tmp_path / "a.tokens.jsonl"
    row = json.dumps(one_row(sample="a\u2028b\x85c"), ensure_ascii=False)
    path.write_bytes(b"\xef\xbb\xbf" + f"{row}\r\n{row}\n".encode())
    assert [one.sample for one in read([path]).sequences] == ["a\u2028b\x85c"] * 2


def test_deep_nesting_is_one_message(tmp_path):
    path = tmp_path / "a.tokens.jsonl"
    path.write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}\n")
    refuses("not JSON", read, [path])


def test_the_cause_that_torch_names_is_told_in_160_characters():
    for cause in ("GLOBAL os.system is not allowed", "Unsupported operand 2"):
        assert files._reason(RuntimeError(f"Weights only load failed.\n  {cause}. \nmore")) == cause
    assert [len(files._reason(ValueError("x" * size))) for size in (159, 160, 161, 5000)] == [
        159, 160, 160, 160,
    ]  # fmt: skip
    assert files._reason(ValueError()) == "ValueError"
