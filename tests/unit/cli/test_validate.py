"""The command of the guide for one's own model, on a small one: what it trains, tells and keeps."""

from __future__ import annotations

import json

import pytest

from envs.tokens.running_sum import RunningSum
from testbed.cli import main
from testbed.results.store import read

COMMAND = (
    "validate --model {model} --data {data} --verifier number --recipe grpo --recipe m2po --lag 0 --lag 16 "
    "--lora --steps 2 --out {out} policy_args.micro_tokens=64 policy_args.dtype=bfloat16 "
    "task_args.response_length=4 prompts=2 group=2 evaluation_prompts=2 log_every=1"
)


@pytest.mark.slow
def test_the_command_of_the_guide_trains_recipes_at_lags_and_tells_its_rows(tmp_path, capfd):
    pytest.importorskip("peft")
    from testbed.policies.hf.tiny_model import Lesson, train_base

    model, out = tmp_path / "m", tmp_path / "out"
    train_base(
        model, RunningSum(digits=2), "llama", "bpe", width=16, layers=1, vocabulary=260, lesson=Lesson(0)
    )
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "max_position_embeddings": 64}))
    problems = [{"prompt": f"{a}+2=", "answer": a + 2} for a in range(12)]
    data = tmp_path / "mine.jsonl"
    data.write_text("".join(json.dumps(problem) + "\n" for problem in problems))
    with pytest.raises(SystemExit) as end:
        main(COMMAND.format(model=model, data=data, out=out).split())
    assert end.value.code == 0
    told = capfd.readouterr().err
    for recipe in ("grpo", "m2po"):
        for lag in (0, 16):
            assert f"{recipe}, lag {lag}, seed 0: step 2 of 2, reward " in told
    table = read(out)
    assert sorted(
        {(r, n) for r, n in zip(*(table[c].to_pylist() for c in ("recipe", "lag")), strict=True)}
    ) == [
        ("grpo", 0),
        ("grpo", 16),
        ("m2po", 0),
        ("m2po", 16),
    ]
    assert max(table["staleness/age_max_token"].to_pylist()) == 1
    assert sum(table["verifier/errors"].to_pylist()) == 0
