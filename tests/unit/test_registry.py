"""The registry answers mistakes with names."""

import pytest
from support.refusals import refuses

from testbed.objectives import objective
from testbed.registry import Registry


def filled() -> Registry:
    registry = Registry("objective")

    @registry("ppo_clip", source="Nobody (1900)", ratio="token")
    def ppo_clip(logp, batch, *, eps: float = 0.2):
        """L = 0."""
        return eps

    return registry


def test_a_name_taken_twice_is_refused_and_an_unknown_one_is_answered_with_the_nearest():
    refuses("already registered by test_registry", filled()("ppo_clip", source="x"), lambda: None)
    refuses("Unknown objective 'ppo_clp'. Did you mean 'ppo_clip'", filled().__getitem__, "ppo_clp")
    refuses("has no hyperparameter 'ep'. Did you mean 'eps'", filled()["ppo_clip"].bind, ep=0.1)


def test_bound_hyperparameters_reach_the_function_and_defaults_stay():
    entry = filled()["ppo_clip"]
    assert entry.bind(eps=0.5)(None, None) == 0.5
    assert entry.bind()(None, None) == 0.2
    assert entry.defaults == {"eps": 0.2}
    assert entry.formula == "L = 0."
    assert entry.promises == {"ratio": "token"}


@pytest.mark.parametrize(
    ("name", "given", "wrong"),
    [("ppo_clip", {"eps_low": -0.2}, "eps_low = -0.2, expected at least 0"),
     ("sapo", {"tau_pos": 0}, "tau_pos = 0, expected above 0"),
     ("importance_reinforce", {"cap": float("nan")}, "cap = nan, expected at least 0")],
)  # fmt: skip
def test_a_hyperparameter_out_of_range_is_refused(name, given, wrong):
    refuses(f"'{name}' has {wrong}", objective[name].bind, **given)


def test_what_may_be_negative_or_zero_is_kept():
    assert objective["holder"].bind(p=-1.0).keywords == {"p": -1.0}
    assert objective["ppo_clip"].bind(eps_low=0.0).keywords == {"eps_low": 0.0}
    assert filled()["ppo_clip"].bind(eps=-1.0)(None, None) == -1.0, "a user's function has its own rules"
