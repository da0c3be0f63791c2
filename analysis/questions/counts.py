"""Questions that a sum over counts, a closed form or one call of an objective answers; nothing is sampled."""

import math
from typing import Any

import numpy as np

from analysis.questions.question import Numbers, computed
from envs.arrays import Floats


@computed(
    6,
    "Top-p in the rollout, full vocabulary in the trainer: how wrong is the ratio?",
    "huggingface/trl#6789",
    "At equal weights every token's ratio of full over truncated probability averages the kept mass S, "
    "and an answer's averages S to the number of tokens. With top-p {p} over {vocabulary} tokens S is "
    "{kept:.3f}, which leaves {left:.1e} of the weight of an answer of {length} tokens. S is the right "
    "weight for the part of the full policy that can be sampled; the lost tail is what no weight brings "
    "back. Replaying the mask makes the ratio 1 and trains the truncated policy.",
    "Token probabilities proportional to 1 / rank at every position; the project's top-p engine; exact.",
)
def truncated_sampling() -> Numbers:
    """Return the kept mass, and its power at the answer's length, by p."""
    import torch

    from testbed.mismatch import engine

    vocabulary, length = 1000, 100
    logits = -torch.log(torch.arange(1.0, vocabulary + 1, dtype=torch.float64))[None]
    pi = logits.softmax(-1)
    table = []
    for p in (0.8, 0.9, 0.95, 0.99):
        mu = _sampled_law(engine("top-p", p=p), logits)
        kept = float(pi[mu > 0].sum())
        table.append({"top-p": p, "mean token ratio": kept, "mean answer ratio": kept**length})
    p, kept, left = table[2].values()
    return {"table": table, "vocabulary": vocabulary, "length": length, "p": p, "kept": kept, "left": left}


def _sampled_law(engine: Any, logits: Any) -> Any:
    """Return what an engine of the sampler draws from, given the logits of a policy."""
    return engine.distribution(logits.log_softmax(-1)[None], None, 0)[0].exp()


@computed(
    9,
    "Correcting long answers: the product of the ratios or their geometric mean?",
    "huggingface/trl#5815",
    "The product is the right weight, but capped it soon says little. With log-ratios normal and {kl} "
    "nats of divergence per token, the mean of the product capped at {cap:g} is {short:.2f} at {first} "
    "tokens and {long:.2f} at {last:,}; without a cap it is 1 at every length. It falls below one half at"
    " {half:,.0f} tokens. The geometric mean stays within {geometric:.4f} of 1 and is therefore no "
    "correction, only a test for outliers. A capped mean far below 1 on fresh data needs no bug.",
    "Independent normal log-ratios whose mean makes the uncapped ratio average 1; closed form.",
)
def product_or_mean() -> Numbers:
    """Return the mean of the capped product by length, and the length at which it is one half."""
    kl, cap, lengths = 0.0003, 2.0, (100, 1000, 9000)
    table = [{"tokens": n, "mean of the capped product": _capped(2 * kl * n, cap)} for n in lengths]
    low, high = 1.0, 1e7
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if _capped(2 * kl * middle, cap) > 0.5 else (low, middle)
    return {
        "table": table,
        "kl": kl,
        "cap": cap,
        "first": lengths[0],
        "last": lengths[-1],
        "short": table[0]["mean of the capped product"],
        "long": table[-1]["mean of the capped product"],
        "half": low,
        "geometric": kl,
    }


def _normal(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2))


def _capped(variance: float, cap: float) -> float:
    """E min(e^X, cap), X normal with mean -variance / 2."""
    line, deviation = math.log(cap), math.sqrt(variance)
    below = _normal((line - variance / 2) / deviation)
    return below + cap * (1 - _normal((line + variance / 2) / deviation))


def _binomial(n: int, p: float) -> Floats:
    return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])


