"""Token worlds once more, by listing every response in plain Python: a second opinion for the tests.

Nothing here knows of levels, heaps or vectorized scores; a state is a (prompt number, prefix) pair in a dict.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

Tokens = tuple[int, ...]


def right_answer(name: str, digits: Sequence[int], modulus: int) -> list[int]:
    """The response that earns 1 in the fixed-length tasks, from their definitions."""
    if name == "running-sum":
        return [sum(digits[: t + 1]) % modulus for t in range(len(digits))]
    return list(digits) if name == "copy" else sorted(digits)


def responses(vocabulary: int, length: int, end_token: int | None, prefix: Tokens = ()) -> list[Tokens]:
    """Every response: sequences that stop at the end token or at `length` tokens."""
    if len(prefix) == length or (prefix and prefix[-1] == end_token):
        return [prefix]
    return [r for v in range(vocabulary) for r in responses(vocabulary, length, end_token, (*prefix, v))]


def state_numbers(
    prompts: int, vocabulary: int, length: int, end_token: int | None
) -> dict[tuple[int, Tokens], int]:
    """Prompts in order; within one, prefixes that can go on, short ones first, then lexicographic."""
    complete = responses(vocabulary, length, end_token)
    prefixes = sorted({r[:t] for r in complete for t in range(len(r))}, key=lambda p: (len(p), p))
    return {(n, p): n * len(prefixes) + i for n in range(prompts) for i, p in enumerate(prefixes)}


def steps(n: int, response: Tokens, states: dict[tuple[int, Tokens], int]) -> list[tuple[int, int]]:
    """The (state, action) pairs of one response."""
    return [(states[n, response[:t]], response[t]) for t in range(len(response))]


def truth(
    prompts: int,
    vocabulary: int,
    length: int,
    end_token: int | None,
    reward: Callable[[int, Tokens], float],
    pi_SA: np.ndarray,
    mu_SA: np.ndarray,
) -> dict[str, np.ndarray | float]:
    """Value, gradient and divergences by one sum over all prompts and responses."""
    states = state_numbers(prompts, vocabulary, length, end_token)
    names = ("value", "kl_pi_mu", "kl_mu_pi", "second_moment", "rho2", "rho", "length")
    found: dict[str, np.ndarray | float] = dict.fromkeys(names, 0.0)
    gradient_SA, prefix_T, largest = np.zeros_like(pi_SA), np.zeros(length), -math.inf
    for n in range(prompts):
        for response in responses(vocabulary, length, end_token):
            path = steps(n, response, states)
            pi = math.prod(pi_SA[s, a] for s, a in path) / prompts
            mu = math.prod(mu_SA[s, a] for s, a in path) / prompts
            found["value"] += pi * reward(n, response)
            for s, a in path:
                gradient_SA[s] -= pi * reward(n, response) * pi_SA[s]
                gradient_SA[s, a] += pi * reward(n, response)
            if mu == 0.0:
                continue
            log_w = math.log(pi / mu) if pi > 0 else -math.inf
            found["kl_pi_mu"] += pi * log_w if pi > 0 else 0.0
            found["kl_mu_pi"] -= mu * log_w
            found["second_moment"] += mu * (pi / mu) ** 2
            largest = max(largest, log_w)
            rho = [pi_SA[s, a] / mu_SA[s, a] for s, a in path]
            found["rho2"] += mu * sum(r * r for r in rho)
            found["rho"] += mu * sum(rho)
            found["length"] += mu * len(rho)
            for t in range(length):
                prefix_T[t] += mu * math.prod(rho[: t + 1]) ** 2
    return found | {"gradient": gradient_SA, "second_moment_prefix_T": prefix_T, "max_log_rho": largest}
