"""The script for GPUs runs on the CPU first, so that its first run on a GPU is not its first run."""

from __future__ import annotations

import pytest
import torch
from gpu import run


@pytest.mark.slow
def test_the_rehearsal_asks_everything_and_nothing_fails(tmp_path):
    assert run.rehearse(tmp_path) == 0
    text = (tmp_path / "gpu.md").read_text()
    for part in ("objective m2po", "model llama", "policy toy", "schedule in-flight", "engine top-p"):
        assert f"| {part} | 0 |" in text
    assert "tiny, LoRA 16: learn" in text
    assert "Error" not in text


def test_failures_and_what_time_does_not_reach_are_written_down():
    def fail():
        raise RuntimeError("no kernel\nsecond line")

    agreed = [
        ("a", run.attempted(fail, 1.0), 0.1),
        ("b", run.attempted(lambda: 0.5, 1.0), 0.1),
        ("c", run.attempted(lambda: 0.05, 1.0), 0.1),
        ("d", run.attempted(lambda: 0.05, 0.0), 0.1),
    ]
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