@computed(
    14,
    "After masking, divide by all tokens or by the kept ones?",
    "mlcommons/training#905",
    "Dividing by the kept ones makes the step longer as more is rejected: with {share:.0%} rejected the "
    "expected step is {kept:.2f} times that of dividing by all, which shrinks with the kept share "
    "instead. The direction of the expected step is the same. Under Adam a constant factor does not "
    "matter, so only changes of the rejection rate during a run do; under plain gradient descent, and "
    "with a norm clip, it is a change of the learning rate.",
    "{answers} answers of equal length, rejected independently of their content; enumerated.",
)
def denominator() -> Numbers:
    """Return the ratio of expected steps, kept over all, by rejection rate, for 64 answers."""
    answers, table = 64, []
    for rejected in (0.05, 0.2, 0.5, 0.9):
        law = _binomial(answers, 1 - rejected)
        some = 1 - float(law[0])
        share = float(law @ np.arange(answers + 1)) / answers
        row = {"rejected": rejected, "step over all": share, "step over kept": some}
        table.append({**row, "kept over all": some / share})
    return {"table": table, "answers": answers, "share": 0.5, "kept": table[2]["kept over all"]}


def _advantages(name: str, reward: list[float]) -> Floats:
    import torch

    from testbed.advantages import advantage
    from testbed.data.signals import Signals

    rewards = torch.tensor(reward, dtype=torch.float64)
    signals = Signals(rewards, torch.zeros(len(reward), dtype=torch.int64))
    return np.asarray(advantage[name].function(signals).numpy())


@computed(
    15,
    "May dropped answers still set the baseline of their group?",
    "verl-project/verl#6375",
    "Neither choice is free of bias when the drop depends on the answer. Half of the wrong answers are "
    "dropped here at a pass rate of {rate}. A leave-one-out baseline over the whole group makes the step "
    "{all_loo:.2f} of the true gradient, over the kept answers {kept_loo:.2f}; dropping at random gives "
    "{random_loo:.2f}. The drop is the cause: kept scores no longer average zero, so any baseline tilts "
    "them, and the plain reward without a baseline gives {plain:.2f}. Dividing by the standard deviation "
    "makes it {all_std:.2f} and {kept_std:.2f}.",
    "One decision per answer, groups of 8, divided by 8; a group with fewer than two answers gives no "
    "step; every group enumerated.",
)
def dropped_baselines() -> Numbers:
    """Return expected steps over p (1 - p), by what the baseline is taken over and what is dropped."""
    rate, drop = 0.25, 0.5
    found = {"rate": rate, "plain": _step("plain", rate, 0.0, drop, over_all=True)}
    for short, name in (("loo", "leave_one_out"), ("std", "group_std")):
        found[f"all_{short}"] = _step(name, rate, 0.0, drop, over_all=True)
        found[f"kept_{short}"] = _step(name, rate, 0.0, drop, over_all=False)
    # A random drop of half of all answers, put on the scale of a full group.
    found["random_loo"] = _step("leave_one_out", rate, drop, drop, over_all=True) / (1 - drop)
    return found


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


@computed(
    23,
    "Answers that are cut at the limit: count them as wrong, or mask them?",
    "huggingface/trl#3248",
    "Masking removes a brake on length. If right answers are as likely at every length, counting cut "
    "answers as wrong pushes toward stopping by {punish_flat:+.3f} and masking by {mask_flat:+.3f}: "
    "nothing. If longer answers are right more often, masking pushes away from stopping "
    "({mask_rising:+.3f}), while counting as wrong gives {punish_rising:+.3f}. The true gradient of the "
    "reward under the limit is the first rule's; masking is the gradient of another aim, right answers "
    "among those that ended.",
    "Answers end with chance .15 at each of 12 places; baseline is the mean reward of the counted "
    "answers; the push is the expected gradient in the logit of stopping; enumerated.",
)
def cut_answers() -> Numbers:
    """Return the push on the logit of stopping, by rule and by how being right depends on length."""
    limit, stop = 12, 0.15
    ended = np.arange(1, limit + 1)
    law = np.append(stop * (1 - stop) ** (ended - 1), (1 - stop) ** limit)
    score = np.append((1 - stop) - (ended - 1) * stop, -limit * stop)
    found = {}
    for name, right in (("flat", np.full(limit, 0.5)), ("rising", ended / limit)):
        reward = np.append(right, 0.0)
        found[f"punish_{name}"] = float(law @ ((reward - law @ reward) * score))
        alive = law[:-1] / law[:-1].sum()
        found[f"mask_{name}"] = float(law[:-1] @ ((right - alive @ right) * score[:-1]))
    return found


