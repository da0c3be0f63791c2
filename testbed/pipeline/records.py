"""Input and output of a compiled run: a record per design and per run, arrays of open groups."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.pipeline.design import Design

LAGS = 256
"""Bins of a lag histogram; the last one holds all lags from LAGS - 1 on."""
TRACE_COLUMNS = 7
"""Integers per row of a trace: group, member, length, three versions, batch."""
SWAPS = 4096
"""Number of weight syncs remembered; tokens of older weights count in a histogram's last bin."""

_WHOLE = [
    "slots", "group", "batch", "updates", "pieces", "queue_groups", "max_age", "by_last", "admission",
    "lag_samples", "barrier", "sync_every", "sync_blocking", "in_flight", "colocated", "drop_rule", "lifo",
    "law", "table_start", "table_size", "max_length",
]  # fmt: skip
_REAL = [
    "engines", "tau_0", "tau_1", "log_mean", "sigma", "shared", "own", "tool_time", "train_time",
    "train_token_time", "threshold", "sync_time",
]  # fmt: skip
# Flags among whole numbers are 0 or 1.
RULES = np.dtype([(name, np.int64) for name in _WHOLE] + [(name, np.float64) for name in _REAL])

_COUNTS = [
    "started", "dropped", "consumed", "finished", "decoding", "waiting", "free_groups", "queue_first",
    "queue_size", "open_group", "open_left", "limit", "wave_end", "engine_version", "published", "coming",
    "next_coming", "trained", "piece", "purged_at", "swaps", "measuring", "groups_seen", "overfull",
]  # fmt: skip
_CLOCKS = [
    "now", "virtual", "train_end", "arrive_at", "pause_end", "swap_area", "began", "busy", "slot_seconds",
    "swap_virtual", "piece_began",
]  # fmt: skip
STATE = np.dtype([(name, np.int64) for name in _COUNTS] + [(name, np.float64) for name in _CLOCKS])

_SUMS = [
    "samples", "tokens", "groups", "sample_lag", "token_lag", "group_lag",
    "dropped_samples", "finished_samples", "finished_tokens", "seconds", "busy",
    "slot_seconds", "most_ahead", "most_lag", "stuck", "simulated",
]  # fmt: skip
SUMS = np.dtype([(name, np.float64) for name in _SUMS])

LAWS = {"lognormal": 0, "fixed": 1, "empirical": 2}
ADMISSIONS = {"none": 0, "capacity": 1, "threshold": 2, "attempts": 3}
DROP_RULES = {"block": 0, "drop-oldest": 1, "drop-newest": 2}


class Store(NamedTuple):
    """Arrays of one run: two heaps [K], groups [N], the queue's ring [N], samples [B], syncs [SWAPS]."""

    decode_key_K: NDArray[np.float64]
    decode_item_K: NDArray[np.int64]
    tool_key_K: NDArray[np.float64]
    tool_item_K: NDArray[np.int64]
    free_N: NDArray[np.int64]
    left_N: NDArray[np.int64]
    number_N: NDArray[np.int64]
    oldest_N: NDArray[np.int64]
    score_N: NDArray[np.float64]
    ring_N: NDArray[np.int64]
    length_B: NDArray[np.int64]
    first_version_B: NDArray[np.int64]
    last_version_B: NDArray[np.int64]
    began_B: NDArray[np.float64]
    ended_B: NDArray[np.float64]
    area_B: NDArray[np.float64]
    swap_at_W: NDArray[np.float64]
    swap_version_W: NDArray[np.int64]


class Out(NamedTuple):
    """Results of one run: sums, three histograms [LAGS] and, on request, one row per trained sample."""

    sums: Any
    token_K: NDArray[np.float64]
    sample_K: NDArray[np.float64]
    group_K: NDArray[np.float64]
    trace_B: NDArray[np.int64]
    time_B: NDArray[np.float64]


def rules(designs: list[Design]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return one RULES record per design, and the sorted empirical lengths of all, concatenated."""
    record_K = np.zeros(len(designs), RULES)
    lengths: list[int] = []
    for record, d in zip(record_K, designs, strict=True):
        for name in set(RULES.names or ()) & set(Design.__dataclass_fields__) - {"admission"}:
            value = getattr(d, name)
            record[name] = -1 if value is None else value
        record["queue_groups"] = d.queue_groups
        record["colocated"] = d.pools == "colocated"
        record["drop_rule"], record["lifo"] = DROP_RULES[d.queue_rule], d.order == "lifo"
        record["by_last"] = d.age_of == "last"
        record["admission"], record["law"] = ADMISSIONS[d.admission], LAWS[d.length]
        groups = -(-d.max_lag // d.group)
        record["lag_samples"] = d.eta * d.batch if d.admission == "capacity" else groups * d.group
        record["log_mean"] = log_mean(d)
        record["shared"], record["own"] = d.correlation**0.5, (1 - d.correlation) ** 0.5
        record["table_start"], record["table_size"] = len(lengths), len(d.lengths)
        lengths += sorted(d.lengths)
    return record_K, np.array(lengths or [1], dtype=np.int64)


def log_mean(design: Design) -> float:
    """Return the mean of log length, so that a lognormal length has mean `length_mean` before truncation."""
    spread = design.sigma**2 / 2 if design.length == "lognormal" else 0.0
    return float(np.log(design.length_mean)) - spread
