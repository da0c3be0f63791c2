"""A log as packed tensors, the input of its metrics."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from testbed.errors import UserError, counted
from testbed.logs.record import Log, LoggedSequence


@dataclass(frozen=True)
class Tokens:
    """Concatenated sequences, N tokens in all; log-probabilities are float64, 0 outside the mask.

    Packed, not padded, so a long sequence among short ones takes only its tokens. mask_N: tokens that the
    policy chose and that have both log-probabilities (which may be -inf, but not NaN). log_anchor_N, adv_N,
    age_N: None if a sequence lacks it. length_B: tokens per sequence, in order. group_B: ids from 0.
    """

    mask_N: Tensor
    log_pi_N: Tensor
    log_mu_N: Tensor
    length_B: Tensor
    log_anchor_N: Tensor | None = None
    adv_N: Tensor | None = None
    age_N: Tensor | None = None
    reward_B: Tensor | None = None
    group_B: Tensor | None = None

    @property
    def log_rho_N(self) -> Tensor:
        """log pi - log mu, 0 outside the mask; -inf if pi = 0, +inf if mu = 0, NaN if both are."""
        return (self.log_pi_N - self.log_mu_N).masked_fill_(~self.mask_N, 0.0)

    def rows(self, value_N: Tensor) -> tuple[Tensor, ...]:
        """Split values of all tokens into one tensor per sequence."""
        return tuple(value_N.split(self.length_B.tolist()))

    def total(self, value_N: Tensor) -> Tensor:
        """Sum values over each sequence; [B], 0 for one without tokens."""
        index_N = torch.repeat_interleave(self.length_B)
        return torch.zeros(len(self.length_B), dtype=value_N.dtype).index_add_(0, index_N, value_N)

    def level(self, name: str) -> tuple[Tensor, Tensor]:
        """Return log-ratios of tokens [N], prefixes [N] or sequences [B], and a mask of those that count.

        Excluded are tokens that are not finite, and prefixes and sequences with a NaN or +inf token; see
        `testbed.diagnostics.ratio_metrics.ess_family`.
        """
        raw_N = self.log_rho_N
        if name == "token":
            return raw_N, self.mask_N & torch.isfinite(raw_N)
        if name == "prefix":
            for row in self.rows(raw_N):
                row.cumsum_(0)
            return raw_N, self.mask_N & (raw_N < torch.inf)
        log_w_B = self.total(raw_N)
        return log_w_B, (self.total(self.mask_N.long()) > 0) & (log_w_B < torch.inf)


def tensors(log: Log) -> Tokens:
    """Return a log's sequences as tensors; raise UserError if one lacks mu's or pi's log-probabilities."""
    for name, which, option in (
        ("logp_mu", "the sampler's log-probabilities (mu)", "--behavior-model"),
        ("logp_pi", "the trainer's log-probabilities (pi)", "--model"),
    ):
        if not log.has(name):
            raise UserError(
                f"{len(log.sequences) - log.some(name)} of {counted(len(log.sequences), 'sequence')} in the "
                f"{log.source} log lack {which}. A local model can compute them: testbed "
                f"diagnose {option} FOLDER"
            )
    both = ((one, _of(one, "logp_mu"), _of(one, "logp_pi")) for one in log.sequences)
    known = [np.asarray(one.mask) & ~np.isnan(mu_T) & ~np.isnan(pi_T) for one, mu_T, pi_T in both]
    names = [name for name in ("logp_mu", "logp_pi", "logp_anchor", "advantage") if log.has(name)]
    packed = {name: _packed([_of(one, name) for one in log.sequences]) for name in names}
    mask_N, log_mu_N, log_pi_N = _packed(known), packed["logp_mu"], packed["logp_pi"]
    labels = {name: n for n, name in enumerate(dict.fromkeys(one.group for one in log.sequences))}
    rewards = [one.reward for one in log.sequences]
    assert log_mu_N is not None
    assert log_pi_N is not None
    return Tokens(
        mask_N=mask_N,
        log_pi_N=log_pi_N.masked_fill_(~mask_N, 0.0),
        log_mu_N=log_mu_N.masked_fill_(~mask_N, 0.0),
        length_B=torch.tensor([len(row) for row in known]),
        log_anchor_N=packed.get("logp_anchor"),
        adv_N=packed.get("advantage"),
        age_N=_packed(found) if (found := ages(log)) is not None else None,
        reward_B=None if None in rewards else torch.tensor(rewards, dtype=torch.float64),
        group_B=torch.tensor([labels[one.group] for one in log.sequences]),
    )


def ages(log: Log) -> list[np.ndarray] | None:
    """Return the age of every token, trainer's minus token's version; None if versions are missing.

    If the log lacks the trainer's version, the newest version of the step's batch replaces it, so ages are a
    lower bound.
    """
    if not log.has("version"):
        return None
    newest: dict[int, int] = {}
    for one in log.sequences:
        if one.version is not None and len(one.version):
            newest[one.step] = max(newest.get(one.step, one.version.max()), int(one.version.max()))
    found = []
    for one in log.sequences:
        last = newest.get(one.step, 0) if one.trainer_version is None else one.trainer_version
        if one.version is not None:
            found.append((last - one.version).astype(float))
    return found


def _of(one: LoggedSequence, name: str) -> np.ndarray:
    value = getattr(one, name)
    assert value is not None
    return np.asarray(value, dtype=np.float64)


def _packed(rows: list[np.ndarray]) -> Tensor:
    """Concatenate rows [T_b] into a copy, [N]."""
    return torch.from_numpy(np.concatenate(rows))
