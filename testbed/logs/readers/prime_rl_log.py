"""prime-rl: token_exports/step_N/rank_R.jsonl, written with `enable_token_export`.

Format: src/prime_rl/trainer/rl/token_export.py of PrimeIntellect-ai/prime-rl (schema_version 1;
TokenExporter). A line is one packed sequence with prompt; its lists have an entry per token;
log-probabilities of the prompt are 0 under a loss_mask of false. Version 2, with sample_id, rewards and
temperatures per token, was read in a fork's exporter of the same design; upstream's version 2 could not be
confirmed. Exports have no groups, so sequences of one prompt at one step form a group; nor do they have the
weights version. A step folder without STABLE was not finished.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import UserError
from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.record import Log, LoggedSequence, bools, floats, ints, made, whole

VERSIONS = (1, 2)


def read(paths: Sequence[Path]) -> Log:
    """Return the sequences of all ranks; reports missing ranks or STABLE markers, and truncated files."""
    notes = [*_shards(paths), "Groups are not exported: sequences of one prompt at one step are one group."]
    rows = [item for path in paths for item in files.json_lines(path, notes)]
    return made("prime-rl", [_sequence(row, where) for where, row in rows], notes)


def _sequence(row: Mapping[str, Any], where: str) -> LoggedSequence:
    if row.get("schema_version") not in VERSIONS:
        raise UserError(f"{where}: schema_version is {row.get('schema_version')!r}; known: 1 and 2.")
    mask = bools(row.get("loss_mask"), f"{where}: loss_mask")
    if not mask.any():
        return LoggedSequence(whole(row.get("step"), f"{where}: step") or 0, where, where, mask)
    first = int(np.argmax(mask))
    token = ints(row.get("token_ids"), f"{where}: token_ids")
    prompt = None if token is None else token[:first]
    rewards = floats(row.get("rewards"), f"{where}: rewards")
    temperature = floats(row.get("temperatures"), f"{where}: temperatures")
    digest = where if prompt is None else hashlib.sha256(prompt.tobytes()).hexdigest()[:12]
    sample = row.get("sample_id") or f"rank {row.get('rank')}, {row.get('export_sequence_idx')}"
    lists: dict[str, Any] = {
        ours: None if (found := floats(row.get(theirs), f"{where}: {theirs}")) is None else found[first:]
        for ours, theirs in (
            ("logp_mu", "inference_logprobs"),
            ("logp_pi", "trainer_logprobs"),
            ("advantage", "advantages"),
        )
    }
    return LoggedSequence(
        step=whole(row["step"], f"{where}: step") or 0, sample=str(sample), group=f"{row['step']}/{digest}",
        mask=mask[first:],
        reward=None if rewards is None or np.isnan(rewards[mask][-1]) else float(rewards[mask][-1]),
        temperature=None if temperature is None else float(temperature[first]), prompt=prompt,
        token=None if token is None else token[first:], **lists,
    )  # fmt: skip


def _ranks(paths: Iterable[Path]) -> set[int]:
    found = (files.number_in(path, r"rank_(\d+)\.jsonl$") for path in paths)
    return {rank for rank in found if rank is not None}


def _shards(paths: Sequence[Path]) -> list[str]:
    """Report missing files: ranks of a step, or the marker that the step was finished."""
    notes = []
    for folder in dict.fromkeys(path.parent for path in paths):
        here = [path for path in paths if path.parent == folder]
        given, there = _ranks(here), _ranks(folder.glob("rank_*.jsonl"))
        if there - given:
            told = f"{len(given)} of {len(there)} ranks were given; give the folder for all."
            notes.append(f"{folder.name}: {told}")
        if gaps := sorted(set(range(max(there, default=-1) + 1)) - there):
            told = f"no file of rank {', '.join(map(str, gaps))}; part of the batch may be missing."
            notes.append(f"{folder.name}: {told}")
        if folder.name.startswith("step_") and not (folder / "STABLE").exists():
            notes.append(f"{folder.name} has no STABLE marker: its export may not be finished.")
    return notes


KEYS = ("inference_logprobs", "trainer_logprobs")
READER = Reader("prime-rl", "token_exports/step_N/rank_R.jsonl", ("rank_*.jsonl",), KEYS, read)
