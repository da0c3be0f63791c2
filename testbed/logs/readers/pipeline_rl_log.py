"""PipelineRL: the streams of training texts, SHARD.jsonl below streams/actor.

Format: pipelinerl/rollouts.py of ServiceNow/PipelineRL (TrainingText): input_ids, labels with -100 for
unlearned tokens, logprobs of the sampler for labeled tokens only, group_id, reward, metadata.model_version; a
line is one text or a list of them. A response has one version, even if a weight update came in the middle of
it. The trainer's step is not written: texts are ordered by their weights version, which replaces it.
Advantages are made later; here they are reward minus the group's mean, as a note says.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import UserError
from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.record import Log, LoggedSequence, floats, ints, made, number, whole

IGNORED = -100


def read(paths: Sequence[Path]) -> Log:
    """Return the texts of all shards."""
    notes = [
        "The trainer's step is not written: the weights version stands for it.",
        "This format records one version per response, even if weights changed during generation.",
    ]
    found = [_sequence(row, where) for path in paths for where, row in files.json_lines(path, notes)]
    return made("PipelineRL", found, notes)


def _sequence(row: Mapping[str, Any], where: str) -> LoggedSequence:
    token, label = ints(row["input_ids"], f"{where}: input_ids"), ints(row["labels"], f"{where}: labels")
    if token is None or label is None or len(token) != len(label):
        raise UserError(
            f"{where}: input_ids and labels are no lists of one length; expected a label per token."
        )
    chosen = label != IGNORED
    first = int(np.argmax(chosen)) if chosen.any() else len(token)
    mask = chosen[first:]
    given = floats(row.get("logprobs") or None, f"{where}: logprobs")
    if given is not None and len(given) != int(mask.sum()):
        raise UserError(
            f"{where}: {len(given)} logprobs for {int(mask.sum())} labeled tokens; expected one each."
        )
    logp_mu = None
    if given is not None:
        logp_mu = np.zeros(len(mask))
        logp_mu[mask] = given
    version = whole((row.get("metadata") or {}).get("model_version"), f"{where}: model_version")
    return LoggedSequence(
        step=version or 0, sample=where, group=str(row.get("group_id") or where), mask=mask,
        reward=number(row.get("reward"), f"{where}: reward"), prompt=token[:first], token=token[first:],
        logp_mu=logp_mu, version=None if version is None else np.full(len(mask), version),
    )  # fmt: skip


READER = Reader("pipeline-rl", "streams/actor/…/SHARD.jsonl", ("*.jsonl",), ("input_ids", "labels"), read)
