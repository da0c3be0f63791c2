"""The one-sample gradient of any objective, exactly: its mean, its variance, and its bias by cause.

A sample is one response drawn from mu; its gradient is sum over t of w_t S_t with the objective's effective
weight w_t and the score S_t = onehot(y_t) - pi(. | prefix), with respect to one table of logits per prefix.
Each response is a separate batch: a batch statistic sees one response (`testbed.exact.group` has larger
batches). Losses are summed over tokens by default.

With d the distribution of prefixes, the gradient of J(pi) = E_pi R is F(d_pi, Q^pi), where
F(d, Q)(s, .) = d(s) sum_a pi(a|s) Q(s, a) S(s, a). Plain ratios have means F(d', Q'): token F(d_mu, Q^mu),
prefix F(d_pi, Q^mu), suffix F(d_mu, Q^pi), sequence F(d_pi, Q^pi). So the bias E g - grad J is the sum of

    state     F(d', Q^pi) - F(d_pi, Q^pi)    prefixes come from the wrong distribution
    suffix    F(d', Q') - F(d', Q^pi)        what follows a token is played by mu
    clipping  E g - F(d', Q')                the weight differs from the plain ratio: clipped, averaged

with (d', Q') those of the ratio that the objective approximates; with signal A^pi, Q' = Q^pi.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from envs.arrays import Floats
from envs.kernels import scatter_score
from envs.tokens.token_tree import TokenTree
from testbed.data.batch import Batch
from testbed.errors import UserError, unknown
from testbed.exact.gradient_facts import GradientReport, cut_tokens, share
from testbed.exact.response_tree import Leaves, check_policies, enumerate_leaves
from testbed.inspection.effective_weights import effective_weights
from testbed.losses import ratios
from testbed.losses.aggregate import aggregate
from testbed.losses.score_loss import score_loss
from testbed.objectives import objective

Signal = Literal["R", "R-b", "A"]
SIGNALS = ("R", "R-b", "A")
Objective = str | Callable[..., Tensor]
CHUNK = 2**15
"""Number of responses per evaluation of weights."""

STANDS_FOR = {
    "none": "token", "token": "token", "prefix": "prefix", "min_prefix": "prefix", "suffix": "suffix",
    "sequence": "sequence", "geometric": "sequence", "power_mean": "sequence", "turn": "sequence",
}  # fmt: skip
"""Plain ratio to compare with, by ratio level; with one turn, a turn is the sequence."""


def plain_ratio(level: str) -> Callable[[Tensor, Batch], Tensor]:
    """The objective -sg[ratio] A log pi with an unclipped ratio; level as in testbed.losses.ratios, "suffix"
    (rho_t … rho_T) or "none" (1). Raises UserError for an unknown level.
    """
    levels = {**ratios.LEVELS, "suffix": _log_suffix, "none": _log_one}
    if level not in levels:
        raise unknown("ratio level", level, levels)
    return lambda logp_BT, batch: score_loss(levels[level](logp_BT, batch).exp(), logp_BT, batch)


def _log_one(logp_BT: Tensor, _: Batch) -> Tensor:
    return torch.zeros_like(logp_BT)


def _log_suffix(logp_BT: Tensor, batch: Batch) -> Tensor:
    token_BT = ratios.log_token(logp_BT, batch)
    return token_BT.flip(-1).cumsum(-1).flip(-1)


def resolve(name: Objective) -> tuple[Objective, str, str]:
    """Return (objective, its name, its promised ratio level); "ratio:LEVEL" is a plain ratio."""
    if not isinstance(name, str):
        return name, getattr(name, "__name__", "function"), "token"
    if name.startswith("ratio:"):
        level = name.removeprefix("ratio:")
        return plain_ratio(level), name, level
    return name, name, objective[name].promises.get("ratio", "token")


class Bench:
    """A tree, mu and pi with the parts that reports share: leaves, log-probabilities, d, Q, grad J.

    Args:
        tree: the world. mu_SA, pi_SA: positive tables of probabilities.
        ref_SA: the reference of a KL penalty; mu by default.
        anchor_SA: the proximal policy of a clip; mu by default.

    Raises UserError for tables that are not policies, or a tree too large to enumerate.
    """

    def __init__(
        self,
        tree: TokenTree,
        mu_SA: ArrayLike,
        pi_SA: ArrayLike,
        *,
        ref_SA: ArrayLike | None = None,
        anchor_SA: ArrayLike | None = None,
    ) -> None:
        self.tree = tree
        self.mu_SA, self.pi_SA = check_policies(tree, mu=mu_SA, pi=pi_SA)
        self.leaves: Leaves = enumerate_leaves(tree)
        self.logp_mu_LT, self.logp_pi_LT = self.leaves.log(self.mu_SA), self.leaves.log(self.pi_SA)
        others = {"ref": ref_SA, "anchor": anchor_SA}
        given = {name: check_policies(tree, **{name: x})[0] for name, x in others.items() if x is not None}
        self._others_LT = {name: self.leaves.log(law_SA) for name, law_SA in given.items()}
        self.law_L = self.leaves.probability(self.mu_SA)
        self.target_SA = tree.gradient(self.pi_SA)
        self._reach = {"mu": tree.reach(self.mu_SA), "pi": tree.reach(self.pi_SA)}
        self._values = {"mu": tree.action_values(self.mu_SA), "pi": tree.action_values(self.pi_SA)}
        self.square_S = (self.pi_SA**2).sum(-1)
        token_pi_LT = np.exp(self.logp_pi_LT)
        self.norm_LT = 1.0 - 2.0 * token_pi_LT + self.square_S[self.leaves.state_LT]
        """|S_t|^2 = 1 - 2 pi(y_t) + sum_a pi(a)^2."""

    def advantage(self, signal: str, baseline: float) -> Floats:
        """Return the advantage signal of every token, [L, T]."""
        leaves = self.leaves
        if signal == "A":
            q_SA = self._values["pi"]
            a_SA = q_SA - (self.pi_SA * q_SA).sum(-1, keepdims=True)
            return np.where(leaves.mask_LT, a_SA[leaves.state_LT, leaves.action_LT], 0.0)
        if signal not in SIGNALS:
            raise unknown("signal", signal, SIGNALS)
        shift = baseline if signal == "R-b" else 0.0
        return np.where(leaves.mask_LT, leaves.reward_L[:, None] - shift, 0.0)

    def weights(self, function: Objective, adv_LT: Floats, aggregation: str | None, **hyper: Any) -> Floats:
        """Effective weight of every token of every response, each response a separate batch, [L, T]."""
        found = np.empty_like(adv_LT)
        for start in range(0, len(adv_LT), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(adv_LT)))[:, None]
            found[rows[:, 0]] = self.batch_weights(function, rows, adv_LT[rows], aggregation, **hyper)[:, 0]
        return found

    def values(self, function: Objective, adv_LT: Floats, aggregation: str | None, **hyper: Any) -> Floats:
        """Minus the loss of every response, each a separate batch, [L]."""
        found = np.empty(len(adv_LT))
        for start in range(0, len(adv_LT), CHUNK):
            rows = np.arange(start, min(start + CHUNK, len(adv_LT)))[:, None]
            found[rows[:, 0]] = self.batch_values(function, rows, adv_LT[rows], aggregation, **hyper)
        return found

    def batch_weights(
        self, function: Objective, index_RB: Any, adv_RBT: Floats, aggregation: str | None, **hyper: Any
    ) -> Floats:
        """Return effective weights of R batches of B numbered responses each; [R, B, T]."""
        logp, batch = self.batch(index_RB, adv_RBT)
        weight = effective_weights(function, logp, batch, **hyper)
        weight = weight * _divisor(batch.mask_BT, aggregation)
        if not bool(torch.isfinite(weight).all()):
            name = function if isinstance(function, str) else getattr(function, "__name__", "the objective")
            raise UserError(
                f"The weight of {name} is not finite on some response; take less drift or lower caps."
            )
        numbers: Floats = weight.numpy()
        return numbers

    def batch_values(
        self, function: Objective, index_RB: Any, adv_RBT: Floats, aggregation: str | None, **hyper: Any
    ) -> Floats:
        """Minus the aggregated loss of R batches of B responses each, [R]."""
        logp, batch = self.batch(index_RB, adv_RBT)
        chosen = (
            objective[function].bind(**hyper) if isinstance(function, str) else partial(function, **hyper)
        )
        loss = chosen(logp, batch) * _divisor(batch.mask_BT, aggregation)
        numbers: Floats = -torch.where(batch.mask_BT, loss, 0.0).sum((-2, -1)).detach().numpy()
        return numbers

    def batch(self, index_RB: Any, adv_RBT: Floats) -> tuple[Tensor, Batch]:
        """Return logp and Batch [R, B, T] of the numbered responses; one prompt, one turn."""
        leaves = self.leaves
        mu = torch.from_numpy(self.logp_mu_LT[index_RB])
        others = {name: torch.from_numpy(logp_LT[index_RB]) for name, logp_LT in self._others_LT.items()}
        mask = torch.from_numpy(leaves.mask_LT[index_RB])
        whole = torch.zeros(mask.shape, dtype=torch.int64)
        batch = Batch(
            logp_mu_BT=mu, adv_BT=torch.from_numpy(np.ascontiguousarray(adv_RBT)), mask_BT=mask,
            reward_B=torch.from_numpy(leaves.reward_L[index_RB]), group_B=whole[..., 0],
            logp_anchor_BT=others.get("anchor", mu), logp_ref_BT=others.get("ref", mu), turn_BT=whole,
            origin_B=whole[..., 0],
        )  # fmt: skip
        return torch.from_numpy(self.logp_pi_LT[index_RB]), batch

    def scatter(self, value_LT: Floats) -> Floats:
        """Sum value times S_t over leaves and tokens, prefix by prefix, [S, A]."""
        leaves = self.leaves
        value = np.where(leaves.mask_LT, value_LT, 0.0)
        return scatter_score(leaves.state_LT[None], leaves.action_LT[None], value[None], self.pi_SA[None])[0]

    def mean(self, weight_LT: Floats) -> Floats:
        """E_mu of sum_t w_t S_t, [S, A]."""
        return self.scatter(self.law_L[:, None] * weight_LT)

    def second_moment(self, weight_LT: Floats, other_LT: Floats | None = None) -> float:
        """E_mu of <sum_t w_t S_t, sum_t v_t S_t>; no cross terms: prefixes of a response differ."""
        other = weight_LT if other_LT is None else other_LT
        inside_L = np.where(self.leaves.mask_LT, weight_LT * other * self.norm_LT, 0.0).sum(-1)
        return float(self.law_L @ inside_L)

    def field(self, state: str, follow: str) -> Floats:
        """F(d, Q) of the module's docstring, d under policy `state`, Q under policy `follow`, [S, A]."""
        q_SA = self._values[follow]
        centered = q_SA - (self.pi_SA * q_SA).sum(-1, keepdims=True)
        field_SA: Floats = self._reach[state][:, None] * self.pi_SA * centered
        return field_SA

    def split(self, mean_SA: Floats, level: str, signal: str) -> dict[str, Floats]:
        """The parts of mean_SA - grad J: state, suffix, clipping."""
        stands_for = STANDS_FOR[level]
        state = "pi" if stands_for in ("prefix", "sequence") else "mu"
        follow = "pi" if signal == "A" or stands_for in ("suffix", "sequence") else "mu"
        moved, both = self.field(state, "pi"), self.field(state, follow)
        return {"state": moved - self.target_SA, "suffix": both - moved, "clipping": mean_SA - both}


