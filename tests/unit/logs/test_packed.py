"""Sequences of unequal length: the numbers of a padded batch, at the memory of the tokens."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from testbed.logs import clip_report
from testbed.logs.clip_report import weigh
from testbed.logs.log_tensors import tensors
from testbed.logs.measure import age_rows, ratio_numbers, split, tails
from testbed.logs.record import Log, LoggedSequence


def ragged(lengths, seed=0, group=4, hostile=()):
    """Return a log of one step; hostile: values that log pi takes at a few random tokens."""
    draw = np.random.default_rng(seed)
    found = []
    for n, length in enumerate(lengths):
        mu = -draw.exponential(1.0, length)
        pi = mu + draw.normal(0, 0.2, length)
        mask = draw.random(length) < 0.9
        mask[0] = True
        for value in hostile if length > 3 and n % 7 == 0 else ():
            pi[draw.integers(length)] = value
        found.append(
            LoggedSequence(0, str(n), str(n // group), mask, logp_mu=mu, logp_pi=pi,
                           logp_anchor=(mu + pi) / 2, advantage=np.full(length, (-1.0) ** n),
                           version=draw.integers(0, 3, length), reward=n % 2, trainer_version=4)
        )  # fmt: skip
    return Log("made", tuple(found))


def test_objectives_say_the_same_of_a_batch_that_is_split_by_length(monkeypatch):
    names = ["ppo_clip", "gspo", "cispo", "topr", "tis"]  # of tokens and of sequences
    for lengths, said in (
        ([5] * 40 + [300] * 4, ["Sequences differ widely in length at 1 step:"]),
        ([900] + [5] * 7, ["A response is much longer than", "Sequences differ widely in length at 1 step:"]),
    ):
        log = ragged(lengths, group=8)
        # Rewards alone: the mean is that of the whole group, whatever batch its responses are in.
        log = Log("made", tuple(replace(one, advantage=None) for one in log.sequences))
        monkeypatch.setattr(clip_report, "FREE", 100_000)
        whole, before = weigh(log, names)
        monkeypatch.setattr(clip_report, "FREE", 0)
        parts, after = weigh(log, names)
        new = sorted(set(after) - set(before))
        assert [note.startswith(start) for note, start in zip(new, said, strict=True)] == [True] * len(said)
        for one, other in zip(whole, parts, strict=True):
            assert one.pop("objective") == other.pop("objective")
            assert one == pytest.approx(other, rel=1e-12, nan_ok=True)


def took() -> float:
    """Return the memory that numbers about one long sequence among short ones take, in sizes of the log."""
    works = (ratio_numbers, tails, age_rows, split)
    log = ragged([700_000] + [5] * 999)  # padded: 5.6 GB an array
    fields = ("mask", "logp_mu", "logp_pi", "logp_anchor", "advantage", "version")
    size = sum(getattr(one, name).nbytes for one in log.sequences for name in fields)

    def resident(name: str) -> int:
        return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) * 1024

    for work in works:
        work(tensors(ragged([50, 5, 5, 5])))  # what is imported at the first call
    Path("/proc/self/clear_refs").write_text("5")
    before = resident("VmRSS")
    for work in works:
        work(tensors(log))
    return (resident("VmHWM") - before) / size


@pytest.mark.slow
def test_one_long_sequence_among_short_ones_takes_memory_for_its_tokens():
    """Peak of resident memory, as tracemalloc does not see torch's; freed memory goes back at once."""
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the peak of resident memory cannot be set back here")
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[2]), *sys.path]
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536", "PYTHONPATH": os.pathsep.join(paths)}
    command = [sys.executable, "-c", "import test_packed; print(test_packed.took())"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < 3  # 2.24 where it was written
