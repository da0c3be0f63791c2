"""LightningRL: decoupled rewards for accuracy and parallelism of models that fill several places at once."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from analysis.kernels.on_use import Tensor, torch
from analysis.lab import Floats, Grid, Groups, Seeds, TunedArms, ask, generator, key, strips

NAME = "parallel-decoding"
SEEDS, PACK, PILOTS, LENGTH, TOKENS, HIDDEN, WINDOW = 48, 24, 8, 8, 4, 32, 2
LESSONS, NOISE, STEPS, PROMPTS, GROUP, FRESH = 800, 0.02, 600, 4, 8, 128
LEVELS, SURE, NEAR_REF, ALIKE = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99), 0.9, 0.01, 0.01
"""Probabilities above which a place is filled, in evaluation and in training; as in the source, the weight of
the KL to the base, and the spread of tokens per forward pass below which a group is left out."""
MORE = 1.05
"""Ratio to GRPO's accuracy under parallelism. Set before the table was made, as the grids were."""
RATES, SHARES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2), (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)
ARMS: dict[str, Grid] = {
    "base": {},
    "LightningRL": {"rate": RATES, "share": SHARES, "nll": (0.0, 0.01, 0.03, 0.1, 0.3)},
    "GRPO": {"rate": RATES, "share": SHARES},
    "GRPO, accuracy alone": {"rate": RATES},
}
"""Share: weight of tokens per forward pass beside a right answer, for LightningRL after both are standardized
in their group; nll: weight of the likelihood of right answers."""
FROM: dict[str, dict[str, float]] = {
    "LightningRL": {"rate": 1e-3, "share": 0.1, "nll": 0.03},
    "GRPO": {"rate": 3e-3, "share": 0.3},
    "GRPO, accuracy alone": {"rate": 3e-3},
}


