"""Questions that a call of the objectives or of an optimizer answers: weights at given ratios."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from analysis.kernels.on_use import torch
from analysis.questions.question import Numbers, computed

if TYPE_CHECKING:
    from testbed.data.batch import Batch


def _one_token(ratio: float, adv: float) -> Batch:
    """Return a batch of one token whose ratio is `ratio` where log pi is 0."""
    from testbed.data.batch import Batch

    logp_mu, a = (torch.full((1, 1), x, dtype=torch.float64) for x in (-float(np.log(ratio)), adv))
    return Batch(logp_mu, a, a != 0, reward_B=a[:, 0], group_B=torch.zeros(1, dtype=torch.int64))


def _weight(name: str, ratio: float, adv: float, **hyper: float) -> float:
    from testbed.inspection.effective_weights import effective_weights

    logp = torch.zeros(1, 1, dtype=torch.float64)
    return float(effective_weights(name, logp, _one_token(ratio, adv), **hyper)) + 0.0


@computed(25)
def dead_settings() -> Numbers:
    """Return the largest change of a weight when clip widths shrink tenfold, at ratios 1 and 1.1."""
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


@computed(29)
def loss_scale() -> Numbers:
    """Return the distance between the ends of paths at a right and a wrong loss scale, by optimizer."""
    steps, scale = 50, 4.0
    rng = np.random.default_rng(0)
    gradient_NP = rng.standard_normal((steps, 20)) * np.exp(rng.standard_normal((steps, 1)))
    fixed, varying = np.full(steps, scale), np.where(np.arange(steps) % 2, scale, 1.0)
    middle = float(np.median(np.linalg.norm(gradient_NP, axis=-1)))

    def gap(scale_N: np.ndarray, kind: str, most: float = np.inf) -> float:
        right, wrong = (_path(gradient_NP * s[:, None], kind, most) for s in (np.ones(steps), scale_N))
        return float(np.linalg.norm(wrong - right) / np.linalg.norm(right))

    table = [
        {
            "scale": name,
            "plain": gap(scale_N, "sgd"),
            "Adam": gap(scale_N, "adam"),
            "Adam, clipped": gap(scale_N, "adam", middle),
        }
        for name, scale_N in ((f"{scale:g} always", fixed), (f"1 and {scale:g} in turn", varying))
    ]
    return {"table": table, "scale": scale, "steps": steps}


def _path(gradient_NP: np.ndarray, kind: str, most: float) -> np.ndarray:
    """Return the point that an optimizer reaches from 0 with these gradients, clipped to norm `most`."""
    weight = torch.zeros(gradient_NP.shape[1], dtype=torch.float64, requires_grad=True)
    rule = torch.optim.Adam([weight], lr=0.01) if kind == "adam" else torch.optim.SGD([weight], lr=0.01)
    for gradient_P in gradient_NP:
        weight.grad = torch.from_numpy(gradient_P.copy())
        torch.nn.utils.clip_grad_norm_([weight], most)
        rule.step()
    return weight.detach().numpy()


@computed(37)
def replayed() -> Numbers:
    """Return PPO's effective weight for both signs of the advantage on both sides of ratio 1."""
    return {
        "table": [
            {"ratio": r, "good": _weight("ppo_clip", r, 1.0), "bad": _weight("ppo_clip", r, -1.0)}
            for r in (4.0, 0.25)
        ]
    }


@computed(38)
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
    return {"table": table, "cap": _weight("cispo", 1e6, 1.0)}
