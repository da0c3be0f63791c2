"""What every registered advantage must satisfy; a new one needs a row in reference_advantages."""

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from references.reference_advantages import PAID, ROWS, SETTINGS, Numbers, drawn
from support.refusals import refuses

from testbed.advantages import advantage
from testbed.data.signals import Signals

NAMES = sorted(advantage)
OPTIONAL = [item.name for item in fields(Signals) if item.default is None]
every_advantage = pytest.mark.parametrize("name", NAMES)


def signals_of(s: Numbers, dtype: torch.dtype = torch.float64) -> Signals:
    def real(values):
        return None if values is None else torch.tensor(values, dtype=dtype)

    mask = torch.tensor([[c == "1" for c in row] for row in s.mask])
    return Signals(
        real(s.reward), torch.tensor(s.group), mask, real(s.log_rho), real(s.value), real(s.token_reward),
        real(s.norm), real(s.sequence_norm), real(s.greedy), real(s.reference), real(s.history),
        torch.tensor(s.truncated), torch.tensor(s.parent),
        torch.tensor([[int(c) for c in row] for row in s.turn]),
    )  # fmt: skip


def call(name, signals):
    return advantage[name].function(signals)


def promised(name, promise, default=()):
    return advantage[name].promises.get(promise, default)


def reads(name):
    return {*promised(name, "needs"), *promised(name, "uses")}


def test_every_advantage_has_a_row_worked_by_hand_and_every_row_an_advantage():
    assert set(ROWS) == set(NAMES)


@every_advantage
def test_it_cites_a_source_states_its_formula_and_makes_known_promises(name):
    entry = advantage[name]
    assert entry.formula.startswith("A = ")
    assert any(c.isdigit() for c in entry.source)
    assert set(entry.promises) <= {"needs", "uses", "per_token", "scope"}
    assert entry.promises["scope"] in {"sequence", "group", "batch"}
    assert reads(name) <= set(OPTIONAL)
    assert "@" not in name or entry.base in NAMES


@every_advantage
@pytest.mark.parametrize("token_reward", [None, PAID], ids=["terminal", "per token"])
def test_its_values_are_those_worked_by_hand(name, token_reward):
    s = Numbers(token_reward=token_reward)
    found = call(name, signals_of(s))
    assert found.ndim == 1 + promised(name, "per_token", False)
    np.testing.assert_allclose(found.numpy(), [ROWS[name](s, b) for b in range(7)], rtol=1e-12, atol=1e-12)


@every_advantage
def test_drawn_responses_and_other_settings_have_the_values_worked_by_hand(name):
    if name == "tree_opo":  # its row is worked for one tree
        return
    for settings in [{}, *SETTINGS.get(name, [])]:
        for seed in range(6):
            s = drawn(seed, paid=bool(seed % 2))
            expected = [ROWS[name](s, b, **settings) for b in range(7)]
            found = advantage[name].bind(**settings)(signals_of(s))
            np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", sorted(set(NAMES) - {"tree_opo"}))
def test_every_setting_has_an_effect_beside_those_it_is_tried_with(name):
    defaults, draws = advantage[name].defaults, [signals_of(drawn(seed, bool(seed % 2))) for seed in range(6)]

    def found(settings):
        return [advantage[name].bind(**settings)(s).tolist() for s in draws]

    tried = [(key, some) for some in SETTINGS.get(name, []) for key in some]
    assert {key for key, some in tried if found(some) != found({**some, key: defaults[key]})} == set(defaults)


def moved(signals, order):
    """The same responses in another order; parents keep pointing at the same response."""
    values = {item.name: getattr(signals, item.name) for item in fields(Signals)}
    new = {k: v[order] for k, v in values.items() if v is not None and k != "history_K"}
    new["parent_B"] = torch.where(new["parent_B"] < 0, -1, order.argsort()[new["parent_B"]])
    new["group_B"] = torch.tensor([4, 6, 2])[new["group_B"]]  # nor does a group's number matter
    return replace(signals, **new)


@every_advantage
def test_the_order_of_sequences_and_the_names_of_groups_do_not_matter(name):
    signals, order = signals_of(Numbers()), torch.tensor([6, 2, 5, 0, 3, 1, 4])
    expected = call(name, signals)[order]
    torch.testing.assert_close(call(name, moved(signals, order)), expected, rtol=1e-12, atol=1e-12)


@every_advantage
def test_stacked_replicas_equal_separate_calls(name):
    first = signals_of(Numbers())
    other = replace(
        moved(first, torch.tensor([3, 2, 1, 0, 6, 5, 4])),
        reward_B=torch.tensor([0.3, 0.0, 0.9, 0.2, 1.0, 0.49, 0.1]).double(),
        group_B=torch.tensor([0, 0, 0, 3, 3, 3, 3]),
        history_K=torch.full_like(first.history_K, torch.nan),
    )
    both = {item.name: torch.stack([getattr(first, item.name), getattr(other, item.name)])
            for item in fields(Signals) if getattr(first, item.name) is not None}  # fmt: skip
    stacked = call(name, Signals(**both))
    for row, one in enumerate([first, other]):
        torch.testing.assert_close(stacked[row], call(name, one), rtol=1e-12, atol=1e-13)


