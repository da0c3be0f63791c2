"""Questions answered by a sum over counts, a closed form or one call of an objective, without sampling."""

import math
from typing import Any

import numpy as np

from analysis.kernels.on_use import torch
from analysis.questions.question import Numbers, computed
from envs.arrays import Floats
from testbed.advantages import advantage


@computed(6)
def truncated_sampling() -> Numbers:
    """Return the kept mass, and its power at the answer's length, by p."""
    from testbed.mismatch import engine

    vocabulary, length = 1000, 100
    logits = -torch.log(torch.arange(1.0, vocabulary + 1, dtype=torch.float64))[None]
    pi = logits.softmax(-1)
    table = []
    for p in (0.8, 0.9, 0.95, 0.99):
        mu = _sampled_law(engine("top-p", p=p), logits)
        kept = float(pi[mu > 0].sum())
        table.append({"top-p": p, "mean token ratio": kept, "mean answer ratio": kept**length})
    return {"table": table, "vocabulary": vocabulary, "length": length}


def _sampled_law(engine: Any, logits: Any) -> Any:
    """Return the distribution that a sampling engine draws from, given the policy's logits."""
    return engine.distribution(logits.log_softmax(-1)[None], None, 0)[0].exp()


@computed(9)
def product_or_mean() -> Numbers:
    """Return the mean of the capped product by length, and the length at which it is one half."""
    kl, cap, lengths = 0.0003, 2.0, (100, 1000, 9000)
    table = [{"tokens": n, "mean of the capped product": _capped(2 * kl * n, cap)} for n in lengths]
    low, high = 1.0, 1e7
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _capped(2 * kl * middle, cap) > 0.5 else (low, middle)
    return {"table": table, "kl": kl, "cap": cap, "half": low}


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _capped(variance: float, cap: float) -> float:
    """E min(e^X, cap), X normal with mean -variance / 2."""
    line, deviation = math.log(cap), math.sqrt(variance)
    below = _normal((line - variance / 2) / deviation)
    return below + cap * (1 - _normal((line + variance / 2) / deviation))


def _binomial(n: int, p: float) -> Floats:
    return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])


@computed(14)
def denominator() -> Numbers:
    """Return the ratio of expected steps, kept over all, by rejection rate, for 64 answers."""
    answers, table = 64, []
    for rejected in (0.05, 0.2, 0.5, 0.9):
        law = _binomial(answers, 1 - rejected)
        some = 1 - float(law[0])
        share = float(law @ np.arange(answers + 1)) / answers
        row = {"rejected": rejected, "step over all": share, "step over kept": some}
        table.append({**row, "kept over all": some / share})
    return {"table": table, "answers": answers}


def _advantages(name: str, reward: list[float]) -> Floats:
    from testbed.data.signals import Signals

    rewards = torch.tensor(reward, dtype=torch.float64)
    signals = Signals(rewards, torch.zeros(len(reward), dtype=torch.int64))
    return np.asarray(advantage[name].function(signals).numpy())


@computed(15)
def dropped_baselines() -> Numbers:
    """Return expected steps over p (1 - p), by the set that the baseline averages and the answers dropped."""
    rate, drop = 0.25, 0.5
    table = [
        {
            "baseline": title,
            "whole group": _step(name, rate, 0.0, drop, over_all=True),
            "kept answers": _step(name, rate, 0.0, drop, over_all=False),
        }
        for title, name in (
            ("none", "plain"),
            ("leave one out", "leave_one_out"),
            ("mean, over the deviation", "group_std"),
        )
    ]
    # A random drop of half of all answers, on the scale of a full group.
    random = _step("leave_one_out", rate, drop, drop, over_all=True) / (1 - drop)
    return {"table": table, "rate": rate, "random": random}


def _step(name: str, rate: float, drop_right: float, drop_wrong: float, *, over_all: bool) -> float:
    """E sum over kept answers of A times score, over G p (1 - p); score 1 - p of right, -p of wrong ones."""
    size, total = 8, 0.0
    right = (rate * (1 - drop_right), rate * drop_right)
    chances = (*right, (1 - rate) * (1 - drop_wrong), (1 - rate) * drop_wrong)
    for a in range(size + 1):
        for b in range(size + 1 - a):
            for c in range(size + 1 - a - b):
                n = (a, b, c, size - a - b - c)
                ways = math.factorial(size) / math.prod(math.factorial(k) for k in n)
                chance = ways * math.prod(p**k for p, k in zip(chances, n, strict=True))
                if chance:
                    total += chance * _kept_step(name, n, rate, over_all)
    return total / (size * rate * (1 - rate))


def _kept_step(name: str, n: tuple[int, ...], rate: float, over_all: bool) -> float:
    right, wrong = (n[0] + n[1], n[2] + n[3]) if over_all else (n[0], n[2])
    if right + wrong < 2:
        return 0.0
    reward = [1.0] * right + [0.0] * wrong
    adv = np.array(reward) if name == "plain" else _advantages(name, reward)
    first = n[0] * (1 - rate) * adv[0] if n[0] else 0.0
    return float(first - (n[2] * rate * adv[-1] if n[2] else 0.0))


