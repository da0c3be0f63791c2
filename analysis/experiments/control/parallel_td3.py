"""FastTD3 (many worlds, large batches, distributional critics) against TD3 and PPO, by device calls."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from analysis.kernels.on_use import Tensor, torch
from analysis.lab import Grid, Groups, Seeds, TunedArms, asks, generator, key, strips

NAME = "parallel-td3"
SEEDS, PILOTS, WORLDS, HIDDEN, ATOMS, HORIZON, LIMIT, LOOKS = 96, 8, 32, 32, 21, 64, 3000, 60
DISCOUNT, STARTS, KEPT, WARM, PACK, LARGEST = 0.97, 8, 20_000, 100, 16, 256
STANDS, FACTOR, SAME = 0.7, 2.0, 1.1
"""Mean reward over the second half of an episode that counts as standing; FastTD3's calls as a multiple of
TD3's (below) and of PPO's (at most). Set before the table was made, as the grids were."""
RATES, NOISES = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1), (0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
ARMS: dict[str, Grid] = {
    "TD3": {"noise": NOISES, "batch": (64, LARGEST), "tau": (0.003, 0.01, 0.03, 0.1, 0.3), "rate": RATES},
    "PPO": {"noise": NOISES, "steps": (4, 8, 16, 32), "passes": (1, 2, 4, 8, 16), "parts": (1, 2, 4, 8),
            "rate": RATES},
    "FastTD3": {"noise": (0.8,), "batch": (LARGEST,), "tau": (0.1,), "updates": (2,), "rate": (3e-2,)},
}  # fmt: skip
"""Noise: deviation of actions, for PPO at the start. batch: a device takes at most LARGEST. tau: share by
which a target follows. updates: per step of the worlds, one in TD3. PPO makes passes over `steps` steps, each
in `parts` batches. FastTD3 has its best setting of earlier pilots; only its rivals are tuned further."""
FROM: dict[str, dict[str, float]] = {
    "TD3": {"noise": 0.4, "batch": LARGEST, "tau": 0.03, "rate": 0.03},
    "PPO": {"noise": 1.6, "steps": 16, "passes": 4, "parts": 4, "rate": 0.01},
}


class Pendulum:
    """Pendulums, one per seed, in `count` copies each that restart after HORIZON steps."""

    def __init__(self, seeds: Seeds, count: int, rng: Any) -> None:
        """Draw gravity, friction and the largest torque, too small to lift the pendulum in one swing."""
        self.rng, self.shape = rng, (len(seeds), count)
        drawn = np.array(
            [generator(s, f"{NAME}, all knobs turned").uniform((8, 0.0, 0.3), (12, 0.2, 0.6)) for s in seeds]
        )
        self.gravity, self.friction, pull = torch.from_numpy(drawn).float()[:, :, None].unbind(1)
        self.force = pull * self.gravity
        self.angle, self.speed = self.start()
        self.age = (torch.arange(count) * HORIZON // count).expand(self.shape).clone()

    def start(self) -> tuple[Tensor, Tensor]:
        """Return initial angles (0 is upright) and speeds."""
        angle = (2 * torch.rand(self.shape, generator=self.rng) - 1) * np.pi
        return angle, 2 * torch.rand(self.shape, generator=self.rng) - 1

    def seen(self) -> Tensor:
        """Return the observations, [R, N, 3]."""
        return torch.stack([self.angle.cos(), self.angle.sin(), self.speed / 4], -1)

    def step(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Return rewards and next observations, [R, N, ...], and advance the worlds."""
        push = self.force * action.clamp(-1, 1)
        self.speed = (
            self.speed + 0.1 * (self.gravity * self.angle.sin() + push - self.friction * self.speed)
        ).clamp(-8, 8)
        self.angle = self.angle + 0.1 * self.speed
        reward = (1 + self.angle.cos()) / 2 - 0.01 * action.clamp(-1, 1) ** 2 - 0.005 * self.speed**2
        after = self.seen()
        self.age += 1
        angle, speed = self.start()
        over = self.age >= HORIZON
        self.age[over] = 0
        self.angle, self.speed = torch.where(over, angle, self.angle), torch.where(over, speed, self.speed)
        return reward, after