def _divisor(mask_BT: Tensor, aggregation: str | None) -> Tensor:
    """d aggregate / d loss of every token; None: the mean over responses of token sums."""
    if aggregation is None:
        return mask_BT.double() / mask_BT.shape[-2]  # dividing a bool would give float32
    loss = torch.zeros(mask_BT.shape, dtype=torch.float64, requires_grad=True)
    (share,) = torch.autograd.grad(aggregate(loss, mask_BT, aggregation).sum(), loss)
    return share


@dataclass(frozen=True)
class Baselines:
    """Least-variance baselines for a weight that is linear in the advantage.

    scalar: argmin over b of the trace of Cov[c (R - b)]. coordinate_SA: the same for every coordinate.
    curvature: variance(b) - variance(scalar) = (b - scalar)^2 curvature.
    """

    scalar: float
    coordinate_SA: Floats
    curvature: float


def optimal_baselines(bench: Bench, function: Objective, **hyper: Any) -> Baselines:
    """b* = (E|C|^2 R - <E C R, E C>) / (E|C|^2 - |E C|^2) with C = sum_t c_t S_t, c_t the weight at A = 1.

    With E C = 0 (plain ratios) this is E|C|^2 R / E|C|^2: Greensmith, Bartlett & Baxter (2004), and E W^2
    |S|^2 R / E W^2 |S|^2 off-policy. The general form also holds where baselines bias. Raises UserError if
    the weight is not linear in the advantage, as behind a clip that depends on its sign.
    """
    resolved, name, _ = resolve(function)
    one_LT = bench.leaves.mask_LT.astype(np.float64)
    unit_LT = bench.weights(resolved, one_LT, None, **hyper)
    # -1 meets weights that depend on the sign of A, 2.5 those of another degree than 1.
    for scale in (-1.0, 2.5):
        scaled_LT = bench.weights(resolved, scale * one_LT, None, **hyper)
        if not np.allclose(scaled_LT, scale * unit_LT, rtol=1e-9, atol=1e-12):
            raise UserError(
                f"The weight of {name} is not linear in the advantage, so no single formula gives its best "
                "baseline; give a number for b."
            )
    reward_LT = unit_LT * bench.leaves.reward_L[:, None]
    mean_SA, signal_SA = bench.mean(unit_LT), bench.mean(reward_LT)
    curvature = bench.second_moment(unit_LT) - float((mean_SA**2).sum())
    if curvature <= 0.0:
        raise UserError(
            f"The weight of {name} is 0 on all responses, so no baseline changes the variance; give a "
            "number for b."
        )
    cross = bench.second_moment(unit_LT, reward_LT) - float((mean_SA * signal_SA).sum())
    square_SA = _coordinate_moment(bench, unit_LT * unit_LT) - mean_SA**2
    with np.errstate(divide="ignore", invalid="ignore"):
        each_SA = (_coordinate_moment(bench, unit_LT * reward_LT) - mean_SA * signal_SA) / square_SA
    return Baselines(cross / curvature, each_SA, curvature)


