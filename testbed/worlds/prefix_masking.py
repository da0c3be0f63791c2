"""Prefixes in a world: find the run's source, and remove given tokens from the rollout's mask."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from envs.tokens.token_task import TokenTask
from envs.tokens.token_tree import TokenTree
from testbed import rng
from testbed.config.run import Run
from testbed.data.rollout import Rollout
from testbed.errors import UserError
from testbed.prefixes import source_for
from testbed.prefixes.prefix_source import PrefixSource


def source_of(run: Run, task: object) -> PrefixSource | None:
    """Return the source of a run's prefixes in its task, None for none.

    Raises UserError if the task is not written in tokens, or refuses the source.
    """
    source = source_for(run)
    if source is None:
        return None
    if isinstance(task, TokenTree):
        task = task.task
    if not isinstance(task, TokenTask):
        raise UserError(
            f"prefix '{run.prefix}' continues responses of tokens, and task '{run.task}' has none; take a "
            "token task, or task 'tree' with policy 'tabular'."
        )
    source.check(run, task)
    return source


def refuse_given(run: Run) -> None:
    """Raise UserError if a run has prefixes and weights that change inside a response."""
    if run.prefix != "off":
        raise UserError(
            f"prefix '{run.prefix}' begins responses behind their prompts, which staleness '{run.staleness}' "
            "cannot; take one that knows ages beforehand, such as exact, uniform or offline."
        )


def wave_keys(seeds: tuple[int, ...], sampling_R: np.ndarray, wave: int) -> np.ndarray:
    """Return the keys of a step's wave of responses; the first wave has those of a step without prefixes."""
    return sampling_R if wave == 0 else rng.keys(seeds, f"sampling/wave {wave}")


def without_given(rollout: Rollout, given_RBT: Tensor) -> Rollout:
    """Return the rollout with given tokens masked out: no policy chose them."""
    mask_RBT = rollout.mask_RBT & (given_RBT.to(rollout.mask_RBT.device) < 0)
    logp_RBT = torch.where(mask_RBT, rollout.logp_mu_RBT, torch.zeros_like(rollout.logp_mu_RBT))
    return replace(rollout, mask_RBT=mask_RBT, logp_mu_RBT=logp_RBT)
