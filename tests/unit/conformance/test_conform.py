"""Right ports hold in three layouts, and bugs planted in them are found; both are counted."""

import inspect
import re
from pathlib import Path
from types import ModuleType

import pytest
from mutants.mutant import plain
from support import ported_losses
from support.ported_losses import AS

from testbed.conformance.calling import LossError
from testbed.conformance.conformance_check import conform
from testbed.conformance.conformance_report import in_words, page
from testbed.conformance.nearest_entries import identify
from testbed.conformance.signature import bind
from testbed.conformance.strategies import smallest

pytest_plugins = ["testbed.conformance.pytest_plugin"]
SOURCE = inspect.getsource(ported_losses)
HELD = Path(ported_losses.__file__).with_name("porting_bugs.tsv").read_text().splitlines()
BUGS = {name: tuple(map(plain, row)) for name, *row in (line.split("\t") for line in HELD)}
"""Bugs as they happen when a loss is ported: the name of a loss, a text, and what takes its place."""
SECONDS = 20


def buggy(name: str):
    """The loss with its bug, and what it should be."""
    loss, old, new = BUGS[name]
    start = SOURCE.index(f"def {loss}(")
    after = SOURCE.find("\ndef ", start)
    text = SOURCE[start : after if after > 0 else None]
    assert text.count(old) >= 1, name
    module = ModuleType("buggy")
    exec(SOURCE[: SOURCE.index("def padded_grpo")], module.__dict__)
    helper = SOURCE[SOURCE.index("def _segments") : SOURCE.index("def packed_grpo")]
    exec(helper + text.replace(old, new, 1), module.__dict__)
    return getattr(module, loss), AS[loss]


def found_in(name: str) -> bool:
    function, wanted = buggy(name)
    try:
        return not conform(bind(function, name), **wanted, quick=True).holds
    except LossError:
        return True


@pytest.mark.slow
def test_nearly_all_of_the_planted_bugs_are_found():
    assert (len(BUGS) >= 40, len(AS) >= 20) == (True, True)
    assert {loss.partition("_")[0] for loss, _, _ in BUGS.values()} == {"padded", "packed", "lists"}
    missed = [name for name in BUGS if not found_in(name)]
    assert len(missed) <= 1, missed


@pytest.mark.slow
@pytest.mark.parametrize("name", AS)
def test_no_right_port_is_accused_and_each_takes_under_twenty_seconds(name, monkeypatch):
    """All examples for one port of every layout, the first tenth of them for the others."""
    if name not in ("padded_grpo", "packed_varlen", "lists_gmpo"):

        def fewer(strategy, holds, examples, **more):
            return smallest(strategy, holds, max(examples // 10, 1), **more)

        monkeypatch.setattr("testbed.conformance.conformance_check.smallest", fewer)
    found = conform(bind(getattr(ported_losses, name), name), **AS[name])
    assert found.holds, in_words(found.as_dict())
    assert found.seconds < 3 * SECONDS  # of a machine that others use


@pytest.mark.slow
def test_the_block_of_the_guide_runs(conforms):
    text = (Path(__file__).parents[3] / "docs" / "howto" / "conform.md").read_text()
    (block,) = re.findall(r"```python\n(def test_my_loss.*?)```", text, re.S)
    names = {"loss": ported_losses.padded_dapo}
    exec(block, names)
    names["test_my_loss"](conforms)


@pytest.mark.slow
def test_the_fixture_passes_a_right_loss_and_tells_of_a_wrong_one(conforms):
    found = conforms(ported_losses.padded_cispo, as_="cispo@open-instruct", aggregation="token_mean")
    assert found.reference.words() == "cispo@open-instruct with eps_high 0.272, aggregation token_mean"
    function, wanted = buggy("bound is eps")
    with pytest.raises(pytest.fail.Exception, match=r"(?s)FAIL  ordinary batches.*A = \+1, pi/anchor = "):
        conforms(function, **wanted, quick=True)


def test_the_first_failure_is_shrunk_and_shown_on_the_page():
    function, wanted = buggy("T - 1 for T")
    found = conform(bind(function, "mine"), **wanted)
    assert found.first is not None
    assert found.first.name == "ordinary batches"
    example = found.first.counterexample
    assert len(example.rows) == 1
    assert len(example.rows[0].tokens) == 2
    assert "expected (0.5, 0.5)" in "\n".join(example.lines())
    text = page(found.as_dict())
    assert "<td class='fails'>fails</td><td>ordinary batches</td>" in text
    assert "http" not in text


@pytest.mark.slow
def test_a_weight_that_should_be_detached_and_is_not_is_a_warning():
    def loss(logp, old_logp, advantages, mask):
        ratio = (logp - old_logp).exp()
        return -((ratio.clamp(max=1.28) * logp + (ratio - ratio.detach()) * 0) * advantages * mask).sum()

    def leaking(logp, old_logp, advantages, mask):
        weight = (logp.detach() - old_logp).exp().clamp(max=1.28)
        return -(weight * logp * advantages * mask).sum()

    found = conform(bind(leaking, "mine"), "cispo", "token_sum", hyper={"eps_low": 1.0, "eps_high": 0.28})
    assert "detached weights" in [line.name for line in found.lines if line.verdict == "warning"]
    assert found.holds
    assert not conform(bind(loss, "mine"), "cispo", "token_sum", quick=True).holds


@pytest.mark.slow
def test_split_alone_finds_a_local_denominator():
    function, wanted = buggy("local for global tokens")
    found = conform(bind(function, "mine"), **wanted)
    assert [line.name for line in found.lines if line.verdict == "fails"] == ["micro-batches and ranks"]


def test_a_weight_outside_the_mask_is_no_equality():
    function, _ = buggy("mask forgotten above")
    found = identify(bind(function, "mine"), among=("ppo_clip",))
    assert found.equals == ()
    assert "It gives weight to tokens outside the mask." in found.notes


@pytest.mark.slow
def test_words_that_are_the_formula_are_not_searched():
    function, _ = buggy("k2 for k3")
    assert conform(bind(function, "mine"), "kl_penalty", hyper={"estimator": "k2"}).holds
    assert not conform(bind(function, "mine"), "kl_penalty", quick=True).holds
