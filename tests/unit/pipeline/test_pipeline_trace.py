"""The lag trace, the command line and the plan: what goes in comes out, and what is wrong is named."""

import json
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.refusals import refuses

from testbed.cli import main
from testbed.pipeline import closed_forms, simulate, sizing, trace
from testbed.pipeline.design import Design
from testbed.pipeline.simulate import simulate_one, trace_rows

SMALL = Design(slots=16, batch=16, group=4, train_time=18.0, length_mean=200, in_flight=True, updates=2)
COLUMNS = ("batch", "group", "member", "length", "version_start", "version_end", "version_trained", "time")


@pytest.fixture
def recorded():
    return trace.record(SMALL, 12, seed=3)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_trace_survives_its_file(recorded, tmp_path, ending):
    path = tmp_path / f"lags.v2.{ending}"
    trace.write(recorded, path)
    assert (path.read_bytes()[:4] == b"PAR1") == (ending == "parquet")
    back = trace.read(path)
    assert all((back.column_B[name] == recorded.column_B[name]).all() for name in COLUMNS)
    first = path.read_bytes()
    trace.write(trace.record(SMALL, 12, seed=3), path)
    assert path.read_bytes() == first
    other = trace.record(SMALL, 12, seed=4)
    assert (other.column_B["length"] != recorded.column_B["length"]).any()


def test_a_trace_has_whole_batches_from_the_start_and_the_lags_of_the_report(recorded):
    found = trace_rows(SMALL, 12, seed=3)[2]
    batch_N = recorded.column_B["batch"]
    assert (np.bincount(batch_N) == SMALL.batch).all()
    assert len(recorded) == 12 * SMALL.batch
    lag_B = recorded.column_B["version_trained"] - recorded.column_B["version_start"]
    assert lag_B.mean() == pytest.approx(found.mean("lag_sample"), abs=1e-12)
    assert recorded.column_B["version_start"].min() == 0
    halves = recorded.column_B["version_trained"].reshape(12, 2, 8)
    assert (halves == np.arange(24).reshape(12, 2, 1)).all()  # two updates per batch
    groups_N4 = recorded.column_B["group"].reshape(-1, 4)
    assert (groups_N4 == groups_N4[:, :1]).all()


def broken(recorded, tmp_path, row, **values):
    """The path of a CSV file with some values of one data row replaced, and that row's line."""
    lines = [",".join(COLUMNS)]
    for k in range(len(recorded)):
        cells = {name: recorded.column_B[name][k] for name in COLUMNS} | (values if k == row else {})
        lines.append(",".join(str(cells[name]) for name in COLUMNS))
    path = tmp_path / "broken.csv"
    path.write_text("\n".join(lines) + "\n")
    return path, row + 2


@pytest.mark.parametrize(
    ("row", "values", "why"),
    [(40, {"length": 0}, "length is 0"), (32, {"batch": 3}, "gap"), (40, {"batch": 1}, "batch is below"),
     (40, {"time": "inf"}, "not a finite"), (40, {"group": 0, "member": 0}, "twice")],
)  # fmt: skip
def test_a_trace_with_gaps_or_negative_lags_is_rejected_with_the_line(recorded, tmp_path, row, values, why):
    path, line = broken(recorded, tmp_path, row, **values)
    assert f"broken.csv:{line}:" in refuses(why, trace.read, path)


@pytest.mark.parametrize(("wrong", "more"), [(10, []), (12, ["… and 2 more."])])
def test_every_wrong_line_is_told_up_to_ten(recorded, wrong, more):
    length_B = np.where(np.arange(len(recorded)) < wrong, 0, recorded.column_B["length"])
    told = refuses("", trace.check, trace.Trace({**recorded.column_B, "length": length_B}), "made")
    assert told.split("\n") == [f"made:{line}: length is 0." for line in range(2, 12)] + more


ROWS = np.array([
    # batch, group, member, length, version_start, version_end, version_trained
    [0, 7, 0, 3, 0, 0, 5], [0, 7, 1, 4, 2, 3, 5], [0, 4, 0, 1, 1, 1, 5],
    [1, 9, 0, 3, 5, 5, 6], [1, 2, 0, 4, 4, 6, 6],
])  # fmt: skip


