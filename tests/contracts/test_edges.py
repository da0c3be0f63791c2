"""Values at the ends of ranges, by hand: ties, zeros, states without mass, nothing at all."""

import io
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
import torch
from support.command_line import told
from support.fixtures import batch_of
from support.refusals import refuses
from support.small_runs import SMALL

from analysis.experiment import Stop
from analysis.judging import gates, replication, seed_intervals, seed_power, verdicts
from analysis.kernels import constrained, proxy_optimization
from envs import divergence, dynamic_programs
from envs.logged_bandit import bandit
from envs.mdps import garnet
from testbed.adapters import adapted
from testbed.advantages.grouped import asymre
from testbed.cli import run_sweep, show_command
from testbed.config.toml_file import _misplaced
from testbed.data.signals import Signals
from testbed.estimators import intervals
from testbed.estimators.trajectory_weights import LoggedEpisodes
from testbed.exact import fixed_points, flows, gradient_report, group
from testbed.execution.progress import Plain
from testbed.logs import clip_report, files, readers, sanity_checks
from testbed.logs.record import RECORD
from testbed.losses.aggregate import aggregate
from testbed.objectives import outside
from testbed.objectives.clipped import bapo, dppo
from testbed.objectives.mixture.remix import kl_convex_weight
from testbed.objectives.preference import p3o
from testbed.objectives.reinforce.topr import tapered
from testbed.policies.hf import chat_task, growing_cache, hf_policy
from testbed.policies.hf.causal_model import CausalModel
from testbed.policies.hf.chunked_logp import head_logits
from testbed.policies.hf.flat_parameters import FlatParameters
from testbed.policies.policy import Policy
from testbed.policies.toy import layers, products
from testbed.recipes import recipe
from testbed.recipes.stack_composition import compose
from testbed.results.atomic_files import record
from testbed.staleness.offline import offline
from testbed.staleness.storage import readable
from testbed.worlds import build_world, generation

WORLD = garnet(states=3, actions=2, branching=2, discount=0.9, seed=1)
ARMS, FIRST = bandit(arms=2), np.array([[[1.0, 0.0]]])
ONE = torch.ones(1, 1, dtype=torch.bfloat16)
HALF, MOST = np.full((3, 2), 0.5), np.tile([0.9, 0.1], (3, 1))


def of(adv, ratios, **fields):
    """Return log pi and a batch of one sequence."""
    logp, batch = batch_of([(adv, ratios)])
    return logp, replace(batch, **fields)


def tied_taper():
    """A = threshold is tapered, as A below it is; one above keeps weight 1."""
    found = []
    for adv in (0.5, 0.6):
        logp, batch = of(adv, (3.0,))
        logp.requires_grad_(True)
        loss = tapered(logp, batch, level="token", low=0.0, high=2.0, threshold=0.5)
        found.append(-torch.autograd.grad(loss.sum(), logp)[0].item() / adv)
    return found


def kept_without_advantage():
    """A = 0 is held to the lower limit alone."""
    logp, batch = of(0.0, (0.25, 4.0), logp_mu_BT=torch.tensor([[0.8, 0.2]]).log())
    logp = torch.tensor([[0.2, 0.8]]).log()
    return dppo.within_total_variation(logp, batch)[0].tolist()


def unreached_state():
    """A state without mass gets the first allowed action, here the second of two."""
    moves = np.zeros((2, 2, 2))
    moves[..., 0] = 1.0
    allowed = np.array([[True, True], [False, True]])
    zero, start = np.zeros((2, 2)), np.array([1.0, 0.0])
    return constrained.constrained_optimum(moves, zero, zero, start, 0.5, 1.0, allowed)[0][1].tolist()


def weights_of_remix():
    """The penalties to the base and to the last policy share one coefficient."""
    first, second = recipe["remix"].function(coefficient=2.0).hand_over.recipe.terms
    return [each.coefficient(70, 100) for each in (first, second)]


def lone_asymre():
    return asymre(Signals(reward_B=torch.tensor([3.0]), group_B=torch.tensor([0])), shift=-0.25)


def lone_pair():
    logp, batch = of(1.0, (1.5,))
    return p3o._joint(logp.sum(-1), batch, 0.2)[0]


def unused_passes():
    return compose("verl", ["ppo_epochs=3"]).unused


def added_row():
    """y += w x has the rows beyond a multiple of four."""
    y = np.ones((5, 32), np.float32)
    products.product(y, np.ones((5, 2), np.float32), np.ones((2, 32), np.float32), True)
    return y[:, 0].tolist()


def off_support():
    """At order 1 an action that mu lacks adds nothing."""
    return divergence.log_moment(ARMS.transition_SAS, ARMS.tables, HALF[None, :1], FIRST, 1.0)


