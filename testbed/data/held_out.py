"""HeldOut: samples of the policy on held-out prompts, from which metrics are computed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from testbed.data.rollout import Rollout


@dataclass(frozen=True)
class HeldOut:
    """Samples of the policy that a world draws for evaluation.

    exact: quantities known without samples, by metric name, each [R].
    answers: samples behind `accuracy`; None if the truth is known.
    logp_start_RBT: log-probabilities of the first answers' tokens under the starting weights.
    more: further answers to the first prompts, in rows with pass@k.
    level_RN: difficulty of every prompt, one of `levels`; only if the task grades its prompts.
    """

    exact: Mapping[str, np.ndarray] = field(default_factory=dict)
    answers: Rollout | None = None
    logp_start_RBT: Tensor | None = None
    more: Rollout | None = None
    level_RN: np.ndarray | None = None
    levels: tuple[int, ...] = ()