def network(rng: Any, count: int, sizes: tuple[int, ...], copies: int = 1) -> list[Tensor]:
    """Return weights of networks with two hidden layers, [copies * R, ...], the last layer near 0."""
    made = []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        scale = (0.01 if i == len(sizes) - 2 else 1.0) / a**0.5
        made += [torch.randn(copies * count, a, b, generator=rng) * scale, torch.zeros(copies * count, 1, b)]
    return [x.requires_grad_() for x in made]


def ahead(net: list[Tensor], x: Tensor) -> Tensor:
    """Return the outputs for inputs [R, N, inputs]."""
    for i in range(0, len(net), 2):
        x = torch.baddbmm(net[i + 1], x, net[i])
        if i < len(net) - 2:
            x = torch.relu_(x)
    return x


class Clock:
    """Calls of worlds and updates so far, and the call at which a policy first stood, [R]."""

    def __init__(self, seeds: Seeds) -> None:
        """Set both to 0."""
        self.seeds, self.calls, self.due = seeds, 0, LIMIT // LOOKS
        self.first = np.full(len(seeds), np.inf)

    def runs(self) -> bool:
        """Return whether some policy does not stand yet and calls are left."""
        return self.calls < LIMIT and bool(np.isinf(self.first).any())

    def call(self, act: Callable[[Tensor], Tensor]) -> None:
        """Count a call, and test whether act(seen) stands where an evaluation is due."""
        self.calls += 1
        if self.calls < self.due:
            return
        with torch.no_grad():
            rng = torch.Generator().manual_seed(self.due)
            world = Pendulum(self.seeds, STARTS, rng)
            # No world may restart within an evaluation, whose second half is to show a pendulum that stands.
            world.age[:] = -HORIZON
            reward = torch.stack([world.step(act(world.seen()))[0].mean(-1) for _ in range(HORIZON)])
        stands = reward[HORIZON // 2 :].mean(0).numpy() >= STANDS
        self.first = np.where(np.isinf(self.first) & stands, self.calls, self.first)
        self.due += LIMIT // LOOKS


def learn(seeds: Seeds, arm: str, **knobs: Any) -> Groups:
    """Return minus the log of the calls until the pendulum stands or LIMIT, and which ones stand, [R].

    A call is a step of all worlds or an update on a batch of any size, as on a device with room to spare.
    Seeds learn in packs of PACK that share a generator.
    """
    if len(seeds) > PACK:
        parts = [learn(seeds[i : i + PACK], arm, **knobs) for i in range(0, len(seeds), PACK)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    clock = Clock(seeds)
    (ppo if arm == "PPO" else td3)(clock, arm, **knobs)
    calls = np.minimum(clock.first, LIMIT)
    return {"calls": calls, "speed": -np.log(calls), "arrives": np.isfinite(clock.first).astype(float)}


def projected(mass: Tensor, moved: Tensor, support: Tensor) -> Tensor:
    """Return the masses at the points `moved`, each split between the two nearest atoms of the support."""
    place = (moved - support[0]) / (support[1] - support[0])
    below = place.floor().clamp(max=len(support) - 2)
    over, left = mass * (place - below), below.long()
    found = mass.new_zeros(mass.shape).scatter_add(-1, left, mass - over)
    return found.scatter_add(-1, left + 1, over)


def target(reward: Tensor, following: Tensor, value: Tensor, support: Tensor | None) -> Tensor:
    """Return the lower of two critics' values, or the masses of that critic."""
    if support is None:
        return reward + DISCOUNT * value.min(0).values
    which = value.argmin(0)[None, ..., None].expand(1, *following.shape[1:])
    mass = following.softmax(-1).gather(0, which)[0]
    moved = (reward[..., None] + DISCOUNT * support).clamp(support[0], support[-1])
    return projected(mass, moved, support)


def td3(clock: Clock, arm: str, rate: float, tau: float, noise: float, batch: int, updates: int = 1) -> None:
    """Train TD3 on one world, or FastTD3 on WORLDS worlds with distributional critics.

    Each of many worlds draws its noise deviation below `noise`; a single world has `noise` itself.
    """
    seeds, fast = clock.seeds, arm == "FastTD3"
    many, atoms = (WORLDS, ATOMS) if fast else (1, 1)
    count = len(seeds)
    rng = torch.Generator().manual_seed(key(int(seeds[0]), f"{NAME} {arm}") % 2**62)
    actor = network(rng, count, (3, HIDDEN, HIDDEN, 1))
    critic = network(rng, count, (4, HIDDEN, HIDDEN, atoms), 2)
    late = [x.detach().clone() for x in critic]
    adams = [torch.optim.Adam(net, lr=rate) for net in (actor, critic)]
    # Rewards lie between -0.33 and 1, so that the atoms span every discounted sum.
    support = torch.linspace(-0.5 / (1 - DISCOUNT), 1 / (1 - DISCOUNT), atoms) if atoms > 1 else None
    world = Pendulum(seeds, many, rng)
    store, filled, turn = torch.zeros(count, KEPT, 8), 0, 0
    spread = noise * (torch.rand(count, many, 1, generator=rng) if fast else 1.0)

    def act(seen: Tensor) -> Tensor:
        return torch.tanh(ahead(actor, seen))[..., 0]

    def read(net: list[Tensor], seen: Tensor, action: Tensor) -> Tensor:
        x = torch.cat([seen, action[..., None]], -1).repeat(2, 1, 1)
        return ahead(net, x).reshape(2, count, -1, atoms)

    def value(out: Tensor) -> Tensor:
        return out[..., 0] if support is None else (out.softmax(-1) * support).sum(-1)

    while clock.runs():
        with torch.no_grad():
            seen = world.seen()
            drawn = torch.randn(count, many, 1, generator=rng)
            action = (act(seen) + (spread * drawn)[..., 0]).clamp(-1, 1)
            reward, after = world.step(action)
            at = (filled + torch.arange(many)) % KEPT
            store[:, at] = torch.cat([seen, action[..., None], reward[..., None], after], -1)
            filled += many
        clock.call(act)
        for _ in range(updates if filled >= WARM else 0):
            turn += 1
            pick = torch.randint(min(filled, KEPT), (count, batch, 1), generator=rng)
            row = store.gather(1, pick.expand(-1, -1, 8))
            seen, action, reward, after = row[..., :3], row[..., 3], row[..., 4], row[..., 5:]
            with torch.no_grad():
                shake = (0.1 * torch.randn(count, batch, generator=rng)).clamp(-0.3, 0.3)
                following = read(late, after, (act(after) + shake).clamp(-1, 1))
                aim = target(reward, following, value(following), support)
            out = read(critic, seen, action)
            loss = (out[..., 0] - aim) ** 2 if support is None else -(aim * out.log_softmax(-1)).sum(-1)
            adams[1].zero_grad()
            loss.mean(-1).sum().backward()
            adams[1].step()
            if turn % 2 == 0:
                worth = value(read(critic, seen, act(seen))).min(0).values.mean(-1)
                for x, slope in zip(actor, torch.autograd.grad(-worth.sum(), actor), strict=True):
                    x.grad = slope
                adams[0].step()
            with torch.no_grad():
                for a, b in zip(late, critic, strict=True):
                    a.lerp_(b, tau)
            clock.call(act)


def ppo(clock: Clock, _arm: str, rate: float, steps: int, passes: int, parts: int, noise: float) -> None:
    """Train PPO on WORLDS worlds, `steps` steps per round, in `parts` batches per pass."""
    seeds, count = clock.seeds, len(clock.seeds)
    rng = torch.Generator().manual_seed(key(int(seeds[0]), f"{NAME} PPO") % 2**62)
    actor, critic = (network(rng, count, (3, HIDDEN, HIDDEN, 1)) for _ in range(2))
    log_std = torch.full((count, 1), math.log(noise), requires_grad=True)
    adam = torch.optim.Adam([*actor, *critic, log_std], lr=rate)
    world = Pendulum(seeds, WORLDS, rng)

    def act(seen: Tensor) -> Tensor:
        return torch.tanh(ahead(actor, seen))[..., 0]

    def log_prob(seen: Tensor, action: Tensor) -> Tensor:
        away = (action - act(seen)) / log_std.exp()
        return -0.5 * away**2 - log_std

    while clock.runs():
        rows = []
        with torch.no_grad():
            for _ in range(steps):
                seen, age = world.seen(), world.age.clone()
                action = act(seen) + log_std.exp() * torch.randn(count, WORLDS, generator=rng)
                reward, after = world.step(action)
                value, next_value = (ahead(critic, x)[..., 0] for x in (seen, after))
                error, old, last = (
                    reward + DISCOUNT * next_value - value,
                    log_prob(seen, action),
                    age == HORIZON - 1,
                )
                rows.append((seen, action, error, value, old, last))
                clock.call(act)
            gain, gains = torch.zeros(count, WORLDS), []
            for row in reversed(rows):
                gain = row[2] + DISCOUNT * 0.95 * gain * ~row[5]
                gains.append(gain)
            gain = torch.cat(gains[::-1], 1)
            seen, action, _, value, old, _ = (torch.cat(x, 1) for x in zip(*rows, strict=True))
            aim, gain = value + gain, (gain - gain.mean(1, keepdim=True)) / (gain.std(1, keepdim=True) + 1e-6)
        for _ in range(passes):
            for part in torch.randperm(seen.shape[1], generator=rng).chunk(parts):
                ratio = (log_prob(seen[:, part], action[:, part]) - old[:, part]).exp()
                g = gain[:, part]
                worth = torch.minimum(ratio * g, ratio.clamp(0.8, 1.2) * g).mean(1)
                error = (ahead(critic, seen[:, part])[..., 0] - aim[:, part]) ** 2
                adam.zero_grad()
                (error.mean(1) - worth).sum().backward()
                adam.step()
                clock.call(act)


EXPERIMENT = TunedArms(ARMS, learn, "speed", PILOTS, endless={"batch": (LARGEST,)}, starts=FROM).experiment(
    NAME, SEEDS, ("calls", "speed", "arrives"), {"limit": LIMIT, "worlds": WORLDS, "largest batch": LARGEST},
    question="Do many worlds, large batches and distributions make TD3 faster by the clock than TD3 and PPO?",
    source="Seo et al. (2025), FastTD3, arXiv:2505.22642, and its code",
    differs="pendulums, 32 worlds and batches of at most 256; time is counted in calls of a device",
    margins={"factor of TD3's calls": FACTOR, "of PPO's": SAME},
    figure=strips("calls: calls until the pendulum stands", "Shows the calls until random pendulums stand; a "
        "call is a step of all worlds at once or an update on a batch; TD3 has one world, FastTD3 32 and "
        "distributional critics, PPO 32; each arm has its best noise, batch and rates; 3,000 stands for "
        "pendulums that never stand."),
    systems={"FastTD3": "geometric means, in which a pendulum that never stands counts 3,000 calls: a tenth "
             "of FastTD3's and none of PPO's; in the arithmetic mean both take as long, 671 and 655 calls"},
)  # fmt: skip
asks(EXPERIMENT,
    ("fast-td3-halves-the-time-of-td3", "On a device that no batch fills, FastTD3's pendulums stand after at "
     "most half of the calls that TD3 with one world takes.", "FastTD3", "TD3", {"times": 1 / FACTOR}),
    ("fast-td3-is-as-fast-as-ppo", "On a device that no batch fills, FastTD3's pendulums stand after at most "
     "1.1 times the calls that PPO with as many worlds takes.",
     "FastTD3", "PPO", {"times": SAME, "off": {"arm": "TD3"}}),
    outcome="calls", below=True,
)  # fmt: skip
