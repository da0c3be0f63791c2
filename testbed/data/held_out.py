"""HeldOut: samples of the policy on held-out prompts, from which metrics are computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from testbed.data.rollout import Rollout


@dataclass(frozen=True)
class HeldOut:
    """Samples of the policy that a world draws for evaluation.

    exact: what is known without samples, by metric name, each [R].
    answers: samples behind `accuracy`; None where the truth is known.
    logp_start_RBT: log-probabilities of the tokens of the first answers under the weights at the start.
    more: further answers to the first prompts, where pass@k is due.
    level_RN: difficulty of every prompt, one of `levels`; only where the task grades its prompts.
    """

    exact: Mapping[str, np.ndarray] = field(default_factory=dict)
    answers: Rollout | None = None
    logp_start_RBT: Tensor | None = None
    more: Rollout | None = None
    level_RN: np.ndarray | None = None
    levels: tuple[int, ...] = ()
