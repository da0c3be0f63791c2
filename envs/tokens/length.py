"""Length: only the first token determines the reward, so response length has no effect on it."""

import numpy as np

from envs.arrays import Bools, Floats, Ints
from envs.catalog import world
from envs.tokens.token_task import TokenTask, check_counts, corruption


@world("length")
class Length(TokenTask):
    """Prompt: Q digits mod M. Response: their sum mod M, then any filler, then the end token (or T tokens).

    Reward: 1 if the first token is the sum, 0 if it is another digit, and 1/M, the chance level, if the
    response is only an end token. Tokens after the first do not count. The reward is length-neutral in two
    senses.

    1. For every policy: given the first token the reward is constant, so no later decision, stopping
       included, changes it. The exact gradient of the expected reward is 0 at every position but the first;
       any drift of the length there comes from the objective (its bias, its aggregation), never from the
       task.
    2. E[reward | length = l] = 1/M for every l = 1 .. T and every prompt, under each policy that is uniform
       over digits at its first token and then stops independently of that token, such as the uniform policy.
       Sense 1 does not cover the bare end token, the only response of length 1; sense 2 does, since its
       reward is the chance level.
    """

    def __init__(self, *, digits: int = 2, modulus: int = 8, limit: int = 16) -> None:
        check_counts(digits=digits, modulus=modulus, limit=limit)
        if modulus < 2:
            raise ValueError(f"modulus must be at least 2, or no digit can be wrong; got {modulus}.")
        self.digits, self.modulus = digits, modulus
        self.symbols = (*(str(d) for d in range(modulus)), "<end>")
        self.prompt_length, self.response_length, self.end_token = digits, limit, modulus

    def prompts(self, rng: np.random.Generator, n: int) -> Ints:
        """n rows of Q uniform digits, [N, Q]."""
        return rng.integers(0, self.modulus, size=(n, self.digits))

    def score(self, prompt_NQ: Ints, response_NT: Ints, mask_NT: Bools) -> Floats:
        """1 for the right first digit, 1/M for the end token in its place, else 0, [N]."""
        prompt_NQ, response_NT, mask_NT = self.check(prompt_NQ, response_NT, mask_NT)
        first_N, given_N = response_NT[:, 0], mask_NT[:, 0]
        reward_N = np.where(first_N == self.modulus, 1.0 / self.modulus, first_N == self.answer(prompt_NQ))
        return np.where(given_N, reward_N, 0.0)

    def answer(self, prompt_NQ: Ints) -> Ints:
        """The sum of the prompt digits mod M, [N]."""
        return prompt_NQ.sum(axis=1) % self.modulus

    def teacher(self, prompt_NQ: Ints, rng: np.random.Generator, noise: float) -> tuple[Ints, Bools]:
        """Return the answer (wrong with probability `noise`), then uniform filler, and masks, [N, T] each.

        The number of digits is uniform on 1 .. T; an end token follows if it is below T.
        """
        prompt_NQ = self.check_prompts(prompt_NQ)
        N, T = prompt_NQ.shape[0], self.response_length
        response_NT = rng.integers(0, self.modulus, size=(N, T))
        digits_N = rng.integers(1, T + 1, size=(N,))
        response_NT[:, 0] = (
            self.answer(prompt_NQ) + corruption((N,), rng, noise, self.modulus)
        ) % self.modulus
        t_T = np.arange(T)
        mask_NT = t_T <= digits_N[:, None]
        response_NT = np.where(t_T == digits_N[:, None], self.modulus, response_NT)
        return np.where(mask_NT, response_NT, 0), mask_NT
