"""The one hyperparameter beside the learning rate that a recipe's paper tunes, and the values to try.

Recipes that are not listed have only their learning rate tuned: M2PO's tau was 0.04 "in every run", and no
ablation of OAPL's two betas is known. Values come from the paper if `source` says so; others span those of
public stacks, and `source` says that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from testbed.config.run import Arguments


@dataclass(frozen=True)
class Knob:
    """others: arguments of the recipe to try beside its defaults; source: who tunes them, and how."""

    others: tuple[Arguments, ...]
    source: str


def _values(argument: str, *values: float) -> tuple[Arguments, ...]:
    return tuple(((argument, value),) for value in values)


KNOBS: Mapping[str, Knob] = MappingProxyType(
    {
        "asymre": Knob(
            _values("shift", -0.5, -0.2, -0.05, 0),
            "Arnal et al. (2025), arXiv:2506.20520: the shift of the baseline is what the paper sweeps; the "
            "values are this project's",
        ),
        "cispo": Knob(
            _values("eps_high", 1, 4),
            "MiniMax (2025), arXiv:2506.13585, Eq. 5: only the upper bound is tuned; 4 is the bound of SkyRL "
            "and tinker-cookbook",
        ),
        "dpo": Knob(
            _values("beta", 0.05, 1, 5),
            "Rafailov et al. (2023), arXiv:2305.18290, Section 6.1: a frontier over beta (values unverified)",
        ),
        "holder": Knob(
            tuple((("end", end), ("start", start)) for start, end in ((1, -1), (3, 3), (-1, -1))),
            "HölderPO (2026), arXiv:2605.12058: 2 to -2 for math (the default), 1 to -1 for ALFWorld; the "
            "best constants of its sweep are 3 (AIME24) and -1 (MATH500)",
        ),
        "rec_oneside": Knob(
            ((("eps_high", 2), ("eps_low", 0.6)),),
            "Yao et al. (2025), arXiv:2509.24203: a much wider clip than usual works; here the outer bounds "
            "of the ring variant",
        ),
        "sfpo": Knob(
            _values("alpha", 0.9),
            "SFPO (2025), arXiv:2510.04072, authors' scripts: 0.8 (the default), and 0.9 for Qwen3-4B",
        ),
    }
)
"""By recipe."""
