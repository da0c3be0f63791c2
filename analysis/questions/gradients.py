"""Questions that exact gradients on random token trees answer, every response enumerated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.kernels.on_use import Tensor
from analysis.questions.question import Numbers, computed
from envs.arrays import Floats
from testbed.exact.response_tree import random_policies, random_tree, softmax

if TYPE_CHECKING:
    from testbed.data.batch import Batch
    from testbed.exact.gradient_report import Bench

SEEDS = range(5)


def _pair(length: int, drift: float, seed: int, vocabulary: int = 2) -> tuple[Any, Floats, Floats]:
    tree = random_tree(vocabulary, length, seed)
    return (tree, *random_policies(tree, drift, seed))


def _bench(length: int, drift: float, seed: int, vocabulary: int = 2) -> Bench:
    from testbed.exact.gradient_report import Bench

    return Bench(*_pair(length, drift, seed, vocabulary))


def _over_trees(row: Callable[[int], dict[str, float]]) -> dict[str, list[float]]:
    """Return the median, least and largest of every number over the trees."""
    rows = [row(seed) for seed in SEEDS]
    return {
        name: [float(pick([each[name] for each in rows])) for pick in (np.median, np.min, np.max)]
        for name in rows[0]
    }


def _bias(function: Any, bench: Bench) -> float:
    from testbed.exact.gradient_report import gradient_report

    return float(gradient_report(function, bench).relative_bias)


@computed(1)
def under_the_ratio() -> Numbers:
    """Return relative biases by drift of the logits, and the gap between recomputing and no weight."""
    from testbed.exact.gradient_report import Bench

    gaps = [0.0]

    def row(seed: int, drift: float) -> dict[str, float]:
        tree, mu, pi = _pair(5, drift, seed)
        plain = Bench(tree, mu, pi)
        again = _bias("ppo_clip", Bench(tree, mu, pi, anchor_SA=pi))
        gaps.append(abs(again - _bias("ratio:none", plain)))
        token, sequence = _bias("ratio:token", plain), _bias("ratio:sequence", plain)
        return {"computed again": again, "token ratio": token, "sequence ratio": sequence}

    table = [{"drift": drift, **_over_trees(partial(row, drift=drift))} for drift in (0.1, 0.3, 1.0)]
    return {"table": table, "gap": max(gaps)}


@computed(4)
def temperature() -> Numbers:
    """Return relative biases and cosines of pairings of sampler and score at temperature .6."""
    from testbed.exact.gradient_report import Bench, gradient_report

    temperature = 0.6

    def row(seed: int) -> dict[str, float]:
        tree, policy, _ = _pair(5, 0.0, seed)
        tempered = policy ** (1 / temperature)
        tempered /= tempered.sum(-1, keepdims=True)
        mixed, own = Bench(tree, tempered, policy), Bench(tree, tempered, tempered)
        raw = gradient_report("ratio:none", mixed)
        norms = np.linalg.norm(raw.mean_SA) * np.linalg.norm(own.target_SA)
        return {
            "same": _bias("ratio:none", own),
            "weighted": _bias("ratio:sequence", mixed),
            "raw": float(raw.relative_bias),
            "cosine": float((raw.mean_SA * own.target_SA).sum() / norms),
            "ratio": float((policy / tempered).max()),
        }

    found = _over_trees(row)
    table = [
        {"scored": scored, "gradient of": policy, "error": found[name]}
        for name, scored, policy in (
            ("same", "tempered", "the tempered policy"),
            ("weighted", "raw, with a sequence ratio", "the policy at 1"),
            ("raw", "raw, no weight", "the policy at 1"),
        )
    ]
    return {"table": table, "temperature": temperature, "cosine": found["cosine"], "ratio": found["ratio"]}


@computed(8)
def token_or_sequence() -> Numbers:
    """Return bias and deviation of both weights by length, and the batch at which their errors are equal."""
    from testbed.exact.gradient_report import gradient_report

    def row(seed: int, length: int) -> dict[str, float]:
        bench = _bench(length, 0.5, seed)
        token, sequence = (gradient_report(f"ratio:{level}", bench) for level in ("token", "sequence"))
        more = sequence.relative_deviation**2 - token.relative_deviation**2
        return {
            "bias, token": token.relative_bias,
            "deviation, token": token.relative_deviation,
            "deviation, sequence": sequence.relative_deviation,
            "break-even batch": max(more, 0.0) / token.relative_bias**2,
        }

    return {"table": [{"tokens": length, **_over_trees(partial(row, length=length))} for length in (3, 5, 8)]}


@computed(12)
def averaging() -> Numbers:
    """Return cosines with the true gradient by aggregation, groups of three enumerated."""
    from testbed.exact.gradient_report import Bench
    from testbed.exact.group import group_report

    modes = ("constant", "token_mean", "sequence_mean")

    def row(seed: int) -> dict[str, float]:
        tree = random_tree(3, 3, seed, end_token=0)
        bench = Bench(tree, *random_policies(tree, 0.0, seed))
        report = partial(group_report, "reinforce", bench, size=3, advantage="leave_one_out")
        return {mode: float(report(aggregation=mode).cosine) for mode in modes}

    return {"table": [{"divisor": name, "cosine": value} for name, value in _over_trees(row).items()]}


def _weighed(weight: Callable[[Tensor], Tensor], reported: bool = False) -> Callable[..., Tensor]:
    """Return the objective -sg[weight(log ratio)] A log pi; reported: the ratio is to the reference."""
    from testbed.losses.score_loss import score_loss

    def weighed(logp_BT: Tensor, batch: Batch) -> Tensor:
        below_BT = batch.logp_ref_BT if reported else batch.logp_mu_BT
        assert below_BT is not None
        return score_loss(weight(logp_BT.detach() - below_BT), logp_BT, batch)

    return weighed


def _rules(bench: Bench, rules: dict[str, Any]) -> dict[str, float]:
    """Return bias and deviation of the objective of each rule."""
    from testbed.exact.gradient_report import gradient_report

    found: dict[str, float] = {}
    for name, rule in rules.items():
        report = gradient_report(rule, bench)
        found |= {f"bias, {name}": report.relative_bias, f"deviation, {name}": report.relative_deviation}
    return found


def _by_rule(found: dict[str, list[float]]) -> list[dict[str, Any]]:
    """Return rows of rule, bias and deviation."""
    names = [key.removeprefix("bias, ") for key in found if key.startswith("bias, ")]
    return [{"rule": n, "bias": found[f"bias, {n}"], "deviation": found[f"deviation, {n}"]} for n in names]


@computed(13)
def truncate_or_mask() -> Numbers:
    """Return bias and deviation of three rules that touch the same share of tokens under the sampler."""
    share = 0.1

    def row(seed: int) -> dict[str, float]:
        bench = _bench(8, 0.5, seed)
        log_LT = bench.logp_pi_LT - bench.logp_mu_LT
        cap = _upper(log_LT.ravel(), np.repeat(bench.law_L, log_LT.shape[1]), share)
        line = _upper(log_LT.mean(-1), bench.law_L, share)
        return _rules(
            bench,
            {
                "truncate tokens": _weighed(lambda x: x.clamp(max=cap).exp()),
                "mask tokens": _weighed(lambda x: x.exp().masked_fill(x > cap, 0.0)),
                "mask sequences": _weighed(lambda x: x.exp().masked_fill(x.mean(-1, keepdim=True) > line, 0)),
            },
        )

    return {"table": _by_rule(_over_trees(row)), "share": share}


def _upper(value_N: Floats, law_N: Floats, share: float) -> float:
    """Return the upper quantile: a draw exceeds it with probability about `share`."""
    order = np.argsort(value_N)
    reach = np.cumsum(law_N[order]) / law_N.sum()
    return float(value_N[order][np.searchsorted(reach, 1 - share)]) + 1e-12


@computed(26)
def trust_regions() -> Numbers:
    """Return bias and deviation of masks by ratio and by difference that touch the same share of tokens."""
    from testbed.losses.score_loss import score_loss

    share = 0.1

    def masked(distance: Callable[[Any, Any], Any], line: float) -> Callable[..., Tensor]:
        def loss(logp_BT: Tensor, batch: Batch) -> Tensor:
            new_BT, old_BT = logp_BT.detach(), batch.logp_mu_BT
            weight_BT = (new_BT - old_BT).exp()
            return score_loss(weight_BT.masked_fill(distance(new_BT, old_BT) > line, 0.0), logp_BT, batch)

        return loss

    def row(seed: int) -> dict[str, float]:
        bench = _bench(4, 0.5, seed, vocabulary=5)
        new_LT, old_LT = bench.logp_pi_LT, bench.logp_mu_LT
        law_N = np.repeat(bench.law_L, new_LT.shape[1])
        found, rules = {}, {}
        for name, distance in (("ratio", _by_ratio), ("difference", _by_difference)):
            far_N = np.asarray(distance(new_LT, old_LT)).ravel()
            line = _upper(far_N, law_N, share)
            cut_N = law_N * (far_N > line)
            found[f"probability, {name}"] = float(cut_N @ np.exp(old_LT).ravel() / cut_N.sum())
            rules[f"mask by {name}"] = masked(distance, line)
        return found | _rules(bench, {**rules, "no mask": "ratio:token"})

    found = _over_trees(row)
    rare, common = found["probability, ratio"], found["probability, difference"]
    return {"table": _by_rule(found), "share": share, "rare": rare, "common": common}


def _by_ratio(new: Any, old: Any) -> Any:
    return abs(new - old)


def _by_difference(new: Any, old: Any) -> Any:
    return abs(2.718281828459045**new - 2.718281828459045**old)


@computed(16)
def misreported() -> Numbers:
    """Return relative biases with and without a sequence weight, for a real and for a reported gap."""
    from testbed.exact.gradient_report import Bench

    def row(seed: int, noise: float) -> dict[str, float]:
        tree, noisy, pi = _pair(5, noise, seed)
        real, report = Bench(tree, noisy, pi, ref_SA=noisy), Bench(tree, pi, pi, ref_SA=noisy)
        return {
            "real gap, no weight": _bias("ratio:none", real),
            "real gap, weight": _bias(_whole_reported(), real),
            "wrong report, no weight": _bias("ratio:none", report),
            "wrong report, weight": _bias(_whole_reported(), report),
        }

    return {"table": [{"noise": n, **_over_trees(partial(row, noise=n))} for n in (0.05, 0.2, 0.5)]}


def _whole_reported() -> Callable[..., Tensor]:
    """Return the objective weighted by the sequence ratio to the reported log-probabilities."""
    return _weighed(lambda x: x.sum(-1, keepdim=True).exp().expand_as(x), reported=True)


@computed(22)
def switched() -> Numbers:
    """Return the bias of sequence ratios by the recorded log-probabilities, and their chi2 to the policy."""
    from testbed.exact.gradient_report import Bench

    def row(seed: int) -> dict[str, float]:
        tree, first, second = _pair(5, 0.5, seed)
        step_SA = np.random.default_rng([seed, 3]).standard_normal(first.shape)
        current = softmax(np.log(second) + 0.5 * step_SA)
        mixed = np.where(np.arange(len(first))[:, None] < tree.level[3], first, second)
        records = {"each token's own": mixed, "the first version": first, "the last version": second}
        found = {
            n: _bias(_whole_reported(), Bench(tree, mixed, current, ref_SA=m)) for n, m in records.items()
        }
        for name, made in (("mixed", mixed), ("first", first)):
            bench = Bench(tree, made, current)
            log_L = (bench.logp_pi_LT - bench.logp_mu_LT).sum(-1)
            found[name] = float(bench.law_L @ np.exp(2 * log_L)) - 1
        return found

    found = _over_trees(row)
    mixed, first = found.pop("mixed"), found.pop("first")
    table = [{"log-probabilities of": name, "error": value} for name, value in found.items()]
    return {"table": table, "mixed": mixed, "first": first}


@computed(36)
def floor() -> Numbers:
    """Return relative biases of CISPO with floors 0, .5 and .8 by drift."""
    from testbed.exact.gradient_report import gradient_report

    def row(seed: int, drift: float) -> dict[str, float]:
        bench = _bench(5, drift, seed)
        return {
            f"floor {1 - low:g}": gradient_report("cispo", bench, eps_low=low, eps_high=3.0).relative_bias
            for low in (1.0, 0.5, 0.2)
        }

    return {"table": [{"drift": d, **_over_trees(partial(row, drift=d))} for d in (0.1, 0.5, 1.5)]}
