"""The losses of installed packages are called and told; docs/conformance.md is what the command writes."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from testbed.conformance import installed
from testbed.conformance.installed import HEAD, Outcome, outcomes, page
from testbed.conformance.nearest_entries import identify
from testbed.conformance.signature import bind

PAGE = Path(__file__).parents[3] / "docs" / "conformance.md"
ROW = Outcome("trl", "1.0", "loss_type=x", "equals", "ppo_clip with eps_low 0.2")


def test_a_row_per_loss_and_a_count_per_package():
    batch, call = ("A = +1: weights (2), expected (1)",), ("logp = [[-1]]",)
    differs = Outcome("trl", "1.0", "loss_type=y", "differs", "near", batch, call)
    refused = Outcome("other", "2", "every loss", "cannot be called", "ModuleNotFoundError: x | y")
    text = page([ROW, differs, refused])
    assert "| trl | 1.0 | 2 | 1 | 1 | 0 |" in text
    assert "| other | 2 | 1 | 0 | 0 | 1 |" in text
    assert "```text\nA = +1: weights (2), expected (1)\n\nlogp = [[-1]]\n```" in text
    assert "x \\| y" in text


def test_a_package_that_is_absent_has_no_row_and_one_that_cannot_be_imported_says_why(monkeypatch):
    assert list(outcomes(["a-package-that-nobody-has"])) == []
    monkeypatch.setattr(installed, "version", lambda _: "9")
    monkeypatch.setitem(installed.PACKAGES, "broken", "no_such_peer")
    (row,) = outcomes(["broken"])
    assert (row.verdict, row.loss) == ("cannot be called", "every loss")
    assert "no_such_peer" in row.entry


@pytest.mark.slow
def test_a_difference_comes_with_the_call_that_shows_it(monkeypatch):
    def loss(logp, old_logp, advantages, mask):
        return -(torch.tanh(logp - old_logp) * advantages.abs().sqrt() * mask).sum()

    peer = SimpleNamespace(losses=lambda: {"mine": loss, "other": loss})
    monkeypatch.setattr(installed, "version", lambda _: "9")
    monkeypatch.setitem(installed.PACKAGES, "pkg", "mine")
    monkeypatch.setitem(sys.modules, "testbed.conformance.peers.mine_losses", peer)
    (row,) = outcomes(["pkg"], only="pkg mine")
    assert (row.loss, row.verdict) == ("mine", "differs")
    passed = dict(line.split(" = ") for line in row.passed)
    values = {name: torch.tensor(json.loads(text)) for name, text in passed.items()}
    leaf = values["logp"].requires_grad_()
    (gradient,) = torch.autograd.grad(loss(**values | {"logp": leaf}), leaf)
    shown = re.findall(r": weights \((.*?)\)", "\n".join(row.example))
    found = [x for text in shown for x in map(float, text.split(", "))]
    assert (-gradient)[values["mask"] > 0].tolist() == pytest.approx(found, rel=1e-4)


def test_the_committed_page_is_what_the_command_writes():
    text = PAGE.read_text()
    assert text.startswith(HEAD)
    for package in ("trl", "liger-kernel", "verl", "torchrl", "OpenRLHF", "trinity-rft"):
        assert f"\n## {package} " in text
    assert "AsyncGRPOTrainer" in text


@pytest.mark.slow
def test_losses_of_trl_are_what_they_are_called():
    pytest.importorskip("trl")
    from testbed.conformance.peers.trl_losses import losses

    expected = {
        "GRPOTrainer loss_type=bnpo importance_sampling_level=token": "ppo_clip",
        "GRPOTrainer loss_type=cispo importance_sampling_level=token": "cispo@trl",
        "GRPOTrainer loss_type=grpo importance_sampling_level=sequence": "gspo",
        "AsyncGRPOTrainer": "ppo_clip",
    }
    found = losses()
    assert len(found) >= 20
    for name, entry in expected.items():
        assert identify(bind(found[name], name)).equals[0].objective == entry, name


@pytest.mark.slow
@pytest.mark.parametrize("package", ["liger_kernel", "verl", "torchrl", "openrlhf", "trinity"])
def test_losses_of_a_peer_can_be_called_where_it_is_installed(package):
    pytest.importorskip(package)
    import importlib

    losses = importlib.import_module(f"testbed.conformance.peers.{package.partition('_')[0]}_losses").losses()
    name, function = next(iter(losses.items()))
    assert identify(bind(function, name)).equals, name
