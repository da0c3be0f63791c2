"""Every stack's files give the sequences that were put into them; what is missing or cut is told."""

import hashlib
import json
import pickle
import re
import sys
from dataclasses import fields

import numpy as np
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


def prompt(*ids):
    """Return the name of a group that is known by its prompt alone."""
    return hashlib.sha256(np.array(ids, dtype=np.int64).tobytes()).hexdigest()[:12]


def row(**values):
    return values


SAME = "sequences of one prompt at one step are one group."
BY_HAND = {
    "prime-rl": (
        {
            "step_4/rank_0.jsonl": lines(
                {"schema_version": 1, "step": 4, "rank": 0, "export_sequence_idx": 3,
                "token_ids": [1, 2, 3, 4, 5],
                 "loss_mask": [False, False, True, False, True], "inference_logprobs": [0, 0, -1, -2, -3],
                 "trainer_logprobs": [0, 0, -1.5, -2.5, -3.5], "advantages": [0, 0, 0.5, 0, 0.75],
                 "rewards": [7, 7, 0.25, 9, 0.5], "temperatures": [1, 1, 0.7, 0.8, 0.9]},
                {"schema_version": 2, "step": 4, "sample_id": "s", "loss_mask": [False, True, False],
                 "inference_logprobs": [0, -1, -4], "rewards": [1, None, 1]},
                {"schema_version": 2, "step": 4, "loss_mask": [False]},
            ),
        },
        ["step_4/rank_0.jsonl"],
        [
            row(step=4, sample="rank 0, 3", group="4/" + prompt(1, 2), mask=[1, 0, 1], reward=0.5,
                temperature=0.7,
                 prompt=[1, 2], token=[3, 4, 5], logp_mu=[-1, -2, -3], logp_pi=[-1.5, -2.5, -3.5],
                 advantage=[0.5, 0, 0.75]),
            row(step=4, sample="s", group="4/rank_0.jsonl:2", mask=[1, 0], logp_mu=[-1, -4]),
        ],
        ["step_4: 1 of 2 ranks were given; give the folder for all.",
         "step_4: no file of rank 1; part of the batch may be missing.",
         "step_4 has no STABLE marker: its export may not be finished.",
         "Groups are not exported: " + SAME, "1 of 3 sequences have no token under their mask: dropped."],
    ),
    "nemo-rl": (
        {
            "train_data_step3.jsonl": lines(
                {"idx": 5, "token_ids": [[1, 2, 3, 4, 5, 0]], "token_loss_mask": [[0, 0, 1, 0, 1, 0]],
                 "generation_logprobs": [[0, 0, -1, -2, -3, 0]],
                 "prev_logprobs": [[0, 0, -1.5, -2.5, -3.5, 0]],
                 "input_lengths": [5], "rewards": [1.5], "advantages": [[0, 0, 0.5, 0.25, 0.75, 0]],
                 "sample_loss_mask": [1.0]},
                {"token_ids": [3, 4], "token_loss_mask": [0, 1], "generation_logprobs": [0, -1], "rewards": 2,
                 "advantages": [0.5]},
                {"token_loss_mask": [0, 1], "sample_loss_mask": [0]},
                {"token_ids": [4], "token_loss_mask": [1], "generation_logprobs": [-1], "input_lengths": 1,
                 "advantages": -0.5},
                {"token_loss_mask": [[0, 1, 1]], "prev_logprobs": [[0, -1, -2]], "input_lengths": [2]},
            ),
            "x.jsonl": lines({"idx": 0, "token_loss_mask": [1], "input_lengths": 1,
            "generation_logprobs": [-1]}),
        },
        ["train_data_step3.jsonl", "x.jsonl"],
        [
            row(step=0, sample="0", group="0/x.jsonl:1", mask=[1], logp_mu=[-1]),
            row(step=3, sample="5", group="3/" + prompt(1, 2), mask=[1, 0, 1], reward=1.5, prompt=[1, 2],
                 token=[3, 4, 5], logp_mu=[-1, -2, -3], logp_pi=[-1.5, -2.5, -3.5],
                 advantage=[0.5, 0.25, 0.75]),
            row(step=3, sample="train_data_step3.jsonl:2", group="3/" + prompt(3), mask=[1], reward=2,
                prompt=[3], token=[4], logp_mu=[-1], advantage=[0.5]),
            row(step=3, sample="train_data_step3.jsonl:4", group="3/" + prompt(), mask=[1], prompt=[],
                 token=[4], logp_mu=[-1], advantage=[-0.5]),
            row(step=3, sample="train_data_step3.jsonl:5", group="3/train_data_step3.jsonl:5", mask=[1],
                 logp_pi=[-1]),
        ],
        ["Groups are not logged: " + SAME,
         "1 sequences have sample_loss_mask 0, so that the loss did not see them: dropped."],
    ),
    "slime": (
        {
            "rollout_5.pt": {"rollout_id": 5, "samples": [
                {"index": 7, "group_index": 2, "tokens": [1, 2, 3, 4], "response_length": 2, "reward": 1,
                 "loss_mask": [1, 0], "weight_versions": ["7", "5", "7"], "rollout_log_probs": [-1, -2]},
                {"sample_index": 3, "index": 99, "tokens": [1, 2, 3], "response_length": 2,
                 "reward": {"score": 1}, "weight_versions": ["default", "4"]},
                {"tokens": [1, 2, 9], "response_length": 2, "remove_sample": True},
                {"index": 4, "tokens": [1, 2], "response_length": 2},
                {"index": 5, "tokens": [], "response_length": 0},
            ]},
            "train_5_0.pt": {"rollout_id": 5, "rank": 0, "rollout_data": {
                "sample_indices": [7, 3, 50],
                "log_probs": [torch.tensor([-1.5, -2.5]), torch.zeros(2), torch.zeros(1)],
                "advantages": [[0.5], [0.25, 0.75], [1.0]], "loss_masks": [None, [1, 1], [1]]}},
        },
        ["rollout_5.pt", "train_5_0.pt"],
        [
            row(step=5, sample="3", group="5/alone 3", mask=[1, 1], prompt=[1], token=[2, 3], logp_pi=[0, 0],
                 version=[4, 4], advantage=[0.25, 0.75]),
            row(step=5, sample="7", group="5/2", mask=[1, 0], reward=1, prompt=[1, 2], token=[3, 4],
                logp_mu=[-1, -2], logp_pi=[-1.5, -2.5], version=[5, 5], advantage=[0.5, 0.5]),
        ],
        ["3 of 5 samples have no train data: the files of some ranks may be missing.",
         "1 train samples have no rollout data: dropped.",
         "1 of 3 responses mix weights versions, and the log does not say which token has which: all their "
         "tokens get the oldest version, so ages are upper bounds.",
         "3 of 5 sequences have no token under their mask: dropped."],
    ),
    "slime, train alone": (
        {"train_0.pt": {"rollout_id": None, "rollout_data": {
            "sample_indices": torch.tensor([2]), "tokens": [[1, 2, 3]], "response_lengths": [2],
            "rewards": [0.5],
            "rollout_log_probs": [[-1, -2]]}}},
        ["train_0.pt"],
        [row(step=0, sample="2", group="0/alone 2", mask=[1, 1], reward=0.5, prompt=[1], token=[2, 3],
              logp_mu=[-1, -2])],
        ["No rollout data were given (--save-debug-rollout-data): groups and versions are missing."],
    ),
    "slime, rollout alone": (
        {"rollout_1.pt": {"rollout_id": 1, "samples": [{"tokens": [1, 2], "response_length": 1,
                                                        "group_index": 0}]}},
        ["rollout_1.pt"],
        [row(step=1, sample="0", group="1/0", mask=[1], prompt=[1], token=[2])],
        ["No train data were given (--save-debug-train-data), so that "
         "the trainer's log-probabilities are missing."],
    ),
    "slime, the later format": (
        {
            "rollout_2.pt": {"rollout_id": 2, "samples": [{"sample_index": 5, "tokens": [1, 2],
            "group_index": 0,
                                                           "response_length": 1}]},
            "train_2.pt": {"rollout_id": 2, "dp_shards": 1, "samples": [{"sample_index": 5,
            "log_probs": [-2.0]}]},
        },
        ["rollout_2.pt", "train_2.pt"],
        [row(step=2, sample="5", group="2/0", mask=[1], prompt=[1], token=[2], logp_pi=[-2])], [],
    ),
    "skyrl": (
        {
            "global_step_7_training_input.pt": {
                "sequences": [[0, 1, 2, 3, 0], [4, 5, 6, 7, 8]], "attention_mask": [[0, 1, 1, 1, 0], [1] * 5],
                "response_mask": [[1, 1, 0], [0, 1, 1]], "loss_mask": [[1, 0, 1], [1, 1, 0]],
                "rollout_logprobs": [[-1.0, -2, -9], [-9, -3, -4]], "advantages": [[0.5, 0.25, 9], [9, 1, 2]],
                "action_log_probs": [[-1.5, -2.5, -9], [-9, -3.5, -4.5]],
                "rewards": [[0, 1, 0.5], [0, 0, 2.0]],
                "name": "plain"},
            "x_training_input.pt": {"sequences": [[0, 1, 2], [3, 4, 0]],
            "attention_mask": [[0, 1, 1], [1, 1, 0]], "loss_mask": [[0, 1], [1, 1]]},
        },
        ["x_training_input.pt", "global_step_7_training_input.pt"],
        [
            row(step=0, sample="0", group="0/" + prompt(), mask=[0, 1], prompt=[], token=[1, 2]),
            row(step=0, sample="1", group="0/" + prompt(3), mask=[1], prompt=[3], token=[4]),
            row(step=7, sample="0", group="7/" + prompt(1), mask=[1, 0], reward=1.5, prompt=[1], token=[2, 3],
                 logp_mu=[-1, -2], logp_pi=[-1.5, -2.5], advantage=[0.5, 0.25]),
            row(step=7, sample="1", group="7/" + prompt(4, 5, 6), mask=[1, 0], reward=2, prompt=[4, 5, 6],
                token=[7, 8], logp_mu=[-3, -4], logp_pi=[-3.5, -4.5], advantage=[1, 2]),
        ],
        ["Groups are not dumped: " + SAME],
    ),
    "open-instruct": (
        {"run_rollouts_000000.jsonl": lines(
            {"step": 2, "sample_idx": 4, "prompt_idx": 9, "prompt_tokens": [1, 2], "response_tokens": [3, 4],
             "reward": 0.5, "advantage": -0.5, "logprobs": [-1, -2]},
            {"step": 1, "prompt_tokens": None, "response_tokens": [5]},
            {"step": 1, "prompt_tokens": [1], "response_tokens": None})},
        ["run_rollouts_000000.jsonl"],
        [
            row(step=1, sample="run_rollouts_000000.jsonl:2", group="1/run_rollouts_000000.jsonl:2", mask=[1],
                 token=[5]),
            row(step=2, sample="4", group="2/9", mask=[1, 1], reward=0.5, prompt=[1, 2], token=[3, 4],
                 logp_mu=[-1, -2], advantage=[-0.5, -0.5]),
        ],
        ["Tool output is not marked: every response token is taken as the policy's.",
         "1 of 3 sequences have no token under their mask: dropped."],
    ),
    "trinity": (
        {"experiences.jsonl": lines(
            {"eid": {"batch": 3, "task": 7, "run": 1, "step": 2, "suffix": "x"}, "prompt_length": 2,
             "tokens": [1, 2, 3, 4, 5], "logprobs": [-1, -2, -3], "action_mask": [1, 0, 1], "reward": 0.5,
             "info": {"model_version": 4}, "advantages": [0.5, 0, 1]},
            {"eid": "gone", "prompt_length": 1, "tokens": [1, 2], "info": None},
            {"eid": {"batch": 3, "task": 7}, "prompt_length": 2, "reward": 1, "prompt_text": "p",
             "response_text": "r", "logprobs": [-1], "advantages": [1], "action_mask": [1]},
            {"eid": {"batch": 3}, "prompt_length": 2, "prompt_text": "p"},
            {"eid": {"task": 1}, "prompt_length": 1, "tokens": [1, 2], "prompt_text": "p",
             "response_text": "r"})},
        ["experiences.jsonl"],
        [
            row(step=0, sample="////", group="0/experiences.jsonl:2/0", mask=[1], prompt=[1], token=[2]),
            row(step=0, sample="/1///", group="0/1/0", mask=[1], prompt=[1], token=[2]),
            row(step=3, sample="3/7/1/2/x", group="3/7/2", mask=[1, 0, 1], reward=0.5, prompt=[1, 2],
                 token=[3, 4, 5], logp_mu=[-1, -2, -3], version=[4, 4, 4], advantage=[0.5, 0, 1]),
            row(step=3, sample="3/7///", group="3/7/0", mask=[], reward=1, text=("p", "r")),
        ],
        ["The step is the explorer's (eid.batch): the trainer's is not written.",
         "1 of 5 sequences have no token under their mask: dropped."],
    ),
    "pipeline-rl": (
        {"0.jsonl": lines(
            [{"input_ids": [1, 2, 3, 4, 5], "labels": [-100, -100, 3, -100, 5], "logprobs": [-1, -2],
              "reward": 0.5, "group_id": "g", "metadata": {"model_version": 6}},
             {"input_ids": [1, 2], "labels": [-100, -100], "logprobs": []}],
            {"input_ids": [1, 2], "labels": [1, 2], "logprobs": [], "metadata": None},
            {"input_ids": [1, 2], "labels": [-100, 2], "metadata": {"model_version": 0}})},
        ["0.jsonl"],
        [
            row(step=0, sample="0.jsonl:2", group="0.jsonl:2", mask=[1, 1], prompt=[], token=[1, 2]),
            row(step=0, sample="0.jsonl:3", group="0.jsonl:3", mask=[1], prompt=[1], token=[2], version=[0]),
            row(step=6, sample="0.jsonl:1", group="g", mask=[1, 0, 1], reward=0.5, prompt=[1, 2],
            token=[3, 4, 5], logp_mu=[-1, 0, -2], version=[6, 6, 6]),
        ],
        ["The trainer's step is not written: the weights version stands for it.",
         "This format records one version per response, even if weights changed during generation.",
         "1 of 4 sequences have no token under their mask: dropped."],
    ),
    "verl": (
        {"3.jsonl": lines(*({"input": q, "output": "a", "gts": "", "score": n, "step": 3 - n}
                            for n, q in enumerate("qqr"))),
         "4.jsonl": lines({"input": "q", "output": "b", "score": 0.5, "step": 4, "uid": "u"})},
        ["3.jsonl", "4.jsonl"],
        [row(step=step, sample=f"{at}", group=f"{step}/{name}", mask=[], reward=reward, text=text)
         for step, at, name, reward, text in (
             (1, "3.jsonl:3", "r", 2, ("r", "a")), (2, "3.jsonl:2", "q", 1, ("q", "a")),
             (3, "3.jsonl:1", "q", 0, ("q", "a")), (4, "4.jsonl:1", "u", 0.5, ("q", "b")))],
        ["Without uid, equal prompts at one step are one group."],
    ),
    "trl": (
        {"completions_00007.parquet": {
            "step": [7, 7, 8], "prompt": ["q", "q", "p"], "completion": ["a", "b", "c"],
            "exact": [1.0, 0.0, None], "form": [0.5, None, None], "name": ["x"] * 3, "right": [True] * 3,
            "advantage": [0.7, -0.7, None]}},
        ["completions_00007.parquet"],
        [
            row(step=7, sample="completions_00007.parquet, row 1", group="7/q", mask=[], reward=1.5,
                text=("q", "a"), scalar_advantage=0.7),
            row(step=7, sample="completions_00007.parquet, row 2", group="7/q", mask=[], reward=0.0,
                 text=("q", "b"), scalar_advantage=-0.7),
            row(step=8, sample="completions_00007.parquet, row 3", group="8/p", mask=[], text=("p", "c")),
        ],
        ["Groups are not logged: equal prompts at one step are one group.",
         "The reward is the sum of exact, form: reward weights are not logged."],
    ),
    "trl, messages": (
        {"completions_1.parquet": {"step": [1], "prompt": [[{"role": "user"}]],
                                   "completion": [[{"role": "bot"}]], "advantage": [0.0]}},
        ["completions_1.parquet"],
        [row(step=1, sample="completions_1.parquet, row 1", group='1/[{"role": "user"}]', mask=[],
              text=('[{"role": "user"}]', '[{"role": "bot"}]'), scalar_advantage=0.0)],
        ["Groups are not logged: equal prompts at one step are one group."],
    ),
    "areal": (
        {"rollout/3/8.jsonl": lines(*(
            {"task_id": 8, "sample_idx": n, "head_version": head, "tail_version": 3, "reward": n,
             "prompt": "q", "completion": f"a{n}"} for n, head in enumerate((3, 2)))),
         "eval-rollout/3/8.jsonl": "not read"},
        ["rollout/3/8.jsonl", "eval-rollout/3/8.jsonl"],
        [row(step=3, sample=f"8/{n}", group="3/8", mask=[], reward=n, text=("q", f"a{n}")) for n in (0, 1)],
        ["AReaL's rollout files hold texts, rewards and versions, but no log-probabilities; its step is not "
         "written: the version of the newest token stands for it.", "1 file of eval-rollout left out.",
         "1 of 2 responses are of tasks with tokens of several versions."],
    ),
    "record": (
        {"a.tokens.jsonl": lines(
            {"record": 1, "step": 1, "sample": 4, "group": "g", "source": "one", "mask": [1, 0],
             "reward": 0.5,
             "temperature": 0.7, "trainer_version": 3, "prompt": [9], "token": [1, 2], "logp_mu": [-1, None],
             "logp_pi": [-2, "-inf"], "logp_anchor": [-3, 0], "version": [2, 1], "advantage": [0.5, 1.5]}),
         "b.tokens.parquet": {"record": [1], "step": [0], "sample": ["x"], "group": ["g"], "mask": [[True]],
                              "source": ["two"]}},
        ["a.tokens.jsonl", "b.tokens.parquet"],
        [
            row(step=0, sample="x", group="two/g", mask=[1]),
            row(step=1, sample="4", group="one/g", mask=[1, 0], reward=0.5, temperature=0.7,
                trainer_version=3,
                 prompt=[9], token=[1, 2], logp_mu=[-1, None], logp_pi=[-2, -np.inf], logp_anchor=[-3, 0],
                 version=[2, 1], advantage=[0.5, 1.5]),
        ],
        ["2 runs are pooled; give the folder of one run to see that run alone."],
    ),
}  # fmt: skip
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
            path.write_text(content)


