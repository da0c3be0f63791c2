"""Questions that a call of the objectives or of an optimizer answers: weights at given ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.questions.question import Numbers, computed

if TYPE_CHECKING:
    from testbed.data.batch import Batch


def _one_token(ratio: float, adv: float) -> Batch:
    """Return a batch of one token whose ratio is `ratio` where log pi is 0."""
    import torch

    from testbed.data.batch import Batch

    logp_mu, a = (torch.full((1, 1), x, dtype=torch.float64) for x in (-float(np.log(ratio)), adv))
    return Batch(logp_mu, a, a != 0, reward_B=a[:, 0], group_B=torch.zeros(1, dtype=torch.int64))


def _weight(name: str, ratio: float, adv: float, **hyper: float) -> float:
    import torch

    from testbed.inspection.effective_weights import effective_weights

    logp = torch.zeros(1, 1, dtype=torch.float64)
    return float(effective_weights(name, logp, _one_token(ratio, adv), **hyper)) + 0.0


@computed(
    25,
    "Which settings are dead when each batch is used once?",
    "huggingface/trl#3120",
    "Every width of a clip. At ratio 1 the weight of a token does not change when the widths of {names} "
    "go from their defaults to a tenth of them (largest change {dead:g}), so a clip share of zero is no "
    "fault. With a ratio of {ratio} from engine noise or lag the same change moves weights by up to "
    "{alive:.2f}. The dead settings come alive with lag, with several steps per batch, or with mismatch "
    "under an anchor that is not computed again.",
    "One token, advantages 1 and -1, the objectives and settings in the table; exact.",
)
def dead_settings() -> Numbers:
    """Return the largest change of a weight when widths shrink tenfold, at ratio 1 and off it."""
    off, table = 1.1, []
    for name, widths in (
        ("ppo_clip", {"eps_low": 0.2, "eps_high": 0.2}),
        ("dual_clip", {"eps_low": 0.2, "eps_high": 0.2}),
        ("gspo", {"eps_low": 0.0003, "eps_high": 0.0004}),
        ("cispo", {"eps_high": 0.28}),
        ("m2po", {"tau": 0.04}),
    ):
        narrow = {key: value / 10 for key, value in widths.items()}
        row: dict[str, str | float] = {"objective": name, "settings": ", ".join(widths)}
        for title, ratio in (("change at ratio 1", 1.0), (f"change at ratio {off}", off)):
            row[title] = max(
                abs(_weight(name, ratio, adv, **widths) - _weight(name, ratio, adv, **narrow))
                for adv in (1.0, -1.0)
            )
        table.append(row)
    return {
        "table": table,
        "names": ", ".join(str(row["objective"]) for row in table),
        "dead": max(float(row["change at ratio 1"]) for row in table),
        "alive": max(float(row[f"change at ratio {off}"]) for row in table),
        "ratio": off,
    }


@computed(
    29,
    "Does Adam hide a wrong loss scale, and does norm clipping expose it?",
    "huggingface/trl#6024",
    "A fixed wrong scale of {scale:g} changes the path of Adam by {adam:.0e} of its length and that of "
    "plain gradient descent by {sgd:.1f} times. A norm clip in front of Adam does not expose it if it "
    "always or never binds; if it binds on some steps, it changes which ones count ({clipped:.2f} of the "
    "length here). A scale that varies from step to step is not hidden: factors 1 and {scale:g} in turn "
    "change Adam's path by {varying:.2f}.",
    "One sequence of {steps} random gradients whose size varies, 20 weights; the optimizers of PyTorch, "
    "Adam's epsilon 1e-8; one seed, an identity for the fixed scale.",
)
def loss_scale() -> Numbers:
    """Return distances between paths with and without a wrong scale, over the length of the right path."""
    steps, scale = 50, 4.0
    rng = np.random.default_rng(0)
    gradient_NP = rng.standard_normal((steps, 20)) * np.exp(rng.standard_normal((steps, 1)))
    fixed, varying = np.full(steps, scale), np.where(np.arange(steps) % 2, scale, 1.0)
    middle = float(np.median(np.linalg.norm(gradient_NP, axis=-1)))

    def gap(scale_N: np.ndarray, kind: str, most: float = np.inf) -> float:
        right, wrong = (_path(gradient_NP * s[:, None], kind, most) for s in (np.ones(steps), scale_N))
        return float(np.linalg.norm(wrong - right) / np.linalg.norm(right))

    return {
        "scale": scale,
        "steps": steps,
        "adam": gap(fixed, "adam"),
        "sgd": gap(fixed, "sgd"),
        "clipped": gap(fixed, "adam", middle),
        "varying": gap(varying, "adam"),
    }


def _path(gradient_NP: np.ndarray, kind: str, most: float) -> np.ndarray:
    """Return where these gradients lead from 0, each cut to a norm of `most`."""
    import torch

    weight = torch.zeros(gradient_NP.shape[1], dtype=torch.float64, requires_grad=True)
    rule = torch.optim.Adam([weight], lr=0.01) if kind == "adam" else torch.optim.SGD([weight], lr=0.01)
    for gradient_P in gradient_NP:
        weight.grad = torch.from_numpy(gradient_P.copy())
        torch.nn.utils.clip_grad_norm_([weight], most)
        rule.step()
    return weight.detach().numpy()


@computed(
    37,
    "Does the clip make old replayed data safe by itself?",
    "RLinf/RLinf#922",
    "No: it cuts two of four cases. At a ratio of {high:g} a good token has weight {good_high:g}, a bad "
    "one {bad_high:g}: the push on a bad token that became likelier grows with the ratio without bound. "
    "At a ratio of {low:g} a good token keeps {good_low:g} and a bad one {bad_low:g}. Old data are "
    "therefore not down-weighted in general. The trained comparison of replay with a clip is judged in "
    "the experiments on reuse.",
    "PPO's clip at .2 on both sides, one token; exact. Training is another matter: see the claim.",
    ("r2vpo-ends-above-grpo-x4-at-lag-64",),
)
def replayed() -> Numbers:
    """Return PPO's effective weight in the four cases of advantage and side."""
    high, low = 4.0, 0.25
    return {"high": high, "low": low} | {
        f"{sign}_{side}": _weight("ppo_clip", ratio, adv)
        for sign, adv in (("good", 1.0), ("bad", -1.0))
        for side, ratio in (("high", high), ("low", low))
    }


