"""The arena's arms: recipes, each with one knob of its own and the values that are tried."""

from __future__ import annotations

from dataclasses import dataclass

from testbed.config.run import Arguments
from testbed.errors import UserError

RATES = (3e-4, 1e-3, 3e-3)
FINE_RATES = (1e-4, 1.8e-4, 3e-4, 5.6e-4, 1e-3, 1.8e-3, 3e-3, 5.6e-3, 1e-2)
"""Nine rates, so that an arm without a knob has as many settings as one with three knob values."""
PLACEBO = "placebo"


@dataclass(frozen=True)
class Arm:
    """name: in the table; recipe: of the catalog or FILE:FUNCTION; knob: arguments to try, `((),)` for rates
    alone; shift: added to all seeds.
    """

    name: str
    recipe: str
    knob: tuple[Arguments, ...] = ((),)
    shift: int = 0

    @property
    def rates(self) -> tuple[float, ...]:
        """The rates that are tried first."""
        return RATES if len(self.knob) > 1 else FINE_RATES

    @property
    def settings(self) -> tuple[tuple[float, Arguments], ...]:
        """All pairs of a rate and arguments that are tried first."""
        return tuple((rate, args) for args in self.knob for rate in self.rates)


def grid_of(
    name: str, values: tuple[float, ...], also: dict[float, Arguments] | None = None
) -> tuple[Arguments, ...]:
    """Return one set of arguments per value of a knob; `also` adds what moves along with a value."""
    if len(values) < 2:
        raise UserError(
            f"Knob '{name}' has {len(values)} value(s), expected at least 2, as in --knob {name}=.1,.3,1."
        )
    return tuple(((name, value), *(also or {}).get(value, ())) for value in values)


def _arm(recipe: str, name: str, *values: float) -> Arm:
    return Arm(recipe, recipe, grid_of(name, values))


def _bounds(recipe: str, *pairs: tuple[float, float]) -> Arm:
    return Arm(recipe, recipe, tuple((("eps_low", low), ("eps_high", high)) for low, high in pairs))


_CLIPS = ((0.2, 0.2), (0.5, 1.0), (0.9, 3.0))
_DAPO_CLIPS = ((0.2, 0.28), (0.5, 1.0), (0.9, 3.0))
_GSPO_CLIPS = ((3e-4, 4e-4), (3e-3, 4e-3), (3e-2, 4e-2))

ARMS: tuple[Arm, ...] = (
    _bounds("grpo", *_CLIPS),
    Arm("reinforce", "reinforce"),
    _arm("cispo", "eps_high", 0.28, 1, 4),
    _arm("m2po", "tau", 0.04, 0.16, 0.64),
    _arm("vcpo", "cap", 2, 8, 32),
    _arm("topr", "baseline", 0.25, 0.5, 0.75),
    _bounds("gspo", *_GSPO_CLIPS),
    Arm(PLACEBO, "grpo", tuple((("eps_low", low), ("eps_high", high)) for low, high in _CLIPS), shift=500),
    _arm("minpro", "eps_high", 0.28, 1, 4),
    _bounds("dapo", *_DAPO_CLIPS),
    _arm("tis", "cap", 1, 2, 8),
    _arm("asymre", "shift", -0.3, -0.1, 0),
    _arm("ctpo", "p", 0.25, 0.5, 1),
    _bounds("rec", *_CLIPS),
    Arm(
        "holder",
        "holder",
        tuple((("end", end), ("start", start)) for start, end in ((2, -2), (1, -1), (-1, -1))),
    ),
    _arm("dispo", "eps_high_pos", 3, 10, 30),
    _arm("r2vpo", "budget", 0.01, 0.1, 1),
    _arm("mhpo", "lam_neg", 0.4, 0.8, 1.6),
    _arm("rapid", "eta", 1, 2, 4),
    Arm("sapo", "sapo"),
    Arm("bapo", "bapo"),
    Arm("icepop", "icepop"),
    Arm("mis", "mis"),
    Arm("gmpo", "gmpo"),
    _arm("dppo_tv", "d_high", 0.1, 0.2, 0.5),
    _arm("oapl", "beta2", 0.001, 0.01, 0.1),
    _arm("ppo_ewma", "decay", 0.5, 0.889, 0.97),
    _arm("rec_k2", "c", 0.01, 0.1, 1),
    _bounds("dr_grpo", *_CLIPS),
    _arm("rloo", "eps", 0.2, 0.5, 0.9),
    _arm("p3o", "eps", 0.2, 0.5, 0.9),
    _arm("importance", "cap", 2, 8, 32),
    _arm("opmd", "tau", 0.1, 1, 10),
    Arm("vespo", "vespo"),
    Arm("opsm", "opsm"),
    Arm("luspo", "luspo"),
    Arm("tba", "tba"),
    _arm("sfpo", "alpha", 0.6, 0.8, 0.9),
    _arm("mdpo", "passes", 2, 5, 8),
    _arm("decoupled", "passes", 2, 4, 8),
    _arm("remix", "share", 0.2, 0.4, 0.6),
)
"""In the order in which they run."""
