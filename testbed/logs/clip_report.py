"""Apply every objective to the tokens of a log, and compare its weights with those on-policy."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from testbed.data.batch import Batch
from testbed.errors import UserError, counted
from testbed.inspection.effective_weights import effective_weights
from testbed.logs.log_tensors import Tokens, tensors
from testbed.logs.record import Log
from testbed.objectives import objective

BUDGET = 20_000
"""Most tokens that objectives are applied to; longer logs drop steps evenly."""
WASTE, FREE = 4, 100_000
"""Largest ratio of padded entries to tokens, and batch size below which no batch is split by length."""


@dataclass(frozen=True)
class Batches:
    """Batches of a log with pi's log-probabilities, one per step read, and the omissions."""

    pairs: tuple[tuple[Tensor, Batch], ...]
    notes: tuple[str, ...]


def batches(log: Log, budget: int = BUDGET) -> Batches:
    """Return the log as batches; omits and counts sequences with an infinite log-probability or advantage.

    A token with a NaN log-probability is outside the mask, and the rest of its sequence is kept.
    Missing advantages become rewards minus their group's mean. A missing anchor becomes the behavior policy.
    Raises UserError if there are neither advantages nor rewards, or nothing finite is left.
    """
    notes, pairs, lost, total, split, torn = [], [], 0, 0, 0, 0
    if not log.has("advantage"):
        if not log.has("reward"):
            many = len(log.sequences)
            raise UserError(
                f"Objectives need the advantage of every sequence, or the reward of every one: of {many}, "
                f"{many - log.some('advantage')} have no advantage and {many - log.some('reward')} no reward."
            )
        notes.append("Advantages are not logged: reward minus the group mean is used.")
    if not log.has("logp_anchor"):
        notes.append("No anchor is logged: the behavior policy is used in its place.")
    steps = _thinned(log, budget)
    if len(steps) < len(log.steps):
        notes.append(f"{len(steps)} of {len(log.steps)} steps are read, spread evenly.")
    for step in steps:
        tokens = tensors(log.at(step))
        kept_B = _finite(tokens)
        lost, total = lost + int((~kept_B).sum()), total + len(kept_B)
        if bool(kept_B.any()):
            assert tokens.group_B is not None
            parts = chunks(tokens.length_B, tokens.group_B, kept_B)
            split += len(parts) > 1
            groups = [set(tokens.group_B[places].tolist()) for places in parts]
            torn += sum(map(len, groups)) - len(set().union(*groups))
            adv_N = _advantages(tokens, kept_B)
            pairs += [_pair(tokens, adv_N, places) for places in parts]
    if split:
        notes.append(
            f"Sequences differ widely in length at {counted(split, 'step')}: objectives that weigh a whole "
            "batch see batches of similar length; other objectives are unaffected."
        )
    if torn:
        notes.append(
            "A response is much longer than the rest of its group, which is split by length: objectives that "
            "weigh a whole group see responses of similar length."
        )
    if lost:
        notes.append(f"{lost} of {total} sequences have no token or a token that is not finite: left out.")
    if not pairs:
        raise UserError("No sequence has finite log-probabilities and advantages throughout.")
    return Batches(tuple(pairs), tuple(notes))


def _thinned(log: Log, budget: int) -> list[int]:
    steps = log.steps
    size = sum(len(one.mask) for one in log.sequences) / len(steps)
    many = max(1, min(len(steps), int(budget / max(size, 1))))
    if many == 1:
        return steps[-1:]
    return sorted({steps[round(i * (len(steps) - 1) / (many - 1))] for i in range(many)})


def _finite(tokens: Tokens) -> Tensor:
    lost_N = torch.zeros_like(tokens.mask_N)
    for value_N in (tokens.log_pi_N, tokens.log_mu_N, tokens.log_anchor_N, tokens.adv_N):
        if value_N is not None:
            lost_N |= ~torch.isfinite(value_N) & tokens.mask_N
    return (tokens.total(lost_N.long()) == 0) & (tokens.total(tokens.mask_N.long()) > 0)


def chunks(length_B: Tensor, group_B: Tensor, kept_B: Tensor) -> list[list[int]]:
    """Return the positions of kept sequences in batches padded to at most WASTE times their tokens.

    One batch, in order, if that suffices or its size is at most FREE. Otherwise groups stay whole, sorted by
    their longest sequence; a group that exceeds the limit by itself is split by length.
    """
    every = torch.nonzero(kept_B)[:, 0].tolist()
    length, group = length_B.tolist(), group_B.tolist()
    if not _ragged([length[i] for i in every]):
        return [every]
    members: dict[int, list[int]] = {}
    for i in every:
        members.setdefault(group[i], []).append(i)
    found: list[list[int]] = []
    units: list[list[int]] = []
    for places in members.values():
        ragged = _ragged([length[i] for i in places])
        units += [[i] for i in places] if ragged else [places]
    for places in sorted(units, key=lambda places: max(length[i] for i in places)):
        if not found or _ragged([length[i] for i in (*found[-1], *places)]):
            found.append([])
        found[-1] += places
    return found


