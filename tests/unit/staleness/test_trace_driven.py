"""A trace drives the learner: groups have its ages, steps its times, and nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support.refusals import refuses
from support.small_runs import cell_rows, differing

from testbed.config.run import Run, cell_id, grid
from testbed.errors import UserError
from testbed.execution.preflight import check_arguments
from testbed.pipeline import trace
from testbed.pipeline.design import Design, from_words, to_words
from testbed.staleness import build_source, plan_for
from testbed.staleness.trace_driven import fewest_slices, pin_trace
from testbed.training.loop import train, train_pack
from testbed.worlds.build_world import build_world

BANDIT = Run(task="bandit", prompts=4, group=2, steps=9, log_every=1, learning_rate=0.5)
TREE = replace(BANDIT, task="tree", learning_rate=8.0)
TOY = replace(
    BANDIT, task="running-sum", task_args=(("digits", 2), ("modulus", 2)), policy="toy",
    policy_args=(("heads", 2), ("layers", 1), ("width", 8)),
)  # fmt: skip
PIPE = "slots=24 batch=16 group=4 train_time=18 length_mean=200 sigma=1"


def rows(ages_TN, members=2, first=0, spread=0):
    """A trace whose update t trains groups of these ages, the first member `spread` updates younger."""
    column = {name: [] for name in trace.COLUMNS}
    for t, age_N in enumerate(ages_TN):
        for n, age in enumerate(age_N):
            for member in range(members):
                start = first + t - age + (spread if member == 0 else 0)
                row = (t, t * len(age_N) + n, member, 5, start, start, first + t, 10.0 * t + n)
                for name, value in zip(trace.COLUMNS, row, strict=True):
                    column[name].append(value)
    return trace.Trace({name: np.array(values) for name, values in column.items()})


def follow(run, tmp_path, recorded, name="lags.parquet"):
    """The run under a trace that is written to a file."""
    trace.write(recorded, tmp_path / name)
    return replace(run, lag=0, staleness="trace", staleness_args=(("file", str(tmp_path / name)),))


def simulate(run, design=PIPE, **arguments):
    arguments = (("design", design), *arguments.items())
    return replace(run, staleness="pipeline", staleness_args=arguments)


def assert_same_bits(one, other):
    one, other = train(one), train(other)
    assert set(one) ^ set(other) <= {"pipeline/time"}
    assert differing(one, other, shared=True) == []


@pytest.mark.parametrize("run", [BANDIT, TREE, TOY], ids=["bandit", "tree", "toy"])
@pytest.mark.parametrize("lag", [pytest.param(0, marks=pytest.mark.slow), 3])
def test_a_trace_of_constant_lag_trains_the_bits_of_exactly_that_lag(run, lag, tmp_path):
    recorded = rows(np.full((9, 4), lag), first=lag)
    assert_same_bits(follow(run, tmp_path, recorded), replace(run, lag=lag))


def test_a_trace_that_warms_up_from_its_start_trains_the_bits_of_exact_lag_too(tmp_path):
    warm = np.minimum(np.arange(9), 3)[:, None].repeat(4, 1)
    assert_same_bits(follow(TREE, tmp_path, rows(warm)), replace(TREE, lag=3))


@pytest.mark.slow
@pytest.mark.parametrize("run", [TREE, TOY], ids=["tree", "toy"])
@pytest.mark.parametrize("design", ["", " updates=2 sync_every=2"], ids=["one update", "two updates"])
def test_a_simulated_pipeline_trains_the_bits_of_the_trace_that_it_writes(run, design, tmp_path):
    design = PIPE + design
    made = from_words(design.split())
    run = replace(run, prompts=made.batch // made.group // made.updates)
    recorded = trace.record(made, 9, seed=5)
    written, direct = train(follow(run, tmp_path, recorded)), train(simulate(run, design, seed=5))
    assert (differing(written, direct), written.keys()) == ([], direct.keys())
    other = train(simulate(run, design, seed=6))
    assert not np.array_equal(other["pipeline/time"], direct["pipeline/time"])


def test_what_a_trace_holds_beyond_the_last_step_changes_no_bit(tmp_path):
    later = rows([*np.zeros((9, 4), int), [7, 6, 5, 4]], first=7)
    assert_same_bits(follow(TOY, tmp_path, EVEN), follow(TOY, tmp_path, later, "later.csv"))


def test_a_synchronous_pipeline_trains_the_bits_of_lag_0():
    whole = f"{PIPE} admission=capacity eta=0 barrier=true pools=colocated"
    assert_same_bits(simulate(TOY, whole), TOY)


def test_a_one_step_off_pipeline_trains_the_bits_of_lag_1():
    ahead = f"{PIPE} admission=capacity eta=1 barrier=true queue=2"
    assert_same_bits(simulate(TOY, ahead), replace(TOY, lag=1))


def test_a_cell_has_the_same_bits_whatever_it_is_stacked_with():
    runs = grid(simulate(TREE), recipe=["grpo", "reinforce"], seed=[0, 1])
    together = train_pack(runs)
    for number, run in enumerate(runs):
        assert differing(train(run), cell_rows(together, number, len(runs))) == []


def test_ages_are_those_of_the_oldest_member_counted_row_by_row():
    recorded = trace.record(Design(slots=64, batch=32, group=4, train_time=9, updates=2, sigma=1.0), 40, 2)
    found = trace.lags(recorded, "t")
    expected = {}
    c = recorded.column_B
    for k in range(len(recorded)):
        age = int(c["version_trained"][k] - c["version_start"][k])
        groups = expected.setdefault(int(c["version_trained"][k]), {})
        groups[int(c["group"][k])] = max(age, groups.get(int(c["group"][k]), 0))
    assert found.age_TN.tolist() == [list(expected[t].values()) for t in sorted(expected)]
    assert found.age_TN.shape == (80, 4)
    assert found.age_TN.max() > found.age_TN.min()


def test_times_are_when_an_update_took_its_last_sample():
    found = trace.lags(rows(np.zeros((3, 4), int)), "t")
    assert found.time_T.tolist() == [3.0, 13.0, 23.0]


@pytest.mark.parametrize("run", [TREE, TOY], ids=["tree", "toy"])
def test_every_prompt_is_answered_by_the_weights_of_its_groups_age(run, tmp_path):
    age_TN = np.array([[0, 0, 0, 0], [1, 0, 1, 0], [2, 1, 0, 2], [0, 3, 1, 1], [4, 0, 2, 2]])
    cell = replace(follow(run, tmp_path, rows(age_TN)), steps=5)
    world = build_world((cell,))
    theta = world.initial()
    source = build_source((cell,), world, theta)
    generator = torch.Generator().manual_seed(0)
    past = []
    for step in range(5):
        theta = theta + torch.randn(theta.shape, generator=generator, dtype=theta.dtype)
        past.append(theta)
        made = source.batch(theta, step)
        assert made.counts["pipeline/time"].tolist() == [10.0 * step + 3]
        for prompt in range(4):
            version = step - int(age_TN[step, prompt])
            mine = slice(2 * prompt, 2 * prompt + 2)
            assert (made.rollout.version_RBT[0, mine] == version).all()
            alone = world.generate(past[version], step)
            assert torch.equal(made.rollout.token_RBT[:, mine], alone.token_RBT[:, mine])
            found, expected = made.rollout.logp_mu_RBT[:, mine], alone.logp_mu_RBT[:, mine]
            torch.testing.assert_close(found, expected, rtol=0, atol=5e-6)


def test_ages_before_the_trace_began_mean_the_weights_at_the_start(tmp_path):
    recorded = rows(np.full((9, 4), 6), first=6)
    logged = train(follow(TREE, tmp_path, recorded))
    assert logged["staleness/age_max_token"].tolist() == [0, 1, 2, 3, 4, 5, 6, 6, 6]


def test_where_weights_change_inside_a_sample_the_first_or_the_last_token_is_chosen(tmp_path):
    quick = Design(slots=24, batch=16, group=4, train_time=2, in_flight=True)
    recorded = trace.record(quick, 12)
    first, last = (trace.lags(recorded, "t", token).age_TN for token in ("first", "last"))
    assert (first >= last).all()
    assert first.sum() > last.sum()
    run = follow(TREE, tmp_path, recorded)
    refuses(r"lags\.parquet:\d+: the weights change inside this sample", train, run)
    arguments = (*run.staleness_args, ("token", "last"))
    found = train(replace(run, staleness_args=arguments))["staleness/age_max_token"]
    assert found.tolist() == last.max(axis=1)[:9].tolist()


@pytest.mark.parametrize(
    ("age_TN", "slices"),
    [([[3, 3, 3, 3], [0, 0, 0, 0]], 1), ([[3, 3, 1, 1], [0, 0, 0, 0]], 2), ([[3, 3, 1, 1], [0, 0, 0, 2]], 4),
     ([[1, 1, 1, 2, 2, 2]], 2), ([[1, 1, 2, 2, 1, 1]], 3), ([[7]], 1)],
)  # fmt: skip
def test_a_batch_is_cut_no_finer_than_its_ages_need(age_TN, slices):
    assert fewest_slices(np.array(age_TN)) == slices


def test_a_plan_states_shortest_and_mean(tmp_path):
    plan = plan_for(follow(TREE, tmp_path, rows([[1, 2, 3, 4], [1, 1, 1, 5]], first=5)))
    assert (plan.shortest, plan.mean) == (1, 18 / 8)


@pytest.mark.parametrize("rule", ["wait", "discard"])
def test_a_trace_neither_waits_nor_makes_other_samples(rule, tmp_path):
    run = replace(follow(TREE, tmp_path, EVEN), age_limit=1, too_old=rule)
    refuses(f"schedule 'trace' cannot {rule}", check_arguments, [run])


def test_samples_that_are_too_old_can_leave_the_batch_and_the_time_stays(tmp_path):
    age_TN = np.array([[0, 0, 0, 0], *[[1, 0, 0, 0]] * 4, *[[3, 0, 5, 0]] * 4])
    run = replace(follow(TREE, tmp_path, rows(age_TN)), age_limit=2, too_old="drop")
    logged = train(run)
    assert logged["staleness/dropped_share"].tolist() == [0.0] * 5 + [0.5] * 4
    assert logged["pipeline/time"].tolist() == [10.0 * t + 3 for t in range(9)]


def changed(recorded, row, **values):
    column_B = {name: recorded.column_B[name].copy() for name in trace.COLUMNS}
    for name, value in values.items():
        column_B[name][row:] = value
    return trace.Trace(column_B)


def without(recorded, batch):
    kept = recorded.column_B["batch"] != batch
    column_B = {name: column[kept] for name, column in recorded.column_B.items()}
    return trace.Trace(column_B | {"batch": np.unique(column_B["batch"], return_inverse=True)[1]})


EVEN = rows(np.zeros((9, 4), int))


@pytest.mark.parametrize(
    ("run", "recorded"),
    [(replace(TREE, steps=10), EVEN), (replace(TREE, prompts=8), EVEN), (TREE, without(EVEN, 3)),
     (TREE, changed(EVEN, 71, version_trained=9)), (TREE, changed(EVEN, 70, version_trained=9))],
)  # fmt: skip
def test_a_trace_that_the_run_cannot_follow_is_refused_before_training(run, recorded, tmp_path):
    run = follow(run, tmp_path, recorded)
    for call in (train, lambda run: check_arguments([run])):
        refuses(".", call, run)


def arguments(run, staleness, **pairs):
    return replace(run, staleness=staleness, staleness_args=tuple(pairs.items()))


@pytest.mark.parametrize(
    "run",
    [arguments(TREE, "trace"), arguments(TREE, "trace", file="nowhere.csv"),
     arguments(TREE, "pipeline", design="slot=3"), arguments(TREE, "pipeline", design=PIPE, seed=-1),
     arguments(TREE, "pipeline", design=PIPE + " updates=8"),
     arguments(TREE, "pipeline", design=PIPE, token="middle"),
     arguments(TREE, "pipeline", design=PIPE + " in_flight=true"),
     arguments(replace(TREE, lag=2), "pipeline", design=PIPE),
     arguments(replace(TREE, prompts=2), "pipeline", design=PIPE)],
)  # fmt: skip
def test_impossible_schedules_are_refused_before_training(run):
    refuses(".", check_arguments, [run])


def test_a_lag_beside_a_trace_is_a_contradiction(tmp_path):
    with pytest.raises(UserError, match="lag is 4, but the trace determines every age"):
        plan_for(replace(follow(TREE, tmp_path, EVEN), lag=4))


def test_another_content_of_the_file_is_another_cell(tmp_path):
    run = pin_trace(follow(TREE, tmp_path, EVEN))
    assert pin_trace(run) == run
    follow(TREE, tmp_path, rows(np.ones((9, 4), int), first=1))
    refuses(r"has digest [0-9a-f]{12}, but the run was planned with", check_arguments, [run])
    again = pin_trace(follow(TREE, tmp_path, rows(np.ones((9, 4), int), first=1)))
    assert cell_id(again) != cell_id(run)
    assert train(again)["staleness/age_max_token"][-1] == 1


def test_a_changed_file_without_digest_is_read_again(tmp_path):
    run = follow(TREE, tmp_path, EVEN)
    assert train(run)["staleness/age_max_token"][-1] == 0
    follow(TREE, tmp_path, rows(np.ones((9, 4), int), first=1))
    assert train(run)["staleness/age_max_token"][-1] == 1


def test_only_runs_by_a_trace_are_pinned():
    for run in (TREE, simulate(TREE), arguments(TREE, "trace")):
        assert pin_trace(run) is run


def test_a_design_survives_its_words():
    odd = "length=empirical lengths=5,7,9 max_age=3 in_flight=true queue=1.5 tau_0=0.1"
    for words in ("", PIPE, odd, "sync_blocking=false tau_0=0 tau_1=0.01 sigma=0"):
        design = from_words(words.split())
        assert from_words(to_words(design)) == design
    assert to_words(Design()) == []
