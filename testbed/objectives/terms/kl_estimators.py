"""k1, k2, k3 and abs of both KL divergences on tokens sampled from pi, and their three gradients.

With x = log(pi/other): KL(pi || other) = E_pi[k_i(x)], exact for k1 = x and k3 = e^-x - 1 + x, approximate
for k2 = x^2 / 2. The forward divergence from the same samples is KL(other || pi) = E_pi[e^-x k_i(-x)]. abs =
|x| estimates neither: E_pi|x| is at least KL(pi || other), and its pull has size 1 at every token.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import unknown
from testbed.losses.ratios import Base, log_token

# Written so that |x| = 1e4 gives neither inf - inf nor 0 * inf.
VALUES: dict[tuple[str, str], Callable[[Tensor], Tensor]] = {
    ("reverse", "k1"): lambda x: x,
    ("reverse", "k2"): lambda x: x.square() / 2,
    ("reverse", "k3"): lambda x: torch.expm1(-x) + x,
    ("reverse", "abs"): lambda x: x.abs(),
    ("forward", "k1"): lambda x: -x * (-x).exp(),
    ("forward", "k2"): lambda x: x.square() / 2 * (-x).exp(),
    ("forward", "k3"): lambda x: 1 - (1 + x) * (-x).exp(),
    ("forward", "abs"): lambda x: x.abs() * (-x).exp(),
}
# Value plus slope: the factor of grad log pi in the gradient of the estimator's expectation.
TOTALS: dict[tuple[str, str], Callable[[Tensor], Tensor]] = {
    ("reverse", "k1"): lambda x: x + 1,
    ("reverse", "k2"): lambda x: x.square() / 2 + x,
    ("reverse", "k3"): lambda x: x,
    ("reverse", "abs"): lambda x: x.abs() + x.sign(),
    ("forward", "k1"): lambda x: -(-x).exp(),
    ("forward", "k2"): lambda x: x * (-x).exp(),
    ("forward", "k3"): lambda x: -torch.expm1(-x),
    ("forward", "abs"): lambda x: x.sign() * (-x).exp(),
}
GRADIENTS = ("pathwise", "score", "both")


def formula(
    table: dict[tuple[str, str], Callable[[Tensor], Tensor]], direction: str, estimator: str
) -> Callable[[Tensor], Tensor]:
    """Return one formula; raise UserError for an unknown direction or estimator."""
    if direction not in ("reverse", "forward"):
        raise unknown("direction", direction, ("reverse", "forward"))
    if (direction, estimator) not in table:
        raise unknown("estimator", estimator, {name for _, name in table})
    return table[direction, estimator]


def kl_term(
    logp_BT: Tensor, batch: Batch, *, estimator: str, direction: str, base: Base, gradient: str
) -> Tensor:
    """Return the term of a KL divergence between pi and `base` with the chosen gradient; [..., B, T]."""
    x_BT = log_token(logp_BT, batch, base)
    value, total = formula(VALUES, direction, estimator), formula(TOTALS, direction, estimator)
    if gradient == "pathwise":
        return value(x_BT)
    if gradient == "score":
        return value(x_BT.detach()) * logp_BT
    if gradient == "both":
        return total(x_BT.detach()) * logp_BT
    raise unknown("gradient", gradient, GRADIENTS)