def moment_of_coordinates():
    """One token, of pi = 1/4: both coordinates of its score are 3/4 in size."""
    leaves = SimpleNamespace(mask_LT=np.array([[True]]), state_LT=[[0]], action_LT=[[0]])
    bench = SimpleNamespace(leaves=leaves, pi_SA=np.array([[0.25, 0.75]]), law_L=np.ones(1))
    return gradient_report._coordinate_moment(bench, np.array([[2.0]]))[0].tolist()


def limits_of_dppo():
    """pi - mu = 0.2 is within 0.3, the limit above, and not within 0.05, the one below."""
    _, batch = of(1.0, (1.4,), logp_mu_BT=torch.tensor([[0.5]]).log())
    logp = torch.tensor([[0.7]]).log().requires_grad_(True)
    loss = dppo.dppo_tv(logp, batch, d_low=0.05, d_high=0.3)
    return (-torch.autograd.grad(loss.sum(), logp)[0][0]).tolist()


def rounded_attention():
    none, one = torch.zeros(1, 1, 1), torch.ones(1, 1, 1)
    layer = SimpleNamespace(rounding=torch.round, out=one, up=none, down=none)
    return layers.finish_block(one, 0.4 * one, layer)[0, 0].tolist()


def log_of(cut):
    notes = []
    return files._across_lines(Path("x"), cut, notes) + notes


def kept_without_tokens():
    none = SimpleNamespace(
        mask_N=torch.tensor([False]), log_pi_N=torch.zeros(1), log_mu_N=None, log_anchor_N=None, adv_N=None,
        total=lambda x_N: x_N[None].sum(-1),
    )  # fmt: skip
    return clip_report._finite(none)


def weight_after_two_others():
    module = torch.nn.Linear(1, 1, bias=False)
    module.weight.data[:] = 3.0
    model = SimpleNamespace(module=module, _bound=None, _own={}, _linear=frozenset(), _swapped={})
    for value in (1.0, 2.0):
        CausalModel.bind(model, {"weight": torch.tensor([[value]])}, 1)
    CausalModel.unbind(model)
    return module.weight.item()


def of_logarithms():
    table = pd.DataFrame({"arm": ["a", "b"], "seed": [0, 0], "x": [math.e, 1.0]})
    return replication.difference(table, "x", {"arm": "a"}, {"arm": "b"}, log=True)[""].tolist()


def half_of_the_batch():
    """Two sequences of a batch of four, one of them without tokens."""
    mask = torch.tensor([[True, True], [False, False]])
    whole = aggregate(torch.ones(2, 2), mask, "sequence_mean", 0.0)
    return (adapted.rescaled(torch.ones(2, 2), mask, "sequence_mean", 0.0, 4) / whole).item()


def laws_of_two_prompts():
    """Pairs of responses to one prompt, each prompt as likely as the other."""
    leaves = SimpleNamespace(prompt_L=[0, 0, 1, 1])
    bench = SimpleNamespace(leaves=leaves, law_L=np.array([0.1, 0.4, 0.25, 0.25]))
    return group.batches(bench, 2)[1].tolist()


def features_as_logits():
    model = SimpleNamespace(task=SimpleNamespace(vocabulary=2), _wide=torch.float32, _scale=1.01)
    feature_NH = torch.ones(1, 3, dtype=torch.bfloat16)
    return hf_policy.HuggingFacePolicy._logits(model, feature_NH, SimpleNamespace(weight_VH=None))[0]


def times_of_entropy():
    """Without a number of points there are 4,001 times."""
    path = lambda _, __, time_T: SimpleNamespace(time_T=[len(time_T)], entropy_T=[0])  # noqa: E731
    with patch.object(flows, "flow", path):
        return flows.lowest_entropy(None, None, 1.0)[0]


def nearest_by_share():
    """One of two fields is nearer than two of six."""
    both = {"long": SimpleNamespace(keys="abcdef"), "short": SimpleNamespace(keys="az")}
    with patch.object(readers, "readers", lambda: both):
        return readers._nearest({"a": 1, "b": 1})


def rates_without_cells():
    with patch.object(gates, "EXPERIMENTS", {"computed": SimpleNamespace(cells=None)}):
        return len(gates.rates_of.__wrapped__("computed"))