@pytest.mark.parametrize("stack", BY_HAND)
def test_a_reader_gives_exactly_what_was_written_by_hand(stack, tmp_path):
    """Every field, optional ones there and missing, and every note."""
    files, given, wanted, notes = BY_HAND[stack]
    put(tmp_path, files)
    (tmp_path / "step_4").mkdir(exist_ok=True)
    for rank in ("2", "x"):
        (tmp_path / "step_4" / f"rank_{rank}.jsonl").touch()
    name = stack.partition(",")[0]
    log = read([tmp_path / each for each in given], name)
    assert log.source == SOURCES.get(name, name)
    found = [held(one) for one in log.sequences]
    for one in found:  # NaN, which is unequal to itself, as None
        one |= {key: [None if v != v else v for v in value]
                for key, value in one.items() if isinstance(value, list)}  # fmt: skip
    assert found == wanted
    assert list(log.notes) == notes


def test_areals_evaluation_and_unknown_rows_are_refused(tmp_path):
    areal(tmp_path)
    path = tmp_path / "rollout" / "3" / "10.jsonl"
    refuses("4 sequences of the AReaL log have no log-probabilities of the samp", tensors, read([tmp_path]))
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
    ("name", "content", "message"),
    [("a.jsonl", '{"x": 1}\n', "no reader knows"),
     ("a.jsonl", '{"input": "a", "score": 1, "step": 1}\n', "nearest format is verl, without output"),
     ("a.jsonl", "", "is empty"), ("a.jsonl", "no json\n{}\n", "a.jsonl:1 is not JSON"),
     ("a.jsonl", "[1, 2]\n", "expected objects"), ("a.jsonl", '[{"a": 1}, 2]\n', "expected objects"),
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
      "known: 1 and 2"), ("x.jsonl", '{"input_ids": [1, 2], "labels": [2]}\n', "differ in length"),
     ("x.jsonl", '{"input_ids": [1], "labels": [2], "logprobs": [1, 2]}\n',
      "2 logprobs for 1 labeled tokens"),
     ("x.jsonl", '{"eid": 1, "prompt_length": 3, "tokens": [1]}\n',
      "prompt_length is 3, but there are 1 tok"),
     ("x.jsonl", '{"generation_logprobs": [1], "input_lengths": 1}\n',
      "x.jsonl:1 has no token_loss_mask.*with a newer NeMo-RL"),
     ("x.jsonl", '{"input": "a", "output": "b", "score": "good", "step": 1}\n',
      "score is good, expected a number"),
     ("x.jsonl", '{"prompt_tokens": [1], "response_tokens": [1]}\n', "has no field 'step'")],
)  # fmt: skip
def test_bad_files_get_one_message(name, content, message, tmp_path):
    (tmp_path / name).write_text(content)
    refuses(message, read, [tmp_path / name])


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
        "4 other files were not read: a.jsonl, b.jsonl, c.jsonl ….",
    )
    (tmp_path / "d.jsonl").unlink()
    assert read([tmp_path]).notes[-1] == "3 other files were not read: a.jsonl, b.jsonl, c.jsonl."
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


@pytest.mark.parametrize(
    ("held", "name", "message"),
    [(SKYRL | {"sequences": 3}, "skyrl",
      "has no tensor sequences; expected a dump of SkyRL as plain tensors."),
     (SKYRL | {"advantages": torch.ones(2, 2)}, "skyrl",
      "advantages has shape (2, 2), loss_mask (1, 2); expected"),
     (SKYRL | {"response_mask": torch.ones(1, 1)}, "skyrl",
      "response_mask has shape (1, 1), loss_mask (1, 2);"),
     (SKYRL | {"sequences": torch.ones(1, 1)}, "skyrl",
      "sequences are shorter than loss_mask; expected prompt"),
     ([1], "slime", "has neither samples nor rollout_data; expected a dump of slime or miles."),
     ({"rollout_id": 1}, "slime", "has neither samples nor rollout_data; expected a dump of slime or miles."),
     ({"rollout_data": {}}, "slime", "rollout_data has no sample_indices: its ranks cannot be told apart")],
)  # fmt: skip
def test_dumps_of_other_shapes_are_refused(held, name, message, tmp_path):
    torch.save(held, tmp_path / "a.pt")
    refuses(re.escape(message), read, [tmp_path / "a.pt"], name)


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