def of_rows(time=(1.0, 1.0, 2.5, 3.0, 9.0), **columns):
    made = dict(zip(trace.WHOLE, ROWS.T, strict=True)) | {"time": np.array(time)}
    return trace.Trace(made | {name: np.array(column) for name, column in columns.items()})


def test_a_learner_gets_the_age_of_every_groups_oldest_member():
    for token, ages in (("first", [[5, 4], [1, 2]]), ("last", [[5, 4], [1, 0]])):
        found = trace.lags(trace.check(of_rows(), "t"), "t", token)
        assert found.age_TN.tolist() == ages
        assert found.time_T.tolist() == [2.5, 9.0]
    still = of_rows(version_end=ROWS[:, 4])
    assert trace.lags(still, "t").age_TN.tolist() == [[5, 4], [1, 2]]
    for made, token, words in (
        (of_rows(), "", "t:3: the weights change inside this sample"),
        (of_rows(), "frist", "token is 'frist', expected first or last. Did you mean 'first'"),
        (of_rows(version_trained=[5, 5, 5, 7, 7]), "last", "t:5: gap: version_trained skips an update"),
        (of_rows(version_trained=[5, 6, 6, 6, 7]), "last", "t:3: its group is trained in two updates"),
        (of_rows(version_trained=[5, 5, 6, 6, 6]), "last",
         "t:4: this update trains 3 groups, the first one 1;"),
    ):  # fmt: skip
        refuses(f"^{words}", trace.lags, made, "t", token)


def test_numbers_at_their_limits_are_a_trace():
    fine = of_rows(time=[0.0, 0.0, 0.0, 0.0, 0.0])
    assert trace.check(fine, "t") is fine
    assert len(fine) == 5
    for columns, words in (
        ({"batch": [1, 1, 1, 1, 1]}, ""), ({"batch": [0, 0, 0, 2, 2]}, "t:5: gap: a batch is missing"),
        ({"batch": [2, 2, 2, 2, 2]}, "t:2: gap"), ({"time": [0.0, 1, 0.5, 2, 2]}, "t:4: time is before"),
        ({"time": [-0.5, 1, 2, 2, 2]}, "t:2: a number is negative"),
        ({"version_trained": [5, 5, 4, 6, 6]}, "t:4: version_trained is below that of the row above"),
        ({"version_end": [0, 1, 1, 5, 6]}, "t:3: version_end is below version_start"),
        ({"version_trained": [5, 5, 5, 5, 5]}, "t:6: negative lag"),
        ({"time": [0.0, 1, math.nan, 2, 2]}, "t:4: time is not a finite number"),
        ({"group": [7, 7, 7, 9, 2]}, "t:4: this member of the group is trained twice"),
    ):  # fmt: skip
        if words:
            refuses(f"^{words}", trace.check, of_rows(**columns), "t")
        else:
            trace.check(of_rows(**columns), "t")


@pytest.mark.parametrize(
    ("text", "why"),
    [("batch,group,time\n0,0,0\n", f" lacks member, length, version_start, version_end, version_trained; a "
      f"trace has the columns {', '.join(COLUMNS)}."),
     (",".join(COLUMNS) + "\n", " has no rows; expected one per trained sample."),
     (",".join(COLUMNS) + "\n0,0,x,1,0,0,0,1.0\n", " cannot be read as a trace: "),
     (",".join(COLUMNS) + "\n0,0,0,1,0,0,0,1.0\n0,0,1,1,0,0,,1.0\n", ":3: version_trained is empty."),
     (None, ": the file does not exist. Write one with: testbed pipeline --trace "),
     ({name: [1.0 if name in ("time", "length") else 1] for name in COLUMNS},
      ": length holds double, expected int64.")],
)  # fmt: skip
def test_a_file_that_is_no_trace_is_refused(tmp_path, text, why):
    path = tmp_path / ("t.parquet" if isinstance(text, dict) else "t.csv")
    if isinstance(text, dict):
        pq.write_table(pa.table(text), path)
    elif text is not None:
        path.write_text(text)
    told = refuses("", trace.read, path)
    assert told.startswith(f"{path}{why}")
    assert not why.endswith(".") or told == f"{path}{why}"
    assert text is not None or told.endswith(f"--trace {path}")