EDGES = {
    "the nearest format": (nearest_by_share, "The nearest format is short, without z. "),
    "times of an entropy": (times_of_entropy, 4001),
    "a batch has one prompt": (laws_of_two_prompts, [0.02, 0.16, 0.32, 0.125, 0.25, 0.125]),
    "an experiment without cells has no rates": (rates_without_cells, 0),
    "no truncation where mu has no mass": (
        lambda: fixed_points.vtrace_policy(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]]), math.inf)[0],
        [1.0, 0.0],
    ),
    "a log that is cut in its first object": (lambda: log_of('{"a": '), []),
    "a sequence without tokens": (kept_without_tokens, [False]),
    "weights are bound twice": (weight_after_two_others, 3.0),
    "logarithms": (of_logarithms, [1.0]),
    "the largest cap": (lambda: seed_power.bet_seeds(1.0, Stop(256, 256)), 256),
    "sequences of the whole batch": (half_of_the_batch, 0.5),
    "logits are scaled in float32": (lambda: head_logits(ONE, ONE, None, 1.01)[0], [1.01]),
    "features that are logits are scaled in float32": (features_as_logits, [1.01, 1.01]),
    "a statistic covers just the level": (lambda: seed_intervals._order_statistic(5, 0.625), (2, 0.625)),
    "terms at their bounds": (lambda: intervals._bounded([0.0, 1.0], 0.0, 1.0).tolist(), [0.0, 1.0]),
    "a group of one has no pair": (lone_pair, [0.0]),
    "taper at the threshold": (tied_taper, [2.0, 1.0]),
    "no advantage": (kept_without_advantage, [False, True]),
    "unreached state": (unreached_state, [0.0, 1.0]),
    "remix": (weights_of_remix, [2 * kl_convex_weight(70), 2 - 2 * kl_convex_weight(70)]),
    "group of one": (lone_asymre, [0.25]),
    "passes are read": (unused_passes, ()),
    "KL(mu, pi)": (lambda: dynamic_programs._row_log_moments(HALF[None], HALF[None] * [0.4, 1.6], 0, 0)[1],
                   0.2 * math.log(0.4) + 0.8 * math.log(1.6)),
    "KL of a table to another": (lambda: proxy_optimization.distance(WORLD, MOST, HALF, "action KL"),
                                 0.9 * math.log(1.8) + 0.1 * math.log(0.2)),
    "off the support": (off_support, [math.log(0.5)]),
    "moment of two actions": (moment_of_coordinates, 2 * [2 * 0.75**2]),
    "steps that rounding cuts": (lambda: bapo._steps(0.0, 0.3, 0.1), [0.0, 0.1, 0.2, 0.3]),
    "limits of either side": (limits_of_dppo, [1.4]),
    "a whole unit": (lambda: readable(1024), "1 KiB"),
    "a large count": (lambda: verdicts._text(1234567), "1.2346e+06"),
    "a last row is added": (added_row, 5 * [3.0]),
    "attention is rounded": (rounded_attention, [1.0]),
}  # fmt: skip


@pytest.mark.parametrize("name", EDGES)
def test_a_value_at_an_end_is_that_by_hand(name):
    call, wanted = EDGES[name]
    found = call()
    found = found.tolist() if isinstance(found, torch.Tensor) else found
    assert found == (wanted if isinstance(wanted, str) else pytest.approx(wanted))


def test_the_token_with_number_zero_can_end_a_response(tmp_path):
    (tmp_path / "config.json").write_text('{"eos_token_id": 0}')
    assert chat_task.end_tokens(tmp_path) == [0]


def test_facts_that_are_false_or_zero_are_shown(capsys):
    show_command._print_facts({"free": False, "bias": 0.0, "source": "", "needs": ()})
    assert capsys.readouterr().out.split() == ["free", "False", "bias", "0.0"]


def test_the_short_option_helps(capsys):
    assert "Usage:" in told(capsys, "-h")


def test_tokens_are_recorded_while_a_sweep_runs_and_no_longer(tmp_path, monkeypatch):
    for before in (None, "elsewhere"):
        monkeypatch.delenv(RECORD, raising=False)
        if before:
            monkeypatch.setenv(RECORD, before)
        with run_sweep.recording(tmp_path, True):
            assert Path(os.environ[RECORD]).name == "tokens"
        assert os.environ.get(RECORD) == before


def test_a_loss_is_asked_for_its_gradient_once_gradients_are_on():
    logp, batch = of(1.0, (1.0, 2.0))
    call = outside.checked(lambda logp_BT, batch: torch.zeros_like(logp_BT), "mine.py")
    with torch.no_grad():
        call(logp.requires_grad_(True), batch)
    refuses("does not depend on logp_BT", call, logp, batch)


def test_a_policy_without_changing_weights_says_so():
    told = []
    Policy.sample_in_flight(SimpleNamespace(_lacks=told.append), *[None] * 5)
    assert told == ["a sampler whose weights change inside a response"]


def test_a_model_is_tried_without_ranks_or_engine(monkeypatch):
    given = []
    monkeypatch.setattr(hf_policy, "HuggingFacePolicy", lambda *_, **named: given.append(named))
    monkeypatch.setattr(build_world, "task_for_model", lambda *_: None)
    monkeypatch.setattr(build_world, "token_task", lambda _: None)
    build_world._try(SMALL, {"ranks": 2, "engine": "x", "dtype": "float32"})
    assert given == [{"dtype": "float32"}]