def _coordinate_moment(bench: Bench, value_LT: Floats) -> Floats:
    """E_mu of sum_t value_t S_t[a]^2: (1 - pi)^2 at the chosen token, pi^2 at the others, [S, A]."""
    leaves, pi = bench.leaves, bench.pi_SA
    mass = np.where(leaves.mask_LT, bench.law_L[:, None] * value_LT, 0.0)
    taken_SA = np.zeros_like(pi)
    np.add.at(taken_SA, (leaves.state_LT, leaves.action_LT), mass)
    return taken_SA * (1.0 - 2.0 * pi) + taken_SA.sum(-1, keepdims=True) * pi**2


def gradient_report(
    function: Objective,
    tree: TokenTree | Bench,
    mu_SA: ArrayLike | None = None,
    pi_SA: ArrayLike | None = None,
    *,
    signal: Signal = "R",
    baseline: float | Literal["optimal"] = "optimal",
    aggregation: str | None = None,
    **hyper: Any,
) -> GradientReport:
    """Return the exact mean, variance and bias of an objective's one-sample gradient on data from mu.

    Args:
        function: a registered objective, "ratio:LEVEL", file.py:function, or a function (logp_BT, batch).
        tree: the world, or a Bench, which saves work that several reports share.
        mu_SA: the behavior policy [S, A]; leave out with a Bench.
        pi_SA: the target policy [S, A]; leave out with a Bench.
        signal: the advantage: "R" the reward, "R-b" the reward minus `baseline`, "A" the exact A^pi.
        baseline: only with "R-b"; "optimal" is optimal_baselines(...).scalar.
        aggregation: a name in testbed.losses.aggregate; None sums over tokens.
        hyper: hyperparameters of the objective.

    Raises UserError for bad policies, sizes, names or hyperparameters.
    """
    bench = tree if isinstance(tree, Bench) else Bench(tree, *_both(mu_SA, pi_SA))
    resolved, name, level = resolve(function)
    b = 0.0
    if signal == "R-b":
        b = optimal_baselines(bench, function, **hyper).scalar if baseline == "optimal" else float(baseline)
    adv_LT = bench.advantage(signal, b)
    weight_LT = bench.weights(resolved, adv_LT, aggregation, **hyper)
    mean_SA = bench.mean(weight_LT)
    unit_LT = bench.weights(resolved, bench.leaves.mask_LT.astype(np.float64), aggregation, **hyper)
    return GradientReport(
        objective=name, signal=signal, baseline=b, size=1, mean_SA=mean_SA, target_SA=bench.target_SA,
        variance=bench.second_moment(weight_LT) - float((mean_SA**2).sum()),
        split=bench.split(mean_SA, level, signal), shift_SA=bench.mean(unit_LT),
        value=float(bench.law_L @ bench.values(resolved, adv_LT, aggregation, **hyper)),
        clip_share=share(*bench.law_L @ cut_tokens(weight_LT, adv_LT, bench.leaves.mask_LT)),
    )  # fmt: skip


def _both(mu_SA: ArrayLike | None, pi_SA: ArrayLike | None) -> tuple[ArrayLike, ArrayLike]:
    if mu_SA is None or pi_SA is None:
        raise UserError("gradient_report needs mu_SA and pi_SA next to a tree; or give it a Bench.")
    return mu_SA, pi_SA