class Fillers:
    """Networks, one per seed, that fill masked places of answers to prompts [R, N, LENGTH].

    Digit d of a prompt names one of TOKENS permutations, by which a token follows from the one before. An
    answer is right if all tokens follow, from any first one. A place sees WINDOW places to both sides.
    """

    def __init__(self, seeds: Seeds, taught: list[Floats] | None = None) -> None:
        """Draw permutations and store the weights, or teach them to fill places of noisy right answers."""
        self.count = len(seeds)
        self.rng = torch.Generator().manual_seed(key(int(seeds[0]), f"{NAME} learning") % 2**62)
        tables = [[generator(s, f"{NAME} {d}").permutation(TOKENS) for d in range(TOKENS)] for s in seeds]
        self.step_RDV = torch.from_numpy(np.array(tables))
        inputs = 2 * WINDOW * TOKENS + 2 * WINDOW * (TOKENS + 1) + LENGTH
        self.net = [
            torch.randn(self.count, inputs, HIDDEN, generator=self.rng) / inputs**0.5,
            torch.zeros(self.count, 1, HIDDEN),
            torch.randn(self.count, HIDDEN, TOKENS, generator=self.rng) / HIDDEN**0.5,
            torch.zeros(self.count, 1, TOKENS),
        ]
        if taught is not None:
            self.net = [torch.from_numpy(x.copy()).requires_grad_() for x in taught]
            return
        self.net = [x.requires_grad_() for x in self.net]
        adam = torch.optim.Adam(self.net, lr=1e-2)
        for _ in range(LESSONS):
            prompt = self.prompts(32)
            answer = self.answers(prompt, NOISE)
            hidden = self.uniform(32, LENGTH) < self.uniform(32, 1)
            logp = self.log_probs(self.net, prompt, answer.masked_fill(hidden, TOKENS))
            loss = -(logp.gather(-1, answer[..., None])[..., 0] * hidden).sum((1, 2)) / hidden.sum((1, 2))
            adam.zero_grad()
            loss.sum().backward()
            adam.step()

    def uniform(self, *shape: int) -> Tensor:
        """Return uniform numbers in [0, 1), [R, ...]."""
        return torch.rand(self.count, *shape, generator=self.rng)

    def prompts(self, count: int) -> Tensor:
        """Return prompts, [R, N, LENGTH]."""
        return (self.uniform(count, LENGTH) * TOKENS).long()

    def answers(self, prompt: Tensor, noise: float) -> Tensor:
        """Return answers in which every step is wrong with probability `noise`."""
        row = torch.arange(self.count)[:, None]
        shape = prompt.shape[1:]
        wrong, other = self.uniform(*shape) < noise, (self.uniform(*shape) * TOKENS).long()
        tokens = [other[..., 0]]
        for i in range(1, LENGTH):
            right = self.step_RDV[row, prompt[..., i], tokens[-1]]
            tokens.append(torch.where(wrong[..., i], other[..., i], right))
        return torch.stack(tokens, -1)

    def right(self, prompt: Tensor, answer: Tensor) -> Tensor:
        """Return which answers are right, [R, N]."""
        row = torch.arange(self.count)[:, None, None]
        return (self.step_RDV[row, prompt[..., 1:], answer[..., :-1]] == answer[..., 1:]).all(-1)

    def log_probs(self, net: list[Tensor], prompt: Tensor, answer: Tensor) -> Tensor:
        """Return log-probabilities at all places, [R, N, LENGTH, TOKENS]; token TOKENS is a mask."""
        pad = torch.nn.functional.pad
        digit = pad(prompt, (WINDOW, WINDOW))
        written = pad(answer, (WINDOW, WINDOW), value=TOKENS)
        eye = torch.eye(TOKENS + 1)
        seen = [
            eye[digit[..., WINDOW + j : WINDOW + j + LENGTH]][..., :TOKENS]
            for j in range(1 - WINDOW, WINDOW + 1)
        ]
        near = [j for j in range(-WINDOW, WINDOW + 1) if j]
        seen += [eye[written[..., WINDOW + j : WINDOW + j + LENGTH]] for j in near]
        place = torch.eye(LENGTH).expand(*answer.shape, LENGTH)
        x = torch.cat([*seen, place], -1)
        flat = torch.tanh(torch.baddbmm(net[1], x.flatten(1, 2), net[0]))
        return torch.baddbmm(net[3], flat, net[2]).log_softmax(-1).reshape(*answer.shape, TOKENS)

    def write(
        self, prompt: Tensor, level: float, greedy: bool
    ) -> tuple[list[tuple[Tensor, ...]], Tensor, Tensor]:
        """Return steps (answer before, tokens, places filled), answers and the number of forward passes.

        A forward pass fills the places whose token has a probability above the level, and always the surest
        one.
        """
        answer = torch.full_like(prompt, TOKENS)
        forwards: Tensor = torch.zeros(prompt.shape[:2])
        steps: list[tuple[Tensor, ...]] = []
        with torch.no_grad():
            while (answer == TOKENS).any():
                logp = self.log_probs(self.net, prompt, answer)
                noise = 0.0 if greedy else -torch.log(-torch.log(self.uniform(*logp.shape[1:]).clamp(1e-9)))
                token = (logp + noise).argmax(-1)
                sure = logp.gather(-1, token[..., None])[..., 0].masked_fill(answer != TOKENS, -torch.inf)
                fill = (sure > np.log(level)) | (torch.arange(LENGTH) == sure.argmax(-1, keepdim=True))
                fill &= answer == TOKENS
                forwards += fill.any(-1)
                steps.append((answer, token, fill))
                answer = torch.where(fill, token, answer)
        return steps, answer, forwards

    def scores(self) -> Groups:
        """Return accuracy and tokens per forward pass at level SURE, and accuracy under parallelism, [R]."""
        prompt = self.prompts(FRESH)
        found = []
        for level in LEVELS:
            _, answer, forwards = self.write(prompt, level, True)
            right = self.right(prompt, answer).double().mean(-1)
            found.append((right.numpy(), LENGTH / forwards.double().mean(-1).numpy()))
        accuracy, speed = found[LEVELS.index(SURE)]
        points_RLX = np.array(found).transpose(2, 0, 1)
        return {
            "accuracy": accuracy,
            "speed": speed,
            "aup": np.array([under_parallelism(points[:, 1], points[:, 0]) for points in points_RLX]),
        }


def under_parallelism(speed: Floats, right: Floats) -> float:
    """Return the area under accuracy against tokens per forward pass, d3LLM's AUP in fractions.

    An accuracy y has weight exp(-3 (1 - y)), where d3LLM divides y by the best of all methods; points more
    than .05 below the slowest do not count.
    """
    order = np.argsort(speed, kind="stable")
    speed, right = speed[order], right[order]
    kept = right >= right[0] - 0.05
    speed, worth = speed[kept], right[kept] * np.exp(-3 * (1 - right[kept]))
    return float(speed[0] * right[0] + (np.diff(speed) * (worth[1:] + worth[:-1]) / 2).sum())


def standardized(x: Tensor) -> Tensor:
    """Return z-scores within groups, 0 where all are equal, [..., GROUP]."""
    away = x - x.mean(-1, keepdim=True)
    std = x.std(-1, keepdim=True, unbiased=False)
    return away / std.clamp(min=1e-6) * (std > 1e-6)


