"""PolicyFlow: PPO of flow policies by ratios of velocities, against Gaussians, FPO and DPPO, on goals."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from analysis.kernels.on_use import Tensor, torch
from analysis.lab import Grid, Groups, Plot, Seeds, TunedArms, asks, key

NAME = "flow-policies"
SEEDS, PILOTS, ROUNDS, BATCH, PASSES, STEPS, HIDDEN = 64, 8, 64, 128, 6, 4, 32
STATES, TRIES, NEAR, WIDTH, NOISE, LEAST = 16, 48, 0.3, 0.3, 0.3, -3.0
GOALS = (1, 6)
SAME, MORE = 0.02, 0.05
"""Margin of the balanced share of hits. Set before the table was made, as the grids were."""
RATES = (1e-3, 3e-3, 1e-2, 3e-2)
FLOW: Grid = {"rate": RATES, "brownian": (0.0, 0.03, 0.1, 0.3), "entropy": (0.0, 0.03, 0.1)}
ARMS: dict[str, Grid] = {
    "PPO": {"rate": RATES, "entropy": (0.0, 0.01, 0.03), "clip": (0.01, 0.03, 0.1, 0.3)},
    "PolicyFlow": FLOW,
    "no Brownian": {**FLOW, "brownian": (0.0,)},
    "FPO": {"rate": RATES, "clip": (0.0, 0.001, 0.003, 0.01, 0.03, 0.1), "pairs": (1, 4)},
    "DPPO": {"rate": RATES, "noise": (0.03, 0.1, 0.2), "clip": (0.03, 0.1, 0.3, 1.0)},
}
"""Entropy: weight of the final noise's log deviation. Pairs: draws of noise and time from which FPO estimates
a ratio. Noise: deviation of each of DPPO's steps."""


