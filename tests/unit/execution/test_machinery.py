"""The parts between a sweep and its processes, with processes, clocks and Ray that answer by a script."""

import contextlib
import io
import json
import os
import platform
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest
from support.refusals import refuses
from support.sweep_process import cells

from testbed.config.run import Run, grid
from testbed.errors import UserError
from testbed.execution import executors, rank_processes, ray_executor, runner, threads, worker
from testbed.execution.executors import Executor, Inline, Local, _Worker
from testbed.execution.packs import plan
from testbed.execution.progress import Progress
from testbed.execution.ray_executor import Ray
from testbed.execution.worker import Receipt, execute, order
from testbed.results.fingerprint import fingerprint
from testbed.results.store import Failure

PACKS = plan(grid(Run(policy="hf", model="m"), seed=range(4)))
A, B, C, D = (pack.id for pack in PACKS)
INF = float("inf")


class Fed:
    """A feed of packs that remembers what it is told."""

    def __init__(self, packs=(), stop=False):
        self.packs, self.stop, self.heard = list(packs), stop, []

    def take(self):
        return self.packs.pop(0) if self.packs else None

    def exhausted(self):
        return not self.packs

    def stopping(self):
        return self.stop

    def steps(self, *told):
        self.heard.append(told)

    def line(self, text):
        self.heard.append(text)


class Scripted(Executor):
    """Ends its packs as a script says, the oldest first."""

    name = "scripted"

    def __init__(self, workers, script=()):
        super().__init__(workers)
        self.script, self.log = {pack: list(kinds) for pack, kinds in dict(script).items()}, []
        self.waiting = []

    def submit(self, pack):
        self.log.append(pack.id)
        self.waiting.append(pack.id)

    def wait(self, feed):
        for pack in [self.waiting.pop(0)] if self.waiting else ():
            kinds = self.script.get(pack, ["done"])
            yield Receipt(pack, kinds.pop(0), provenance={"own": 1})

    def close(self):
        self.log.append("closed")


def test_packs_are_started_as_workers_get_free_and_a_lost_worker_costs_one_more_try():
    engine = Scripted(2, {A: ["died", "done"], C: ["died", "died"], D: ["failed"]})
    found = [(r.pack, r.kind, r.provenance) for r in engine.run(Fed(PACKS))]

    def said(attempts):
        return {"own": 1, "engine": "scripted", "workers": 2, "attempts": attempts}

    assert engine.log == [A, B, A, C, D, C, "closed"]
    assert found == [(B, "done", said(1)), (A, "done", said(2)), (D, "failed", said(1)), (C, "died", said(2))]
    stopped = Scripted(2)
    assert list(stopped.run(Fed(PACKS, stop=True))) == []
    assert stopped.log == ["closed"]
    first = Scripted(1)
    receipts = first.run(fed := Fed(PACKS))
    assert next(receipts).pack == A
    fed.stop = True  # one more runs already: it is not lost
    assert [receipt.pack for receipt in receipts] == [B]
    left = Scripted(1)
    receipts = left.run(Fed(PACKS))
    next(receipts)
    receipts.close()
    assert left.log == [A, B, "closed"]


def test_a_feed_that_waits_for_others_is_asked_again(monkeypatch):
    slept, fed = [], Fed()
    fed.exhausted = lambda: len(slept) > 1
    monkeypatch.setattr(executors.time, "sleep", slept.append)
    assert list(Scripted(1).run(fed)) == []
    assert slept == [0.2, 0.2]


def test_a_pack_in_this_process_tells_its_steps_and_lines(monkeypatch):
    def runs(text, report):
        report(3, 9)
        report.line("a line")
        return Receipt(json.loads(text)["pack"], "done")

    monkeypatch.setattr(executors, "execute", runs)
    engine, fed = Inline("m:f"), Fed(PACKS[:1])
    assert [receipt.pack for receipt in engine.run(fed)] == [A]
    assert fed.heard == [(A, 3, 9), "a line"]
    assert list(engine.wait(fed)) == []
    assert (engine.workers, engine.function, engine.here, engine.provenance(3)) == (
        1, "m:f", True, {"engine": "inline", "workers": 1, "attempts": 3},
    )  # fmt: skip


def process(**fields):
    made = object.__new__(_Worker)
    vars(made).update(pack=None, ready=False, deadline=INF, _buffer=bytearray(), _order="", _limit=None)
    vars(made).update(fields)
    return made


