"""Results of an exact gradient report: mean, variance, bias by cause, value."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from envs.arrays import Bools, Floats


@dataclass(frozen=True)
class GradientReport:
    """Exact mean, variance and bias of one gradient step of an objective.

    mean_SA: E g. target_SA: grad J(pi). variance: trace of the covariance of g. split: the three parts of
    mean_SA - target_SA by name. shift_SA: E[w S] at advantage 1, the shift of the mean per unit of baseline;
    if 0 up to rounding, baselines do not bias. size: responses per gradient. value: minus the expected loss,
    aggregated as the gradient is; g is its slope only if the objective detaches nothing. clip_share: expected
    tokens with an advantage and weight 0, over expected tokens with an advantage.
    """

    objective: str
    signal: str
    baseline: float
    size: int
    mean_SA: Floats
    target_SA: Floats
    variance: float
    split: dict[str, Floats]
    shift_SA: Floats
    value: float
    clip_share: float

    @property
    def bias_SA(self) -> Floats:
        """E g - grad J."""
        return self.mean_SA - self.target_SA

    @property
    def relative_bias(self) -> float:
        """|E g - grad J| / |grad J|; infinite where grad J is 0 and E g is not."""
        return _relative(self.bias_SA, self.target_SA)

    @property
    def relative_deviation(self) -> float:
        """sqrt(variance) / |grad J|."""
        # The variance is a difference of two moments: a true 0 may round to less.
        return float(np.sqrt(max(self.variance, 0.0)) / max(np.linalg.norm(self.target_SA), 1e-300))

    @property
    def cosine(self) -> float:
        """Cosine of the angle between E g and grad J; NaN if one of them is 0."""
        norms = float(np.linalg.norm(self.mean_SA) * np.linalg.norm(self.target_SA))
        return float((self.mean_SA * self.target_SA).sum()) / norms if norms else float("nan")

    @property
    def shares(self) -> dict[str, float]:
        """<part, bias> / (|bias| |grad J|): signed shares of the parts, which add up to relative_bias."""
        norm = float(np.linalg.norm(self.bias_SA) * np.linalg.norm(self.target_SA))
        return {k: float((v * self.bias_SA).sum()) / norm if norm else 0.0 for k, v in self.split.items()}

    @property
    def baseline_is_free(self) -> bool:
        """True if E[w S] = 0 up to rounding: only then a baseline does not bias the gradient."""
        return bool(_relative(self.shift_SA, self.target_SA) < 1e-9)

    def row(self) -> dict[str, Any]:
        """The report as plain numbers, for tables and JSON; norms are relative to |grad J|."""
        plain = ("objective", "signal", "baseline", "size", "value", "clip_share", "relative_bias", "cosine")
        names = (*plain, "variance", "relative_deviation")
        shares = {f"bias_{name}": share for name, share in self.shares.items()}
        facts = {name: getattr(self, name) for name in names}
        return {**facts, **shares, "baseline_is_free": self.baseline_is_free}


def _relative(part_SA: Floats, whole_SA: Floats) -> float:
    top, bottom = float(np.linalg.norm(part_SA)), float(np.linalg.norm(whole_SA))
    return top / bottom if bottom else float(np.inf if top else 0.0)


def cut_tokens(weight_xT: Floats, adv_xT: Floats, mask_xT: Bools) -> Floats:
    """Count tokens with an advantage and weight 0, and tokens with an advantage, [x, 2]."""
    carries_xT = mask_xT & (adv_xT != 0)
    return np.stack([(carries_xT & (weight_xT == 0)).sum(-1), carries_xT.sum(-1)], axis=-1).astype(float)


def share(part: float, whole: float) -> float:
    """part / whole; 0 if whole is 0."""
    return float(part / whole) if whole > 0 else 0.0
