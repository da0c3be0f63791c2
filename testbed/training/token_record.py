"""Write the record of training tokens that `testbed diagnose` reads.

If TESTBED_RECORD names a folder (`testbed run … record=tokens` sets it), every cell writes a file there at
each logged step, CELL/step_N.tokens.parquet, before the weights change. It changes no number of the run.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from testbed.config.run import Run, cell_id
from testbed.data.batch import EXPERT, Batch
from testbed.data.rollout import Rollout
from testbed.logs.record import RECORD, LoggedSequence, made, write
from testbed.training.learner import Learner
from testbed.training.update import Update


@dataclass(frozen=True)
class TokenRecord:
    """Token files of a pack's cells, in stacked order; empty without a folder."""

    folder: Path | None
    cells: tuple[str, ...]

    @classmethod
    def of(cls, runs: Sequence[Run]) -> "TokenRecord":
        """Return the record of cells in stacked order."""
        folder = os.environ.get(RECORD, "")
        return cls(Path(folder) if folder else None, tuple(map(cell_id, runs)) if folder else ())

    def add(
        self, step: int, rollout: Rollout, update: Update, learners: Sequence[Learner], alive_R: Tensor
    ) -> None:
        """Write one step's tokens, a file per cell; diverged cells write none.

        Demonstrations are omitted: no policy sampled them. Raises UserError if a file cannot be written.
        """
        if self.folder is None:
            return
        for learner, batch in zip(learners, update.batches, strict=True):
            for place, r in enumerate(range(len(self.cells))[learner.rows]):
                if not bool(alive_R[r]):
                    continue
                found = _sequences(step, rollout.rows(slice(r, r + 1)), update.logp_RBT[r], batch, place)
                if any(one.mask.any() for one in found):
                    write(made(f"testbed, {self.cells[r]}", found), self._file(r, step))

    def _file(self, r: int, step: int) -> Path:
        assert self.folder is not None
        return self.folder / self.cells[r] / f"step_{step:06d}.tokens.parquet"


def _sequences(step: int, one: Rollout, logp_BT: Tensor, batch: Batch, place: int) -> list[LoggedSequence]:
    """Return one replica's sequences: row `place` of its learner's batch."""
    arrays = {
        "mask": batch.mask_BT[place],
        "token": one.token_RBT[0],
        "logp_mu": batch.logp_mu_BT[place],
        "logp_pi": logp_BT,
        "advantage": batch.adv_BT[place],
    }
    if not torch.equal(batch.logp_anchor_BT[place], batch.logp_mu_BT[place]):
        arrays["logp_anchor"] = batch.logp_anchor_BT[place]
    if one.version_RBT is not None:
        arrays["version"] = one.version_RBT[0]
    held = {name: _numpy(value.expand_as(batch.mask_BT[place])) for name, value in arrays.items()}
    prompt_NQ, group_B, reward_B = (
        _numpy(one.prompt_RNQ[0]),
        _numpy(batch.group_B[place]),
        _numpy(one.reward_RB[0]),
    )
    found = []
    for b in range(len(reward_B)):
        if one.origin_RB is not None and int(one.origin_RB[0, b]) == EXPERT:
            continue
        end = int(np.flatnonzero(held["mask"][b])[-1]) + 1 if held["mask"][b].any() else 0
        lists: dict[str, Any] = {name: value[b, :end] for name, value in held.items()}
        found.append(
            LoggedSequence(
                step=step,
                sample=f"{step}/{b}",
                group=f"{step}/{int(group_B[b])}",
                reward=float(reward_B[b]),
                trainer_version=step,
                prompt=prompt_NQ[b // one.group],
                **lists,
            )
        )
    return found


def _numpy(value: Tensor) -> np.ndarray:
    array: np.ndarray = value.detach().cpu().numpy()
    return array.astype(np.float64) if array.dtype.kind == "f" else array
