"""Hypothesis strategies for batches, and the smallest batch that satisfies a condition."""

import math
import random
from collections.abc import Callable, Sequence

from hypothesis import HealthCheck, Phase, find, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from testbed.conformance.batches import Row, Rows, Token

NICE = (1.0, 1.5, 0.5, 1.1, 0.9, 2.0, 0.75, 1.25, 3.0, 0.3, 1.01, 0.99, 4.0, 5.5, 0.1)
"""Ratios that are easy to read; counterexamples shrink to the first ones."""
NARROW = (1.0001, 0.9999, 1.0005, 0.9995, 1.001, 0.999, 1.003, 0.997)
ADVANTAGES = (1.0, -1.0, 0.5, -0.5, 2.0)


def tokens(
    log_ratios: Sequence[float] = (), mismatch: bool = True, holes: bool = False
) -> st.SearchStrategy[Token]:
    """Return a strategy for tokens: simple ratios, ratios near given bounds, and any in [e^-2, e^2]."""
    nice = st.sampled_from([math.log(x) for x in (*NICE, *NARROW)])
    any_of = st.integers(-128, 128).map(lambda k: k / 64)
    ratio = st.one_of(nice, *([st.sampled_from(list(log_ratios))] * 2 if log_ratios else []), any_of)
    mild = st.sampled_from([math.log(x) for x in (1.0, 1.1, 0.9, 1.5, 0.6, 2.5, 0.3)])
    return st.builds(
        Token,
        ratio,
        mild if mismatch else st.just(0.0),
        mild,
        st.sampled_from((True, False) if holes else (True,)),
    )


def batches(
    log_ratios: Sequence[float] = (),
    mismatch: bool = True,
    holes: bool = False,
    rows: tuple[int, int] = (1, 5),
    longest: int = 5,
    advantages: Sequence[float] = ADVANTAGES,
    groups: int = 3,
) -> st.SearchStrategy[Rows]:
    """Return a strategy for batches; every row keeps at least one token."""
    row = st.builds(
        Row,
        st.lists(tokens(log_ratios, mismatch, holes), min_size=1, max_size=longest).map(_some),
        st.sampled_from(list(advantages)),
        st.sampled_from((0.0, 1.0, 0.5, 0.25)),
        st.integers(0, groups - 1),
    )
    return st.lists(row, min_size=rows[0], max_size=rows[1]).map(tuple)


def _some(found: list[Token]) -> tuple[Token, ...]:
    if any(token.kept for token in found):
        return tuple(found)
    return (Token(found[0].log_ratio, found[0].log_mismatch, found[0].log_ref), *found[1:])


def smallest(
    strategy: st.SearchStrategy[Rows],
    holds: Callable[[Rows], bool],
    examples: int = 60,
    seed: int = 0,
    shrink: bool = True,
) -> Rows | None:
    """Return the simplest batch that satisfies a condition, or None if no example does."""
    chosen = settings(
        max_examples=examples,
        database=None,
        deadline=None,
        phases=(Phase.generate, Phase.shrink) if shrink else (Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )
    try:
        return find(strategy, holds, settings=chosen, random=random.Random(seed))
    except NoSuchExample:
        return None
