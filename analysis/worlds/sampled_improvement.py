"""Policy improvement from small batches of steps, in many random worlds side by side.

An arm determines how steps are drawn and kept, the critic, and the policy update. Steps are independent draws
of the behavior's discounted occupancy, so a batch is a table of counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from analysis.worlds.offline_worlds import Worlds
from envs.arrays import Floats, Ints
from envs.logged_data import Counts, ratio
from testbed.offline.improvement import clipped_passes, softmax
from testbed.offline.tabular_offline import within_kl

CHUNK, FLOOR = 8, -30.0
"""Steps after which an adaptive behavior reads the data again; least logit."""
BISECTIONS = 30
"""Halvings of the step that keep the behavior within its KL budget."""


@dataclass(frozen=True)
class Arm:
    """One way to improve a policy.

    update: "ppo" (knob: the clip), "mirror" (knob: the step size that the KL is divided by, falling to 0 over
    the iterations; inf for no KL), "trust region" (knob: the KL of every state). rate, passes: of gradient
    steps on a batch. falls: the KL of a trust region falls to 0 over the iterations too.
    adapt: step of an adaptive behavior, 0 draws from the policy. kept: batches in the buffer.
    critic: "state", or of actions that are several tokens "action", "token",
    "decomposed". token_discount: of every token, for "token". scaled: advantages to a mean square of 1.
    lag: updates since the policy that draws a batch, around which PPO clips.
    """

    update: str = "ppo"
    knob: float = 0.2
    rate: float = 1.0
    adapt: float = 0.0
    kept: int = 1
    critic: str = "state"
    token_discount: float = 1.0
    scaled: bool = True
    passes: int = 10
    falls: bool = False
    lag: int = 0


@dataclass(frozen=True)
class Tokens:
    """Actions as paths of a tree of tokens, the same in every state.

    reach_AN: 1 where the path passes a node, else 0. token_AN: token taken there. after_NV: node that a token
    leads to, -1 where it ends the action.
    """

    reach_AN: Floats
    token_AN: Ints
    after_NV: Ints

    @classmethod
    def tree(cls, levels: int = 3, vocabulary: int = 4) -> Tokens:
        """Half of the tokens end the action; the others go on, up to `levels` tokens."""
        after: list[list[int]] = [[]]
        paths: list[dict[int, int]] = []
        todo: list[tuple[int, int, dict[int, int]]] = [(0, 1, {})]
        for node, depth, path in todo:
            for token in range(vocabulary):
                here = {**path, node: token}
                ends = depth == levels or token < vocabulary // 2
                after[node].append(-1 if ends else len(after))
                if ends:
                    paths.append(here)
                else:
                    todo.append((len(after), depth + 1, here))
                    after.append([])
        nodes = range(len(after))
        reach_AN = np.array([[float(n in path) for n in nodes] for path in paths])
        return cls(reach_AN, np.array([[path.get(n, 0) for n in nodes] for path in paths]), np.array(after))

    def policy(self, log_RSNV: Floats) -> Floats:
        """Return the distribution of whole actions, [R, S, A]."""
        each_RSAN = log_RSNV[:, :, np.arange(self.reach_AN.shape[1]), self.token_AN]
        return np.asarray(np.exp((each_RSAN * self.reach_AN).sum(-1)))

    def sums(self, of_RSA: Floats) -> Floats:
        """Return the sums of actions by node and token, [R, S, N, V]."""
        taken_ANV = self.reach_AN[..., None] * np.eye(self.after_NV.shape[1])[self.token_AN]
        return np.einsum("rsa,anv->rsnv", of_RSA, taken_ANV)


def occupancy(worlds: Worlds, mu_RSA: Floats, start_RS: Floats) -> Floats:
    """Return the discounted occupancy of states, which sums to 1, [R, S]."""
    step_RSS = np.einsum("rsa,rsat->rst", mu_RSA, worlds.moves_RSAS)
    left_RSS = np.eye(step_RSS.shape[-1]) - worlds.discount * np.swapaxes(step_RSS, 1, 2)
    return np.asarray((1 - worlds.discount) * np.linalg.solve(left_RSS, start_RS[..., None])[..., 0])


def draw(worlds: Worlds, mu_RSA: Floats, steps: int, rng: np.random.Generator, noise: float) -> Counts:
    """Return counts of `steps` steps of mu in each world, rewards with normal noise."""
    start_RS = np.stack([world.start_S for world in worlds.worlds])
    both_RSA = np.maximum(occupancy(worlds, mu_RSA, start_RS), 0.0)[..., None] * mu_RSA
    flat_RX = both_RSA.reshape(len(mu_RSA), -1)
    visit_RX = rng.multinomial(steps, flat_RX / flat_RX.sum(-1, keepdims=True))
    visit_RSA = visit_RX.reshape(mu_RSA.shape).astype(np.float64)
    # Rounding may lift a certain move above 1, which multinomial refuses.
    going_RSAS = rng.multinomial(visit_RX.reshape(mu_RSA.shape), np.minimum(worlds.moves_RSAS, 1.0)).astype(
        np.float64
    )
    spread_RSA = noise * ratio(rng.normal(size=mu_RSA.shape), np.sqrt(visit_RSA))
    return Counts(visit_RSA, going_RSAS, np.where(visit_RSA > 0, worlds.reward_RSA + spread_RSA, 0.0))


def sampled(
    worlds: Worlds,
    pi_RSA: Floats,
    arm: Arm,
    kept: list[Counts],
    batch: int,
    rng: np.random.Generator,
    noise: float,
) -> Counts:
    """Return a new batch; an adaptive behavior takes actions that are rare in the kept data and the batch."""
    if not arm.adapt:
        return draw(worlds, pi_RSA, batch, rng, noise)
    found: Counts | None = None
    for _ in range(0, batch, CHUNK):
        have = [*kept, *([found] if found else [])]
        visit_RSA = sum((each.visit_RSA for each in have), np.zeros_like(pi_RSA))
        mu_RSA = adapted_policy(pi_RSA, visit_RSA, arm.adapt, 0.3)
        part = draw(worlds, mu_RSA, CHUNK, rng, noise)
        found = found + part if found else part
    assert found is not None
    return found


def critic_value(moves_RSAS: Floats, reward_RSA: Floats, share_RSA: Floats) -> Floats:
    """Return V = sum_a share (r + moves V), [R, S], discounts being in the moves; LSTD on a table."""
    step_RSS = np.einsum("rsa,rsat->rst", share_RSA, moves_RSAS)
    left_RSS = np.eye(step_RSS.shape[-1]) - step_RSS
    return np.asarray(np.linalg.solve(left_RSS, (share_RSA * reward_RSA).sum(-1)[..., None])[..., 0])


def advantages(data: Counts, discount: float) -> Floats:
    """Return r + discount V(s') - V(s) by pair, averaged over the data, 0 without; [R, S, A]."""
    share_RSA = ratio(data.visit_RSA, data.visit_RSA.sum(-1, keepdims=True))
    value_RS = critic_value(discount * data.moves_RSAS, data.reward_RSA, share_RSA)
    ahead_RSA = data.reward_RSA + discount * (data.moves_RSAS @ value_RS[:, None, :, None])[..., 0]
    return np.where(data.visit_RSA > 0, ahead_RSA - value_RS[..., None], 0.0)


def token_advantages(data: Counts, discount: float, arm: Arm, tokens: Tokens) -> tuple[Floats, Floats]:
    """Return visits and advantages of tokens, [R, S, N, V], by one of three backups.

    "action": every token has its action's advantage. "decomposed": a critic before every token, no discount
    inside an action (Wen et al. 2024, POAD). "token": one discount after every token.
    """
    visit_RSNV = tokens.sums(data.visit_RSA)
    if arm.critic == "action":
        mean_RSA = advantages(data, discount)
        return visit_RSNV, ratio(tokens.sums(data.visit_RSA * mean_RSA), visit_RSNV)
    inside, between = (1.0, discount) if arm.critic == "decomposed" else (arm.token_discount,) * 2
    cells, states, _ = data.visit_RSA.shape
    nodes, size = tokens.after_NV.shape
    ends_NV = tokens.after_NV < 0
    going_RSNVT = np.einsum(
        "rsat,anv->rsnvt", data.going_RSAS, tokens.reach_AN[..., None] * np.eye(size)[tokens.token_AN]
    )
    moves = np.zeros((cells, states, nodes, size, states, nodes))
    moves[..., 0] = between * ratio(going_RSNVT, visit_RSNV[..., None]) * ends_NV[..., None]
    for node, token in zip(*np.nonzero(~ends_NV), strict=True):
        for s in range(states):
            moves[:, s, node, token, s, tokens.after_NV[node, token]] = inside * (
                visit_RSNV[:, s, node, token] > 0
            )
    reward_RSNV = ratio(tokens.sums(data.visit_RSA * data.reward_RSA), visit_RSNV) * ends_NV
    flat = (cells, states * nodes)
    moves_RXVX = moves.reshape(*flat, size, states * nodes)
    reward_RXV, visit_RXV = reward_RSNV.reshape(*flat, size), visit_RSNV.reshape(*flat, size)
    value_RX = critic_value(moves_RXVX, reward_RXV, ratio(visit_RXV, visit_RXV.sum(-1, keepdims=True)))
    ahead_RXV = reward_RXV + (moves_RXVX @ value_RX[:, None, :, None])[..., 0]
    adv_RXV = np.where(visit_RXV > 0, ahead_RXV - value_RX[..., None], 0.0)
    return visit_RSNV, adv_RXV.reshape(visit_RSNV.shape)


def moved(
    log_RSA: Floats, visit_RSA: Floats, adv_RSA: Floats, arm: Arm, left: float, old_RSA: Floats
) -> Floats:
    """Return the logits after an update; left: share of iterations that remain; old: policy of the data."""
    count_RS1 = visit_RSA.sum(-1, keepdims=True)
    weight_RS1 = count_RS1 / count_RS1.sum(1, keepdims=True)
    share_RSA = visit_RSA / count_RS1.sum(1, keepdims=True)
    if arm.scaled:
        adv_RSA = ratio(adv_RSA, np.sqrt((share_RSA * adv_RSA**2).sum((1, 2), keepdims=True)))
    if arm.update == "ppo":
        return clipped_passes(
            log_RSA, visit_RSA, adv_RSA, passes=arm.passes, step_size=arm.rate, clip=arm.knob, old_RSA=old_RSA
        )
    gain_RSA = ratio(ratio(visit_RSA, count_RS1), old_RSA) * adv_RSA
    if arm.update == "trust region":
        budget = arm.knob * (left if arm.falls else 1.0)
        return np.log(np.maximum(within_kl(old_RSA, gain_RSA, budget), 1e-12))
    step_size = arm.knob * max(left, 1e-6)
    for _ in range(arm.passes):
        pi_RSA = softmax(log_RSA)
        pull_RSA = gain_RSA - (0.0 if np.isinf(step_size) else np.log(pi_RSA / old_RSA) / step_size)
        centered_RSA = pull_RSA - (pi_RSA * pull_RSA).sum(-1, keepdims=True)
        log_RSA = log_RSA + arm.rate * weight_RS1 * pi_RSA * centered_RSA
        log_RSA = np.maximum(log_RSA - log_RSA.max(-1, keepdims=True), FLOOR)
    return log_RSA


def learn(
    worlds: Worlds,
    arm: Arm,
    *,
    iterations: int,
    batch: int,
    seed: int,
    noise: float = 0.5,
    tokens: Tokens | None = None,
    drift: list[Floats] | None = None,
) -> Floats:
    """Return the exact score of the policy before each iteration and after the last, [K + 1, R].

    drift: takes KL(sampler || policy) and the share of steps outside the clip before each update, [2, R].
    """
    rng = np.random.default_rng(seed)
    cells, states, actions = worlds.reward_RSA.shape
    shape = (cells, states, actions) if tokens is None else (cells, states, *tokens.after_NV.shape)
    log, kept, scores, past = np.zeros(shape), list[Counts](), [], list[Floats]()
    for iteration in range(iterations + 1):
        pi = softmax(log)
        pi_RSA = pi if tokens is None else tokens.policy(np.log(np.maximum(pi, 1e-300)))
        scores.append(worlds.score(pi_RSA))
        if iteration == iterations:
            break
        past = [*past, pi][-arm.lag - 1 :]
        old_RSA = pi_RSA if tokens else past[0]
        fresh = sampled(worlds, old_RSA, arm, kept, batch, rng, noise)
        data = sum(kept, fresh)
        kept = [*kept, fresh][-arm.kept + 1 :] if arm.kept > 1 else []
        left = 1 - iteration / iterations
        if tokens is None:
            adv_RSA = advantages(data, worlds.discount)
            if drift is not None:
                drift.append(_drift(pi_RSA / old_RSA, data.visit_RSA, adv_RSA, arm.knob))
            log = moved(log, data.visit_RSA, adv_RSA, arm, left, old_RSA)
        else:
            visit, adv = token_advantages(data, worlds.discount, arm, tokens)
            flat = (cells, -1, shape[-1])
            log, visit, adv, pi = (x.reshape(flat) for x in (log, visit, adv, pi))
            log = moved(log, visit, adv, arm, left, pi).reshape(shape)
        log = np.maximum(log - log.max(-1, keepdims=True), FLOOR)
    return np.stack(scores)


def _drift(rho_RSA: Floats, visit_RSA: Floats, adv_RSA: Floats, clip: float) -> Floats:
    """Return the mean of rho - 1 - log rho over a batch and the share of steps outside the clip, [2, R]."""
    share_RSA = visit_RSA / visit_RSA.sum((1, 2), keepdims=True)
    outside_RSA = np.where(adv_RSA >= 0, rho_RSA > 1 + clip, rho_RSA < 1 - clip)
    return np.stack([(share_RSA * each).sum((1, 2)) for each in (rho_RSA - 1 - np.log(rho_RSA), outside_RSA)])


def adapted_policy(pi_RSA: Floats, visit_RSA: Floats, step_size: ArrayLike, kl_budget: float) -> Floats:
    """mu = softmax(log pi - step n(s) (n(a|s)/n(s) - pi)), [R, S, A]: actions that are rare in the data
    become likelier.

    A gradient step down the data's log-likelihood under pi; where KL(mu || pi) would exceed the budget in a
    state, its step is halved until it does not. step_size: a number or [R]; 0 is pi itself. Source: ROS
    (Zhong et al. 2022) and PROPS (Corrado & Hanna 2023), whose PPO-clipped step is a KL-clipped one here.
    """
    total_RS1 = visit_RSA.sum(-1, keepdims=True)
    step_R11 = np.asarray(step_size, np.float64).reshape(-1, 1, 1)
    pull_RSA = -step_R11 * (visit_RSA - total_RS1 * pi_RSA)
    with np.errstate(divide="ignore"):
        log_RSA = np.log(pi_RSA)
    scale_RS1 = np.ones_like(total_RS1)
    for _ in range(BISECTIONS):
        logit_RSA = log_RSA + scale_RS1 * pull_RSA
        mu_RSA = softmax(logit_RSA)
        ratio_RSA = np.where(
            mu_RSA > 0, np.log(np.where(mu_RSA > 0, mu_RSA, 1.0)) - np.where(pi_RSA > 0, log_RSA, 0.0), 0.0
        )
        over_RS1 = (mu_RSA * ratio_RSA).sum(-1, keepdims=True) > kl_budget
        if not over_RS1.any():
            return np.asarray(mu_RSA)
        scale_RS1 = np.where(over_RS1, scale_RS1 / 2, scale_RS1)
    return np.where(over_RS1, pi_RSA, mu_RSA)