@computed(
    24,
    "How much does dividing by the group's standard deviation tilt toward easy and hard prompts?",
    "thinking-machines-lab/tinker-cookbook#579",
    "A prompt at a pass rate of {rare} gets {ratio:.1f} times the weight, relative to its true gradient, "
    "of a prompt at one half; the curve is symmetric, so very easy prompts gain as much as very hard "
    "ones. Without the division every prompt has the same factor, {plain:.3f} = (G - 1) / G of the true "
    "gradient. The tilt is bounded: it is at most {most:.1f} for groups of {size}, since a group needs "
    "one right and one wrong answer.",
    "One decision per answer, groups of 8, unbiased deviation; every group enumerated.",
)
def standard_deviation() -> Numbers:
    """Return the expected step over p (1 - p) with and without the division, by pass rate."""
    table = []
    for rate in (0.001, 0.02, 0.1, 0.5, 0.9, 0.98):
        divided, plain = (_step(name, rate, 0.0, 0.0, over_all=True) for name in ("group_std", "group_mean"))
        table.append({"pass rate": rate, "divided": divided, "not divided": plain})
    middle = table[3]["divided"]
    for row in table:
        row["divided, over that at .5"] = row["divided"] / middle
    return {
        "table": table,
        "rare": table[1]["pass rate"],
        "ratio": table[1]["divided, over that at .5"],
        "plain": table[3]["not divided"],
        "most": table[0]["divided, over that at .5"],
        "size": 8,
    }


@computed(
    28,
    "Can the effective sample size be averaged over micro-batches?",
    "NVIDIA/Megatron-LM#5420",
    "No. Weights 1,1,1,1 in one part and 2,2,2,2 in the other have a pooled share of {pooled:.2f}, while "
    "the mean of the parts is {mean:.2f}. With {parts} parts of which one holds all the weight the mean "
    "still says {mean:.2f} and the truth is {worst:.3f}: an average of parts can be too large by a factor"
    " equal to their number. Add the sums of w and of w squared and the counts over parts, then divide "
    "once. After a clamp it reads another weight, and is never lower.",
    "Every set of weights; the largest factor is reached in the limit.",
    ("clamping-never-lowers-ess",),
)
def averaged_ess() -> Numbers:
    """Return pooled ESS shares and the mean of the parts'."""
    import torch

    from testbed.diagnostics.ratios import ess

    def shares(parts: list[list[float]]) -> tuple[float, float]:
        logs = [torch.tensor(part, dtype=torch.float64).log() for part in parts]
        return float(ess(torch.cat(logs))), float(np.mean([float(ess(part)) for part in logs]))

    pooled, mean = shares([[1.0] * 4, [2.0] * 4])
    parts = 8
    worst, _ = shares([[1e9] * 4, *[[1.0] * 4] * (parts - 1)])
    return {"pooled": pooled, "mean": mean, "parts": parts, "worst": worst}


