"""The event loop of one pipeline, compiled.

Decoding has one clock: all sequences advance together at 1 / tau(c) tokens per second, so a response begun at
clock V ends at clock V + length, however c changed in between. Versions count optimizer updates. p: the RULES
record of a design; s: the STATE record of a run; a: its arrays; out: its results.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from testbed.pipeline.heap import pop, push
from testbed.pipeline.pipeline_draws import GROUP, length, normal, tool_wait
from testbed.pipeline.records import LAGS, SWAPS, Out, Store

_BLOCK, _DROP_OLDEST = 0, 1
_CAPACITY, _THRESHOLD, _ATTEMPTS = 1, 2, 3
_NEVER = np.inf
_ALL = 1 << 62


@njit(forceinline=True)
def _may_start(p: Any, s: Any) -> bool:
    if s.pause_end < _NEVER or (p.colocated and s.train_end < _NEVER):
        return False
    if p.drop_rule == _BLOCK and s.queue_size >= p.queue_groups:
        return False
    if s.started - s.dropped >= s.limit:
        return False
    return p.barrier == 0 or s.started < s.wave_end


@njit(forceinline=True)
def _new_wave(p: Any, s: Any) -> None:
    """Open the next batch's starts once nothing is running."""
    if p.barrier and s.started >= s.wave_end and s.decoding + s.waiting == 0:
        s.wave_end = s.started + p.batch


@njit(forceinline=True)
def _fill(p: Any, s: Any, a: Store, table_K: NDArray[np.int64], key: int) -> None:
    """Start responses while there are slots and the rules allow it."""
    _new_wave(p, s)
    while s.decoding + s.waiting < p.slots and _may_start(p, s):
        if s.open_left == 0:
            if s.free_groups == 0:
                s.overfull = 1
                return
            s.free_groups -= 1
            g = a.free_N[s.free_groups]
            s.open_group, s.open_left = g, p.group
            a.left_N[g], a.number_N[g], a.oldest_N[g] = p.group, s.groups_seen, s.engine_version
            a.score_N[g] = normal(s.groups_seen, GROUP, key) if p.shared > 0 else 0.0
            s.groups_seen += 1
        i = s.open_group * p.group + p.group - s.open_left
        s.open_left -= 1
        a.length_B[i] = length(p, table_K, a.score_N[s.open_group], s.started, key)
        a.first_version_B[i] = s.engine_version
        a.began_B[i] = s.virtual
        a.area_B[i] = _area(s)
        push(a.decode_key_K, a.decode_item_K, s.decoding, s.virtual + a.length_B[i], i)
        s.started += 1
        s.decoding += 1


@njit(forceinline=True)
def _area(s: Any) -> float:
    """Integrate the engine's version over the decoding clock so far."""
    return s.swap_area + s.engine_version * (s.virtual - s.swap_virtual)


@njit(forceinline=True)
def _swap(p: Any, s: Any, a: Store, version: int) -> None:
    """Switch the engines to new weights; the admission rules count from here."""
    s.swap_area = _area(s)
    s.swap_virtual = s.virtual
    s.engine_version = version
    a.swap_at_W[s.swaps % SWAPS], a.swap_version_W[s.swaps % SWAPS] = s.virtual, version
    s.swaps += 1
    s.published = version // p.updates
    if p.admission == _CAPACITY:
        s.limit = p.lag_samples + (s.published + 1) * p.batch
    elif p.admission == _THRESHOLD:
        inside = s.started - s.dropped - s.consumed
        wanted = int((1.0 + p.threshold) * p.sync_every * p.batch)
        s.limit = s.started - s.dropped + max(0, wanted - inside)
    elif p.admission == _ATTEMPTS:
        s.limit = p.lag_samples + (s.published + p.sync_every) * p.batch


@njit(forceinline=True)
def _drop(p: Any, s: Any, a: Store, out: Out, g: int) -> None:
    s.dropped += p.group
    a.free_N[s.free_groups] = g
    s.free_groups += 1
    if s.measuring:
        out.sums.dropped_samples += p.group


@njit(forceinline=True)
def _too_old(p: Any, s: Any, a: Store, g: int) -> bool:
    """True if the group would be too old for the last update of the batch being collected."""
    if p.max_age < 0:
        return False
    oldest = a.oldest_N[g]
    if p.by_last:
        oldest = a.last_version_B[g * p.group : (g + 1) * p.group].min()
    return (s.trained + 1) * p.updates - 1 - oldest > p.max_age


@njit(forceinline=True)
def _enqueue(p: Any, s: Any, a: Store, out: Out, g: int) -> None:
    """Offer a complete group to the queue."""
    if _too_old(p, s, a, g):
        _drop(p, s, a, out, g)
        return
    room = a.ring_N.shape[0]
    if p.drop_rule != _BLOCK and s.queue_size >= p.queue_groups:
        if p.drop_rule != _DROP_OLDEST:
            _drop(p, s, a, out, g)
            return
        _drop(p, s, a, out, a.ring_N[s.queue_first])
        s.queue_first = (s.queue_first + 1) % room
        s.queue_size -= 1
    a.ring_N[(s.queue_first + s.queue_size) % room] = g
    s.queue_size += 1