def test_a_worker_ends_when_nobody_gives_orders_any_more():
    code = "import sys; from testbed.execution import worker; next(worker._inbox(sys.stdin.buffer))"
    assert subprocess.run([sys.executable, "-c", code], input=b"", timeout=60, check=False).returncode == 0


def test_a_misspelt_table_is_told_with_the_table_that_was_meant():
    assert "Did you mean 'grid'" in dict(_misplaced({"grdi": {}}))["grdi"]


def test_the_trainer_is_noted_for_a_snapshot_alone(monkeypatch):
    monkeypatch.setattr(generation, "around_frozen", lambda *_: (None, None))
    monkeypatch.setattr(generation.Generation, "sliced", lambda *_: None)
    made = [
        generation.Generation((replace(SMALL, anchor=name),), None)
        for name in ("recipe", "current", "snapshot")
    ]
    assert [each.notes_trainer for each in made] == [False, False, True]


def test_an_action_one_beyond_the_table_is_refused():
    episodes = SimpleNamespace(action_NT=[[2]], pi_SA=np.ones((1, 2)), mask_NT=None)
    refuses("action_NT runs from 2 to 2, expected 0 to 1", LoggedEpisodes._indices, episodes, "action_NT")
    below = SimpleNamespace(pi_SA=[[1.5, -0.5]])  # sums to 1
    refuses("is not a table of action probabilities", LoggedEpisodes._laws, below, "pi_SA")


def test_an_infinite_log_probability_is_not_one_of_probability_zero(monkeypatch):
    monkeypatch.setattr(sanity_checks, "_under_mask", lambda *_: np.array([np.inf, -1.0]))
    assert sanity_checks._missing(None) == []


def test_a_log_of_tensors_has_either_ending(tmp_path):
    for ending in ("pt", "pth"):
        torch.save({"step": 3}, tmp_path / f"x.{ending}")
        assert readers._first(tmp_path / f"x.{ending}") == {"step": 3}


def test_the_first_line_of_a_plain_display_does_not_wait():
    shown = Plain(out := io.StringIO())
    shown.planned = 3
    shown.show()
    shown.show()
    assert out.getvalue().count("\n") == 1


def test_weights_of_more_parameters_than_the_model_has_are_refused():
    model = SimpleNamespace(total=3, sizes=[3], names=["w"], shapes=[(3,)])
    for size in (2, 4):
        with pytest.raises(ValueError, match="the model has 3 parameters"):
            FlatParameters.views(model, torch.zeros(size))


def test_every_part_of_a_batch_is_scored_at_its_own_tokens(monkeypatch):
    logits, token = torch.arange(12.0).reshape(4, 3).cos(), torch.tensor([0, 2, 1, 1])
    model = SimpleNamespace(task=SimpleNamespace(vocabulary=3), device=None, _logits=lambda part, _: part)
    monkeypatch.setattr(hf_policy, "chunk_rows", lambda *_: 2)
    found = hf_policy.HuggingFacePolicy._score_norm_rows(model, logits, None, token)
    torch.testing.assert_close(found, hf_policy.logits_score_norm(logits, token))


def test_greedy_answers_never_ask_an_outside_engine(monkeypatch):
    monkeypatch.setattr(hf_policy, "ended_by", lambda _: None)
    given = [torch.zeros(1, 1, 1)] * 3
    model = SimpleNamespace(
        engine="x", device="cpu", task=None, _stack=bool, _order=lambda *_: None, _write=lambda *_: given
    )
    zeros = torch.zeros(1, 1, 1)
    drawn = hf_policy.HuggingFacePolicy.sample(model, torch.ones(1, 1), zeros, 1, zeros, greedy=True)
    assert all(torch.equal(each, zeros) for each in drawn)


def test_rows_of_seeds_keep_the_name_of_their_function_and_what_is_said_about_them():
    with patch.object(replication, "repeated", lambda *_: pd.DataFrame({"x": [1]})):
        made = replication.of_seeds("x", lone_asymre, 64, about={"a": 1})
        assert (made.__name__, made().about) == ("lone_asymre", {"a": 1})


def test_a_cache_does_not_shrink_and_a_class_has_no_weights():
    assert growing_cache._widened(torch.ones(1, 1, 3, 2), 2).shape[-2] == 3
    assert LoggedEpisodes.log_rho_NT is None


def test_a_list_is_no_record_and_no_age_of_offline_data_is_shortest(tmp_path):
    (tmp_path / "x.json").write_text("[1]")
    assert record(tmp_path / "x.json") == {}
    assert offline(0).shortest == math.inf