@computed(
    30,
    "Text that is tokenized again between turns: how much bias?",
    "huggingface/trl#5224",
    "Training on the re-encoded ids credits a spelling that was not sampled: with {share:.0%} of right "
    "answers respelled the step is off by {encoded:.2f} of the true gradient. Dropping the respelled rows"
    " is off by {dropped:.2f}, because respelling happens to right answers only here; if it is as "
    "frequent among wrong ones, dropping only shortens the step ({alike:.2f} of its length). Training on "
    "the sampled ids has no bias.",
    "One decision among four ids: the right text in two spellings, the wrong text in two; exact baseline;"
    " the gradient in the logits; dropped rows count in the divisor.",
)
def respelled() -> Numbers:
    """Return relative errors by share of respelled right answers, pass rate .4."""
    table = []
    for share in (0.05, 0.2, 0.5):
        pi = np.array([0.4 * (1 - share), 0.4 * share, 0.6, 0.0])
        true, norm = _spelling_step(pi, np.arange(4), np.ones(4)), 0.0
        norm = float(np.linalg.norm(true))
        encoded = _spelling_step(pi, np.array([0, 0, 2, 2]), np.ones(4))
        dropped = _spelling_step(pi, np.arange(4), np.array([1.0, 0.0, 1.0, 0.0]))
        errors = [float(np.linalg.norm(step - true)) / norm for step in (encoded, dropped)]
        table.append({"respelled": share, "re-encoded": errors[0], "dropped": errors[1]})
    share, encoded_error, dropped_error = table[1].values()
    return {
        "table": table,
        "share": share,
        "encoded": encoded_error,
        "dropped": dropped_error,
        "alike": 1 - share,
    }


def _spelling_step(pi_A: Floats, trained_A: Any, kept_A: Floats) -> Floats:
    """E of the kept steps (R - J) (onehot(trained id) - pi); ids 0 and 1 spell the right text."""
    gain_A = np.array([1.0, 1.0, 0.0, 0.0]) - pi_A[:2].sum()
    score_AA = np.eye(4)[trained_A] - pi_A
    return np.asarray((pi_A * kept_A * gain_A) @ score_AA)


@computed(
    34,
    "GSPO clips four sequences of ten in asynchronous training: is the width wrong, or the anchor?",
    "verl-project/verl#7356",
    "Both readings fit, and the divergence tells. A width of 3e-4 below and 4e-4 above cuts {fresh:.0%} "
    "of the sequences when the anchor is computed again, since the ratio is then 1, and {share:.0%} of "
    "{length} tokens once the policy is {kl:.1e} nats per token from the rollout. More drift brings it to"
    " one half and no further: the negative side's sequences are all cut, the positive side's none (their"
    " mean ratio is below 1). The width that cuts a tenth grows with the drift (table).",
    "Independent normal log-ratios, half of the advantages positive; closed form.",
)
def gspo_clip() -> Numbers:
    """Return the share of cut sequences by divergence per token, and the divergence at which it is .4."""
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


@computed(
    35,
    "Do groups of equal rewards belong in the denominator?",
    "huggingface/trl#6368",
    "Leaving them out multiplies the step by one over the share of live groups. For groups of {size} that"
    " factor is {half:.2f} at a pass rate of one half and {rare:.1f} at {rate}; it grows again as the "
    "policy solves the prompts. The direction of the expected step does not change. It is a learning-rate"
    " schedule that follows the pass rate; under Adam without a norm clip a slow change of it has no "
    "effect.",
    "One pass rate for all prompts, right or wrong answers, many groups per batch; closed form. A KL term"
    " on the dead groups is a separate choice.",
)
def dead_groups() -> Numbers:
    """Return the factor of the step, one over the share of live groups, by pass rate and group size."""
    table = [
        {"pass rate": rate}
        | {f"groups of {size}": 1 / (1 - rate**size - (1 - rate) ** size) for size in (4, 8, 16)}
        for rate in (0.02, 0.1, 0.5, 0.9)
    ]
    return {
        "table": table,
        "size": 8,
        "half": table[2]["groups of 8"],
        "rate": table[0]["pass rate"],
        "rare": table[0]["groups of 8"],
    }