def _ragged(lengths: Sequence[int]) -> bool:
    padded = len(lengths) * max(lengths, default=0)
    return padded > max(FREE, WASTE * sum(lengths))


def _advantages(tokens: Tokens, kept_B: Tensor) -> Tensor:
    """Return the advantages of tokens, [N]: as logged, or reward minus the group's mean over kept ones."""
    if tokens.adv_N is not None:
        return tokens.adv_N
    assert tokens.group_B is not None
    assert tokens.reward_B is not None
    reward_B, group_B = tokens.reward_B, tokens.group_B
    sum_G = torch.zeros_like(reward_B).index_add_(0, group_B[kept_B], reward_B[kept_B])
    count_G = group_B[kept_B].bincount(minlength=len(reward_B))
    return (reward_B - (sum_G / count_G)[group_B]).repeat_interleave(tokens.length_B)


def _pair(tokens: Tokens, adv_N: Tensor, places: Sequence[int]) -> tuple[Tensor, Batch]:
    """Return the sequences at given positions as a batch, padded on the right with 0, and pi of it."""
    assert tokens.group_B is not None
    mask_BT = _padded(tokens, tokens.mask_N, places)
    group_B = torch.unique(tokens.group_B[places], return_inverse=True)[1]
    given, none_B = tokens.reward_B, torch.zeros(len(places), dtype=torch.float64)
    reward_B = none_B if given is None else given[places]
    adv_BT = _padded(tokens, adv_N, places).masked_fill_(~mask_BT, 0.0)
    mu_BT = _padded(tokens, tokens.log_mu_N, places)
    anchor_BT = mu_BT
    if tokens.log_anchor_N is not None:
        anchor_BT = _padded(tokens, tokens.log_anchor_N, places).masked_fill_(~mask_BT, 0.0)
    batch = Batch(mu_BT, adv_BT, mask_BT, reward_B, group_B, anchor_BT)
    return _padded(tokens, tokens.log_pi_N, places), batch


def _padded(tokens: Tokens, value_N: Tensor, places: Sequence[int]) -> Tensor:
    rows = tokens.rows(value_N)
    return pad_sequence([rows[i] for i in places], batch_first=True)


def weigh(
    log: Log, names: list[str] | None = None, budget: int = BUDGET
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return every objective's effect on the log's tokens, and all assumptions and omissions.

    Every token's |effective weight| is compared with the same objective's at pi = anchor = mu, among tokens
    where that is not 0: cut: share with weight 0; down, up: shares below half and above twice the on-policy
    weight; largest: the greatest factor. cut_positive, cut_negative: cut among A > 0 and A < 0.
    positive_share: share of sum |weight| with A > 0. Omits objectives that read fields missing from logs
    (ref, turn, origin; reward or group if missing).
    """
    held = batches(log, budget)
    lacking = {"ref", "turn", "origin"} | ({"reward", "group"} if not log.has("reward") else set())
    rows, skipped = [], []
    for name in names or list(objective):
        if lacking & set(objective[name].promises.get("reads", ())):
            skipped.append(name)
            continue
        rows.append({"objective": name, **_shares(name, held)})
    notes = list(held.notes)
    if skipped:
        notes.append(f"{len(skipped)} objectives need inputs that the log lacks: {', '.join(skipped)}.")
    return rows, notes


def _shares(name: str, held: Batches) -> dict[str, float]:
    parts = [_factors(name, logp_BT, batch) for logp_BT, batch in held.pairs]
    factor_N, adv_N, weight_N = (torch.cat([part[i] for part in parts]) for i in range(3))
    some = factor_N.numel() > 0
    cut_N = factor_N == 0
    mass = float(weight_N.sum())
    return {
        "cut": _share(cut_N),
        "cut_positive": _share(cut_N[adv_N > 0]),
        "cut_negative": _share(cut_N[adv_N < 0]),
        "down": _share((factor_N > 0) & (factor_N < 0.5)),
        "up": _share(factor_N > 2),
        "largest": float(factor_N.max()) if some else math.nan,
        "positive_share": float(weight_N[adv_N > 0].sum()) / mass if mass > 0 else math.nan,
    }


def _share(chosen_N: Tensor) -> float:
    return float(chosen_N.double().mean()) if chosen_N.numel() else math.nan


def _factors(name: str, logp_BT: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Return |weight| over its on-policy value, advantage, |weight|, where the on-policy one is not 0."""
    weight_BT = effective_weights(name, logp_BT, batch).abs()
    there = replace(batch, logp_anchor_BT=batch.logp_mu_BT)
    on_BT = effective_weights(name, batch.logp_mu_BT, there).abs()
    read_BT = batch.mask_BT & (on_BT > 0)
    return (weight_BT / on_BT)[read_BT], batch.adv_BT[read_BT], weight_BT[read_BT]
