"""Copy: the same Q digits again, the smallest task that must look back at the prompt."""

from envs.arrays import Ints
from envs.catalog import world
from envs.tokens.digits import DigitTask


@world("copy")
class Copy(DigitTask):
    """Response token t is prompt digit t; reward 1 when all Q are right."""

    def __init__(self, *, digits: int = 8, modulus: int = 8) -> None:
        super().__init__(digits, modulus)

    def answer(self, digit_NT: Ints) -> Ints:
        """The digits themselves, [N, T]."""
        return digit_NT
