"""Every policy, world and schedule keeps to the interface of its package; nothing is found by name."""

import inspect
import re
import typing
from pathlib import Path
from unittest.mock import create_autospec

import pytest
import torch
from support.mismatch_setting import TABLE, toy

from testbed.mismatch.stale_cache import StaleCache
from testbed.policies.hf.hf_policy import HuggingFacePolicy
from testbed.policies.policy import Policy, Reweighted
from testbed.policies.tabular_policy import TabularPolicy
from testbed.policies.toy.toy_transformer import ToyTransformer
from testbed.staleness import schedule
from testbed.staleness.schedule_plan import SchedulePlan, Source
from testbed.worlds.loss_noise import Perturbed
from testbed.worlds.rounded import Rounded
from testbed.worlds.tabular_world import TabularRuns
from testbed.worlds.tokens import TokenRuns
from testbed.worlds.world import World

ROOT = Path(__file__).parents[2]
PACKAGES = ("policies", "worlds", "staleness", "anchors", "mismatch", "training")
IMPLEMENTATIONS = {
    Policy: (TabularPolicy, ToyTransformer, HuggingFacePolicy, Reweighted, Rounded, Perturbed, StaleCache),
    World: (TabularRuns, TokenRuns),
}


def methods(kind: type) -> dict[str, object]:
    """Return the public methods and properties of an interface."""
    return {n: m for n, m in vars(kind).items() if not n.startswith("_") and (callable(m) or is_property(m))}


def is_property(member: object) -> bool:
    return isinstance(member, property)


MAKERS = {name: typing.get_type_hints(entry.function)["return"] for name, entry in schedule.items()}
IMPLEMENTATIONS[SchedulePlan] = tuple(dict.fromkeys(MAKERS.values()))
PAIRS = [(kind, made) for kind, several in IMPLEMENTATIONS.items() for made in several]


@pytest.mark.parametrize(("kind", "made"), PAIRS, ids=[made.__name__ for _, made in PAIRS])
def test_an_implementation_has_every_method_with_the_arguments_of_the_interface(kind, made):
    assert issubclass(made, kind)
    assert not made.__abstractmethods__
    for name, method in methods(kind).items():
        found = inspect.getattr_static(made, name)
        assert is_property(found) == is_property(method), name
        if is_property(method):
            continue
        wanted, given = inspect.signature(method).parameters, inspect.signature(found).parameters
        if any(p.kind is p.VAR_POSITIONAL for p in given.values()):
            continue  # it refuses whatever it is given
        assert len(given) >= len(wanted), f"{made.__name__}.{name} takes fewer arguments"
        extra = list(given.values())[len(wanted) :]
        assert all(p.default is not p.empty for p in extra), f"{made.__name__}.{name} asks for more"
        defaults = [(p.name, p.default) for p in wanted.values() if p.default is not p.empty]
        assert [(n, given[n].default) for n, _ in defaults] == defaults, f"{made.__name__}.{name}"


@pytest.mark.parametrize("name", MAKERS)
def test_a_schedule_makes_a_plan_and_a_plan_a_source(name):
    module = inspect.getmodule(MAKERS[name])
    answer = inspect.signature(MAKERS[name].source).return_annotation
    made = getattr(module, answer)
    assert issubclass(made, Source)
    assert list(inspect.signature(made.batch).parameters) == ["self", "theta_RP", "step"]


READS_WEIGHTS = [
    name
    for name, method in methods(Policy).items()
    if callable(method) and list(inspect.signature(method).parameters)[1:2] in (["theta_RP"], ["theta_RWP"])
]


@pytest.mark.parametrize("name", READS_WEIGHTS)
def test_a_wrapped_policy_is_given_the_wrapper_s_weights_by_every_method(name):
    inside = create_autospec(Policy, instance=True)
    for mark in ("parameters", "dtype", "device"):
        setattr(inside, mark, None)

    class Shifted(Reweighted):
        def weights(self, theta_RP):
            return theta_RP + 1

    count = len(inspect.signature(getattr(Policy, name)).parameters) - 2
    theta = (
        torch.zeros(2, 3, 5)[:, 0] if "theta_RP" in str(inspect.signature(getattr(Policy, name))) else None
    )
    theta = torch.zeros(2, 3, 5) if theta is None else theta
    rest = [object() for _ in range(count)]
    answer = getattr(Shifted(inside), name)(theta, *rest)
    (given, *others), named = getattr(inside, name).call_args
    assert torch.equal(given, theta + 1)
    assert others == rest
    assert not named
    assert answer is getattr(inside, name).return_value


def test_the_methods_that_read_weights_are_known():
    assert {"logp", "sample", "sample_in_flight", "logp_in_flight", "probabilities"} <= set(READS_WEIGHTS)


@pytest.mark.parametrize("policy", [TABLE, toy()], ids=["table", "toy"])
def test_a_policy_without_change_is_its_own_full_precision(policy):
    assert policy.full_precision is policy
    assert Reweighted(policy).layout == policy.layout


UNTYPED = ("hf", "toy/simd.py")
"""Where values come from libraries without types: transformers, tokenizers, a compiler."""


@pytest.mark.parametrize("package", PACKAGES)
def test_no_signature_between_packages_says_any(package):
    folder = ROOT / "testbed" / package
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted(folder.rglob("*.py"))
        if not str(path.relative_to(folder)).startswith(UNTYPED)
        for line in path.read_text().splitlines()
        # Of an autograd function only the context has no type.
        if re.search(r"(^\s+|\()\*{0,2}(?!_?ctx)\w+: [\w\[]*\bAny\b\]?[,)]?|-> .*\bAny\b", line)
        and not re.search(r" = |Any\] =|: dict\[str, Any\]$", line)
    ]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_no_method_is_looked_up_by_name(package):
    names = r'(hasattr|getattr)\((?!ctx)[\w.\[\]0]+, "\w+"'
    found = [
        f"{path.name}: {line.strip()}"
        for path in sorted((ROOT / "testbed" / package).rglob("*.py"))
        for line in path.read_text().splitlines()
        if re.search(names, line) and "model.config" not in line
    ]
    assert found == []
