"""Sequences of unequal length: the numbers of a padded batch, at the memory of the tokens."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from testbed.data.batch import Batch
from testbed.diagnostics.ratio_metrics import ratio_metrics
from testbed.logs import clip_report
from testbed.logs.clip_report import chunks, weigh
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
            LoggedSequence(
                0, str(n), str(n // group), mask, logp_mu=mu, logp_pi=pi, logp_anchor=(mu + pi) / 2,
                advantage=np.full(length, (-1.0) ** n), version=draw.integers(0, 3, length), reward=n % 2,
                trainer_version=4,
            )
        )  # fmt: skip
    return Log("made", tuple(found))


def padded(log, name):
    width = max(len(one.mask) for one in log.sequences)
    rows = [np.pad(getattr(one, name), (0, width - len(one.mask))) for one in log.sequences]
    return torch.from_numpy(np.stack(rows))


@pytest.mark.parametrize("hostile", [(), (-np.inf,), (np.inf, -np.inf, 3.0)])
def test_packed_sequences_have_the_numbers_of_the_padded_batch(hostile):
    """The batch's metrics as a run logs them, whose code pads, are the second opinion."""
    log = ragged([1, 40, 3, 7, 7, 2, 5, 19, 6, 4, 11, 8, 8, 9], hostile=hostile)
    found = ratio_numbers(tensors(log))
    mask_BT, pi_BT = padded(log, "mask"), padded(log, "logp_pi")
    group_B = torch.zeros(len(mask_BT)).long()
    batch = Batch(padded(log, "logp_mu"), torch.zeros(mask_BT.shape), mask_BT, group_B.double(), group_B)
    for name, value in ratio_metrics(pi_BT, batch).items():
        assert found[name] == pytest.approx(float(value), rel=1e-12, nan_ok=True), name


def test_groups_stay_whole_in_batches_of_similar_length(monkeypatch):
    log = ragged([5] * 40 + [300] * 4 + [6, 5, 200, 5])
    tokens = tensors(log)
    every = torch.ones(len(log.sequences), dtype=torch.bool)
    assert chunks(tokens.length_B, tokens.group_B, every) == [list(range(48))]  # small batches stay whole
    monkeypatch.setattr(clip_report, "FREE", 0)
    parts = chunks(tokens.length_B, tokens.group_B, every)
    assert sorted(i for part in parts for i in part) == list(range(48))
    assert len(parts) == 2
    for part in parts:
        held = [log.sequences[i] for i in part]
        assert all(part.count(i) == 1 for i in part)
        assert {one.group for one in held}.isdisjoint(
            one.group for i, one in enumerate(log.sequences) if i not in part
        )
        assert len(held) * max(len(one.mask) for one in held) <= 4 * sum(len(one.mask) for one in held)
    mixed = tensors(ragged([900] + [5] * 7 + [6] * 8, group=8))  # 7,200 entries for 935 tokens
    parts = chunks(mixed.length_B, mixed.group_B, torch.ones(16, dtype=torch.bool))
    assert sorted(map(sorted, parts)) == [[0], list(range(1, 16))]
    every[40:44] = False
    assert set(range(40, 44)).isdisjoint(
        i for part in chunks(tokens.length_B, tokens.group_B, every) for i in part
    )


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
