"""Logs drawn from two small policies, healthy or with one known fault."""

import numpy as np

from testbed.logs.record import Log, LoggedSequence

V = 40


def log_softmax(x):
    x = x - x.max(-1, keepdims=True)
    return x - np.log(np.exp(x).sum(-1, keepdims=True))


def kept(logp, fault, cut):
    """Return log mu of a sampler that keeps a mass (top-p) or a number (top-k), renormalized."""
    order = np.argsort(-logp, -1)
    p = np.take_along_axis(np.exp(logp), order, -1)
    keep = p.cumsum(-1) - p < cut if fault == "top-p" else np.arange(V) < cut
    there = np.zeros(logp.shape, dtype=bool)
    np.put_along_axis(there, order, np.broadcast_to(keep, p.shape), -1)
    return log_softmax(np.where(there, logp, -np.inf))


def logits(draw, length, states):
    """Return logits [length, V] of states with entropies of many sizes."""
    if states == "zipf":
        steepness = np.exp(draw.normal(0.7, 0.6, (length, 1)))
        return -steepness * np.log(np.arange(1, V + 1)) + 0.3 * draw.normal(size=(length, V))
    return draw.exponential(1.5, (length, 1)) * draw.normal(size=(length, V)) * 1.5


def sampled(
    fault: str = "", stale: float = 0.05, seed: int = 0, many: int = 96, longest: int = 24,
    cut: float | None = None, states: str = "normal",
) -> Log:  # fmt: skip
    """Return a log; stale: standard deviation of pi's logits about mu's, cut: p of top-p, k of top-k."""
    cut = cut or (0.9 if fault == "top-p" else 5)
    draw = np.random.default_rng(seed)
    found = []
    for n in range(many):
        length = int(draw.integers(longest // 2, longest + 1))
        old = logits(draw, length, states)
        mu_TV = log_softmax(old)
        pi_TV = log_softmax(old + stale * draw.normal(size=old.shape))
        if fault in ("top-p", "top-k"):
            mu_TV = kept(mu_TV, fault, cut)
        drawn_TV = log_softmax(0.6 * mu_TV) if fault == "temperature" else mu_TV
        token = (drawn_TV + draw.gumbel(size=old.shape)).argmax(-1)
        mu, pi = (x[np.arange(length), token] for x in (mu_TV, pi_TV))
        if fault == "temperature":  # sampled and trained at 1 / 0.6, logged by the sampler at 1
            pi = log_softmax(0.6 * pi_TV)[np.arange(length), token]
        if fault == "swapped":
            mu, pi = pi, mu
        if fault == "late":
            pi = np.roll(pi, 1)
        if fault == "early":
            pi = np.roll(pi, -1)
        if fault == "prompt":
            mu[0] = pi[0] = 0.0
        if fault == "bfloat16":
            mu = (mu.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32).astype(float)
        adv = np.full(length, draw.choice([-1.0, 1.0]))
        found.append(LoggedSequence(n // 32, str(n), str(n // 4), np.ones(length, bool), logp_mu=mu,
                                    logp_pi=pi, advantage=adv, reward=float(adv[0])))  # fmt: skip
    return Log("made", tuple(found))
