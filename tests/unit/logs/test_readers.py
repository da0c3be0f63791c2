"""Every stack's files give the sequences that were put into them; what is missing or cut is told."""

import json
import pickle
import sys

import numpy as np
import pytest
import torch
from support import made_logs
from support.log_mutations import areal
from support.made_logs import BOTH, MU_ONLY, sequences

from testbed.errors import UserError
from testbed.logs.log_tensors import tensors
from testbed.logs.readers import read, readers
from testbed.logs.record import write

ALL = BOTH | MU_ONLY


def under_mask(one, name):
    return np.asarray(getattr(one, name))[one.mask]


def expected(name, row):
    return np.array(row[name])[np.array(row["mask"], dtype=bool)]


def by_step_and_tokens(log):
    """Index a log by what no stack changes: the tokens of prompt and response."""
    return {(tuple(one.prompt), tuple(one.token)): one for one in log.sequences}


def grouped(keys_and_groups):
    """Return the partition of sequences into groups, without the groups' names."""
    found = {}
    for key, group in keys_and_groups:
        found.setdefault(group, set()).add(key)
    return {frozenset(keys) for keys in found.values()}


@pytest.mark.parametrize("stack", ALL)
def test_a_stacks_files_give_back_what_was_put_in(stack, tmp_path):
    ALL[stack](tmp_path / "log")
    log = read([tmp_path / "log"])
    found, made = by_step_and_tokens(log), sequences()
    assert len(log.sequences) == len(made)
    for row in made:
        first = 0
        if stack in ("prime-rl", "nemo-rl", "pipeline-rl"):  # these do not mark where the response begins
            first = row["mask"].index(1)
        key = (tuple(row["prompt"] + row["token"][:first]), tuple(row["token"][first:]))
        one = found[key]
        if stack == "open-instruct":  # which has no tool mask
            np.testing.assert_allclose(one.logp_mu, row["mu"], rtol=1e-6)
            continue
        np.testing.assert_allclose(under_mask(one, "logp_mu"), expected("mu", row), rtol=1e-6)
        if stack in BOTH:
            np.testing.assert_allclose(under_mask(one, "logp_pi"), expected("pi", row), rtol=1e-6)
        if stack != "pipeline-rl":
            assert set(under_mask(one, "advantage")) == {row["advantage"]}
        if stack not in ("prime-rl", "skyrl"):
            assert one.reward == row["reward"]
        if one.version is not None:
            assert set(one.version) == {row["version"]}


@pytest.mark.parametrize("stack", ALL)
def test_equal_prompts_of_one_step_are_one_group_whatever_it_is_called(stack, tmp_path):
    ALL[stack](tmp_path / "log")
    log = read([tmp_path / "log"])
    if stack in ("prime-rl", "nemo-rl", "pipeline-rl"):
        assert len({one.group for one in log.sequences}) >= made_logs.STEPS * made_logs.PROMPTS
        return
    keys = {tuple(one.prompt) + tuple(one.token): f"{one.step}/{one.group}" for one in log.sequences}
    rows = {tuple(r["prompt"] + r["token"]): f"{r['step']}/{r['group']}" for r in sequences()}
    assert grouped(keys.items()) == grouped(rows.items())


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_the_record_survives_both_of_its_files(ending, tmp_path):
    made_logs.own(tmp_path / "log")
    log = read([tmp_path / "log"])
    one = log.sequences[0]
    one.logp_pi[0], one.logp_mu[0] = -np.inf, np.nan
    write(log, tmp_path / f"again.tokens.{ending}")
    again = read([tmp_path / f"again.tokens.{ending}"])
    for mine, theirs in zip(log.sequences, again.sequences, strict=True):
        for name in ("mask", "logp_mu", "logp_pi", "advantage", "version", "token", "prompt"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))
        assert (mine.step, mine.sample, mine.reward, mine.trainer_version) == (
            theirs.step, theirs.sample, theirs.reward, theirs.trainer_version,
        )  # fmt: skip
        assert theirs.logp_anchor is None


def test_json_lines_of_the_record_are_json_that_every_reader_takes(tmp_path):
    made_logs.own(tmp_path / "log")
    log = read([tmp_path / "log"])
    log.sequences[0].logp_pi[0], log.sequences[0].logp_mu[0] = -np.inf, np.nan
    write(log, tmp_path / "x.jsonl")
    first = json.loads((tmp_path / "x.jsonl").read_text().splitlines()[0], parse_constant=pytest.fail)
    assert first["logp_pi"][0] == "-inf"
    assert first["logp_mu"][0] is None
    assert first["length"] == sum(first["mask"])