class Policies:
    """Networks of an arm, one per seed; states, actions and log ratios to the sampler are [R, N, ...]."""

    def __init__(self, arm: str, seeds: Seeds, knobs: dict[str, Any]) -> None:
        """Start at N(0, 1) in the plane, with little noise; a flow starts as the identity."""
        self.arm, self.knobs = arm, {"entropy": 0.0, "brownian": 0.0, **knobs}
        self.rng = torch.Generator().manual_seed(key(int(seeds[0]), f"{NAME} learning") % 2**62)
        self.count, sizes = len(seeds), (2 if arm == "PPO" else 5, HIDDEN, HIDDEN)
        self.net = [self.normal(a, b) / a**0.5 for a, b in itertools.pairwise(sizes)]
        self.net += [
            torch.zeros(self.count, a, b) for a, b in ((HIDDEN, 2), (1, HIDDEN), (1, HIDDEN), (1, 2))
        ]
        self.net.append(torch.full((self.count, 1, 2), 0.0 if arm == "PPO" else float(np.log(NOISE))))
        self.was = self.net

    def normal(self, *shape: int) -> Tensor:
        """Return standard normals, [R, ...]."""
        return torch.randn(self.count, *shape, generator=self.rng)

    def uniform(self, *shape: int) -> Tensor:
        """Return uniform numbers in [0, 1), [R, ...]."""
        return torch.rand(self.count, *shape, generator=self.rng)

    def ahead(self, net: list[Tensor], state: Tensor, x: Tensor | None = None, t: Any = 0.0) -> Tensor:
        """Return a Gaussian's mean, or a flow's velocity at points x and times t."""
        if x is not None:
            state = torch.cat([state, x, torch.zeros_like(x[..., :1]) + t], dim=-1)
        for i in range(2):
            state = torch.tanh(torch.baddbmm(net[3 + i], state, net[i]))
        return torch.baddbmm(net[5], state, net[2])

    def act(self, state: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Return actions and the intermediate points that lead to them; a Gaussian's mean has none."""
        shape, deviation = (state.shape[1], 2), self.net[-1].clamp(LEAST).exp()
        if self.arm == "PPO":
            mean = self.ahead(self.net, state)
            return mean + deviation * self.normal(*shape), [mean]
        way = [self.normal(*shape)]
        for k in range(STEPS):
            way.append(way[-1] + self.ahead(self.net, state, way[-1], k / STEPS) / STEPS)
            if self.arm == "DPPO":
                way[-1] = way[-1] + self.knobs["noise"] * self.normal(*shape)
        ends_so = self.arm in ("FPO", "DPPO")
        return way[-1] if ends_so else way[-1] + deviation * self.normal(*shape), way

    def given(self, state: Tensor, action: Tensor, way: list[Tensor]) -> tuple[Tensor, ...]:
        """Store the network, and return the draws from which all passes compute these actions' ratios."""
        self.was = [x.detach().clone() for x in self.net]
        if self.arm == "DPPO":
            t = torch.arange(STEPS).repeat_interleave(state.shape[1])[:, None] / STEPS
            return state.repeat(1, STEPS, 1), torch.cat(way[:-1], 1), torch.cat(way[1:], 1), t
        if self.arm == "FPO":
            state, action = (x.repeat(1, int(self.knobs["pairs"]), 1) for x in (state, action))
            start, t = self.normal(*state.shape[1:]), self.uniform(state.shape[1], 1)
            return state, start, action, t
        return state, way[0], way[-1], action

    def ratios(self, given: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Return log ratios [R, C, N], for C choices each, and the term added to the surrogate, [R]."""
        state, first, last, other = given
        new_std, old_std = (net[-1].clamp(LEAST) for net in (self.net, self.was))
        bonus, before = self.knobs["entropy"] * new_std.sum((1, 2)), None
        if self.arm == "PPO":
            log = self.likelihood(other - self.ahead(self.net, state), new_std)
            return (log - self.likelihood(other - last, old_std))[:, None], bonus
        if self.arm in ("DPPO", "FPO"):
            x = first if self.arm == "DPPO" else (1 - other) * first + other * last
            # FPO has no noise: with variance 1/2 the formula below is its difference of squared errors.
            scale = STEPS * self.knobs["noise"] if self.arm == "DPPO" else 0.5**0.5
            aim = (last - first) * (STEPS if self.arm == "DPPO" else 1)
            before, new = self.ahead(self.was, state, x, other), self.ahead(self.net, state, x, other)
            log = (((aim - before) / scale) ** 2 - ((aim - new) / scale) ** 2).sum(-1) / 2
            log = log.reshape(self.count, -1, BATCH)
            return log if self.arm == "DPPO" else log.mean(1, keepdim=True), 0.0 * bonus
        t = (self.uniform(state.shape[1], 1) * STEPS).floor() / STEPS
        x = (1 - t) * first + t * last
        before, new = self.ahead(self.was, state, x, t), self.ahead(self.net, state, x, t)
        log = self.likelihood(other - last - (new - before), new_std) - self.likelihood(other - last, old_std)
        # Brownian motion moves by minus the score, (x - t v) / (1 - t); times 1 - t it is finite at the end.
        away = (((1 - t) * new - (x - t * before)) ** 2).sum(-1).mean(-1)
        return log[:, None], bonus - self.knobs["brownian"] * away

    @staticmethod
    def likelihood(x: Tensor, log_std: Tensor) -> Tensor:
        """Return the log density of N(0, std^2) at x, up to a constant."""
        return (-0.5 * (x / log_std.exp()) ** 2 - log_std).sum(-1)


def learn(seeds: Seeds, arm: str, goals: int, rate: float, clip: float = 0.2, **knobs: float) -> Groups:
    """Return the balanced share of hits, the sum over goals of min(p, 1 / goals) in a state, and the share of
    all hits, means over states at the end, [R] each.

    In a state of [-1, 1]^2, an action in the plane earns exp(-d^2 / 2 WIDTH^2), with d its distance to the
    nearest of `goals` goals on a circle, which turns with the state. Within NEAR it hits. A round draws BATCH
    states and actions, and makes PASSES steps of Adam on all of them.
    """
    policy = Policies(arm, seeds, knobs)
    draw = [
        np.random.default_rng(key(int(seed), f"{NAME} {goals}") % 2**62).normal(size=3) * (0.5, 0.5, 3.0)
        for seed in seeds
    ]
    turn = torch.tensor(np.array(draw), dtype=torch.float32)[:, None]

    def gap(state: Tensor, action: Tensor) -> Tensor:
        angle = (state * turn[..., :2]).sum(-1, keepdim=True) + turn[..., 2:]
        angle = angle + 2 * np.pi / goals * torch.arange(goals)
        return (action[..., None, :] - torch.stack([angle.cos(), angle.sin()], dim=-1)).norm(dim=-1)

    net = [x.requires_grad_() for x in policy.net]
    adam = torch.optim.Adam(net, lr=rate)
    for _ in range(ROUNDS):
        with torch.no_grad():
            state = 2 * policy.uniform(BATCH, 2) - 1
            action, way = policy.act(state)
            paid = (-0.5 * (gap(state, action).amin(-1) / WIDTH) ** 2).exp()
            gain = ((paid - paid.mean(-1, keepdim=True)) / (paid.std(-1, keepdim=True) + 1e-6))[:, None]
            given = policy.given(state, action, way)
        for _ in range(PASSES):
            log, bonus = policy.ratios(given)
            ratio = log.clamp(-20, 20).exp()
            worth = torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean((1, 2)) + bonus
            adam.zero_grad()
            (-worth.sum()).backward()
            adam.step()
    with torch.no_grad():
        state = (2 * policy.uniform(STATES, 2) - 1).repeat_interleave(TRIES, 1)
        hit = gap(state, policy.act(state)[0]) < NEAR
        share = hit.float().reshape(len(seeds), STATES, TRIES, goals).mean(2)
    found = share.clamp(max=1 / goals).sum(-1).mean(-1), share.sum(-1).mean(-1)
    return {name: x.double().numpy() for name, x in zip(("balanced", "hits"), found, strict=True)}


EXPERIMENT = TunedArms(ARMS, learn, "balanced", PILOTS, {"goals": GOALS}, {"pairs": (1, 4)}).experiment(
    NAME, SEEDS, ("balanced", "hits"), {"rounds": ROUNDS, "batch": BATCH},
    question="Are flow policies by ratios of velocities as good as PPO, FPO and DPPO, and keep more goals?",
    source="Yang et al. (2026), PolicyFlow, arXiv:2602.01156; reviews with its formulas were read",
    differs="one action in the plane, networks of two layers of 32, 8,192 actions; no critic",
    margins={"share of hits that counts as less": SAME, "as more": MORE},
    figure=Plot(
        "final by setting", x="goals", y="balanced: balanced share of hits", arm=("arm",),
        says="Shows the share of actions that hit a goal, counted up to an even share of each goal, against "
        "the number of goals, all paid alike; PPO has a Gaussian, the others have flows of four steps; "
        "PolicyFlow computes ratios from velocities and pushes points apart (except in no Brownian), FPO "
        "from its matching loss, DPPO from the noise of each step.",
    ),
    systems=("PolicyFlow",),
)  # fmt: skip
RIVALS = ("PPO", "FPO", "DPPO")
asks(EXPERIMENT,
    ("velocity-ratios-hit-one-goal-as-often", "With one goal PolicyFlow hits it at most 0.02 less often than "
     "PPO with a Gaussian, FPO and DPPO, all tuned.", "PolicyFlow", RIVALS, -SAME, {"over": {"goals": 1}}),
    ("velocity-ratios-keep-more-goals", "Of six goals PolicyFlow has a balanced share of hits 0.05 above "
     "that of PPO with a Gaussian, of FPO and of DPPO, all tuned.", "PolicyFlow", RIVALS, MORE,
     {"over": {"goals": 6}, "off": {"arm": "no Brownian"}}),
    ("brownian-motion-keeps-goals", "Of six goals PolicyFlow has a balanced share of hits 0.05 above that "
     "without its Brownian regularizer, both tuned.", "PolicyFlow", "no Brownian", MORE,
     {"over": {"goals": 6}}),
    outcome="balanced",
)  # fmt: skip
