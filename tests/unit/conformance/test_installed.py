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
from testbed.conformance.peers import (
    liger_losses,
    openrlhf_losses,
    telling,
    trinity_losses,
    verl_losses,
)
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


@pytest.fixture
def stand_in(monkeypatch):
    """A function that puts a module with these values in the place of one that is absent."""

    def put(name, **values):
        for part in range(1, name.count(".") + 2):
            module = ModuleType(".".join(name.split(".")[:part]))
            monkeypatch.setitem(sys.modules, module.__name__, module)
        vars(module).update(values)
        return module

    return put


def calls(name):
    """A loss by its name, or a class by its options, that returns what it is called with."""
    return lambda *given, **named: (name, given, named)


def test_options_and_aggregations_reach_the_losses_of_packages_that_are_absent_here(stand_in):
    stand_in("trinity.algorithm.policy_loss_fn", POLICY_LOSS_FN={"ppo": lambda **options: calls(options)})
    found = trinity_losses.losses()
    told = "policy_loss_fn ppo clip_range=0.2 enable_sequence_masking=True"
    assert (len(found), [*found][1], [*found][3]) == (13, told, "policy_loss_fn opmd")
    loss, given = trinity_losses._loss("ppo", {"clip_range_low": 0.1, "on": True}), {"advantages": 3}
    given |= {"logprob": 1, "old_logprob": 2, "action_mask": 4}
    assert loss(1, 2, 3, 4) == ({"clip_range_low": 0.1, "on": True}, (), given)
    assert loss.told == {"eps_low": 0.1}
    for bound in ("epsilon", "clip_ratio", "clip_eps", "clip_range"):
        given = {f"{bound}_low": 0.1, f"{bound}_high": 0.3, "delta": 7.0, "beta": 0.5}
        assert telling(lambda: 0, given).told == {"eps_low": 0.1, "eps_high": 0.3, "delta": 7.0}
    losses = {"vanilla": lambda loss_agg_mode="a": 0, "gspo": lambda loss_agg_mode="b": 0}
    config = lambda **options: SimpleNamespace(policy_loss=SimpleNamespace(), **options)  # noqa: E731
    stand_in("verl.workers.config", ActorConfig=config)
    inside = {"agg_loss": calls("mean"), "kl_penalty": calls("kl"), "get_policy_loss_fn": calls}
    algorithms = stand_in("verl.trainer.ppo.core_algos", POLICY_LOSS_REGISTRY=losses, **inside)
    stand_in("verl.trainer.ppo", core_algos=algorithms)
    found = verl_losses.losses()
    names = "vanilla a", "gspo b", "vanilla seq-mean-token-sum-norm", "vanilla seq-mean-token-sum"
    penalties = [f"kl_penalty {name}" for name in ("kl", "abs", "mse", "low_var_kl", "k3+")]
    assert [*found] == [*(f"policy_loss {name}" for name in names), *penalties]
    name, given, more = found["policy_loss gspo b"](1, 2, 3, 4)
    assert (name, given, more["loss_agg_mode"]) == ("gspo", (2, 1, 3, 4), "b")
    assert (more["config"].clip_ratio_low, more["config"].policy_loss.dro_beta) == (3e-3, 0.1)
    assert found["policy_loss gspo b"].told == {"eps_low": 3e-3, "eps_high": 4e-3}
    per_token = ("kl", (1, 2, "abs"), {})
    assert found["kl_penalty abs"](1, 2, 3) == ("mean", (per_token, 3, "token-mean"), {})


def test_arguments_reach_the_classes_of_packages_that_are_absent_here(stand_in, monkeypatch):
    made = lambda **options: calls(options)  # noqa: E731
    stand_in("liger_kernel.chunked_loss", LigerFusedLinearGRPOLoss=made)
    found = liger_losses.losses()
    name = "LigerFusedLinearGRPOLoss loss_type={} importance_sampling_level={}".format
    told = [found[name(*w)].told for w in (("cispo", "token"), ("grpo", "token"), ("dapo", "sequence"))]
    wide, narrow = ({"eps_low": low, "eps_high": high} for low, high in ((0.2, 0.28), (3e-3, 4e-3)))
    assert (len(found), told) == (2 * 8 + 2, [{"eps_high": 5.0}, wide, narrow])
    logits = torch.zeros(2, 4, 3)
    options, given, named = found[name("dr_grpo", "token")](logits, *"loam")
    set_ = {"beta": 0.0, "use_ref_model": False, "compiled": False, "max_completion_length": 11}
    assert set_.items() <= options.items()
    assert torch.equal(given[1], torch.eye(3))
    assert (given[0] is logits, given[2:], named) == (True, tuple("lma"), {"old_per_token_logps": "o"})
    monkeypatch.setattr(openrlhf_losses, "_module", lambda: SimpleNamespace(PolicyLoss=made))
    found = openrlhf_losses.losses()
    assert found["PolicyLoss dual_clip=3"](*"poam") == ({"dual_clip": 3.0}, tuple("poam"), {})
    name = "PolicyLoss is_correction level=seq mode=mask gating=binary_kl threshold=[0.0, 0.05]"
    options, given, _ = found[name](*"poram")
    assert ("".join(given), options["is_correction_threshold"]) == ("poamr", (0.0, 0.05))
    assert (options["is_correction_level"], options["is_correction_gating"]) == ("seq", "binary_kl")
    with openrlhf_losses._without_cuda():
        assert sys.modules["flash_attn.utils"].anything.at_all
    assert "flash_attn.utils" not in sys.modules
