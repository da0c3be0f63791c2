"""Logs of every format, sound and damaged, compared whole: what is read, measured, doubted and weighed."""

import random
from dataclasses import replace

import numpy as np
import pytest
from support import log_mutations, made_logs
from support.pins import outcome, pinned
from support.sampled_logs import sampled

from testbed.logs import clip_report, log_tensors, measure, ratio_checks, sanity_checks, scalars
from testbed.logs.readers import read_any, readers
from testbed.logs.record import Log, LoggedSequence, joined

ASKED = ["ppo_clip", "gspo", "tis", "rloo", "topr", "cispo", "kl_rejection", "decoupled"]


def told(log):
    """Return all that is said of a log of tokens."""
    tokens = outcome(log_tensors.tensors, log)
    found = {
        "sizes": [len(log.sequences), log.steps, log.source], "notes": log.notes,
        "doubts": outcome(sanity_checks.suspicions, log), "serious": outcome(sanity_checks.serious, log),
        "verdict": outcome(sanity_checks.verdict, log, ["x"]), "ages": outcome(log_tensors.ages, log),
    }  # fmt: skip
    if isinstance(tokens, str):
        return found | {"tensors": tokens}
    return found | {
        "ratios": measure.ratio_numbers(tokens), "tails": measure.tails(tokens),
        "steps": measure.by_step(log),
        "by age": measure.age_rows(tokens), "split": measure.split(tokens), "tests": ratio_checks.tested(log),
        "findings": ratio_checks.findings(log),
    }  # fmt: skip


def rich(seed=0):
    """Return a log of ragged sequences: unequal groups, masks, ages, ties, an anchor, and lost values."""
    draw = np.random.default_rng(seed)
    found = []
    for n in range(23):
        size = int(draw.integers(1, 7))
        mask = draw.random(size) < 0.8
        mu = np.round(-draw.exponential(1.0, size), 2)
        pi = mu + np.round(draw.normal(0, 0.3, size), 1)
        pi[draw.random(size) < 0.03] = -np.inf
        found.append(
            LoggedSequence(
                n // 9, str(n), str(n // 4 if n < 15 else 7), mask, reward=float(n % 3) / 2, logp_mu=mu,
                logp_pi=pi,
                temperature=0.8 if n % 5 else 1.0, trainer_version=6 + n // 9,
                logp_anchor=(mu + pi.clip(-9)) / 2, version=5 + n // 9 - draw.integers(0, 4, size),
                advantage=np.full(size, (n % 3 - 1) / 2), prompt=np.arange(n % 4), token=draw.integers(0, 9,
                size),
            )
        )  # fmt: skip
    return Log("rich", tuple(found), ("a note",))


@pytest.mark.parametrize(
    "fault", ["", "swapped", "late", "early", "prompt", "bfloat16", "top-p", "top-k", "temperature"]
)
def test_a_fault_of_a_log_is_told_as_before(fault):
    pinned("logs", f"fault {fault or 'none'}", told(sampled(fault, many=48, longest=10, seed=3)), rel=1e-7)


def test_parts_of_a_rich_log_are_told_as_before():
    log = rich()
    bare = tuple(replace(one, advantage=None, logp_anchor=None) for one in log.sequences)
    for name, some in {
        "whole": log, "bare": Log("b", bare), "half": replace(log, sequences=log.sequences[::2]),
        "no trainer": Log("b", tuple(replace(one, trainer_version=None) for one in bare)),
        "no groups": Log("b", tuple(replace(one, group=one.sample, reward=None) for one in log.sequences)),
        "text": Log("b", tuple(replace(one, logp_mu=None) for one in bare)), "two": joined([log, Log("b",
        bare)]),
    }.items():  # fmt: skip
        found = told(some) | {"weighed": outcome(clip_report.weigh, some, ASKED)}
        pinned(
            "logs",
            f"rich, {name}",
            found | {"thinned": outcome(clip_report.weigh, some, ASKED[:3], 40)},
            rel=1e-7,
        )


@pytest.mark.parametrize("name", sorted({*log_mutations.FORMATS} - {"trl-scalars"}))
def test_a_format_is_read_as_before_sound_and_damaged(name, tmp_path):
    log_mutations.FORMATS[name](tmp_path / name)
    log = read_any([tmp_path / name])
    if isinstance(log, scalars.ScalarLog):
        found = [log.rows, log.keys, log.notes, log.unread, log.table(), scalars.verdict(log, log.alerts())]
        pinned("logs", f"format {name}", found)
        return
    few = replace(log, sequences=log.sequences[:3] + log.sequences[-2:])
    lines = {"rows": [one.plain() for one in few.sequences], "told": told(log)}
    pinned("logs", f"format {name}", lines, rel=1e-5)
    files = sorted(path for path in (tmp_path / name).rglob("*.jsonl"))
    for trial in range(8 if files else 0):
        path = files[trial % len(files)]
        before = path.read_text()
        rows = [log_mutations.json.loads(line) for line in before.split("\n") if line]
        log_mutations.changed(rows, random.Random(trial))
        path.write_text("".join(log_mutations.json.dumps(row) + "\n" for row in rows))
        read = outcome(read_any, [tmp_path / name])
        short = (
            read
            if isinstance(read, str)
            else [one.plain() for one in read.sequences[:2]] + [list(read.notes)]
        )
        pinned("logs", f"damaged {name} {trial}", short if name not in made_logs.BOTH else str(short)[:300])
        path.write_text(before)


def test_scalars_of_every_stack_are_told_as_before():
    for stack in scalars.STACKS:
        known = list(scalars.names(stack))
        rows = [
            (f"line {n}", n // 2, {key: (n + 1) * (k + 1) / 9 if (n + k) % 7 else float("nan") for k,
            key in enumerate(known)}
             | {"loss": float("inf") if n == 5 else 1.0, "odd": "x", "reward": 0.1 * n, "unknown": n,
             "flag": True})
            for n in range(9)
        ]  # fmt: skip
        log = scalars.scalar_log(stack, rows, ["one", "one"])
        sound = replace(log, broken={})
        found = {
            "rows": log.rows, "keys": log.keys, "broken": log.broken, "unread": log.unread,
            "table": log.table(),
            "alerts": log.alerts(), "says": scalars.verdict(log, log.alerts()), "notes": log.notes,
            "without broken": scalars.verdict(sound, sound.alerts()), "no alerts": scalars.verdict(sound, ()),
            "stack": scalars.stack_of(known),
        }  # fmt: skip
        pinned("logs", f"scalars {stack}", found)
    rises = [0.1, 0.1, 0.2, 0.3, 0.5, 0.7, 0.8, 0.8, 0.9, 0.8, 0.7, 0.4, 0.2, 0.1, 0.1, 0.1]
    for name, curve in {
        "falls": rises,
        "rises": sorted(rises),
        "flat": [0.5] * 16,
        "short": rises[:7],
    }.items():
        rows = [("l", n, {"reward": x, "entropy": 2.0 - n / 9}) for n, x in enumerate(curve)]
        pinned("logs", f"curve {name}", scalars.fall(scalars.scalar_log("TRL", rows)))
    pinned(
        "logs", "readers", {name: [list(each.patterns), list(each.keys)] for name, each in readers().items()}
    )
