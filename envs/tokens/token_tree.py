"""A token task as a tabular world: one softmax per prompt and prefix, every expectation exact."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from envs.arrays import Floats, Ints
from envs.catalog import token_task, world
from envs.checks import as_versions
from envs.divergence import Divergence
from envs.finite_mdp import Episodes
from envs.tokens.token_task import TokenTask, arguments, check_counts, every_response

MOST_ENTRIES = 2**24
SMALL: Mapping[str, Mapping[str, int]] = {
    "running-sum": {"digits": 3, "modulus": 3},
    "copy": {"digits": 3, "modulus": 3},
    "sorted": {"digits": 3, "modulus": 3},
    "length": {"digits": 2, "modulus": 3, "limit": 4},
    "guess": {"base": 2, "digits": 2, "turns": 3},
    "solver-checker": {"digits": 2, "modulus": 3},
}


class TokenTree:
    """States are pairs (prompt, prefix of a response), actions the V tokens; the last one brings the reward.

    Each of the N prompts has `nodes` consecutive states, numbered level by level. With W continuing tokens
    (all but the end token) the successor of local node i under the j-th of them is i W + 1 + j, so no
    transition table is needed. The start distribution is uniform over the prompts; the episode ends after T
    tokens or with the end token.
    """

    def __init__(self, task: TokenTask, prompts: int | npt.ArrayLike, seed: int = 0) -> None:
        self.task = task
        self.actions, self.horizon, self.end_token = task.vocabulary, task.response_length, task.end_token
        self.chosen_T = ~np.array(task.tool_T or (False,) * self.horizon)
        self.going = np.array([a for a in range(self.actions) if a != self.end_token], dtype=np.int64)
        widths = [self.going.size**t for t in range(self.horizon)]
        self.nodes = sum(widths)
        count = prompts if isinstance(prompts, int) else len(np.asarray(prompts))
        check_counts(prompts=count)
        if count * self.nodes * self.actions > MOST_ENTRIES:
            raise ValueError(
                f"{count} prompts x {self.nodes} prefixes x {self.actions} tokens make more than 2^24 "
                "probabilities; take fewer prompts, shorter responses or a smaller vocabulary."
            )
        self.level = [sum(widths[:t]) for t in range(self.horizon + 1)]  # of level t: level[t] : level[t+1]
        given = _distinct(task, count, seed) if isinstance(prompts, int) else np.asarray(prompts)
        self.prompt_NQ = task.check_prompts(given)
        self.states = count * self.nodes
        self.reward_SA = self._rewards()

    @property
    def turn_T(self) -> tuple[int, ...]:
        """The turn of every position of a response; () in a task of one turn."""
        return self.task.turn_T

    def prefix(self, state: int) -> tuple[int, tuple[int, ...]]:
        """Return the prompt number and the tokens so far of a state."""
        prompt, node = divmod(int(state), self.nodes)
        tokens: list[int] = []
        while node:
            node, j = divmod(node - 1, self.going.size)
            tokens.append(int(self.going[j]))
        return prompt, tuple(reversed(tokens))

    def state(self, prompt: int, tokens: Sequence[int] = ()) -> int:
        """Return the state of a prompt number and the tokens so far: the inverse of `prefix`.

        Raises ValueError for a prompt, token or length without a state; no state follows the end token.
        """
        if not 0 <= prompt < len(self.prompt_NQ):
            raise ValueError(f"prompt is {prompt}, expected 0 to {len(self.prompt_NQ) - 1}.")
        if len(tokens) >= self.horizon:
            raise ValueError(
                f"{len(tokens)} tokens {list(tokens)} are a whole response; a state has at most "
                f"{self.horizon - 1}."
            )
        place, node = {int(token): j for j, token in enumerate(self.going)}, 0
        for token in tokens:
            if int(token) not in place:
                raise ValueError(
                    f"token {token} in {list(tokens)} leads to no state; expected one of {list(place)}"
                    + (f", as {self.end_token} ends a response." if token == self.end_token else ".")
                )
            node = node * self.going.size + 1 + place[int(token)]
        return prompt * self.nodes + node

    def start(self, uniform_RN: Floats) -> Ints:
        """Root states of prompts drawn uniformly by inverse CDF, [R, N] like the uniforms."""
        N = len(self.prompt_NQ)
        return np.minimum((np.asarray(uniform_RN) * N).astype(np.int64), N - 1) * self.nodes

    def simulate(
        self, pi_RSA: Floats, start_RN: Ints, group: int, key_R: npt.ArrayLike, step: int
    ) -> Episodes:
        """`group` responses per start; the first double of (t, b, step) draws token t of sequence b."""
        pi_RSA = self._policy(pi_RSA, "pi_RSA")
        if pi_RSA.ndim != 3:
            raise ValueError(f"pi_RSA has shape {pi_RSA.shape}, expected (R, S, A).")
        return self._episodes(pi_RSA[:, None], np.zeros((1, 1, 1), np.int64), start_RN, group, key_R, step)

    def simulate_versions(
        self,
        pi_RWSA: Floats,
        version_RBT: Ints,
        start_RN: Ints,
        group: int,
        key_R: npt.ArrayLike,
        step: int,
        given_RBT: Ints | None = None,
    ) -> Episodes:
        """Simulate responses with token t drawn from pi_RWSA[r, version_RBT[r, b, t]]; see FiniteMDP.

        given_RBT: fixed tokens, negative where one is drawn.
        """
        pi_RWSA = self._policy(pi_RWSA, "pi_RWSA")
        if pi_RWSA.ndim != 4:
            raise ValueError(
                f"pi_RWSA has shape {pi_RWSA.shape}, expected (R, W, S, A): W policies a replica."
            )
        return self._episodes(pi_RWSA, version_RBT, start_RN, group, key_R, step, given_RBT)

    def _episodes(
        self,
        pi_RWSA: Floats,
        version_RBT: Ints,
        start_RN: Ints,
        group: int,
        key_R: npt.ArrayLike,
        step: int,
        given_RBT: Ints | None = None,
    ) -> Episodes:
        # Imported here: building and listing worlds should not load the compiler.
        from envs.kernels import uniforms
        from envs.tokens.tree_kernel import walk

        start_RN, keys = np.asarray(start_RN, dtype=np.int64), np.asarray(key_R, dtype=np.uint64)
        if start_RN.shape[:1] != pi_RWSA.shape[:1] or keys.shape != pi_RWSA.shape[:1]:
            raise ValueError(
                f"policies for {len(pi_RWSA)} replicas, start_RN {start_RN.shape} and key_R {keys.shape} "
                "must share the axis R."
            )
        if np.any(start_RN % self.nodes) or np.any((start_RN < 0) | (start_RN >= self.states)):
            raise ValueError(
                f"start_RN must hold root states, multiples of {self.nodes} below {self.states}."
            )
        check_counts(group=group)
        uniform_RBT = uniforms(keys, step, start_RN.shape[1] * group, self.horizon)
        version_RBT = as_versions(version_RBT, uniform_RBT.shape, pi_RWSA.shape[1])
        state_RBT, action_RBT = np.zeros(uniform_RBT.shape, np.int64), np.zeros(uniform_RBT.shape, np.int64)
        mask_RBT = np.zeros(uniform_RBT.shape, bool)
        end = -1 if self.end_token is None else self.end_token
        policies = np.ascontiguousarray(pi_RWSA)
        shape = uniform_RBT.shape
        given_RBT = np.full(shape, -1) if given_RBT is None else self._given(given_RBT, shape)
        walk(policies, version_RBT, start_RN, uniform_RBT, end, state_RBT, action_RBT, mask_RBT, given_RBT)
        reward_RBT = np.where(mask_RBT, self.reward_SA[state_RBT, action_RBT], 0.0)
        return Episodes(state_RBT, action_RBT, reward_RBT, mask_RBT & self.chosen_T)

    def value(self, pi_xSA: Floats) -> Floats:
        """J = E[reward] under a uniform prompt, exact, [x]."""
        pi = self._policy(pi_xSA, "pi_xSA")
        return self._mean(self._forward(pi, np.multiply), (pi * self.reward_SA).sum(-1))

    def gradient(self, pi_xSA: Floats) -> Floats:
        """dJ/dlogits = d(s) pi(a|s) (Q(s,a) - V(s)) of the tabular softmax policy, [x, S, A].

        Source: Sutton et al. (2000), policy gradient theorem.
        """
        pi = self._policy(pi_xSA, "pi_xSA")
        reach_xS = self._forward(pi, np.multiply) / len(self.prompt_NQ)
        q_xSA = self._action_values(pi)
        v_xS1 = (pi * q_xSA).sum(-1, keepdims=True)
        return reach_xS[..., None] * pi * (q_xSA - v_xS1)

    def action_values(self, pi_xSA: Floats) -> Floats:
        """Q(s, a) = E[reward | s, a, then pi], [x, S, A]."""
        return self._action_values(self._policy(pi_xSA, "pi_xSA"))

    def reach(self, pi_xSA: Floats) -> Floats:
        """d(s), the probability that pi visits a state, a uniform prompt included, [x, S]."""
        return self._forward(self._policy(pi_xSA, "pi_xSA"), np.multiply) / len(self.prompt_NQ)

    def divergence(
        self, pi_xSA: Floats, mu_xSA: Floats, *, unsupported: Literal["raise", "infinite"] = "raise"
    ) -> Divergence:
        """Exact divergences of the responses of pi and mu, w = prod_t rho_t; leading axes broadcast.

        After the end of a response its prefix ratio stays constant, so the last prefix moment is the
        sequence's. If pi takes a token with mu = 0: ValueError naming both, or inf with
        unsupported="infinite".
        """
        pi, mu = np.broadcast_arrays(self._policy(pi_xSA, "pi_xSA"), self._policy(mu_xSA, "mu_xSA"))
        reach_pi, reach_mu = self._forward(pi, np.multiply), self._forward(mu, np.multiply)
        if unsupported == "raise":
            self._check_support(pi, mu, reach_pi)
        with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
            log_rho = np.where((pi > 0) | (mu > 0), np.log(pi) - np.log(mu), -np.inf)
            moment = np.where(pi > 0, pi * (pi / mu), 0.0)
            pi_log_rho, mu_log_rho = (np.where(p > 0, p * log_rho, 0.0).sum(-1) for p in (pi, mu))
            prefix_xT = self._prefix_moments(moment)
            length_x = self._mean(reach_mu, np.ones(self.states))
            path = self._split(self._forward(log_rho, np.add)[..., None] + log_rho, 1)
            ends = [path[..., self._at(t), :][..., self._ends(t)] for t in range(self.horizon)]
            log_w = np.concatenate([end.reshape(*end.shape[:-3], -1) for end in ends], axis=-1)
            return Divergence(
                kl_pi_mu=self._mean(reach_pi, pi_log_rho),
                kl_mu_pi=-self._mean(reach_mu, mu_log_rho),
                second_moment=prefix_xT[..., -1],
                second_moment_token=self._mean(reach_mu, moment.sum(-1)) / length_x,
                mean_rho_token=self._mean(reach_mu, np.where(mu > 0, pi, 0.0).sum(-1)) / length_x,
                second_moment_prefix_T=prefix_xT,
                # NaN is inf - inf: a path with a token that pi never takes.
                max_log_rho=np.where(np.isnan(log_w), -np.inf, log_w).max(-1),
            )

    # The tree arithmetic views arrays over states as [x, N, nodes]; a level is a slice of the last axis.

    def _split(self, array_xS: Floats, tail: int) -> Floats:
        axis = array_xS.ndim - tail - 1
        shape = array_xS.shape
        return array_xS.reshape(*shape[:axis], len(self.prompt_NQ), self.nodes, *shape[axis + 1 :])

    def _forward(self, edge_xSA: Floats, join: Callable[[Floats, Floats], Floats]) -> Floats:
        """The product or, with np.add, the sum of the edges on the path to each node, [x, S]."""
        edge = self._split(edge_xSA, 1)
        node = np.empty(edge.shape[:-1])
        node[..., 0] = 0.0 if join is np.add else 1.0
        for t in range(self.horizon - 1):
            below = join(node[..., self._at(t), None], edge[..., self._at(t), :][..., self.going])
            node[..., self._at(t + 1)] = below.reshape(*below.shape[:-2], -1)
        return node.reshape(edge_xSA.shape[:-1])

    def _action_values(self, pi_xSA: Floats) -> Floats:
        """Q(s, a) = r(s, a) + V(s a), the backward recursion over levels, [x, S, A]."""
        pi = self._split(pi_xSA, 1)
        q = np.broadcast_to(self._split(self.reward_SA, 1), pi.shape).copy()
        for t in range(self.horizon - 2, -1, -1):
            below = (pi[..., self._at(t + 1), :] * q[..., self._at(t + 1), :]).sum(-1)
            q[..., self._at(t), self.going] = below.reshape(*below.shape[:-1], -1, self.going.size)
        return q.reshape(pi_xSA.shape)

    def _prefix_moments(self, moment_xSA: Floats) -> Floats:
        """E_mu w_{0:min(t, end)}^2 from the per-token moments pi^2/mu, [x, T]."""
        flow = self._split(_product(self._forward(moment_xSA, _product)[..., None], moment_xSA), 1)
        here = [flow[..., self._at(t), :].sum(-2).mean(-2) for t in range(self.horizon)]  # [x, A] per level
        ended, moments = np.zeros(moment_xSA.shape[:-2]), []
        for moment_xA in here:
            moments.append(ended + moment_xA.sum(-1))
            if self.end_token is not None:
                ended = ended + moment_xA[..., self.end_token]
        return np.stack(moments, axis=-1)

    def _mean(self, reach_xS: Floats, value_xS: Floats) -> Floats:
        """Mean over prompts of the sum over nodes of reach x value; an unreached node counts 0, [x]."""
        return _product(reach_xS, value_xS).sum(-1) / len(self.prompt_NQ)

    def _at(self, t: int) -> slice:
        return slice(self.level[t], self.level[t + 1])

    def _rewards(self) -> Floats:
        """task.score of every response, placed at the (state, action) that ends it, [S, A]."""
        reward_NSA = np.zeros((len(self.prompt_NQ), self.nodes, self.actions))
        for t in range(self.horizon):
            ends = self._ends(t)
            if not ends:
                continue
            prefix_Lt = self.going[every_response(self.going.size, t, None)[0]]
            response_LVT = np.zeros((len(prefix_Lt), len(ends), self.horizon), dtype=np.int64)
            response_LVT[:, :, :t] = prefix_Lt[:, None, :]
            response_LVT[:, :, t] = ends
            response_LT = response_LVT.reshape(-1, self.horizon)
            mask_LT = np.broadcast_to(np.arange(self.horizon) <= t, response_LT.shape)
            for prompt_Q, reward_SA in zip(self.prompt_NQ, reward_NSA, strict=True):
                prompt_LQ = np.broadcast_to(prompt_Q, (len(response_LT), prompt_Q.size))
                score_L = self.task.score(prompt_LQ, response_LT, mask_LT)
                reward_SA[self._at(t), ends] = score_L.reshape(len(prefix_Lt), len(ends))
        return reward_NSA.reshape(self.states, self.actions)

    def _ends(self, t: int) -> list[int]:
        """The actions that end a response at level t: any on the last level, before it the end token."""
        if t == self.horizon - 1:
            return list(range(self.actions))
        return [] if self.end_token is None else [self.end_token]

    def _policy(self, pi_xSA: Floats, name: str) -> Floats:
        pi = np.asarray(pi_xSA, dtype=np.float64)
        if pi.shape[-2:] != (self.states, self.actions):
            raise ValueError(
                f"{name} has shape {pi.shape}, expected [..., S, A] = [..., {self.states}, {self.actions}]."
            )
        bad = ~(np.abs(pi.sum(-1) - 1.0) < 1e-5) | (pi < 0).any(-1)
        if bad.any():
            state = int(np.argwhere(bad)[0][-1])
            raise ValueError(
                f"{name} is not a distribution in state {state}: {pi[bad][0]}; pass probabilities, not "
                "logits."
            )
        return pi

    def _given(self, given_RBT: Ints, shape: tuple[int, ...]) -> Ints:
        given = np.ascontiguousarray(given_RBT, dtype=np.int64)
        if given.shape != shape or given.max(initial=-1) >= self.actions:
            raise ValueError(
                f"given_RBT has shape {given.shape} and tokens up to {given.max(initial=-1)}, expected "
                f"{shape} and tokens below {self.actions}, negative where one is drawn."
            )
        return given

    def _check_support(self, pi_xSA: Floats, mu_xSA: Floats, reach_xS: Floats) -> None:
        missing = (pi_xSA > 0) & (mu_xSA == 0) & (reach_xS[..., None] > 0)
        if missing.any():
            *_, state, action = (int(i) for i in np.argwhere(missing)[0])
            prompt, prefix = self.prefix(state)
            raise ValueError(
                f"mu gives probability 0 to action {action} ({self.task.symbols[action]!r}) in state {state} "
                f"(prompt {self.task.text(self.prompt_NQ[prompt])!r}, response so far "
                f"{self.task.text(prefix)!r}), which pi takes; keep pi inside the support of mu, or pass "
                'unsupported="infinite".'
            )


class TurnTree(TokenTree):
    """A TokenTree with one possible token in states where the tool writes, for any policy.

    Their masks are False in episodes, their ratios 1, their gradients 0. Moments per token count them.

    tool_S: True if a tool writes in a state, [S]. answer_S: its token, 0 elsewhere.
    """

    def __init__(self, task: TokenTask, prompts: int | npt.ArrayLike, seed: int = 0) -> None:
        super().__init__(task, prompts, seed)
        self.tool_S = np.zeros(self.states, dtype=bool)
        self.answer_S = np.zeros(self.states, dtype=np.int64)
        tool_NS, answer_NS = (x.reshape(len(self.prompt_NQ), -1) for x in (self.tool_S, self.answer_S))
        for t in np.flatnonzero(task.tool_T):
            prefix_Lt = self.going[every_response(self.going.size, int(t), None)[0]]
            tool_NS[:, self._at(int(t))] = True
            for prompt_Q, answer_S in zip(self.prompt_NQ, answer_NS, strict=True):
                prompt_LQ = np.broadcast_to(prompt_Q, (len(prefix_Lt), prompt_Q.size))
                answer_S[self._at(int(t))] = task.tool(prompt_LQ, prefix_Lt)
        self._law_XA = np.eye(self.actions)[self.answer_S[self.tool_S]]

    def _policy(self, pi_xSA: Floats, name: str) -> Floats:
        pi = super()._policy(pi_xSA, name).copy()
        pi[..., self.tool_S, :] = self._law_XA
        return pi


def _product(left: Floats, right: Floats) -> Floats:
    """left * right with 0 * inf = 0: terms without mass add nothing, however large."""
    return np.where((left == 0) | (right == 0), 0.0, left * right)


def _distinct(task: TokenTask, count: int, seed: int) -> Ints:
    """The first `count` distinct prompts that the task draws from `seed`, in order of drawing."""
    rng = np.random.default_rng(seed)
    seen: dict[tuple[int, ...], None] = {}
    for _ in range(64):
        seen.update(dict.fromkeys(tuple(int(v) for v in row) for row in task.prompts(rng, count)))
        if len(seen) >= count:
            return np.array(list(seen)[:count], dtype=np.int64)
    raise ValueError(
        f"{64 * count} draws gave {len(seen)} distinct prompts, fewer than prompts={count}; ask for fewer."
    )


@world("tree")
def tree(
    *,
    task: str = "running-sum",
    task_args: Mapping[str, Any] | str | None = None,
    prompts: int = 4,
    seed: int = 0,
) -> TokenTree:
    """The tree of a cataloged task over `prompts` distinct prompts drawn from `seed`; small by default."""
    given = SMALL.get(task, {}) if task_args is None else arguments(task_args)
    made = token_task(task, given)
    if any(made.tool_T):
        return TurnTree(made, prompts, seed)
    return TokenTree(made, prompts, seed)
