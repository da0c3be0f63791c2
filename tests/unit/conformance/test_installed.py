"""The losses of installed packages are called and told; docs/conformance.md is what the command writes."""

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch

from testbed.conformance import installed
from testbed.conformance.batches import Row, Token
from testbed.conformance.calling import LossError
from testbed.conformance.catalogue_entry import Reference
from testbed.conformance.counterexample import Counterexample
from testbed.conformance.installed import HEAD, Outcome, outcomes, page
from testbed.conformance.nearest_entries import identify
from testbed.conformance.peers import telling, trinity_losses, verl_losses
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


def test_what_is_found_of_a_loss_is_its_row(monkeypatch):
    def loss(logp, adv):
        return -(logp * adv).sum()

    def told(**found):
        monkeypatch.setattr(installed, "identify", lambda _: SimpleNamespace(**found))
        return installed._one("pkg", "9", "mine", loss)

    one, twice = (Reference("ppo_clip", factor=factor) for factor in (1.0, 2.0))
    same = [replace(one, objective=name) for name in ("dual_clip", "reinforce", "dual_clip", "ppo_clip")]
    row = told(equals=(one, *same, replace(twice, objective="gspo")))
    assert row == Outcome("pkg", "9", "mine", "equals", one.words(), also=("dual_clip", "reinforce"))
    near = SimpleNamespace(fit=SimpleNamespace(agree=0.25, reference=one), counterexample=None)
    share = f"25.0% of tokens agree with {one.words()}"
    for leaks in (False, True):
        row = told(equals=(), nearest=(near,), evidence=SimpleNamespace(leaks=leaks), binding=None)
        entry = share + "; tokens outside the mask have weights" * leaks
        assert row == Outcome("pkg", "9", "mine", "differs", entry)
    near.counterexample = Counterexample((Row((Token(),), 0.5),), ((0.5,),), ((1.0,),))
    binding = bind(loss, "mine")
    row = told(equals=(), nearest=(near,), evidence=SimpleNamespace(leaks=False), binding=binding)
    assert row.example == ("A = +0.5, pi/anchor = (1): weights (0.5), expected (1)",)
    assert row.passed == ("logp = [[-0.125]]", "adv = [[0.5]]")

    def fails(_):
        raise LossError("raises", "mine raised KeyError: 'x'. It was passed logp.")

    monkeypatch.setattr(installed, "identify", fails)
    assert installed._one("pkg", "9", "mine", loss).entry == "raised KeyError: 'x'."


def test_options_and_aggregations_reach_the_losses_of_packages_that_are_absent_here(monkeypatch):
    def stand_in(name, **values):
        for part in range(1, name.count(".") + 2):
            module = ModuleType(".".join(name.split(".")[:part]))
            monkeypatch.setitem(sys.modules, module.__name__, module)
        vars(module).update(values)

    seen = []
    registry = {"ppo": lambda **options: lambda **given: (options, given)}
    stand_in("trinity.algorithm.policy_loss_fn", POLICY_LOSS_FN=registry)
    found = trinity_losses._loss("ppo", {"clip_range_low": 0.1, "enable": True})
    assert found(1, 2, 3, 4) == (
        {"clip_range_low": 0.1, "enable": True},
        {"logprob": 1, "old_logprob": 2, "advantages": 3, "action_mask": 4})  # fmt: skip
    assert found.told == {"eps_low": 0.1}
    for bound in ("epsilon", "clip_ratio", "clip_eps", "clip_range"):
        given = {f"{bound}_low": 0.1, f"{bound}_high": 0.3, "delta": 7.0, "beta": 0.5}
        assert telling(lambda: 0, given).told == {"eps_low": 0.1, "eps_high": 0.3, "delta": 7.0}
    stand_in("verl.trainer.ppo.core_algos", agg_loss=lambda *given: seen.append(given) or 7,
             kl_penalty=lambda *given: given)  # fmt: skip
    assert verl_losses._penalty("abs")(1, 2, 3) == 7
    assert seen == [((1, 2, "abs"), 3, "token-mean")]
