"""Questions that exact gradients on random token trees answer, every response enumerated."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from analysis.questions.question import Numbers, computed
from envs.arrays import Floats

if TYPE_CHECKING:
    from torch import Tensor

    from testbed.data.batch import Batch
    from testbed.exact.report import Bench

SEEDS = range(5)
TREES = "Random trees of two tokens, rewards 0 or 1, medians over 5 trees; the mean and variance are exact."


def _pair(length: int, drift: float, seed: int) -> tuple[Any, Floats, Floats]:
    from testbed.exact.tree import random_policies, random_tree

    tree = random_tree(2, length, seed)
    return (tree, *random_policies(tree, drift, seed))


def _bench(length: int, drift: float, seed: int) -> Bench:
    from testbed.exact.report import Bench

    return Bench(*_pair(length, drift, seed))


def _medians(rows: list[dict[str, float]]) -> dict[str, float]:
    return {name: float(np.median([row[name] for row in rows])) for name in rows[0]}


def _bias(function: Any, bench: Bench) -> float:
    from testbed.exact.report import gradient_report

    return float(gradient_report(function, bench).relative_bias)


@computed(
    1,
    "Which log-probabilities go under the ratio: the rollout's or those that the trainer computes again?",
    "areal-project/AReaL#201",
    "Computing them again with the current weights leaves no correction at all. The ratio is 1, so the "
    "gradient equals that of no importance weight to {gap:.0e}. With a drift of {drift} between sampler "
    "and trainer its bias is {again:.2f} of the true gradient's norm; a token ratio to the rollout's "
    "log-probabilities has {token:.2f}, a sequence ratio none ({sequence:.0e}). Recompute only with a "
    "second weight, recomputed over rollout.",
    TREES + " One update per batch, 5 tokens, no clip reached.",
)
def under_the_ratio() -> Numbers:
    """Return relative biases by drift of the logits, and the gap between recomputing and no weight."""
    from testbed.exact.report import Bench

    table, gaps = [], [0.0]
    for drift in (0.1, 0.3, 1.0):
        rows = []
        for seed in SEEDS:
            tree, mu, pi = _pair(5, drift, seed)
            plain, again = Bench(tree, mu, pi), Bench(tree, mu, pi, anchor_SA=pi)
            rescored, none = _bias("ppo_clip", again), _bias("ratio:none", plain)
            gaps.append(abs(rescored - none))
            token, sequence = _bias("ratio:token", plain), _bias("ratio:sequence", plain)
            rows.append({"computed again": rescored, "token ratio": token, "sequence ratio": sequence})
        table.append({"drift": drift, **_medians(rows)})
    last = table[-1]
    return {
        "table": table,
        "gap": max(gaps),
        "drift": last["drift"],
        "again": last["computed again"],
        "token": last["token ratio"],
        "sequence": last["sequence ratio"],
    }


@computed(
    4,
    "Are tokens sampled at a temperature scored with raw or with tempered log-probabilities?",
    "verl-project/verl#6240",
    "Score as you sample, or weigh. Sampled at {temperature} and scored at the same temperature, the "
    "gradient is that of the tempered policy (bias {same:.0e}). Scored raw with the sequence ratio raw "
    "over tempered, it is that of the policy at 1 (bias {weighted:.0e}). Scored raw without a weight it "
    "is neither: bias {raw_one:.2f} against the one, cosine {cosine_t:.2f} with the other. The largest "
    "token ratio at rest is {ratio:.1f}, so a raw numerator over a tempered denominator is clipped before"
    " anything was learned.",
    TREES + " 5 tokens, temperature .6; logits are standard normal.",
)
def temperature() -> Numbers:
    """Return relative biases and cosines of pairings of sampler and score at temperature .6."""
    from testbed.exact.report import Bench, gradient_report

    temperature, rows = 0.6, []
    for seed in SEEDS:
        tree, policy, _ = _pair(5, 0.0, seed)
        tempered = policy ** (1 / temperature)
        tempered /= tempered.sum(-1, keepdims=True)
        mixed, own = Bench(tree, tempered, policy), Bench(tree, tempered, tempered)
        raw = gradient_report("ratio:none", mixed)
        norms = np.linalg.norm(raw.mean_SA) * np.linalg.norm(own.target_SA)
        rows.append(
            {
                "same": _bias("ratio:none", own),
                "weighted": _bias("ratio:sequence", mixed),
                "raw_one": raw.relative_bias,
                "cosine_t": float((raw.mean_SA * own.target_SA).sum() / norms),
                "ratio": float((policy / tempered).max()),
            }
        )
    return {"temperature": temperature, **_medians(rows)}


@computed(
    8,
    "Token weight or sequence weight: which error is worse?",
    "huggingface/trl#4493",
    "It depends on the batch. The token weight is biased ({bias:.2f} of the gradient at {length} tokens),"
    " the sequence weight is not, but its deviation is {deviation:.1f} times the token weight's there. "
    "Their mean squared errors are equal at a batch of {even:.0f} independent responses: below that the "
    "token weight errs less, above it the sequence weight does. The break-even batch depends on the tree "
    "(table).",
    TREES + " Drift .5 of the logits.",
)
def token_or_sequence() -> Numbers:
    """Return bias and deviation of both weights by length, and the batch at which their errors are equal."""
    from testbed.exact.report import gradient_report

    table = []
    for length in (3, 5, 8):
        rows = []
        for seed in SEEDS:
            bench = _bench(length, 0.5, seed)
            token, sequence = (gradient_report(f"ratio:{level}", bench) for level in ("token", "sequence"))
            rows.append(
                {
                    "bias, token": token.relative_bias,
                    "deviation, token": token.relative_deviation,
                    "deviation, sequence": sequence.relative_deviation,
                }
            )
        middle = _medians(rows)
        bias, low, high = middle.values()
        table.append({"tokens": length, **middle, "break even, responses": (high**2 - low**2) / bias**2})
    last = table[-1]
    return {
        "table": table,
        "length": last["tokens"],
        "bias": last["bias, token"],
        "deviation": last["deviation, sequence"] / last["deviation, token"],
        "even": last["break even, responses"],
    }


@computed(
    12,
    "Token mean, sequence mean or a constant: which one bends length?",
    "verl-project/verl#593",
    "Only the constant divisor points along the true gradient: cosine {constant:.4f}, where the token "
    "mean has {token:.4f} and the sequence mean {sequence:.4f}. The sequence mean divides each answer by "
    "its length, so a short right answer gains more per token than a long one and a long wrong one loses "
    "less. The angle is there on fresh data and has nothing to do with lag.",
    "Random trees of three tokens, one of them the end token, up to 3 tokens; groups of 3, advantages "
    "less the mean of the others, every group enumerated; medians over 5 trees.",
)
def averaging() -> Numbers:
    """Return cosines with the true gradient by aggregation, groups of three enumerated."""
    from testbed.exact.group import group_report
    from testbed.exact.report import Bench
    from testbed.exact.tree import random_policies, random_tree

    rows = []
    for seed in SEEDS:
        tree = random_tree(3, 3, seed, end_token=0)
        bench = Bench(tree, *random_policies(tree, 0.0, seed))
        found = {
            mode: group_report("reinforce", bench, size=3, advantage="leave_one_out", aggregation=mode).cosine
            for mode in ("constant", "token_mean", "sequence_mean")
        }
        rows.append(found)
    middle = _medians(rows)
    return {
        "constant": middle["constant"],
        "token": middle["token_mean"],
        "sequence": middle["sequence_mean"],
    }


def _weighed(weight: Callable[[Tensor], Tensor], reported: bool = False) -> Callable[..., Tensor]:
    """Return the objective -sg[weight(log ratio)] A log pi; reported: the ratio is to the reference."""
    from testbed.losses.score_loss import score_loss

    def weighed(logp_BT: Tensor, batch: Batch) -> Tensor:
        below_BT = batch.logp_ref_BT if reported else batch.logp_mu_BT
        assert below_BT is not None
        return score_loss(weight(logp_BT.detach() - below_BT), logp_BT, batch)

    return weighed


@computed(
    13,
    "Truncate outliers or mask them, and by token or by sequence?",
    "NovaSky-AI/SkyRL#1665",
    "With {share:.0%} of the tokens touched by each rule, truncating the token ratio errs least in its "
    "mean: {truncate:.2f} of the gradient, masking these tokens {mask:.2f}, masking whole sequences by "
    "their geometric mean {geometric:.2f}. Deviations are {truncate_dev:.2f}, {mask_dev:.2f} and "
    "{geometric_dev:.2f}: masking buys little variance for its bias here. Published reports of runs that "
    "only a sequence mask saved need a cause other than the error of one gradient.",
    TREES + " 8 tokens, drift .5, upper side only, one step.",
)
def truncate_or_mask() -> Numbers:
    """Return bias and deviation of three rules that touch the same share of tokens under the sampler."""
    from testbed.exact.report import gradient_report

    share, rows = 0.1, []
    for seed in SEEDS:
        bench = _bench(8, 0.5, seed)
        log_LT = bench.logp_pi_LT - bench.logp_mu_LT
        cap = _upper(log_LT.ravel(), np.repeat(bench.law_L, log_LT.shape[1]), share)
        line = _upper(log_LT.mean(-1), bench.law_L, share)
        rules: dict[str, Callable[[Tensor], Tensor]] = {
            "truncate": partial(_truncated, cap=cap),
            "mask": partial(_masked, cap=cap),
            "geometric": partial(_masked_by_mean, line=line),
        }
        row: dict[str, float] = {}
        for name, rule in rules.items():
            found = gradient_report(_weighed(rule), bench)
            row |= {name: found.relative_bias, f"{name}_dev": found.relative_deviation}
        rows.append(row)
    return {"share": share, **_medians(rows)}


def _truncated(log_BT: Tensor, cap: float) -> Tensor:
    return log_BT.clamp(max=cap).exp()


def _masked(log_BT: Tensor, cap: float) -> Tensor:
    return log_BT.exp().masked_fill(log_BT > cap, 0.0)


def _masked_by_mean(log_BT: Tensor, line: float) -> Tensor:
    return log_BT.exp().masked_fill(log_BT.mean(-1, keepdim=True) > line, 0.0)


def _upper(value_N: Floats, law_N: Floats, share: float) -> float:
    """Return the value that a draw exceeds with a chance of about `share`."""
    order = np.argsort(value_N)
    reach = np.cumsum(law_N[order]) / law_N.sum()
    return float(value_N[order][np.searchsorted(reach, 1 - share)]) + 1e-12


@computed(
    16,
    "Does an importance weight help if the sampler is right and only its reported log-probabilities are "
    "wrong?",
    "thinking-machines-lab/tinker-cookbook#396",
    "It harms. With a truly different sampler (noise {noise} in the logits) the weight takes the bias "
    "from {real_none:.2f} to {real_weight:.0e}. With a right sampler and a report that is as far off, no "
    "weight has bias {report_none:.0e} and the weight {report_weight:.2f}: it makes the error that it "
    "would have removed. Any noise in the report costs; score again with the same weights where the "
    "report is in doubt.",
    TREES + " 5 tokens, sequence ratio.",
)
def misreported() -> Numbers:
    """Return relative biases with and without a sequence weight, for a real and for a reported gap."""
    from testbed.exact.report import Bench

    whole = _weighed(lambda x: x.sum(-1, keepdim=True).exp().expand_as(x), reported=True)
    table = []
    for noise in (0.05, 0.2, 0.5):
        rows = []
        for seed in SEEDS:
            tree, noisy, pi = _pair(5, noise, seed)
            real, report = Bench(tree, noisy, pi, ref_SA=noisy), Bench(tree, pi, pi, ref_SA=noisy)
            rows.append(
                {
                    "real gap, no weight": _bias("ratio:none", real),
                    "real gap, weight": _bias(whole, real),
                    "wrong report, no weight": _bias("ratio:none", report),
                    "wrong report, weight": _bias(whole, report),
                }
            )
        table.append({"noise": noise, **_medians(rows)})
    noise, *last = table[-1].values()
    names = ("real_none", "real_weight", "report_none", "report_weight")
    return {"table": table, "noise": noise, **dict(zip(names, last, strict=True))}


@computed(
    22,
    "Is an answer that switches to newer weights half-way harmful?",
    "vllm-project/vllm#48297",
    "Not if every token keeps the log-probability of the weights that made it: the sequence ratio then "
    "has bias {kept:.0e}. Scored as if the first version had made all of it, the bias is {first:.2f} of "
    "the gradient, as if the last had, {last:.2f}. The chi-square of the ratio, exact, is "
    "{mixed_chi2:.2f} for the mixed answer, {first_chi2:.2f} for one made by the older version alone: a "
    "mixed answer is nearer to today's policy.",
    TREES + " 5 tokens, three versions, each .5 of logits from the last; the switch comes after token 3.",
)
def switched() -> Numbers:
    """Return the bias of sequence ratios by what is recorded, and chi-square to the current policy."""
    from testbed.exact.report import Bench
    from testbed.exact.tree import softmax

    whole = _weighed(lambda x: x.sum(-1, keepdim=True).exp().expand_as(x), reported=True)
    rows = []
    for seed in SEEDS:
        tree, first, second = _pair(5, 0.5, seed)
        step_SA = np.random.default_rng([seed, 3]).standard_normal(first.shape)
        current = softmax(np.log(second) + 0.5 * step_SA)
        mixed = np.where(np.arange(len(first))[:, None] < tree.level[3], first, second)
        records = {"kept": mixed, "first": first, "last": second}
        row = {name: _bias(whole, Bench(tree, mixed, current, ref_SA=made)) for name, made in records.items()}
        for name, made in (("mixed", mixed), ("first", first)):
            bench = Bench(tree, made, current)
            log_L = (bench.logp_pi_LT - bench.logp_mu_LT).sum(-1)
            row[f"{name}_chi2"] = float(bench.law_L @ np.exp(2 * log_L)) - 1
        rows.append(row)
    return _medians(rows)


@computed(
    36,
    "Is a lower bound on CISPO's weight harmful?",
    "thinking-machines-lab/tinker-cookbook#763",
    "It adds bias and takes away the fading of abandoned tokens. At a drift of {drift} the bias is "
    "{none:.3f} of the gradient without a floor, {half:.3f} with a floor of .5 and {high:.3f} with .8. A "
    "floor acts on tokens that the policy has left: they keep at least the floor's share of their push "
    "however rare they become, since the true weight goes to 0. The size is small for small drifts "
    "(table).",
    TREES + " 5 tokens, upper bound 4.",
)
def floor() -> Numbers:
    """Return relative biases of CISPO with floors 0, .5 and .8 by drift."""
    from testbed.exact.report import gradient_report

    table = []
    for drift in (0.1, 0.5, 1.5):
        rows = []
        for seed in SEEDS:
            bench = _bench(5, drift, seed)
            rows.append(
                {
                    f"floor {1 - low:g}": gradient_report(
                        "cispo", bench, eps_low=low, eps_high=3.0
                    ).relative_bias
                    for low in (1.0, 0.5, 0.2)
                }
            )
        table.append({"drift": drift, **_medians(rows)})
    drift, *last = table[-1].values()
    return {"table": table, "drift": drift, **dict(zip(("none", "half", "high"), last, strict=True))}
