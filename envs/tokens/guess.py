"""Guess: several turns with a tool that answers every guess, the smallest task in which turns matter."""

import numpy as np

from envs.arrays import Bools, Floats, Ints
from envs.catalog import world
from envs.tokens.token_task import TokenTask, check_counts, corruption


@world("guess")
class Guess(TokenTask):
    """A name of Q digits stands for a K-digit number; a tool answers every guess, 0 too large, 1 too small.

    Prompt: the name. Turn: a guess and the tool's answer, which is the end token after a right guess. The
    secret number is a fixed, patternless function of the name: a policy that has not seen the name needs the
    tool's answers, and bisection always succeeds. Reward 1 for a right guess. Writing the end token gives up.
    M = base^digits numbers, responses of turns (K + 1) - 1 tokens: the last guess gets no answer. A uniform
    policy succeeds with probability about turns (base + 1)^-digits.
    """

    several_turns = True

    def __init__(self, *, base: int = 3, digits: int = 2, turns: int = 4, name: int = 6) -> None:
        check_counts(base=base, digits=digits, turns=turns, name=name)
        self.base, self.digits, self.turns, self.numbers = base, digits, turns, base**digits
        if base < 2 or self.numbers > 2**turns - 1:
            raise ValueError(
                f"bisection of {self.numbers} = {base}^{digits} numbers takes more than {turns} turns; "
                "expected a base of at least 2 and base^digits < 2^turns."
            )
        self.symbols = (*(str(d) for d in range(base)), ".")
        self.end_token, self.prompt_length = base, name
        self.response_length = turns * (digits + 1) - 1
        place_T = range(self.response_length)
        self.turn_T = tuple(t // (digits + 1) for t in place_T)
        self.tool_T = tuple(t % (digits + 1) == digits for t in place_T)

    def prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """n names of uniform digits, [N, Q]."""
        return rng.integers(0, self.base, size=(n, self.prompt_length))

    def secret(self, prompt_NQ: Ints) -> Ints:
        """Return the number of each name, [N]: a pseudorandom mixture of its bits."""
        place_Q = np.uint64(self.base + 1) ** np.arange(self.prompt_length, dtype=np.uint64)
        with np.errstate(over="ignore"):
            code_N = (prompt_NQ.astype(np.uint64) * place_Q).sum(1) + np.uint64(0x9E3779B97F4A7C15)
            # The finalizer of SplitMix64: Steele, Lea & Flood (2014).
            code_N = (code_N ^ (code_N >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            code_N = (code_N ^ (code_N >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return ((code_N ^ (code_N >> np.uint64(31))) % np.uint64(self.numbers)).astype(np.int64)

    def tool(self, prompt_NQ: Ints, response_Nt: Ints) -> Ints:
        """Return 0 if the latest number is too large, 1 if too small, the end token if right, [N]."""
        guess_N = self._number(response_Nt[:, -self.digits :])
        secret_N = self.secret(prompt_NQ)
        return np.where(guess_N == secret_N, self.base, (guess_N < secret_N).astype(np.int64))

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Floats:
        """1 if some guess is complete and right, else 0, [N]."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        secret_N, found_N = self.secret(prompt_NQ), np.zeros(len(prompt_NQ), dtype=bool)
        for first in range(0, self.response_length, self.digits + 1):
            place = slice(first, first + self.digits)
            # The end token counts as the digit `base`: a guess that holds it would spell another number.
            whole_N = (mask_NT[:, place] & (response_NT[:, place] < self.base)).all(1)
            found_N |= whole_N & (self._number(response_NT[:, place]) == secret_N)
        return found_N.astype(np.float64)

    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """Bisection, with each digit replaced with probability `noise`; the tool answers these digits."""
        prompt_NQ = self.check_prompts(prompt_NQ)
        N, T, K = len(prompt_NQ), self.response_length, self.digits
        wrong_NT = corruption((N, T), rng, noise, self.base)
        response_NT, mask_NT = np.zeros((N, T), dtype=np.int64), np.zeros((N, T), dtype=bool)
        low_N, high_N, going_N = np.zeros(N, np.int64), np.full(N, self.numbers - 1), np.ones(N, bool)
        for first in range(0, T, K + 1):
            meant_N = np.clip((low_N + high_N) // 2, 0, self.numbers - 1)
            for k in range(K):
                digit_N = meant_N // self.base ** (K - 1 - k) % self.base
                digit_N = (digit_N + wrong_NT[:, first + k]) % self.base
                response_NT[:, first + k] = np.where(going_N, digit_N, 0)
            mask_NT[:, first : first + K] = going_N[:, None]
            if first + K == T:
                break
            answer_N = self.tool(prompt_NQ, response_NT[:, : first + K])
            response_NT[:, first + K] = np.where(going_N, answer_N, 0)
            guess_N = self._number(response_NT[:, first : first + K])
            low_N = np.where(answer_N == 1, np.maximum(low_N, guess_N + 1), low_N)
            high_N = np.where(answer_N == 0, np.minimum(high_N, guess_N - 1), high_N)
            going_N &= answer_N != self.base
        return response_NT, mask_NT

    def _number(self, digit_NK: Ints) -> Ints:
        """Return the number written by K digits, most significant first, [N]."""
        number_N: Ints = (digit_NK * self.base ** np.arange(self.digits - 1, -1, -1)).sum(1)
        return number_N