def test_other_endings_are_refused(recorded):
    for call in (lambda path: trace.write(recorded, path), trace.read):
        assert (
            refuses("", call, Path("lags.txt")) == "lags.txt: expected a file that ends in .csv or .parquet."
        )


def run(capsys, *words):
    with pytest.raises(SystemExit) as stop:
        main(["pipeline", *words])
    return stop.value.code, capsys.readouterr()


FAST = (
    "slots=16", "batch=16", "group=4", "train_time=1", "length_mean=100", "--batches", "20", "--replicas",
    "2",
)  # fmt: skip


def test_the_command_prints_what_the_simulator_says(capsys):
    code, printed = run(capsys, *FAST, "--json")
    found = json.loads(printed.out)
    design = Design(slots=16, batch=16, group=4, train_time=1, length_mean=100)
    expected = simulate_one(design, replicas=2, batches=20)
    assert code == 0
    assert found["lag_sample"]["mean"] == expected.mean("lag_sample")
    assert found["period"]["closed form"] == pytest.approx(found["period"]["mean"], rel=0.1)
    assert sum(found["lag_token_shares"]) == pytest.approx(1)


def test_the_command_writes_a_trace_and_draws_a_figure(capsys, tmp_path):
    lags, picture = tmp_path / "lags.csv", tmp_path / "lags.png"
    code, _ = run(capsys, *FAST, "--trace", str(lags), "--figure", str(picture))
    assert code == 0
    assert len(trace.read(lags)) == 20 * 16
    assert picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "why"),
    [(("queue=0.5",), "queue=0.5"), (("quue=2",), "queue"), ((*FAST, "--figure", "x.txt"), ".png or .pdf"),
     ((*FAST, "--trace", "x.txt"), ".csv or .parquet"), (("plan", "--trace", "x.csv"), "Leave out `plan`"),
     (("plan", "accelerators=1"), "accelerators=1, trainer_share=0.25: both sides need one, so expected at "
      "least 2 accelerators and a share between 0 and 1."),
     (("plan", "--batches", "9"), "--batches sets nothing"), (("plan", "queue=1", "queue=2"), "given twice")],
)  # fmt: skip
def test_bad_words_are_one_error_and_exit_code_2(capsys, words, why):
    code, printed = run(capsys, *words)
    assert code == 2
    assert printed.err.splitlines()[-1].startswith("error: ")  # a first simulation tells that it compiles
    assert why in printed.err
    assert not Path("x.txt").exists()


def test_a_plan_that_takes_long_says_so(capsys, monkeypatch):
    """The bare command was silent for over a minute."""
    monkeypatch.setattr("testbed.cli.pipeline.slow_notice", lambda text: nullcontext(print(text)))
    monkeypatch.setattr("testbed.pipeline.sizing.table", lambda *_, **__: [])
    _, printed = run(capsys, "plan", "accelerators=8,8000", "trainer_share=0.25", "queue=1", "--json")
    assert printed.out.startswith("Simulating 4 pipelines, up to 8,000 accelerators each: minutes.")


@pytest.mark.slow
def test_a_plan_has_a_row_per_combination_and_throughput_that_scales(capsys):
    code, printed = run(capsys, "plan", "accelerators=8,32", "trainer_share=0.25,0.5", "queue=1", "--json")
    rows = json.loads(printed.out)
    assert code == 0
    assert len(rows) == 2 * 2 * 1 * 2
    small, large = ([r["per_accelerator"] for r in rows if r["accelerators"] == n] for n in (8, 32))
    assert small == pytest.approx(large, rel=0.05)
    for row in rows:
        assert row["lag_token"] <= row["lag_sample"] or not row["in_flight"]
        assert row["training"] in (0.25 * row["accelerators"], 0.5 * row["accelerators"])