def test_verl_and_trl_give_text_rewards_and_groups(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = [{"input": f"q{n // 2}", "output": f"a{n}", "gts": "", "score": n, "step": 3} for n in range(4)]
    made_logs._lines(tmp_path / "3.jsonl", rows)
    log = read([tmp_path / "3.jsonl"])
    assert log.source == "verl"
    assert [one.reward for one in log.sequences] == [0, 1, 2, 3]
    assert len({one.group for one in log.sequences}) == 2
    table = {"step": [7] * 2, "prompt": ["q"] * 2, "completion": ["a", "b"], "exact": [1.0, 0.0],
    "form": [0.5, None],
             "advantage": [0.7, -0.7]}  # fmt: skip
    pq.write_table(pa.table(table), tmp_path / "completions_00007.parquet")
    log = read([tmp_path / "completions_00007.parquet"])
    assert [one.reward for one in log.sequences] == [1.5, 0.0]
    assert [one.scalar_advantage for one in log.sequences] == [0.7, -0.7]
    assert "exact, form" in " ".join(log.notes)
    assert len({one.group for one in log.sequences}) == 1


def test_areal_gives_text_rewards_and_groups_and_names_what_it_lacks(tmp_path):
    areal(tmp_path)
    (tmp_path / "eval-rollout").mkdir()
    path = tmp_path / "rollout" / "3" / "10.jsonl"
    (tmp_path / "eval-rollout" / "1.jsonl").write_text(path.read_text())
    log = read([tmp_path])
    assert (log.source, log.steps) == ("AReaL", [0, 3])
    assert [one.reward for one in log.sequences] == [0, 1, 0, 1]
    assert [one.text for one in log.sequences[2:]] == [("q", "a0"), ("q", "a1")]
    assert len({one.group for one in log.sequences}) == 2
    said = " ".join(log.notes)
    assert "AReaL's rollout files hold texts, rewards and versions, but no log-probabilities" in said
    assert "1 file of eval-rollout left out. 2 of 4 responses" in said
    with pytest.raises(UserError, match="4 sequences of the AReaL log have no log-probabilities of the samp"):
        tensors(log)
    with pytest.raises(UserError, match="AReaL's evaluation; give files below rollout/"):
        read([tmp_path / "eval-rollout" / "1.jsonl"])
    row = json.loads(path.read_text().splitlines()[0])
    path.write_text(json.dumps({k: v for k, v in row.items() if k != "completion"}) + "\n")
    with pytest.raises(UserError, match="nearest format is areal, without completion"):
        read([path])


def test_pickles_are_refused_and_never_opened(tmp_path):
    class Bomb:
        def __reduce__(self):
            return (pytest.fail, ("the pickle was opened",))

    (tmp_path / "global_step_1_training_input.pkl").write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(UserError, match="runs code when it is opened: refused"):
        read([tmp_path / "global_step_1_training_input.pkl"])
    torch.save({"rollout_id": 0, "samples": [Bomb()]}, tmp_path / "bad.pt")
    with pytest.raises(UserError, match="weights_only loading refuses"):
        read([tmp_path / "bad.pt"])


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"x": 1}\n', "no reader knows"),
        ("a.jsonl", '{"input": "a", "score": 1, "step": 1}\n', "nearest format is verl, without output"),
        ("a.jsonl", "", "is empty"),
        ("a.jsonl", "no json\n{}\n", "a.jsonl:1 is not JSON"),
        ("a.jsonl", "[1, 2]\n", "expected objects"),
        ("a.tokens.parquet", "PAR1", "not a complete Parquet file"),
        ("a.pt", "x", "not a complete torch file|weights_only"),
        ("a.tokens.jsonl", '{"record": 2, "mask": [1]}\n', "this version reads 1"),
        ("a.tokens.jsonl", '{"record": 1, "mask": [1]}\n', "step, sample, group missing"),
        ("a.tokens.jsonl", '{"record": 1, "step": 0, "sample": "a", "group": "g", "mask": [2]}\n',
        "list of 0 and 1"),
        ("a.tokens.jsonl",
        '{"record": 1, "step": 0, "sample": "a", "group": "g", "mask": [1], "logp_mu": [0, 0]}\n',
         "logp_mu has 2 entries, mask has 1"),
        ("rank_0.jsonl", '{"inference_logprobs": [], "trainer_logprobs": [], "schema_version": 9}\n',
        "known: 1 and 2"),
        ("x.jsonl", '{"input_ids": [1, 2], "labels": [2]}\n', "differ in length"),
        ("x.jsonl", '{"input": "a", "output": "b", "score": "good", "step": 1}\n',
        "score is good, expected a number"),
        ("x.jsonl", '{"prompt_tokens": [1], "response_tokens": [1]}\n', "field 'step' is missing"),
    ],
)  # fmt: skip
def test_bad_files_get_one_message(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        read([tmp_path / name])


def test_missing_paths_empty_folders_and_unknown_formats_are_named(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        read([tmp_path / "none"])
    with pytest.raises(UserError, match="holds none of"):
        read([tmp_path])
    made_logs.own(tmp_path)
    made_logs.open_instruct(tmp_path)
    assert [read([tmp_path], name).source for name in ("", "record", "open-instruct")] == [
        "made, open-instruct", "made", "open-instruct",
    ]  # fmt: skip
    with pytest.raises(UserError, match="Unknown log format 'nemo'.*Did you mean 'nemo-rl'"):
        read([tmp_path], "nemo")


def test_every_reader_says_where_its_format_is_written():
    for name, reader in readers().items():
        doc = sys.modules[reader.read.__module__].__doc__
        assert name == "record" or "Format:" in doc or "could not be read" in doc, name
