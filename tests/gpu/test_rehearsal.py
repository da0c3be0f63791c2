"""The script for GPUs runs on the CPU first, so that its first run on a GPU is not its first run."""

import sys
import types

import numpy as np
import pytest
import torch
from gpu import run
from support import tiny_models


@pytest.mark.slow
def test_the_rehearsal_asks_everything_and_nothing_fails(tmp_path):
    assert run.rehearse(tmp_path) == 0
    text = (tmp_path / "gpu.md").read_text()
    ways = ("model llama", "model llama, bfloat16", "model llama, LoRA", "policy toy", "policy toy, twice")
    for part in ("objective m2po", *ways, "schedule in-flight", "engine top-p"):
        assert f"| {part} | 0 |" in text
    assert "tiny, LoRA 16: learn" in text
    assert "| toy LLM x 32: steps of all |" in text
    errors = [line for line in text.splitlines() if "Error" in line]
    assert all("No module named 'liger_kernel'" in line or "No module named 'trl'" in line for line in errors)
    assert len(errors) <= 2


@pytest.mark.slow
def test_what_peers_compute_is_what_is_learned_here(tmp_path, monkeypatch):
    """The stand-in for Liger takes the same features, head and tokens, and answers by full logits."""

    class Chunked:
        @staticmethod
        def apply(hidden, weight, token, bias, temperature, chunk):
            logits = torch.nn.functional.linear(hidden, weight, bias).float() / temperature
            return logits.log_softmax(-1).gather(1, token[:, None])[:, 0]

    inside = types.SimpleNamespace(_ChunkedSelectiveLogProbFunction=Chunked)
    chunked = types.SimpleNamespace(fused_linear_ppo=inside)
    monkeypatch.setitem(sys.modules, "liger_kernel", types.SimpleNamespace(chunked_loss=chunked))
    monkeypatch.setitem(sys.modules, "liger_kernel.chunked_loss", chunked)
    folder = tiny_models.write_model(tmp_path / "m", tiny_models.CONFIGS["qwen3, tied"]())
    task = run.Tokens(tiny_models.ROWS, 4, 5)
    policy = run.HuggingFacePolicy(folder, task)
    rng = np.random.default_rng(0)
    prompt_RNQ, token_RBT = (torch.as_tensor(rng.integers(0, 16, (1, n, k))) for n, k in ((2, 4), (6, 5)))
    theta_RP = policy.initial([0])
    own_RBT = policy.logp(theta_RP, prompt_RNQ, token_RBT, torch.ones_like(token_RBT, dtype=torch.bool))
    pytest.importorskip("trl")
    for peer in run.PEERS.values():
        found = peer(policy._model, theta_RP[0], prompt_RNQ[0], token_RBT[0], 3).view(own_RBT.shape)
        torch.testing.assert_close(found, own_RBT, rtol=0, atol=1e-4)


def test_after_a_kill_only_what_was_not_answered_is_asked(tmp_path, monkeypatch):
    def killed():
        raise KeyboardInterrupt

    asked = []
    for ends in (killed, lambda: asked.append("b") or 0.5):
        questions = [("a", lambda: asked.append("a") or 0.25, 1.0), ("b", ends, 1.0)]
        monkeypatch.setattr(run, "checks", lambda *_, questions=questions: questions)
        monkeypatch.setattr(run, "measures", lambda *_: [("c", lambda: (3.0, 0))])
        if ends is killed:
            with pytest.raises(KeyboardInterrupt):
                run.rehearse(tmp_path)
            with (tmp_path / "gpu.jsonl").open("a") as file:
                file.write('["check", "b", 0.')  # half a line
        else:
            assert run.rehearse(tmp_path) == 0
    assert asked == ["a", "b"]
    text = (tmp_path / "gpu.md").read_text()
    assert "| a | 0.25 | 1 |" in text
    assert "| b | 0.5 | 1 |" in text
    assert "| c | 3 | 0.00 GiB |" in text
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.md"]


def test_failures_and_what_time_does_not_reach_are_written_down():
    def fail():
        raise RuntimeError("no kernel\nsecond line")

    agreed = [
        ("a", run.attempted(fail, 1.0), 0.1), ("b", run.attempted(lambda: 0.5, 1.0), 0.1),
        ("c", run.attempted(lambda: 0.05, 1.0), 0.1), ("d", run.attempted(lambda: 0.05, 0.0), 0.1),
    ]  # fmt: skip
    text = run.page("cpu", agreed, [("e", (10.0, 2**30)), ("f", run.attempted(fail, 1.0))], 3.0)
    assert "agree in 1 of 4 checks" in text
    assert "| a | RuntimeError: no kernel | 0.1 | fails |" in text
    assert "| b | 0.5 | 0.1 | fails |" in text
    assert "| d | not reached | 0.1 | fails |" in text
    assert "| e | 10 | 1.00 GiB |" in text
    assert "| f | RuntimeError: no kernel | |" in text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_script_says_so(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["run.py"])
    assert run.main() == 2
    assert "no CUDA device" in capsys.readouterr().err