@computed(
    38,
    "Is the unbounded weight on bad tokens what breaks asynchronous PPO?",
    "huggingface/trl#7120",
    "It is the only unbounded one, and a lower dual clip bounds it. At a ratio of {ratio:g} a bad token "
    "has weight {plain:g} under PPO's clip, {dual:g} under the dual clip (c = 3, where its gradient "
    "stops) and {truncated:g} with a truncated weight (CISPO, cap {cap:g}). The dual clip drops the "
    "token, truncation goes on pushing it down. If that branch is what breaks a run is a question to "
    "training; the nearest judged claim says: {0}.",
    "Weights exact, one token. The claim: REINFORCE without weights against GRPO on stale data.",
    ("reinforce-collapses-where-grpo-holds",),
)
def bad_tokens() -> Numbers:
    """Return weights of a bad token by ratio under three rules."""
    table = [
        {
            "ratio": ratio,
            "PPO": _weight("ppo_clip", ratio, -1.0),
            "dual clip": _weight("dual_clip", ratio, -1.0),
            "CISPO": _weight("cispo", ratio, -1.0),
        }
        for ratio in (1.0, 2.0, 4.0, 64.0)
    ]
    ratio, plain, dual, truncated = table[-1].values()
    return {
        "table": table,
        "ratio": ratio,
        "plain": plain,
        "dual": dual,
        "truncated": truncated,
        "cap": _weight("cispo", 1e6, 1.0),
    }
