"""open-instruct: RUN_rollouts_SHARD.jsonl, written with save_traces.

Format: open_instruct/rl_utils.py of allenai/open-instruct (RolloutRecord, _save_rollouts): step, sample_idx,
prompt_idx, prompt_tokens, response_tokens, reward, advantage, logprobs of vLLM or null. prompt_idx counts
within a step; a shard holds many steps. There are no trainer log-probabilities and no tool mask: every
response token counts as the policy's.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from testbed.logs import files
from testbed.logs.readers import Reader
from testbed.logs.record import Log, LoggedSequence, floats, ints, made, number, whole


def read(paths: Sequence[Path]) -> Log:
    """Return the sequences of all shards."""
    notes = ["Tool output is not marked: every response token is taken as the policy's."]
    found = []
    for path in paths:
        for where, row in files.json_lines(path, notes):
            step = whole(row["step"], f"{where}: step") or 0
            token = ints(row["response_tokens"], f"{where}: response_tokens")
            length = 0 if token is None else len(token)
            advantage = number(row.get("advantage"), f"{where}: advantage")
            found.append(
                LoggedSequence(
                    step=step,
                    sample=str(row.get("sample_idx", where)),
                    group=f"{step}/{row.get('prompt_idx', where)}",
                    mask=np.ones(length, dtype=bool),
                    reward=number(row.get("reward"), f"{where}: reward"),
                    prompt=ints(row.get("prompt_tokens"), f"{where}: prompt_tokens"),
                    token=token,
                    logp_mu=floats(row.get("logprobs"), f"{where}: logprobs"),
                    advantage=None if advantage is None else np.full(length, advantage),
                )
            )
    return made("open-instruct", found, notes)


FILES, KEYS = ("*_rollouts_*.jsonl",), ("prompt_tokens", "response_tokens")
READER = Reader("open-instruct", "RUN_rollouts_SHARD.jsonl", FILES, KEYS, read)