@lru_cache(maxsize=4)
def taught(seeds: Seeds) -> list[Floats]:
    """Return the weights of the base models."""
    return [x.detach().numpy() for x in Fillers(seeds).net]


def learn(seeds: Seeds, arm: str, **knobs: float) -> Groups:
    """Return the scores of base models, or after STEPS policy-gradient steps; PACK seeds share draws."""
    packs = [learned(seeds[i : i + PACK], arm, **knobs) for i in range(0, len(seeds), PACK)]
    return {name: np.concatenate([pack[name] for pack in packs]) for name in packs[0]}


def learned(seeds: Seeds, arm: str, rate: float = 0.0, share: float = 0.0, nll: float = 0.0) -> Groups:
    """Return the scores of one pack."""
    model = Fillers(seeds, taught(seeds))
    base, lightning = [x.detach().clone() for x in model.net], arm == "LightningRL"
    adam = torch.optim.Adam(model.net, lr=rate)
    for _ in range(0 if arm == "base" else STEPS):
        prompt = model.prompts(PROMPTS).repeat_interleave(GROUP, 1)
        steps, answer, forwards = model.write(prompt, SURE, greedy=False)
        groups = (model.count, PROMPTS, GROUP)
        right = model.right(prompt, answer).float().reshape(groups)
        gain_RPG, kept_RPG = advantages(
            right, (LENGTH / forwards).reshape(groups), share, lightning=lightning
        )
        before, token, fill = (torch.stack(x, 1) for x in zip(*steps, strict=True))
        shown = prompt.repeat(1, len(steps), 1)

        def read(net: list[Tensor]) -> Tensor:
            logp = model.log_probs(net, shown, before.flatten(1, 2)).reshape(*token.shape, TOKENS)  # noqa: B023
            return logp.gather(-1, token[..., None])[..., 0]  # noqa: B023

        new = read(model.net)
        with torch.no_grad():
            gap = read(base) - new
            slope = gain_RPG + nll * right
            slope = slope.flatten(1)[:, None, :, None] + NEAR_REF * (gap.exp() - 1)
            slope = slope * fill * kept_RPG.flatten(1)[:, None, :, None]
        adam.zero_grad()
        (-(slope * new).sum() / LENGTH).backward()
        adam.step()
    return model.scores()


def advantages(right: Tensor, speed: Tensor, share: float, *, lightning: bool) -> tuple[Tensor, Tensor]:
    """Return advantages and weights of answers, [R, PROMPTS, GROUP]; weights sum to 1 unless all are dropped.

    GRPO standardizes the sum of rewards. LightningRL standardizes each reward in its group, leaves out groups
    without a right answer or with one speed, and standardizes the rest over the batch.
    """
    if not lightning:
        return standardized(right + share * speed), right.new_full(right.shape, 1 / right[0].numel())
    gain = standardized(right) + share * standardized(speed)
    spread = speed.amax(-1, keepdim=True) - speed.amin(-1, keepdim=True)
    kept = ((spread >= ALIKE) & (right.amax(-1, keepdim=True) > 0)).expand_as(gain) * 1.0
    kept = kept / kept.sum((1, 2), keepdim=True).clamp(min=1)
    gain = gain - (gain * kept).sum((1, 2), keepdim=True)
    return gain / ((gain**2 * kept).sum((1, 2), keepdim=True) + 1e-12).sqrt(), kept


EXPERIMENT = TunedArms(ARMS, learn, "aup", PILOTS, starts=FROM).experiment(
    NAME, SEEDS, ("aup", "accuracy", "speed"), {"steps": STEPS, "lessons": LESSONS},
    question="Do decoupled rewards make parallel decoders faster at no loss, more than GRPO does?",
    source="Hu et al. (2026), LightningRL, arXiv:2603.13319, and its code",
    differs="networks that see two places to both sides fill eight; one step per batch, so no clip acts",
    margins={"factor of accuracy under parallelism": MORE},
    figure=strips("aup: accuracy under parallelism", "Shows the area under accuracy against tokens per "
        "forward pass of networks that fill several places of an answer at once: the base, GRPO on right "
        "answers alone or on the sum of these and tokens per forward pass, and LightningRL, which "
        "standardizes the two separately, each at its best setting."),
    systems=("LightningRL",),
)  # fmt: skip
_RIVALS = ("GRPO", "GRPO, accuracy alone")
ask(EXPERIMENT, "lightningrl-moves-the-front-beyond-grpo", "LightningRL has 1.05 times the accuracy under "
    "parallelism of GRPO on the sum of right answers and tokens a forward, and of GRPO on right answers "
    "alone.", "LightningRL", _RIVALS, outcome="aup", times=MORE)  # fmt: skip
