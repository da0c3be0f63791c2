"""Pipelines of many kinds, compared whole: reports, traces, lags, closed forms, plans."""

import numpy as np
import pytest
from support.command_line import call
from support.pins import outcome, pinned

from testbed.pipeline import closed_forms, design, simulate, sizing, trace

SMALL = "slots=12 engines=2 batch=8 group=2 length_mean=20 max_length=60 train_time=0.7 tau_1=0.002"
DESIGNS = {
    "plain": "", "colocated": "pools=colocated sync_time=0.4", "barrier": "barrier=true correlation=0.6",
    "newest": "queue_rule=drop-newest queue=1 train_time=3",
    "in flight": "in_flight=true sync_every=2 sync_time=0.3",
    "oldest": "queue_rule=drop-oldest queue=1 order=lifo train_time=3", "tools": "tool_time=0.5 length=fixed",
    "aged": "max_age=1 age_of=last updates=2 train_time=2 in_flight=true",
    "aged first": "max_age=2 train_time=3 queue=4",
    "capacity": "admission=capacity eta=1", "threshold": "admission=threshold threshold=0.5 sync_every=2",
    "attempts": "admission=attempts max_lag=5",
    "pieces": "pieces=2 train_token_time=0.01 sync_blocking=false sync_time=1",
    "drawn": "length=empirical lengths=3,9,9,40 correlation=0.3 group=4 sigma=0.9",
}  # fmt: skip


def of(name):
    return design.from_words(DESIGNS[name].split(), design.from_words(SMALL.split()))


@pytest.mark.parametrize("name", DESIGNS)
def test_a_pipeline_runs_as_before(name):
    made = of(name)
    reports = simulate.simulate([made, of("plain")], replicas=2, batches=9, seed=3)
    age, when, traced = simulate.trace_rows(made, 6, seed=1)
    found = {
        "words": " ".join(design.to_words(made)), "youngest": made.youngest, "queue": made.queue_groups,
        "row": reports[0].row(),
        "other": reports[1].row(), "traced": traced.row(), "age": age, "when": when,
        "warm up": simulate.warm_up(made),
    }  # fmt: skip
    pinned("pipeline", name, found)


@pytest.mark.parametrize("name", DESIGNS)
def test_a_traces_lags_are_as_before(name, tmp_path):
    found = trace.record(of(name), 6, seed=2)
    for ending in ("csv", "parquet"):
        outcome(trace.write, found, tmp_path / f"t.{ending}")
    back = {path.suffix: trace.read(path) for path in sorted(tmp_path.iterdir())}
    both = {token: outcome(trace.lags, found, "made", token) for token in ("", "first", "last", "mean", "x")}
    pinned("pipeline", f"trace, {name}", {"rows": found, "lags": both, "back": back})


def test_closed_forms_and_plans_are_as_before():
    forms = (
        "moments", "train_time", "generation_time", "load", "barrier_generation_time", "synchronous_period",
        "one_step_off_period", "streaming_period", "sample_lag", "token_lag",
    )  # fmt: skip
    for name in DESIGNS:
        found = {form: outcome(getattr(closed_forms, form), of(name)) for form in forms}
        found |= {"saving": outcome(closed_forms.rapid_saving, of(name), 4)}
        pinned("pipeline", f"forms, {name}", found)
    plan = sizing.from_words(
        [
            "accelerators=4",
            "trainer_share=0.25,0.9",
            "queue=1",
            "in_flight=true",
            "slots_per_accelerator=4",
            "batch=8",
            "group=2",
            "length_mean=20",
            "max_length=50",
            "train_second_per_sample=0.3",
        ]
    )
    pinned("pipeline", "plan", {"plan": plan, "rows": sizing.table(plan, seed=4)})
    pinned("pipeline", "keys", [int(key) for key in simulate.keys(5, 4).ravel()])


@pytest.mark.parametrize(
    "words",
    [f"{SMALL} --replicas 2 --batches 9", f"{SMALL} --json", f"{SMALL} queue=1,2 in_flight=true,false",
    f"{SMALL} slots=0",
     f"{SMALL} max_age=1 --seed 3", f"{SMALL} sync_every=2 pools=colocated", "slotz=3",
     "--plan accelerators=4 queue=1"],
)  # fmt: skip
def test_the_command_says_what_it_said(words, capsys):
    pinned("pipeline", f"command {words.replace(SMALL, '…')}", call(capsys, "pipeline", *words.split()))


def test_numbers_of_many_seeds_are_pinned_by_their_moments():
    made = of("drawn")
    rows = [simulate.simulate_one(made, batches=5, seed=seed).row() for seed in range(6)]
    pinned("pipeline", "seeds", {key: np.array([row[key] for row in rows]) for key in rows[0]})