@njit(forceinline=True)
def _purge(p: Any, s: Any, a: Store, out: Out) -> None:
    """Drop groups that are too old; ages change only when a batch has been trained."""
    if p.max_age < 0 or s.purged_at == s.trained:
        return
    s.purged_at = s.trained
    room, kept = a.ring_N.shape[0], 0
    for k in range(s.queue_size):
        g = a.ring_N[(s.queue_first + k) % room]
        if _too_old(p, s, a, g):
            _drop(p, s, a, out, g)
        else:
            a.ring_N[(s.queue_first + kept) % room] = g
            kept += 1
    s.queue_size = kept


@njit(forceinline=True)
def _end_sample(p: Any, s: Any, a: Store, out: Out, i: int) -> None:
    s.finished += 1
    if s.measuring:
        out.sums.finished_samples += 1
        out.sums.finished_tokens += a.length_B[i]
    g = i // p.group
    a.left_N[g] -= 1
    if a.left_N[g] == 0:
        _enqueue(p, s, a, out, g)


@njit(forceinline=True)
def _end_decode(p: Any, s: Any, a: Store, out: Out, key: int) -> None:
    """End the response nearest to its last token."""
    s.virtual = a.decode_key_K[0]
    i = pop(a.decode_key_K, a.decode_item_K, s.decoding)
    s.decoding -= 1
    a.ended_B[i] = s.virtual
    a.area_B[i] = _area(s) - a.area_B[i]
    a.last_version_B[i] = s.engine_version
    if p.in_flight == 0:
        a.area_B[i] = float(a.first_version_B[i] * a.length_B[i])
        a.last_version_B[i] = a.first_version_B[i]
    if p.tool_time > 0:
        number = a.number_N[i // p.group] * p.group + i % p.group
        push(a.tool_key_K, a.tool_item_K, s.waiting, s.now + tool_wait(p, number, key), i)
        s.waiting += 1
    else:
        _end_sample(p, s, a, out, i)


@njit(forceinline=True)
def _count(out_K: NDArray[np.float64], lag: int, weight: float) -> None:
    out_K[min(max(lag, 0), LAGS - 1)] += weight


@njit(forceinline=True)
def _token_lags(p: Any, s: Any, a: Store, out: Out, i: int, now: int) -> None:
    """Count one response's tokens by lag: cut at every arrival of weights, newest first."""
    if p.in_flight == 0 or a.last_version_B[i] == a.first_version_B[i]:
        _count(out.token_K, now - a.first_version_B[i], a.length_B[i])
        return
    upper = a.ended_B[i]
    for back in range(min(s.swaps, SWAPS)):
        place = (s.swaps - 1 - back) % SWAPS
        lower = max(a.swap_at_W[place], a.began_B[i])
        if lower < upper:
            _count(out.token_K, now - a.swap_version_W[place], upper - lower)
            upper = lower
        if upper <= a.began_B[i]:
            return
    _count(out.token_K, LAGS, upper - a.began_B[i])


@njit(forceinline=True)
def _record(p: Any, s: Any, a: Store, out: Out, g: int, place: int) -> int:
    """Record a trained group as its batch's samples from `place` on; return its tokens."""
    tokens = 0
    for k in range(p.group):
        i = g * p.group + k
        tokens += a.length_B[i]
        if not s.measuring:
            continue
        now = s.trained * p.updates + (place + k) * p.updates // p.batch
        lag = now - a.first_version_B[i]
        _count(out.sample_K, lag, 1.0)
        _token_lags(p, s, a, out, i, now)
        out.sums.most_lag = max(out.sums.most_lag, lag)
        out.sums.sample_lag += lag
        out.sums.token_lag += now * a.length_B[i] - a.area_B[i]
        row = int(out.sums.samples)
        if row < out.trace_B.shape[0]:
            out.time_B[row] = s.now
            out.trace_B[row, 0], out.trace_B[row, 1] = a.number_N[g], k
            out.trace_B[row, 2], out.trace_B[row, 3] = a.length_B[i], a.first_version_B[i]
            out.trace_B[row, 4], out.trace_B[row, 5] = a.last_version_B[i], now
            out.trace_B[row, 6] = s.trained
        out.sums.samples += 1
    if s.measuring:
        out.sums.tokens += tokens
        out.sums.groups += 1
        lag = s.trained * p.updates + place * p.updates // p.batch - a.oldest_N[g]
        out.sums.group_lag += lag
        _count(out.group_K, lag, 1.0)
    return tokens


@njit(forceinline=True)
def _feed(p: Any, s: Any, a: Store, out: Out) -> None:
    """Give an idle trainer the next piece of its batch if the queue holds one."""
    if s.train_end < _NEVER or s.pause_end < _NEVER:
        return
    _purge(p, s, a, out)
    groups = p.batch // p.group // p.pieces
    if s.queue_size < groups:
        return
    room, tokens = a.ring_N.shape[0], 0
    for k in range(groups):
        if p.lifo:
            g = a.ring_N[(s.queue_first + s.queue_size - 1) % room]
        else:
            g = a.ring_N[s.queue_first]
            s.queue_first = (s.queue_first + 1) % room
        s.queue_size -= 1
        tokens += _record(p, s, a, out, g, (s.piece * groups + k) * p.group)
        a.free_N[s.free_groups] = g
        s.free_groups += 1
    s.consumed += groups * p.group
    s.piece_began = s.now
    s.train_end = s.now + p.train_time / p.pieces + p.train_token_time * tokens


@njit(forceinline=True)
def _end_piece(p: Any, s: Any, a: Store) -> None:
    """End a piece; after the last piece the batch is trained, and its weights may be sent."""
    s.busy += s.now - s.piece_began
    s.train_end = _NEVER
    s.piece += 1
    if s.piece < p.pieces:
        return
    s.piece = 0
    s.trained += 1
    if s.trained % p.sync_every:
        return
    version = s.trained * p.updates
    if p.sync_time <= 0:
        _swap(p, s, a, version)
    elif p.sync_blocking:
        s.coming, s.pause_end = version, s.now + p.sync_time
    elif s.arrive_at < _NEVER:
        s.next_coming = version
    else:
        s.coming, s.arrive_at = version, s.now + p.sync_time


@njit(forceinline=True)
def _arrive(p: Any, s: Any, a: Store) -> None:
    """End a weight transfer; start the newest weights that waited for it."""
    s.pause_end, s.arrive_at = _NEVER, _NEVER
    _swap(p, s, a, s.coming)
    if s.next_coming > s.coming:
        s.coming, s.arrive_at = s.next_coming, s.now + p.sync_time


@njit(forceinline=True)
def _step(p: Any, s: Any, a: Store, out: Out, key: int) -> bool:
    """Handle the next event; return False if there is none."""
    stopped = s.pause_end < _NEVER or (p.colocated and s.train_end < _NEVER)
    tau = p.tau_0 + p.tau_1 * s.decoding / p.engines
    decode = _NEVER
    if s.decoding > 0 and not stopped:
        decode = s.now + max(0.0, a.decode_key_K[0] - s.virtual) * tau
    tool = a.tool_key_K[0] if s.waiting > 0 else _NEVER
    arrive = min(s.pause_end, s.arrive_at)
    when = min(min(decode, tool), min(arrive, s.train_end))
    if when == _NEVER:
        return False
    if not stopped:
        s.slot_seconds += s.decoding * (when - s.now)
        # An idle engine has tau 0 if tau_0 is: its clock stands still until a sequence starts.
        if tau > 0.0:
            s.virtual += (when - s.now) / tau
    s.now = when
    if when == s.train_end:
        _end_piece(p, s, a)
    elif when == arrive:
        _arrive(p, s, a)
    elif when == decode:
        _end_decode(p, s, a, out, key)
    else:
        i = pop(a.tool_key_K, a.tool_item_K, s.waiting)
        s.waiting -= 1
        _end_sample(p, s, a, out, i)
    return True


@njit(error_model="numpy")
def run_one(
    p: Any, s: Any, a: Store, out: Out, table_K: NDArray[np.int64], key: int, warm: int, last: int
) -> None:
    """Run one pipeline until `last` batches are trained, and measure from batch `warm` on."""
    for g in range(a.free_N.shape[0]):
        a.free_N[g] = g
    s.free_groups = a.free_N.shape[0]
    s.limit, s.purged_at = _ALL, -1
    s.train_end, s.arrive_at, s.pause_end = _NEVER, _NEVER, _NEVER
    _swap(p, s, a, 0)
    while True:
        if s.measuring == 0 and s.trained >= warm:
            s.measuring, s.began, s.busy, s.slot_seconds = 1, s.now, 0.0, 0.0
        if s.trained >= last:
            break
        _feed(p, s, a, out)
        _fill(p, s, a, table_K, key)
        ahead = s.started - s.dropped - (s.published + 1) * p.batch
        out.sums.most_ahead = max(out.sums.most_ahead, ahead)
        if s.overfull or not _step(p, s, a, out, key):
            out.sums.stuck = 1.0 + s.overfull
            break
    out.sums.seconds = s.now - s.began
    out.sums.busy, out.sums.slot_seconds = s.busy, s.slot_seconds
    out.sums.simulated = s.started
