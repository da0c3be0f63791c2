"""A log as padded tensors: what the numbers about it are computed from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from testbed.errors import UserError
from testbed.logs.record import Log, LoggedSequence


@dataclass(frozen=True)
class Tokens:
    """Sequences side by side, padded on the right; log-probabilities are float64, 0 outside the mask.

    mask_BT: tokens that the policy chose and of which both log-probabilities exist (they may be -inf, not
    NaN). log_pi_BT, log_mu_BT, log_anchor_BT, adv_BT, age_BT: None where a sequence lacks it. group_B: ids
    from 0.
    """

    mask_BT: Tensor
    log_pi_BT: Tensor
    log_mu_BT: Tensor
    log_anchor_BT: Tensor | None
    adv_BT: Tensor | None
    age_BT: Tensor | None
    reward_B: Tensor | None
    group_B: Tensor

    @property
    def log_rho_BT(self) -> Tensor:
        """log pi - log mu, 0 outside the mask; -inf where pi = 0, +inf where mu = 0, NaN where both are."""
        return torch.where(self.mask_BT, self.log_pi_BT - self.log_mu_BT, 0.0)


def tensors(log: Log) -> Tokens:
    """Return a log's sequences as tensors; raise UserError where one lacks mu's or pi's log-probabilities."""
    for name, which in (("logp_mu", "the sampler's (mu)"), ("logp_pi", "the trainer's (pi)")):
        if not log.has(name):
            raise UserError(
                f"{len(log.sequences) - log.some(name)} sequences of the {log.source} log have no "
                f"log-probabilities of {which}."
            )
    known = [
        np.asarray(one.mask) & ~np.isnan(_of(one, "logp_mu")) & ~np.isnan(_of(one, "logp_pi"))
        for one in log.sequences
    ]
    padded = {
        name: _padded([_of(one, name) for one in log.sequences]) if log.has(name) else None
        for name in ("logp_mu", "logp_pi", "logp_anchor", "advantage")
    }
    mask_BT = _padded([mask.astype(float) for mask in known]).bool()
    labels = {name: n for n, name in enumerate(dict.fromkeys(one.group for one in log.sequences))}
    rewards = [one.reward for one in log.sequences]
    log_mu_BT, log_pi_BT = padded["logp_mu"], padded["logp_pi"]
    assert log_mu_BT is not None
    assert log_pi_BT is not None
    return Tokens(
        mask_BT=mask_BT,
        log_pi_BT=torch.where(mask_BT, log_pi_BT, 0.0),
        log_mu_BT=torch.where(mask_BT, log_mu_BT, 0.0),
        log_anchor_BT=padded["logp_anchor"],
        adv_BT=padded["advantage"],
        age_BT=_padded(found) if (found := ages(log)) is not None else None,
        reward_B=None if None in rewards else torch.tensor(rewards, dtype=torch.float64),
        group_B=torch.tensor([labels[one.group] for one in log.sequences]),
    )


def ages(log: Log) -> list[np.ndarray] | None:
    """Return the age of every token: trainer's version less the token's; None where versions are missing.

    Where no trainer's version is written, the newest version of the step's batch stands for it: a lower
    bound.
    """
    if not log.has("version"):
        return None
    newest: dict[int, int] = {}
    for one in log.sequences:
        if one.version is not None and len(one.version):
            newest[one.step] = max(newest.get(one.step, one.version.max()), int(one.version.max()))
    return [
        (
            (one.trainer_version if one.trainer_version is not None else newest.get(one.step, 0))
            - one.version
        ).astype(float)
        for one in log.sequences
        if one.version is not None
    ]


def _of(one: LoggedSequence, name: str) -> np.ndarray:
    value = getattr(one, name)
    assert value is not None
    return np.asarray(value, dtype=np.float64)


def _padded(rows: list[np.ndarray]) -> Tensor:
    """Return rows [T_b] as [B, T], 0 behind each."""
    whole = np.zeros((len(rows), max(1, *map(len, rows)) if rows else 1))
    for place, row in zip(whole, rows, strict=True):
        place[: len(row)] = row
    return torch.from_numpy(whole)