def test_messages_are_lines_with_the_content_that_they_announce():
    one, first, second = process(), b'{"kind": "x"}\n', b'{"kind": "done", "content": 3}\na\nb'
    whole, found = first + second + first[:5], []
    for at in range(len(whole)):
        found += list(one.messages(whole[at : at + 1]))
    assert found == [({"kind": "x"}, b""), ({"kind": "done", "content": 3}, b"a\nb")]
    assert one._buffer == first[:5]
    assert list(process().messages(first + second)) == found


@pytest.mark.parametrize(
    ("code", "said"),
    [(None, "The worker process closed its output."), (0, "The worker process ended with exit code 0."),
     (-signal.SIGKILL, "The worker process was killed by SIGKILL. Memory may have run out."),
     (-signal.SIGSEGV, "The worker process was killed by SIGSEGV.")],
)  # fmt: skip
def test_how_a_worker_ended_is_said(code, said):
    def late(timeout):
        assert timeout == 2
        if code is None:
            raise subprocess.TimeoutExpired("x", timeout)

    words = io.BytesIO(b"x" * 50 + b" " + b"y" * 1990 + b" end\xff \n")
    one = process(_process=SimpleNamespace(wait=late, poll=lambda: code), _errors=words)
    assert one.cause() == said
    assert one.last_words() == "xx " + "y" * 1990 + " end\ufffd"  # of the last 2,000 bytes


def test_an_order_goes_out_once_its_worker_is_ready_and_starts_the_clock(monkeypatch):
    sent = io.BytesIO()
    monkeypatch.setattr(executors.time, "monotonic", lambda: 100.0)
    for limit, deadline in ((7.0, 107.0), (None, INF)):
        one = process(_process=SimpleNamespace(stdin=sent), _errors=io.BytesIO(b"old"))
        one.give(PACKS[0], "text", limit)
        assert (one.pack, one._order, one._limit, one.deadline, sent.getvalue()) == (
            PACKS[0], "text", limit, INF, b"",
        )  # fmt: skip
        one.begin()
        assert (one.ready, one.deadline, sent.getvalue()) == (True, deadline, b"text\n")
        sent.truncate(0)
        sent.seek(0)
        one.give(PACKS[1], "next", limit)  # it is ready
        assert (sent.getvalue(), one._errors.tell()) == (b"next\n", 3)
        sent.truncate(0)
        sent.seek(0)


def heard(local, worker, *messages):
    ends = os.pipe()
    os.write(ends[1], b"x")
    worker.output, worker.messages = ends[0], lambda _: messages
    fed = Fed()
    return list(local._hear(worker, fed)), fed.heard


def test_a_local_executor_hears_steps_lines_and_receipts():
    local, begun = Local(2), []
    one = process(pack=PACKS[0], begin=lambda: begun.append(1))
    receipts, told = heard(
        local, one, ({"kind": "ready"}, b""), ({"kind": "steps", "done": 2, "total": 5}, b""),
        ({"kind": "line", "text": "t"}, b""), ({"kind": "done", "pack": A, "content": 2}, b"xy"),
        ({"kind": "steps", "done": 9, "total": 9}, b""),
    )  # fmt: skip
    assert receipts == [Receipt(A, "done", b"xy")]
    assert (told, begun, one.pack) == ([(A, 2, 5), "t"], [1], None)


def test_a_dead_worker_is_buried_and_too_many_that_never_start_are_an_error():
    local = Local(1)

    def dead(**fields):
        one = process(
            cause=lambda: "why", last_words=lambda: fields.pop("words", ""), kill=lambda: None, **fields
        )
        local._workers.append(one)
        return one

    assert list(local._bury(dead(pack=PACKS[0], ready=True, words="w"))) == [
        Receipt(A, "died", b"", "why", "w")
    ]
    local._still_born = 2
    assert heard(local, process(begin=list), ({"kind": "ready"}, b"")) == ([], [])
    assert local._still_born == 0  # forgotten once one is ready
    assert list(local._bury(dead(ready=True))) == []
    assert [list(local._bury(dead())) for _ in range(2)] == [[], []]
    assert local._workers == []
    refuses("Workers die before they start:\nwhy", list, local._bury(dead()))