@computed(23)
def cut_answers() -> Numbers:
    """Return the expected update of the stop logit, by rule and by how correctness depends on length."""
    limit, stop = 12, 0.15
    ended = np.arange(1, limit + 1)
    law = np.append(stop * (1 - stop) ** (ended - 1), (1 - stop) ** limit)
    score = np.append((1 - stop) - (ended - 1) * stop, -limit * stop)
    table = []
    for name, right in (
        ("alike at every length", np.full(limit, 0.5)),
        ("rising with length", ended / limit),
    ):
        reward = np.append(right, 0.0)
        alive = law[:-1] / law[:-1].sum()
        table.append(
            {
                "right answers": name,
                "counted as wrong": float(law @ ((reward - law @ reward) * score)),
                "masked": float(law[:-1] @ ((right - alive @ right) * score[:-1])),
            }
        )
    return {"table": table}


@computed(24)
def standard_deviation() -> Numbers:
    """Return the expected step over p (1 - p) with and without the division, by pass rate."""
    table = []
    for rate in (0.001, 0.02, 0.1, 0.5, 0.9, 0.98):
        divided, plain = (_step(name, rate, 0.0, 0.0, over_all=True) for name in ("group_std", "group_mean"))
        table.append({"pass rate": rate, "divided": divided, "not divided": plain})
    middle = table[3]["divided"]
    for row in table:
        row["divided, over that at .5"] = row["divided"] / middle
    return {"table": table, "size": 8}


@computed(28)
def averaged_ess() -> Numbers:
    """Return the ESS share of the pooled batch and the mean ESS share of its parts."""
    from testbed.diagnostics.ratio_metrics import ess

    def shares(parts: list[list[float]]) -> tuple[float, float]:
        logs = [torch.tensor(part, dtype=torch.float64).log() for part in parts]
        return float(ess(torch.cat(logs))), float(np.mean([float(ess(part)) for part in logs]))

    parts = 8
    table = []
    for name, weights in (
        ("1,1,1,1 and 2,2,2,2", [[1.0] * 4, [2.0] * 4]),
        (f"one of {parts} has it all", [[1e9] * 4, *[[1.0] * 4] * (parts - 1)]),
    ):
        pooled, mean = shares(weights)
        table.append({"weights": name, "pooled": pooled, "mean of the parts": mean})
    return {"table": table, "parts": parts}


@computed(30)
def respelled() -> Numbers:
    """Return relative errors by the share of correct answers that are retokenized; pass rate 0.4."""
    table = []
    for share in (0.05, 0.2, 0.5):
        pi = np.array([0.4 * (1 - share), 0.4 * share, 0.6, 0.0])
        true = _spelling_step(pi, np.arange(4), np.ones(4))
        norm = float(np.linalg.norm(true))
        encoded = _spelling_step(pi, np.array([0, 0, 2, 2]), np.ones(4))
        dropped = _spelling_step(pi, np.arange(4), np.array([1.0, 0.0, 1.0, 0.0]))
        errors = [float(np.linalg.norm(step - true)) / norm for step in (encoded, dropped)]
        table.append({"respelled": share, "re-encoded": errors[0], "dropped": errors[1]})
    return {"table": table, "alike": 1 - table[1]["respelled"]}


def _spelling_step(pi_A: Floats, trained_A: Any, kept_A: Floats) -> Floats:
    """E of the kept steps (R - J) (onehot(trained id) - pi); ids 0 and 1 spell the right text."""
    gain_A = np.array([1.0, 1.0, 0.0, 0.0]) - pi_A[:2].sum()
    score_AA = np.eye(4)[trained_A] - pi_A
    return np.asarray((pi_A * kept_A * gain_A) @ score_AA)


@computed(34)
def gspo_clip() -> Numbers:
    """Return the share of clipped sequences by divergence per token, and the divergence where it is 0.4."""
    length, low, high = 1000, 0.0003, 0.0004

    def cut(kl: float, scale: float = 1.0) -> float:
        if kl == 0:
            return 0.0
        deviation = math.sqrt(2 * kl / length)
        above = 1 - _normal((math.log1p(scale * high) + kl) / deviation)
        below = _normal((math.log1p(-scale * low) + kl) / deviation)
        return (above + below) / 2

    table = []
    for kl in (0.0, 1e-5, 1e-4, 1e-3):
        scale, top = 0.0, 1e3
        for _ in range(60 if kl else 0):
            middle = (scale + top) / 2
            scale, top = (middle, top) if cut(kl, middle) > 0.1 else (scale, middle)
        row = {"nats per token": kl, "share cut": cut(kl)}
        table.append({**row, "width for a tenth, of the default": scale if kl else 0.0})
    small, large = 1e-9, 1e-2
    for _ in range(60):
        middle = math.sqrt(small * large)
        small, large = (middle, large) if cut(middle) < 0.4 else (small, middle)
    return {"table": table, "length": length, "fresh": cut(0.0), "share": cut(large), "kl": large}


@computed(35)
def dead_groups() -> Numbers:
    """Return the factor of the step, one over the share of live groups, by pass rate and group size."""
    table = [
        {"pass rate": rate}
        | {f"groups of {size}": 1 / (1 - rate**size - (1 - rate) ** size) for size in (4, 8, 16)}
        for rate in (0.02, 0.1, 0.5, 0.9)
    ]
    return {"table": table, "size": 8}
