"""P8: NaN or divergence at any step is a recorded outcome, counted in every denominator."""

import dataclasses
import random

import numpy as np
import pandas as pd
import pytest
import torch
from support.small_runs import SMALL, TOY, cell_rows

from analysis.tables.outcomes import summary_table
from testbed.config.run import grid
from testbed.execution.packs import plan
from testbed.results.parquet import decode, encode
from testbed.training.loop import train_pack
from testbed.worlds import build_world as worlds

WORLDS = {"tabular": SMALL, "toy": dataclasses.replace(TOY, steps=4)}
POISONS = (float("nan"), float("inf"), -float("inf"))


def spoiled(patch: pytest.MonkeyPatch, policy: str, step: int, row: int, poison: float) -> None:
    """Let the log-probabilities of one replica be poison at one step."""
    kind = worlds.TabularRuns if policy == "tabular" else worlds.TokenRuns

    class Spoiled(kind):  # type: ignore[misc, valid-type]
        seen = 0

        def logp(self, theta_RP, rollout):
            found = super().logp(theta_RP, rollout)
            if not theta_RP.requires_grad:
                return found
            self.seen += 1
            factor_R = torch.ones(len(found), dtype=found.dtype)
            factor_R[row] = poison if self.seen == step + 1 else 1.0
            return found * factor_R[:, None, None]

    patch.setattr(worlds, kind.__name__, Spoiled)


@pytest.mark.parametrize("policy", WORLDS)
def test_a_value_that_is_not_finite_stops_one_replica_and_is_counted(policy, monkeypatch, campaign):
    trials = campaign.trials(*((4, 60) if policy == "tabular" else (1, 12)))
    run = WORLDS[policy]
    cells = grid(run, seed=range(4))
    (pack,) = plan(cells)
    healthy = train_pack(cells)
    dice = random.Random(8)
    for _ in range(trials):
        step, row, poison = dice.randrange(run.steps), dice.randrange(4), dice.choice(POISONS)
        with monkeypatch.context() as patch:
            spoiled(patch, policy, step, row, poison)
            table = train_pack(cells)
        assert len(table["step"]) == len(healthy["step"]), "no row is left out"
        for index in range(4):
            rows, before = (cell_rows(found, index, 4) for found in (table, healthy))
            if index == row:
                expected = np.arange(run.steps) >= step
                assert np.array_equal(np.asarray(rows["diverged"]) != 0, expected), (step, poison)
            else:
                assert not np.any(rows["diverged"])
                assert np.array_equal(rows["actor/grad_norm"], before["actor/grad_norm"])
        frame = decode(encode(table, pack)).to_pandas()
        if "accuracy" in frame:
            found = summary_table(pd.DataFrame(frame))
            assert (found["seeds"].item(), found["diverged"].item()) == (4, 0.25)
    campaign.tried(f"NaN or infinity in one of 4 replicas at a random step, {policy} policy", trials)
