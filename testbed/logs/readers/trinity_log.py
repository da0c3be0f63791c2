"""Trinity-RFT: experiences as JSON lines.

Format: trinity/common/experience.py of modelscope/Trinity-RFT (Experience): tokens of prompt and response,
prompt_length, logprobs, advantages and action_mask over the response, reward, eid {batch, task, run, step},
info with model_version. Its database stores experiences as pickled bytes, which are not read; its file writer
omits tokens and log-probabilities (Experience.to_dict). To use them, write these fields with .tolist(), one
object per line. The sampler's version is known, the trainer's is not; eid.batch, the explorer's step,
replaces the step.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from testbed.errors import UserError
from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.record import Log, LoggedSequence, bools, floats, ints, made, number, whole


def read(paths: Sequence[Path]) -> Log:
    """Return the experiences; without tokens, only their rewards and groups."""
    notes = ["The step is the explorer's (eid.batch): the trainer's is not written."]
    found = [_sequence(row, where) for path in paths for where, row in files.json_lines(path, notes)]
    return made("Trinity-RFT", found, notes)


def _sequence(row: Mapping[str, Any], where: str) -> LoggedSequence:
    eid = row["eid"] if isinstance(row["eid"], dict) else {}
    step = whole(eid.get("batch", 0), f"{where}: eid.batch") or 0
    token = ints(row.get("tokens"), f"{where}: tokens")
    first = whole(row["prompt_length"], f"{where}: prompt_length") or 0
    length = 0 if token is None else len(token) - first
    if length < 0:
        raise UserError(
            f"{where}: prompt_length is {first}, but tokens has {length + first}; expected those of prompt "
            "and response."
        )
    version = whole((row.get("info") or {}).get("model_version"), f"{where}: model_version")
    texts = row.get("prompt_text"), row.get("response_text")
    mask = row.get("action_mask")
    return LoggedSequence(
        step=step,
        sample="/".join(str(eid.get(name, "")) for name in ("batch", "task", "run", "step", "suffix")),
        group=f"{step}/{eid.get('task', where)}/{eid.get('step', 0)}",
        mask=np.ones(length, dtype=bool)
        if mask is None or token is None
        else bools(mask, f"{where}: action_mask"),
        reward=number(row.get("reward"), f"{where}: reward"),
        prompt=None if token is None else token[:first],
        token=None if token is None else token[first:],
        logp_mu=None if token is None else floats(row.get("logprobs"), f"{where}: logprobs"),
        version=None if version is None else np.full(length, version),
        advantage=None if token is None else floats(row.get("advantages"), f"{where}: advantages"),
        text=(str(texts[0]), str(texts[1])) if token is None and None not in texts else None,
    )


READER = Reader("trinity", "experiences, *.jsonl", ("*experience*.jsonl",), ("eid", "prompt_length"), read)
