"""The command of the guide for one's own model, on a small one: what it trains, tells and keeps."""

import json
import re

import pytest
from support.command_line import call
from support.doc_blocks import blocks
from support.import_graph import ROOT

from envs.tokens.running_sum import RunningSum
from testbed.results.store import read

SMALL = {"device=cuda": "device=cpu", "task_args.response_length=512": "task_args.response_length=4"}
"""What a test cannot have, beside PATH."""


def command(**words):
    """Return the first command of own-model.md, with fewer and shorter steps."""
    said = blocks(ROOT / "docs" / "howto" / "own-model.md")[0].commands()[0][1:]
    assert set(SMALL) < set(said)
    said = [words.get(word, SMALL.get(word, word)) for word in said]
    sizes = f"steps=2 prompts=2 group=2 evaluation_prompts=2 log_every=1 --workers 0 --out {words['out']}"
    return said + sizes.split()


@pytest.mark.slow
def test_the_command_of_the_guide_trains_recipes_at_lags_and_tells_its_rows(tmp_path, capfd, monkeypatch):
    pytest.importorskip("peft")
    from testbed.policies.hf.tiny_model import Lesson, train_base

    model, out = tmp_path / "m", tmp_path / "out"
    train_base(
        model, RunningSum(digits=2), "llama", "bpe", width=16, layers=1, vocabulary=260, lesson=Lesson(0)
    )
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 64}))
    problems = [{"prompt": f"{a}+2=", "answer": a + 2} for a in range(12)]
    (tmp_path / "mine.jsonl").write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    monkeypatch.chdir(tmp_path)
    code, _, told = call(capfd, *command(PATH=str(model), out=str(out)))
    assert code == 0
    for recipe in ("grpo", "m2po"):
        for lag in (0, 16):
            assert f"{recipe}, lag {lag}, seed 0: step 2 of 2, reward " in told
    table = read(out)
    arms = set(zip(*(table[c].to_pylist() for c in ("recipe", "lag")), strict=True))
    assert arms == {("grpo", 0), ("grpo", 16), ("m2po", 0), ("m2po", 16)}
    assert max(table["staleness/age_max_token"].to_pylist()) == 1
    assert sum(table["verifier/errors"].to_pylist()) == 0


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_base_model_goes_through_the_guide_run_trl_and_diagnose(tmp_path, capfd, monkeypatch):
    """pretrained scratch, run --model, a short TRL run, diagnose of its log: one model folder for all."""
    trl = pytest.importorskip("trl")
    from datasets import Dataset
    from transformers import AutoTokenizer

    from testbed.adapters.trl_callback import DiagnosticsCallback

    monkeypatch.chdir(tmp_path)
    problems = [{"prompt": f"{a}+{b}=", "answer": a + b} for a in range(6) for b in range(2)]
    lines = [json.dumps(problem) + "\n" for problem in (*problems, problems[0])]
    (tmp_path / "mine.jsonl").write_text("".join(lines))

    def called(words):
        code, *told = call(capfd, *words.split())
        assert code == 0
        return told

    called("pretrained scratch base --steps 3 --width 16 --layers 1")
    tokenizer = AutoTokenizer.from_pretrained("base")
    assert (tokenizer.eos_token, tokenizer.pad_token) == ("<end>", "<pad>")
    small = "lag=0 steps=3 prompts=2 group=2 evaluation_prompts=2 log_every=1"
    said = called(f"run --model base --data mine.jsonl --verifier number --out a {small}")[1]
    assert "note: mine.jsonl#" in said
    assert "1 line repeats the prompt and answer of an earlier line" in said
    assert [f"step {step} of 3" in said for step in (1, 2, 3)] == [True] * 3  # every logged row, not some
    assert "note" not in called(f"run --model base --data mine.jsonl --dedupe --workers 0 --out b {small}")[1]

    args = trl.GRPOConfig(
        output_dir="trl", max_steps=2, per_device_train_batch_size=4, num_generations=4, use_cpu=True,
        max_completion_length=6, log_completions=True, logging_strategy="steps", logging_steps=1, bf16=False,
        report_to=[], save_strategy="no", disable_tqdm=True, gradient_checkpointing=False,
        model_init_kwargs={"dtype": "float32"},
    )  # fmt: skip
    trainer = trl.GRPOTrainer(
        model="base",
        reward_funcs=lambda completions, **_: [float(len(text)) for text in completions],
        args=args,
        train_dataset=Dataset.from_dict({"prompt": [problem["prompt"] for problem in problems]}),
    )
    trainer.add_callback(DiagnosticsCallback(trainer))
    trainer.train()
    capfd.readouterr()
    report = called("diagnose trl/completions --model base --behavior-model base --objective ppo_clip")[0]
    assert re.search(r"sequences +8\n", report)
    assert "ppo_clip" in report
    assert any("testbed/ess_sequence" in row for row in trainer.state.log_history)