def test_a_pack_past_its_limit_is_taken_from_its_worker(monkeypatch):
    local, killed = Local(3, timeout=2.5), []
    monkeypatch.setattr(executors.time, "monotonic", lambda: 10.0)
    ends = [os.pipe() for _ in range(3)]
    for (output, _), pack, deadline in zip(ends, (PACKS[0], None, PACKS[1]), (9.9, 9.9, 10.0), strict=True):
        one = process(pack=pack, deadline=deadline, output=output, last_words=lambda: "w")
        one.kill = lambda one=one: killed.append(one)
        local._workers.append(one)
    first = local._workers[0]
    message = "The pack ran longer than its limit of 2.5 s."
    assert list(local.wait(Fed())) == [Receipt(A, "timeout", message=message, trace="w")]
    assert (killed, len(local._workers)) == ([first], 2)
    free = local._workers[0]
    free.give = lambda *given: killed.append(given)
    local.submit(PACKS[2])
    assert killed[-1] == (PACKS[2], order(PACKS[2], local.function), 2.5)
    local.close()
    assert local._workers == []


def test_cores_are_shared_by_workers_whatever_their_threads(monkeypatch):
    monkeypatch.setattr(threads, "cores", lambda: 16)
    found = {(w, t): threads.environment(w, t)["NUMBA_NUM_THREADS"] for w in (1, 3, 5) for t in (1, 2, 4)}
    assert found == {(w, t): str(max(t, 16 // w)) for w, t in found}
    assert found[3, 2] == "5"


def test_a_receipt_names_versions_machine_and_threads(monkeypatch):
    monkeypatch.setattr(worker, "_cpu", lambda: "a chip")
    monkeypatch.setattr(worker, "_threads", lambda: {"torch": 3})
    monkeypatch.setattr(worker, "fingerprint", lambda: {"numpy": "1", "torch": "own"})
    found = worker._setting.__wrapped__(("json", "torch"))
    ours = {"json": json.__version__, "torch": "own", "numpy": "1", "python": platform.python_version()}
    machine = {"machine": platform.machine(), "system": platform.platform(), "cpu": "a chip"}
    assert found == {"versions": ours, **machine, "threads": {"torch": 3}}


def test_an_order_is_canonical_and_a_receipt_says_what_became_of_it(monkeypatch):
    pack = plan(cells(2)[1:])[0]
    text = order(pack, "support.fake_training:train")
    wanted = {"pack": pack.id, "index": 0, "cells": [vars(pack.cells[0])],
              "function": "support.fake_training:train",
              "fingerprint": dict(fingerprint())}  # fmt: skip
    assert text == json.dumps(wanted, sort_keys=True, separators=(",", ":"), default=list)
    assert json.loads(order(pack))["function"] == "testbed.training.loop:train_pack"
    told = []
    monkeypatch.setattr(worker.time, "time", iter((100.0, 101.23456)).__next__)
    found = execute(text, lambda *steps: told.append(steps))
    assert (found.pack, found.kind, found.content[:4], told) == (
        pack.id, "done", b"PAR1", [(pack.cells[0].steps,) * 2],
    )  # fmt: skip
    assert (found.provenance["began"], found.provenance["seconds"]) == (100.0, 1.235)
    assert {"versions", "machine", "system", "cpu", "threads"} <= set(found.provenance)
    assert found.provenance["versions"]["torch"] == sys.modules["torch"].__version__
    gone = type("OutOfMemoryError", (Exception,), {})
    errors = {
        MemoryError("m"): ("oom", "MemoryError: m"), ValueError("v"): ("failed", "ValueError: v"),
        UserError("u"): ("failed", "u"), gone("g"): ("oom", "OutOfMemoryError: g"),
    }  # fmt: skip
    monkeypatch.setattr(worker.time, "time", lambda: 0.0)
    for error, (kind, message) in errors.items():

        def failing(*_, error=error):
            raise error

        monkeypatch.setattr(worker, "_run", failing)
        found = execute(text)
        assert (found.kind, found.message, bool(found.trace)) == (
            kind, message, kind != "failed" or message != "u",
        )  # fmt: skip
    for leaves in (SystemExit(3), KeyboardInterrupt()):

        def leaving(*_, leaves=leaves):
            raise leaves

        monkeypatch.setattr(worker, "_run", leaving)
        with pytest.raises(type(leaves)):
            execute(text)
    monkeypatch.setattr(worker, "line_of_a_user", lambda _: "mine.py:3")
    monkeypatch.setattr(worker, "_run", lambda *_: sys.exit(2))
    assert execute(text).message == "mine.py:3: SystemExit: 2"


def test_a_worker_serves_orders_by_lines_and_a_follower_reports_its_error(monkeypatch, capsys):
    sink, begun = io.BytesIO(), []
    monkeypatch.setattr(worker, "_die_with_parent", lambda: begun.append("guard"))
    monkeypatch.setattr(worker.faulthandler, "enable", lambda: None)
    monkeypatch.setattr(worker, "_private_pipes", lambda: (None, sink))
    monkeypatch.setattr(worker, "_inbox", lambda _: iter(["one", "two"]))
    monkeypatch.setattr(worker, "prepare", begun.append)
    monkeypatch.setattr(worker, "execute", lambda x, report=None: Receipt(x, "done", b"\n" + x.encode()))
    worker.main("m:f")
    assert begun == ["guard", "m:f"]
    lines = sink.getvalue().split(b"\n")
    assert json.loads(lines[0]) == {"kind": "ready"}
    receipt = {"message": "", "trace": "", "provenance": {}, "kind": "done", "content": 4}
    assert json.loads(lines[1]) == receipt | {"pack": "one"}
    assert lines[2] == b""
    assert lines[3].startswith(b"one{")
    left = []
    monkeypatch.setattr(sys, "stdin", io.StringIO("order"))
    monkeypatch.setattr(worker, "leave", lambda: left.append("left"))
    monkeypatch.setattr(worker.os, "_exit", left.append)
    worker.follow()
    assert left == ["left"]
    monkeypatch.setattr(worker, "execute", lambda text: Receipt(text, "failed", message="a\nb"))
    worker.follow()
    assert (left, capsys.readouterr().err) == (["left", "left", 1], "a b\n")


def test_a_worker_says_its_threads(monkeypatch):
    for name in list(os.environ):
        if name.endswith("_NUM_THREADS"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("MKL_NUM_THREADS", "many")
    monkeypatch.setenv("OTHER", "4")
    monkeypatch.setenv("LAST_NUM_THREADS", "5")
    found = worker._threads()
    assert (found["OMP_NUM_THREADS"], found["LAST_NUM_THREADS"]) == (3, 5)
    assert not {"MKL_NUM_THREADS", "OTHER"} & set(found)
    assert found["torch"] == sys.modules["torch"].get_num_threads()


def test_a_machine_is_named_by_its_processor(monkeypatch):
    for text, name in (("flags\t: model name\nmodel name\t: Fast 3: b\nmodel name\t: c\n", "Fast 3: b"),
                       ("flags : x\n", "here")):  # fmt: skip
        monkeypatch.setattr(worker, "open", lambda *_, text=text, **__: io.StringIO(text), raising=False)
        monkeypatch.setattr(worker.platform, "processor", lambda: "here")
        assert worker._cpu() == name


# Several processes of one pack.


def test_ranks_are_those_of_a_models_policy():
    def of(policy, **given):
        return rank_processes.ranks_of([Run(policy=policy, model="m", policy_args=tuple(given.items()))])

    given = (3, "3", True)
    assert [of("hf"), *(of("hf", ranks=ranks) for ranks in given), of("toy", ranks=3)] == [1, 3, 1, 1, 1]


def test_other_processes_are_started_met_and_ended_and_the_variables_go_back(monkeypatch):
    for name in rank_processes.MEET:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("RANK", "before")
    log = []
    follower = SimpleNamespace(said=lambda: "")
    monkeypatch.setattr(rank_processes, "_free_port", lambda: 77)
    monkeypatch.setattr(rank_processes, "_start", lambda *given: log.append(given) or follower)
    monkeypatch.setattr(rank_processes, "_end", lambda _: log.append("end"))
    monkeypatch.setattr(rank_processes, "leave", lambda: log.append("leave"))

    def at(rank):
        return {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "3", "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": "77"}  # fmt: skip

    def met():
        return {name: os.environ[name] for name in rank_processes.MEET if name in os.environ}

    with rank_processes.gathered({"o": 1}, 3):
        assert met() == at(0)
        with rank_processes.gathered({"o": 2}, 3):  # inside a launcher: nothing new
            pass
    assert log == [({"o": 1}, at(1)), ({"o": 1}, at(2)), "leave", "end", "end"]
    assert met() == {"RANK": "before"}
    log.clear()
    with rank_processes.gathered({}, 1):
        assert log == []
    for words, error, kind, message in (
        ("rank 1: lost", ValueError("v"), UserError, r"^Another process of this pack ended. rank 1: lost$"),
        ("", ValueError("v"), ValueError, "^v$"), ("rank 1: lost", UserError("u"), UserError, "^u$"),
    ):  # fmt: skip
        follower.said = lambda words=words: words
        with pytest.raises(kind, match=message), rank_processes.gathered({}, 2):
            raise error
        assert met() == {"RANK": "before"}


def test_a_follower_says_its_last_line_and_ends_with_the_pack():
    def follower(wait, words=b"first\nlast \n"):
        return rank_processes._Follower(
            2, SimpleNamespace(wait=wait, kill=lambda: log.append("kill")), io.BytesIO(words)
        )

    log = []

    def never(timeout=None):
        log.append(timeout)
        if timeout is not None:
            raise subprocess.TimeoutExpired("x", timeout)

    assert follower(lambda timeout: 0).said() == ""
    assert follower(lambda timeout: 1).said() == "rank 2: last"
    assert follower(lambda timeout: 1, b"").said() == ""
    assert follower(never).said() == "rank 2: last"
    assert log == [5.0]
    for error, patience in ((None, 5.0), (ValueError(), 0.1)):
        log.clear()
        one = follower(never)
        with contextlib.suppress(ValueError):
            try:
                if error:
                    raise error
            finally:
                rank_processes._end(one)
        assert (log, one.words.closed) == ([patience, "kill", None], True)


def test_a_follower_gets_the_order_and_its_place(monkeypatch):
    asked = []

    class Pipe(io.BytesIO):
        def close(self):
            asked.append(self.getvalue())
            super().close()

    def popen(words, **how):
        asked.append((*words[:2], "follow()" in words[2], how["env"]["RANK"], how["env"]["HOME"],
                      how["stdin"], how["stdout"], how["stderr"]))  # fmt: skip
        return SimpleNamespace(stdin=Pipe())

    monkeypatch.setattr(rank_processes.subprocess, "Popen", popen)
    monkeypatch.setenv("HOME", "h")
    found = rank_processes._start({"a": 1}, {"RANK": "4"})
    pipes = subprocess.PIPE, subprocess.DEVNULL, found.words
    assert asked == [(sys.executable, "-c", True, "4", "h", *pipes), b'{"a": 1}']
    assert found.rank == 4
    found.words.close()
    left = []
    group = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: bool(left),
        destroy_process_group=lambda: left.append(1),
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=group))
    rank_processes.leave()
    assert left == []
    left.append(0)
    rank_processes.leave()
    assert left == [0, 1]
    group.is_available, group.is_initialized = (lambda: False), None  # as torch without the package has it
    rank_processes.leave()
    assert left == [0, 1]


def test_cores_are_those_of_the_process_within_its_quota(monkeypatch):
    monkeypatch.setattr(threads.os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    for text, count in (
        ("400000 100000", 4), ("450000 100000", 4), ("50000 100000", 1), ("max 100000", 6),
        ("900000 100000", 6),
    ):  # fmt: skip
        monkeypatch.setattr(threads.Path, "read_text", lambda _, text=text: text)
        assert threads.cores() == count
    monkeypatch.setattr(threads, "cores", lambda: 7)
    monkeypatch.setenv(threads.COMPILED, "there")
    blas = ("OMP", "MKL", "OPENBLAS", "BLIS")
    for workers, each, numba in ((2, 1, 3), (0, 1, 7), (3, 4, 4)):
        assert threads.environment(workers, each) == {
            **{f"{name}_NUM_THREADS": str(each) for name in blas}, "VECLIB_MAXIMUM_THREADS": str(each),
            "NUMBA_NUM_THREADS": str(numba), "OMP_WAIT_POLICY": "PASSIVE", "TOKENIZERS_PARALLELISM": "false",
        }  # fmt: skip
    assert threads.environment(7) == threads.environment(7, 1)
    assert (threads.advice(7, 1), threads.advice(1, 7)) == ("", "")
    assert threads.advice(4, 2) == (
        "4 workers x 2 threads on 7 cores: waiting threads spin, so 2 workers x 2 threads on 2 cores "
        "measured 50 times slower than 2 x 1. Use at most 7 threads in all."
    )


class Shelf:
    """A store that remembers."""

    def __init__(self, **answers):
        self.log, self.answers = [], answers

    def __getattr__(self, name):
        def call(*given):
            self.log.append((name, *given))
            found = self.answers.get(name)
            return found(*given) if callable(found) else found

        return call


class Shown(Progress):
    def __init__(self):
        super().__init__()
        self.heard = []

    def note(self, text):
        self.heard.append(text)

    def landed(self, content):
        self.heard.append(content)


def test_a_feed_claims_packs_passes_over_those_of_others_and_takes_their_results(monkeypatch):
    store = Shelf(
        failures={C: "old"}, claim=lambda pack: pack != A, settled=lambda pack: pack == B, result=b"there",
        failure=lambda pack: {C: "new"}.get(pack),
    )  # fmt: skip
    shown = Shown()
    shown.start(4, 0)
    feed = runner._Feed(store, PACKS, SimpleNamespace(is_set=lambda: False), shown)
    assert feed.take() is PACKS[3]
    assert [call for call in store.log if call[0] in ("claim", "release")] == [
        ("claim", A), ("claim", B), ("release", B), ("claim", C), ("release", C), ("claim", D),
    ]  # fmt: skip
    assert (shown.done, shown.failed, shown.heard) == (1, 1, [b"there"])
    assert not feed.exhausted()  # another holds the first
    assert feed.unsettled()
    assert feed.take() is None
    store.answers |= {"claim": True, "failures": {}}
    assert feed.take() is PACKS[0]
    assert feed.exhausted()
    monkeypatch.setattr(runner, "forget", lambda pack: store.log.append(("forget", pack)))
    monkeypatch.setattr(runner.manifest, "entry", lambda pack: f"entry {pack.id}")
    store.log.clear()
    feed.settle(Receipt(A, "done", b"new", provenance={"x": 1}))
    assert store.log == [
        ("commit", A, b"new", {"x": 1, "planned": f"entry {A}"}), ("forget", A), ("release", A),
    ]  # fmt: skip
    assert (shown.done, shown.heard[-1], feed.unsettled()) == (2, b"new", True)
    store.log.clear()
    feed.settle(Receipt(D, "oom", message="too \x1bbig", trace="t", provenance={"attempts": 2}))
    assert store.log == [("fail", Failure(D, "oom", "too \x1bbig", PACKS[3].names, 2, "t")), ("release", D)]
    assert (shown.failed, shown.heard[-1], feed.unsettled()) == (2, f"{PACKS[3]} oom: too \\x1bbig", False)
    assert runner._failure(PACKS[0], Receipt(A, "timeout")).attempts == 1


def test_shares_are_noted_once_a_second_and_shown_each_time(monkeypatch):
    now, store, shown = [100.0], Shelf(failures={}), Shown()
    monkeypatch.setattr(runner.time, "monotonic", lambda: now[0])
    told = []
    shown.steps = lambda *given: told.append(given)
    feed = runner._Feed(store, PACKS[:1], SimpleNamespace(is_set=lambda: True), shown)
    assert feed.stopping()
    for at, done, total in ((100.0, 1, 4), (100.9, 2, 4), (101.0, 3, 4), (103.0, 0, 0)):
        now[0] = at
        feed.steps(A, done, total)
    assert [call[1:] for call in store.log[1:]] == [(A, 0.25), (A, 0.75), (A, 0.0)]
    assert told == [(A, PACKS[0].names, share) for share in (0.25, 0.5, 0.75, 0.0)]
    feed.line("x")
    assert shown.heard == ["x"]


def test_a_default_executor_fits_the_work_and_damage_is_told(monkeypatch):
    monkeypatch.setattr(runner, "cores", lambda: 5)
    monkeypatch.setattr(runner, "advice", lambda w, threads: f"{w} x {threads}" if w > 5 else "")
    ranked = plan(grid(Run(policy="hf", model="m", policy_args=(("ranks", 2),)), seed=range(4)))
    shown = Shown()
    for packs, workers, made in (
        (PACKS, None, 4), (ranked, None, 2), (ranked, 3, 3), ((), None, 1), (PACKS, 9, 4),
    ):  # fmt: skip
        found = runner._default_executor(packs, workers, 1, None, "m:f", shown)
        assert (type(found), found.workers, found.function) == (Local, made, "m:f")
    assert shown.heard == ["6 x 1"]
    on_gpu = plan(grid(Run(device="cuda", policy="hf", model="m"), seed=range(3)))
    assert runner._default_executor(on_gpu, None, 1, None, "m:f", shown).workers == 1
    assert type(runner._default_executor(PACKS, 0, 1, None, "m:f", shown)) is Inline
    shown.heard.clear()
    store = Shelf(quarantined=[f"{A}-1.parquet", "other-2.parquet", f"{B}-7.parquet"])
    runner._tell_damage(store, PACKS[:3], shown)
    runner._tell_damage(store, PACKS[2:], shown)
    assert shown.heard == ["Results of 2 cells were damaged; these cells run again."]


def test_the_first_ctrl_c_asks_and_the_second_interrupts():
    told = []
    before = signal.getsignal(signal.SIGINT)
    with runner.draining(lambda: told.append(1)) as asked:
        assert not asked.is_set()
        signal.raise_signal(signal.SIGINT)
        assert asked.wait(5)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    for limits in ((None, 1, None), (0, 1, 0.1), (3, 2, 5.0)):
        runner.check_limits(*limits)


# Ray, by a script.


class Lost(Exception):
    pass


def scripted_ray(**answers):
    names = ("OutOfMemoryError", "WorkerCrashedError", "NodeDiedError", "RayError")
    errors = SimpleNamespace(**{name: type(name, (Lost,), {}) for name in names})
    log, dead = [], []
    node = SimpleNamespace(dead_processes=lambda: dead)
    ray = SimpleNamespace(
        exceptions=errors, log=log, cancel=lambda stream, force: log.append((stream, force)),
        shutdown=lambda: log.append("shutdown"), dead=dead, **answers,
        _private=SimpleNamespace(worker=SimpleNamespace(_global_node=node)),
    )  # fmt: skip
    engine = object.__new__(Ray)
    vars(engine).update(
        _ray=ray, _address=None, _timeout=3.0, _running={}, _sweeper=None, function="m:f", workers=2
    )
    return engine, ray


def test_items_of_a_ray_stream_are_receipts_or_say_how_it_was_lost():
    def raising(name):
        def get(_):
            raise getattr(ray.exceptions, name)("said")

        return get

    engine, ray = scripted_ray()
    for name, kind, message in (
        ("OutOfMemoryError", "oom", "said"), ("WorkerCrashedError", "died", "said"),
        ("NodeDiedError", "died", "said"), ("RayError", "failed", "RayError: said"),
    ):  # fmt: skip
        ray.get = raising(name)
        assert engine._item(iter([0]), A) == Receipt(A, kind, message=message)
    assert engine._item(iter([]), A) == Receipt(A, "failed", message="StopIteration: ")
    ray.get = lambda item: item
    assert engine._item(iter([None]), A) is None
    ray.dead += [("raylet", 0), ("agent", 1)]
    lost = "^The local Ray has lost its raylet: stopped. Finished packs are kept; run the same command again"
    for name in ("NodeDiedError", "RayError"):
        ray.get = raising(name)
        refuses(lost, engine._item, iter([0]), A)
    refuses(lost, list, engine.wait(Fed()))
    engine._address = "auto"
    assert engine._item(iter([0]), A).kind == "failed"
    assert list(engine.wait(Fed())) == []
    ray._private.worker._global_node = None
    assert ray_executor._dead_parts(ray) == []


def test_packs_at_ray_have_a_deadline_from_their_start(monkeypatch):
    now = [10.0]
    monkeypatch.setattr(ray_executor.time, "monotonic", lambda: now[0])
    one, two = iter([None, Receipt(A, "done")]), iter([])
    asked = []

    def wait(streams, num_returns, timeout):
        asked.append((len(streams), num_returns, timeout))
        return [s for s in streams if s is one], []

    engine, ray = scripted_ray(wait=wait, get=lambda item: item)
    engine._running = {one: ray_executor._Flight(A), two: ray_executor._Flight(B, 10.5)}
    assert list(engine.wait(Fed())) == []
    assert asked == [(2, 1, 0.2), (2, 2, 0)]
    assert engine._running[one].deadline == 13.0
    now[0] = 10.6
    assert list(engine.wait(Fed())) == [
        Receipt(A, "done"), Receipt(B, "timeout", message="The pack ran longer than its limit of 3 s."),
    ]  # fmt: skip
    assert (engine._running, ray.log) == ({}, [(two, True)])
    engine._timeout = None
    engine._running = {iter([None]): ray_executor._Flight(B)}
    ray.wait = lambda streams, num_returns, timeout: (streams, [])
    assert list(engine.wait(Fed())) == []
    assert next(iter(engine._running.values())).deadline == INF


def test_packs_are_handed_to_ray_with_a_gpu_where_they_need_one_and_taken_back():
    given = []

    class Task:
        def __init__(self, gpus=0):
            self.gpus = gpus

        def options(self, num_gpus):
            return Task(num_gpus)

        def remote(self, text):
            given.append((self.gpus, text))
            return f"stream {len(given)}"

    engine, ray = scripted_ray()
    engine._task = Task()
    (gpu,) = plan([Run(device="cuda")])
    engine.submit(PACKS[0])
    engine.submit(gpu)
    assert given == [(0, order(PACKS[0], "m:f")), (1, order(gpu, "m:f"))]
    assert [vars(flight) for flight in engine._running.values()] == [
        {"pack": A, "deadline": INF}, {"pack": gpu.id, "deadline": INF},
    ]  # fmt: skip
    ended = []
    engine._sweeper = SimpleNamespace(communicate=lambda: ended.append(1))
    engine.close()
    assert ray.log == [("stream 1", True), ("stream 2", True), "shutdown"]
    assert (ended, engine._sweeper, engine._running) == ([1], None, {})
    ray.log.clear()
    engine._running["s"] = None
    ray.dead.append(("raylet", 0))
    engine.close()
    assert ray.log == ["shutdown"]  # the dead are not asked
    engine._ray = None
    engine.close()
    assert ray.log == ["shutdown"]


def test_ray_is_reached_here_alone_or_at_its_address(monkeypatch):
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_USAGE_STATS_ENABLED", ray_executor.LOOPBACK):
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)
    monkeypatch.setenv(ray_executor.LOOPBACK, "1")  # is overruled
    asked, place = [], ["127.0.0.1"]
    ray = SimpleNamespace(
        init=lambda *words, **options: asked.append((words, options)),
        shutdown=lambda: asked.append("shutdown"),
        util=SimpleNamespace(get_node_ip_address=lambda: place[0]), exceptions=SimpleNamespace(RayError=Lost),
        cluster_resources=lambda: {"CPU": 6.0},
        remote=lambda f: SimpleNamespace(options=lambda **how: (f, how)),
        _private=SimpleNamespace(worker=SimpleNamespace(print_to_stdstream=print)),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "ray", ray)
    quiet = {"log_to_driver": False, "logging_level": "error"}
    local = {"include_dashboard": False, "object_store_memory": 2**28, "_temp_dir": "f", "num_cpus": 3}
    assert ray_executor._connect(None, 3, "f") is ray
    assert asked.pop() == (("local",), local | quiet)
    assert ray._private.worker.print_to_stdstream("a raylet's log", ignore_prefix="") is None
    assert (
        os.environ["RAY_AUTH_MODE"], os.environ["RAY_USAGE_STATS_ENABLED"], os.environ[ray_executor.LOOPBACK],
    ) == ("token", "0", "0")  # fmt: skip
    token = os.environ["RAY_AUTH_TOKEN"]
    assert len(token) == 64
    place[0] = "10.0.0.1"
    with pytest.raises(UserError, match="Ray was imported before, so it would listen on every interface"):
        ray_executor._connect(None, 3, "f")
    assert asked.pop() == "shutdown"
    assert os.environ["RAY_AUTH_TOKEN"] == token
    asked.clear()
    assert ray_executor._connect("auto", 3, None) is ray
    assert asked.pop() == (("auto",), quiet)

    def nobody(*_, **__):
        raise ConnectionError("refused")

    ray.init = nobody
    with pytest.raises(
        UserError, match=r"^No Ray cluster answers at 'auto' \(refused\). Expected host:port or auto"
    ):
        ray_executor._connect("auto", 3, None)
    engine, _ = scripted_ray()
    monkeypatch.setattr(ray_executor, "_connect", lambda *given: asked.append(given) or ray)
    monkeypatch.setattr(ray_executor, "environment", lambda workers, each: {"w": (workers, each)})
    monkeypatch.setattr(ray_executor, "cores", lambda: 9)
    for address, given, workers, variables in (
        ("auto", None, 6, {"w": (9, 4)}),
        ("auto", 2, 2, {"w": (9, 4)}),
    ):
        vars(engine).update(_ray=None, _address=address, _given=given, workers=5, _threads=4)
        engine.open()
        assert asked.pop() == (address, 5, None)
        assert engine.workers == workers
        function, how = engine._task
        assert function is ray_executor._stream
        assert how == {
            "num_returns": "streaming", "num_cpus": 1, "max_retries": 0,
            "runtime_env": {"env_vars": variables},
        }  # fmt: skip
    engine.open()  # connected
    assert asked == []
    monkeypatch.setattr(engine, "_private_folder", lambda: "private", raising=False)
    vars(engine).update(_ray=None, _address=None, _given=None)
    engine.open()
    assert asked == [(None, 2, "private")]
    assert engine._task[1]["runtime_env"]["env_vars"] == {
        "w": (6, 4), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip


def test_a_ray_worker_says_that_it_begins_and_then_what_became(monkeypatch):
    begun = []
    monkeypatch.setattr(ray_executor, "prepare", begun.append)
    monkeypatch.setattr(ray_executor, "execute", lambda text: Receipt(text, "done"))
    text = order(PACKS[0], "m:f")
    stream = ray_executor._stream(text)
    assert next(stream) is None
    assert begun == ["m:f"]
    assert list(stream) == [Receipt(text, "done")]
