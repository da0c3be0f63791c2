"""Sorted: the Q prompt digits in ascending order."""

import numpy as np

from envs.arrays import Ints
from envs.catalog import world
from envs.tokens.digits import DigitTask


@world("sorted")
class Sorted(DigitTask):
    """Response token t is the (t+1)-th smallest prompt digit; reward 1 when all Q are right."""

    def __init__(self, *, digits: int = 8, modulus: int = 8) -> None:
        super().__init__(digits, modulus)

    def answer(self, digit_NT: Ints) -> Ints:
        """The digits in ascending order, [N, T]."""
        return np.sort(digit_NT, axis=1)