def test_a_plan_gives_the_trainer_at_least_one_accelerator_and_leaves_one():
    (_, first), *_, (_, last) = sizing.designs(
        sizing.SizingPlan(accelerators=(2,), trainer_share=(0.01, 0.99))
    )
    assert first.engines == last.engines == 1
    (_, found), *_ = sizing.designs(sizing.SizingPlan(accelerators=(8,), trainer_share=(0.25,)))
    assert (found.engines, found.slots, found.batch) == (6, 6 * 16, 64)
    assert found.train_time == 1.5 * 64 / 2
    shares = sizing.SizingPlan(accelerators=(8,), trainer_share=(0.05, 0.2, 0.5, 0.99), queue=(3,), batch=96)
    every = sizing.designs(shares)
    assert [key["training"] for key, _ in every] == [1, 1, 2, 2, 4, 4, 7, 7]
    assert [design.in_flight for _, design in every] == [False, True] * 4
    for word in ("false", "true", "true,false"):
        plan = sizing.from_words([f"in_flight={word}", "accelerators=8"])
        assert plan.in_flight == tuple(one == "true" for one in word.split(","))
        assert plan.accelerators == (8,)
    fields = ", ".join(sizing._HINTS)
    for words, said in (
        ("acelerators=8 batch", f"'acelerators=8': expected field=value. Did you mean 'accelerators'? "
         f"Fields: {fields}.\n'batch': expected field=value. Did you mean 'batch'? Fields: {fields}."),
        ("in_flight=maybe batch=x group=3,4 sigma=1", "'in_flight=maybe': expected values like (False, "
         "True).\n'batch=x': expected a value like 0.\n'group=3,4': expected one value."),
    ):  # fmt: skip
        assert refuses("", sizing.from_words, words.split()) == said
    for share in (0.0, 1.0):
        refuses(f"trainer_share={share:g}: both", sizing.designs, replace(plan, trainer_share=(share,)))
    own = {"tau_0": 0.5, "tau_1": 0.25, "sigma": 0.125, "length_mean": 3.0, "max_length": 9, "group": 4}
    (_, found), *_ = sizing.designs(replace(plan, **own, queue_rule="block"))
    assert (own | {"queue_rule": "block"}).items() <= vars(found).items()
    for key, design in every:
        assert design.engines == 8 - key["training"] == design.slots / 16
        assert (design.batch, design.queue, design.train_time) == (96, 3.0, 1.5 * 96 / key["training"])


def test_a_row_measures_at_least_twelve_batches_and_sixty_thousand_samples(monkeypatch):
    asked, made, measured = [], [], simulate.simulate

    def short(designs, *, replicas, batches, seed):
        asked.append(batches)
        made.extend((designs[0], found := measured(designs, replicas=replicas, batches=2, seed=seed)[0]))
        return [found]

    monkeypatch.setattr("testbed.pipeline.simulate.simulate", short)
    plan = sizing.SizingPlan(accelerators=(8,), trainer_share=(0.5,), queue=(1,), in_flight=(True,), group=4)
    for batch in (64, 8_000):
        (row,) = sizing.table(replace(plan, batch=batch, slots_per_accelerator=8 if batch == 64 else 800))
        design, found = made[-2:]
        assert row.pop("per_accelerator") * 8 == row["samples_per_s"]
        measures = set(row) - {"accelerators", "training", "queue", "in_flight", "batch", "load"}
        assert measures == {"period", "samples_per_s", "lag_sample", "lag_token", "drop_rate", "trainer_busy",
                            "slots_busy"}  # fmt: skip
        assert row == {"accelerators": 8, "training": 4, "queue": 1, "in_flight": True, "batch": batch,
                       "load": closed_forms.load(design), **{n: found.mean(n) for n in measures}}  # fmt: skip
        assert row["samples_per_s"] * row["period"] == pytest.approx(batch)
    assert asked == [60_000 // 64, 12]


def test_words_of_a_plan_may_be_written_large():
    assert sizing.from_words(["in_flight=False,TRUE"]).in_flight == (False, True)