@every_advantage
def test_it_computes_in_the_precision_of_the_rewards(name):
    exact = call(name, signals_of(Numbers()))
    single = call(name, signals_of(Numbers(), torch.float32))
    assert exact.dtype == torch.float64
    assert single.dtype == torch.float32
    torch.testing.assert_close(single.double(), exact, rtol=2e-5, atol=2e-5)


@every_advantage
def test_groups_of_one_and_equal_rewards_have_a_defined_outcome(name):
    signals = signals_of(Numbers())
    alone = replace(signals, group_B=torch.arange(7), parent_B=torch.full((7,), -1))
    equal = replace(signals, reward_B=torch.full((7,), 0.3).double())
    for one in (alone, equal, replace(equal, group_B=alone.group_B)):
        assert torch.isfinite(call(name, one)).all()


def test_equal_rewards_carry_no_advantage():
    names = {"group_mean", "group_std", "group_std@nemo-rl", "opo", "optimal_baseline", "group_median"}
    equal = replace(signals_of(Numbers()), reward_B=torch.full((7,), 0.5).double())
    for name in names | {"importance_mean", "tree_opo", "max_at_k@verl", "batch_std"}:
        assert call(name, equal).abs().max() < 1e-9, name


@every_advantage
def test_what_it_needs_is_named_when_missing_and_nothing_else_is_missed(name):
    signals = signals_of(Numbers())
    bare = replace(signals, **{field: None for field in OPTIONAL if field not in promised(name, "needs")})
    torch.testing.assert_close(call(name, bare), call(name, signals))
    for field in promised(name, "needs"):
        refuses(f"'{name}' needs {field}", call, name, replace(signals, **{field: None}))


def disturbed(signals, field):
    """The signals with different numbers in one field."""
    value = getattr(signals, field)
    if field == "mask_BT":
        return replace(signals, mask_BT=value & (torch.arange(5) != 3))
    if field == "truncated_B":
        return replace(signals, truncated_B=~value)
    if field == "parent_B":
        return replace(signals, parent_B=torch.full_like(value, -1))
    wave = 1.2 + 0.5 * torch.linspace(-1, 1, value.numel()).double().reshape(value.shape)
    return replace(signals, **{field: value * wave + 0.05})


@every_advantage
def test_it_reads_the_fields_it_promises_to_read_and_no_other(name):
    signals = signals_of(Numbers(token_reward=PAID))
    plain = call(name, signals)
    moves = {field for field in OPTIONAL if not torch.equal(plain, call(name, disturbed(signals, field)))}
    assert moves == reads(name)


@every_advantage
def test_tokens_outside_the_mask_do_not_matter(name):
    signals = signals_of(Numbers(token_reward=PAID))
    wider = {}
    for field in ("mask_BT", "log_rho_BT", "value_BT", "token_reward_BT", "score_norm_BT", "turn_BT"):
        value = getattr(signals, field)
        column = value[:, :1] & False if field == "mask_BT" else torch.full_like(value[:, :1], 77.0)
        wider[field] = torch.cat([value[:, :2], column, value[:, 2:], column], dim=1)
    plain, padded = call(name, signals), call(name, replace(signals, **wider))
    if promised(name, "per_token", False):
        assert (padded[~wider["mask_BT"]] == 0).all()
        plain, padded = plain[signals.mask_BT], padded[wider["mask_BT"]]
    torch.testing.assert_close(padded, plain, rtol=1e-12, atol=1e-14)


@every_advantage
def test_it_depends_on_the_rewards_of_its_scope_alone(name):
    signals = signals_of(Numbers())
    empty = replace(signals, history_K=torch.full_like(signals.history_K, torch.nan))
    far, near = False, False
    for one in (signals, empty):
        before = call(name, one)
        for changed in (0, 1):
            reward_B = one.reward_B.index_fill(0, torch.tensor(changed), 0.9)
            differs = (call(name, replace(one, reward_B=reward_B)) != before).reshape(7, -1).any(-1)
            peers = one.group_B == one.group_B[changed]
            far |= bool(differs[~peers].any())
            near |= bool(differs[peers & (torch.arange(7) != changed)].any())
    assert (far, near) == {"sequence": (False, False), "group": (False, True), "batch": (True, True)}[
        promised(name, "scope")
    ]


@pytest.mark.parametrize("name", [name for name in NAMES if "@" in name])
def test_a_variant_computes_something_else_than_its_base(name):
    signals = signals_of(Numbers())
    assert not torch.allclose(call(name, signals), call(advantage[name].base, signals), atol=1e-3)


def test_signals_of_another_shape_are_refused():
    signals = signals_of(Numbers())
    for field, value in [
        ("group_B", torch.zeros(6)), ("value_BT", torch.zeros(7, 4)), ("history_K", torch.zeros(2, 3)),
    ]:  # fmt: skip
        refuses(f"{field} has shape", replace, signals, **{field: value})
