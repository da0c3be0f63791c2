"""Every stack's files give the sequences that were put into them; what is missing or cut is told."""

import json
import pickle
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from support import made_logs
from support.log_mutations import areal
from support.refusals import refuses

from testbed.errors import UserError
from testbed.logs.log_tensors import tensors
from testbed.logs.readers import Reader, _told, metrics_jsonl, read, read_any, readers
from testbed.logs.scalars import ScalarLog


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def held(one):
    """Return the fields of a sequence that are set, arrays as lists."""
    every = {each.name: getattr(one, each.name) for each in fields(one)}
    every = {name: value.tolist() if hasattr(value, "tolist") else value for name, value in every.items()}
    return {name: value for name, value in every.items() if value is not None and name != "source"}


HELD = (Path(__file__).parents[2] / "golden" / "logs_by_hand.json").read_text()
BY_HAND = json.loads(HELD, object_hook=lambda x: torch.tensor(x["tensor"]) if "tensor" in x else x)
SOURCES = {
    "record": "2 runs, the first one", "nemo-rl": "NeMo-RL", "skyrl": "SkyRL", "trinity": "Trinity-RFT",
    "trl": "TRL", "pipeline-rl": "PipelineRL", "areal": "AReaL",
}  # fmt: skip


def put(folder, files):
    """Write files by their endings: text, columns of Parquet, or what torch saves."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".parquet":
            pq.write_table(pa.table(content), path)
        elif path.suffix == ".pt":
            numbers = {
                n: torch.tensor(v) if isinstance(v, list) and n != "samples" else v
                for n, v in content.items()
            }
            torch.save(numbers, path)
        else:
            path.write_text(content if isinstance(content, str) else lines(*content))


@pytest.mark.parametrize("stack", BY_HAND)
def test_a_reader_gives_exactly_what_was_written_by_hand(stack, tmp_path):
    """Every field, optional ones there and missing, and every note."""
    files, given, wanted, notes = BY_HAND[stack].values()
    put(tmp_path, files)
    (tmp_path / "step_4").mkdir(exist_ok=True)
    for rank in ("2", "x"):
        (tmp_path / "step_4" / f"rank_{rank}.jsonl").touch()
    name = stack.partition(",")[0]
    log = read([tmp_path / each for each in given], name)
    assert log.source == SOURCES.get(name, name)
    found = json.loads(json.dumps([held(one) for one in log.sequences]))  # tuples as lists
    for one in found:  # NaN, which is unequal to itself, as None
        one |= {key: [None if v != v else v for v in value]
                for key, value in one.items() if isinstance(value, list)}  # fmt: skip
    assert found == wanted
    assert list(log.notes) == notes


def test_areals_evaluation_and_unknown_rows_are_refused(tmp_path):
    areal(tmp_path)
    path = tmp_path / "rollout" / "3" / "10.jsonl"
    refuses("4 of 4 sequences in the AReaL log lack the sampler's log-prob", tensors, read([tmp_path]))
    (tmp_path / "eval-rollout").mkdir()
    (tmp_path / "eval-rollout" / "1.jsonl").write_text(path.read_text())
    refuses("AReaL's evaluation; give files below rollout/", read, [tmp_path / "eval-rollout" / "1.jsonl"])
    row = json.loads(path.read_text().splitlines()[0])
    path.write_text(json.dumps({k: v for k, v in row.items() if k != "completion"}) + "\n")
    refuses("nearest format is areal, without completion", read, [path])


def test_pickles_are_refused_and_never_opened(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was opened",))

    (tmp_path / "global_step_1_training_input.pkl").write_bytes(pickle.dumps(Bomb()))
    bomb = tmp_path / "global_step_1_training_input.pkl"
    told = refuses(f"^{bomb} is a pickle, which runs code when it is opened: refused", read, [bomb])
    assert told.endswith(f'torch.is_tensor(v)}}, sys.argv[2])" {bomb} {bomb.with_suffix(".pt")}')
    torch.save({"rollout_id": 0, "samples": [Bomb()]}, tmp_path / "bad.pt")
    refuses("weights_only loading refuses", read, [tmp_path / "bad.pt"])


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.jsonl", '{"x": 1}\n'), ("a.jsonl", '{"input": "a", "score": 1, "step": 1}\n'), ("a.jsonl", ""),
     ("a.jsonl", "no json\n{}\n"), ("a.jsonl", "[1, 2]\n"), ("a.jsonl", '[{"a": 1}, 2]\n'),
     ("a.tokens.parquet", "PAR1"), ("a.pt", "x"), ("a.tokens.jsonl", '{"record": 2, "mask": [1]}\n'),
     ("a.tokens.jsonl", '{"record": 1, "mask": [1]}\n'),
     ("a.tokens.jsonl", '{"record": 1, "step": 0, "sample": "a", "group": "g", "mask": [2]}\n'),
     ("a.tokens.jsonl",
      '{"record": 1, "step": 0, "sample": "a", "group": "g", "mask": [1], "logp_mu": [0, 0]}\n'),
     ("rank_0.jsonl", '{"inference_logprobs": [], "trainer_logprobs": [], "schema_version": 9}\n'),
     ("x.jsonl", '{"input_ids": [1, 2], "labels": [2]}\n'),
     ("x.jsonl", '{"input_ids": [1], "labels": [2], "logprobs": [1, 2]}\n'),
     ("x.jsonl", '{"eid": 1, "prompt_length": 3, "tokens": [1]}\n'),
     ("x.jsonl", '{"generation_logprobs": [1], "input_lengths": 1}\n'),
     ("x.jsonl", '{"input": "a", "output": "b", "score": "good", "step": 1}\n'),
     ("x.jsonl", '{"prompt_tokens": [1], "response_tokens": [1]}\n')],
)  # fmt: skip
def test_bad_files_get_one_message(name, content, tmp_path):
    (tmp_path / name).write_text(content)
    # Arrow's words on a Parquet file are cut where the path is long.
    refuses("is not a complete Parquet" if content == "PAR1" else ".", read, [tmp_path / name])


def test_missing_paths_empty_folders_and_unknown_formats_are_named(tmp_path):
    refuses("does not exist", read, [tmp_path / "none"])
    refuses("holds none of", read, [tmp_path])
    made_logs.own(tmp_path)
    made_logs.open_instruct(tmp_path)
    assert [read([tmp_path], name).source for name in ("", "record", "open-instruct")] == [
        "made, open-instruct", "made", "open-instruct",
    ]  # fmt: skip
    refuses("Unknown log format 'nemo'.*Did you mean 'nemo-rl'", read, [tmp_path], "nemo")


def test_every_reader_says_where_its_format_is_written():
    for name, reader in readers().items():
        doc = sys.modules[reader.read.__module__].__doc__
        assert name == "record" or "Format:" in doc or "could not be read" in doc, name


def test_files_of_a_folder_are_recognized_joined_and_the_rest_is_named(tmp_path):
    made_logs.own(tmp_path)
    made_logs._lines(tmp_path / "run.jsonl", [{"step": 1, "data": {"actor/entropy": 0.5}}])
    for name in "abcd":
        (tmp_path / f"{name}.jsonl").write_text('{"x": 1}\n')
    log = read([tmp_path])
    assert log.source == "made"
    assert log.notes == (
        "Scalars of verl lie beside the tokens; name their file to read them.",
        "Not read, 4 files: a.jsonl, b.jsonl, c.jsonl ….",
    )
    (tmp_path / "d.jsonl").unlink()
    assert read([tmp_path]).notes[-1] == "Not read, 3 files: a.jsonl, b.jsonl, c.jsonl."
    assert isinstance(read_any([tmp_path / "run.jsonl"]), ScalarLog)
    assert read_any([tmp_path / "run.jsonl"]).notes == ()
    refuses(r"run.jsonl holds numbers by step of verl, no tokens; `testbed", read, [tmp_path / "run.jsonl"])
    state = {"log_history": [{"step": 1, "reward": 1}], "global_step": 1}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(UserError, match="These are scalars of two formats, perhaps from two runs"):
        read_any([tmp_path / "run.jsonl", tmp_path / "trainer_state.json"])
    for path in tmp_path.iterdir():
        if path.stem not in "abc":
            path.unlink()
    told = refuses("", read, [tmp_path])
    names = ", ".join(readers())
    assert told == f"None of a.jsonl, b.jsonl, c.jsonl is a log in a known format: {names}."
    (tmp_path / "a.jsonl").write_text(json.dumps(dict.fromkeys("abcdefghijk", 1)))
    assert refuses("", read, [tmp_path / "a.jsonl"]) == (
        f"{tmp_path / 'a.jsonl'} has the fields a, b, c, d, e, f, g, h, which no reader knows. Name one with "
        f"--format: {names}."
    )
    (tmp_path / "a.jsonl").write_text(json.dumps({"input": "q", "output": 1, "step": 1}))
    refuses("The nearest format is verl, without score. Name one with --format", read, [tmp_path / "a.jsonl"])
    torch.save([1], tmp_path / "a.pt")
    refuses("has the fields nothing, which no reader knows. Name one", read, [tmp_path / "a.pt"])
    told = refuses("", read, [tmp_path / "a.jsonl"], "verl")
    assert "a.jsonl:1 has no field 'score'. Every row of the verl format has it" in told
    short = Reader("short", "", (), (), lambda _: [][0])
    refuses(r"reader expects \(IndexError: list index out of range\)", _told, short, [tmp_path])
    (tmp_path / "a.jsonl").write_text(json.dumps({"eid": 1, "prompt_length": 1, "info": 3}))
    refuses(r"reader expects \(AttributeError: 'int' object has no attribute", read, [tmp_path / "a.jsonl"])


SKYRL = {name: torch.ones(1, 2) for name in ("sequences", "attention_mask", "loss_mask")}


def test_a_dump_of_responses_alone_has_empty_prompts(tmp_path):
    torch.save(SKYRL, tmp_path / "global_step_3.pt")
    (one,) = read([tmp_path / "global_step_3.pt"], "skyrl").sequences
    assert (one.step, one.prompt.tolist(), one.token.tolist()) == (3, [], [1, 1])
    assert one.mask.tolist() == [True, True]


@pytest.mark.parametrize(
    ("held", "name"),
    [(SKYRL | {"sequences": 3}, "skyrl"), (SKYRL | {"advantages": torch.ones(2, 2)}, "skyrl"),
     (SKYRL | {"response_mask": torch.ones(1, 1)}, "skyrl"),
     (SKYRL | {"sequences": torch.ones(1, 1)}, "skyrl"), ([1], "slime"), ({"rollout_id": 1}, "slime"),
     ({"rollout_data": {}}, "slime")],
)  # fmt: skip
def test_dumps_of_other_shapes_are_refused(held, name, tmp_path):
    torch.save(held, tmp_path / "a.pt")
    refuses(".", read, [tmp_path / "a.pt"], name)


def test_samples_without_an_index_are_told_apart(tmp_path):
    sample = {"index": None, "tokens": [1, 2], "response_length": 1, "reward": 1.0}
    torch.save({"rollout_id": 0, "samples": [sample, sample]}, tmp_path / "a.pt")
    assert [one.sample for one in read([tmp_path / "a.pt"]).sequences] == ["0", "1"]


def test_a_prompt_longer_than_its_tokens_is_refused_with_both_lengths(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"eid": 1, "prompt_length": 3, "tokens": [1, 2]}')
    told = "prompt_length is 3, but tokens has 2; expected those of prompt and response"
    refuses(told, read, [tmp_path / "a.jsonl"])


def test_a_flat_line_is_scalars_if_most_of_it_are_numbers_with_a_step_and_a_known_key(tmp_path):
    rows = {
        '{"global_step": 3, "entropy": 1, "a": "x"}': (3, "TRL"), '{"training/global_step": 3, "rl/ess": 1}':
        (3, "PipelineRL"), '{"train/global_step": 3, "train/vllm_kl": 1, "_step": 9}': (3, "OpenRLHF"),
        '{"step": null, "global_step": 4, "entropy": null}': (4, "TRL"),
        '{"step": 3, "entropy": 1, "a": "x", "b": "y"}': None, '{"step": 3, "zz": 1}': None,
        '{"entropy": 1}': None,
    }  # fmt: skip
    assert metrics_jsonl._data({"data": {}, "x": 1}, "here") == {}
    for text, wanted in rows.items():
        (tmp_path / "a.jsonl").write_text(text)
        if wanted is None:
            refuses("which no reader knows", read_any, [tmp_path / "a.jsonl"])
        else:
            log = read_any([tmp_path / "a.jsonl"])
            assert (log.rows[0]["step"], log.source) == wanted
    (tmp_path / "a.jsonl").write_text('{"data": {"entropy": 1}}\n{"data": {}, "x": 1}')
    with pytest.raises(UserError, match="a.jsonl has no step in any line. A line needs 'step'"):
        read_any([tmp_path / "a.jsonl"], "metrics-jsonl")
