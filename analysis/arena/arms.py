"""The arena's arms: recipes, each with one knob and its values to try."""

from dataclasses import dataclass, replace

from testbed.config.run import Arguments
from testbed.errors import UserError

RATES = (3e-4, 1e-3, 3e-3)
FINE_RATES = (1e-4, 1.8e-4, 3e-4, 5.6e-4, 1e-3, 1.8e-3, 3e-3, 5.6e-3, 1e-2)
"""Nine rates, so that an arm without a knob has as many settings as one with three knob values."""
PLACEBO = "placebo"


@dataclass(frozen=True)
class Arm:
    """name: in the table; recipe: of the catalog or FILE:FUNCTION; knob: arguments from small to large, the
    middle three of which are tried first, `((),)` for rates alone; shift: added to all seeds; by: the
    outcome that its tuning maximizes, a column of the table.
    """

    name: str
    recipe: str
    knob: tuple[Arguments, ...] = ((),)
    shift: int = 0
    by: str = "final"

    @property
    def rates(self) -> tuple[float, ...]:
        """Rates to try first."""
        return RATES if len(self.knob) > 1 else FINE_RATES

    @property
    def settings(self) -> tuple[tuple[float, Arguments], ...]:
        """All pairs of a rate and arguments to try first."""
        start = max(0, (len(self.knob) - 3) // 2)
        return tuple((rate, args) for args in self.knob[start : start + 3] for rate in self.rates)


def grid_of(
    name: str, values: tuple[float, ...], also: dict[float, Arguments] | None = None
) -> tuple[Arguments, ...]:
    """Return one set of arguments per value of a knob; `also` adds arguments that change with it."""
    if len(values) < 2:
        raise UserError(
            f"Knob '{name}' has {len(values)} value(s), expected at least 2, as in --knob {name}=.1,.3,1."
        )
    return tuple(((name, value), *(also or {}).get(value, ())) for value in values)


def _arm(name: str, knob: str, *values: float) -> Arm:
    return Arm(name, name.removesuffix("_reuse"), grid_of(knob, values))


def _bounds(recipe: str, *pairs: tuple[float, float]) -> Arm:
    return Arm(recipe, recipe, tuple((("eps_low", low), ("eps_high", high)) for low, high in pairs))


_CLIPS = ((0.1, 0.1), (0.2, 0.2), (0.5, 1.0), (0.9, 3.0), (0.99, 10.0))
_DAPO_CLIPS = ((0.1, 0.14), (0.2, 0.28), (0.5, 1.0), (0.9, 3.0), (0.99, 10.0))
_GSPO_CLIPS = ((3e-4, 4e-4), (3e-3, 4e-3), (3e-2, 4e-2), (0.3, 0.4), (0.9, 3.0))
_ANNEALED = ((0.125, -0.125), (0.25, -0.25), (0.5, -0.5), (1, -1), (2, -2), (3, -3), (4, -4))
_FIXED = tuple((p, p) for p in (-2, -1, 0, 1, 2))


def _exponents(name: str, pairs: tuple[tuple[float, float], ...]) -> Arm:
    return Arm(name, "holder", tuple((("end", end), ("start", start)) for start, end in pairs))


ARMS: tuple[Arm, ...] = (
    _bounds("grpo", *_CLIPS),
    Arm("reinforce", "reinforce"),
    Arm(PLACEBO, "grpo", tuple((("eps_low", low), ("eps_high", high)) for low, high in _CLIPS), shift=500),
    _arm("vcpo", "cap", 1, 2, 8, 32, 128),
    _arm("m2po", "tau", 0.01, 0.04, 0.16, 0.64, 2.56),
    _arm("cispo", "eps_high", 0.1, 0.28, 1, 4, 16),
    _arm("minpro", "eps_high", 0.1, 0.28, 1, 4, 16),
    _arm("topr", "baseline", 0, 0.25, 0.5, 0.75, 1),
    _bounds("gspo", *_GSPO_CLIPS),
    _arm("tis", "cap", 1, 2, 4, 8, 32),
    _arm("asymre", "shift", -1, -0.3, -0.1, 0, 0.1),
    _bounds("dapo", *_DAPO_CLIPS),
    _arm("ctpo", "width", 1, 4, 16, 64, 256),
    _bounds("rec", *_CLIPS),
    _arm("dispo", "eps_high_pos", 1, 3, 10, 30, 100),
    _arm("r2vpo", "budget", 0.001, 0.01, 0.1, 1, 10),
    _arm("sapo", "tau", 0.1, 0.3, 1, 3, 10),
    Arm("mis", "mis"),
    Arm("icepop", "icepop"),
    _arm("ppo_ewma", "decay", 0.25, 0.5, 0.889, 0.97, 0.99),
    _arm("decoupled", "passes", 1, 2, 4, 8, 16),
    Arm(
        "oapl", "oapl", tuple((("beta2", x), ("dynamic_sampling", True)) for x in (1e-3, 0.01, 0.03, 0.1, 1))
    ),
    _arm("rapid", "eta", 0.5, 1, 2, 4, 8),
    _exponents("holder_annealed", _ANNEALED),
    Arm("bapo", "bapo", tuple((("share", "gradient"), ("target", t)) for t in (0.55, 0.6, 0.65, 0.7, 0.8))),
    _arm("importance", "cap", 1, 2, 8, 32, 128),
    _arm("mhpo", "lam_neg", 0.2, 0.4, 0.8, 1.6, 3.2),
    _arm("opmd", "tau", 0.01, 0.1, 1, 10, 100),
    _arm("p3o", "eps", 0.1, 0.2, 0.5, 0.9, 0.99),
    _arm("rec_k2", "c", 0.001, 0.01, 0.1, 1, 10),
    Arm("gmpo", "gmpo"),
    _arm("sfpo", "alpha", 0.4, 0.6, 0.8, 0.9, 1),
    _arm("mdpo", "passes", 1, 2, 5, 8, 16),
    _arm("remix", "share", 0.1, 0.2, 0.4, 0.6, 0.8),
    _arm("spear", "share", 0.25, 0.5, 0.75),
    _arm("online_dpo", "beta", 0.01, 0.03, 0.1, 0.3, 1, 3),
    _arm("rloo", "eps", 0.1, 0.2, 0.5, 0.9, 0.99),
    Arm("dppo", "dppo"),
    Arm("vespo", "vespo"),
    Arm("aipo", "aipo"),
    _exponents("holder_fixed", _FIXED),
)
"""In the order in which they run."""

REUSE: tuple[Arm, ...] = (
    Arm("grpo_reuse", "sfpo", tuple((("alpha", 1.0), ("fast", fast)) for fast in (0, 1, 3, 7, 15))),
    Arm("sfpo_reuse", "sfpo", tuple((("alpha", 0.8), ("fast", fast)) for fast in (0, 1, 3, 7, 15))),
    _arm("r2vpo_reuse", "passes", 1, 2, 4, 8, 16),
    _arm("remix_reuse", "passes", 1, 2, 4, 8, 16),
    _arm("mdpo_reuse", "passes", 1, 2, 4, 8, 16),
)
"""Recipes that update several times on a fresh batch; their knob is how often. SFPO with alpha 1 keeps every
fast step, so it equals GRPO with that many passes."""
PASSES: tuple[Arm, ...] = (
    replace(ARMS[0], name="grpo_pass", by="pass@8"),
    replace(_arm("max_at_k", "k", 1, 2, 4, 8), by="pass@8"),
)
"""Recipes tuned for pass@8, on fresh data."""
FRESH: tuple[str, ...] = ("online_dpo", "rloo")
"""Arms that run on fresh data as well, beside GRPO, REUSE and PASSES."""


def at(lag: int) -> tuple[Arm, ...]:
    """Return the arms that run at a lag by default."""
    if lag:
        return ARMS
    return (ARMS[0], *REUSE, *PASSES, *(arm for arm in ARMS if arm.name in FRESH))


def known() -> dict[str, Arm]:
    """Return all arms by name."""
    return {arm.name: arm for arm in (*ARMS, *REUSE, *PASSES)}
