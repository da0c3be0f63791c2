"""Two meanings of "mask": a dropped token counts in the denominator, or it does not.

An objective that drops tokens gives them loss 0 and promises `keep`. Aggregated over the batch's mask, the
loss is divided by all tokens (AReaL, TRL, IcePop in verl, M2PO's footnote 2). Aggregated over `kept_mask`,
dropped tokens leave the denominator too (verl's rejection sampling, slime, SkyRL): the loss and its gradient
are larger by tokens / kept tokens, so a step on a half-rejected batch is as long as on a full one.
"""

import inspect
from typing import Any

from torch import Tensor

from testbed.data.batch import Batch
from testbed.errors import UserError
from testbed.objectives import objective


def kept_mask(name: str, logp_BT: Tensor, batch: Batch, **hyper: Any) -> Tensor:
    """Return the tokens under the mask that an objective keeps; bool [..., B, T].

    Args:
        name: a registered objective.
        logp_BT: log-probabilities [..., B, T] of the target policy.
        batch: the data.
        hyper: hyperparameters as given to the loss; defaults for the others.

    A sequence, or the whole batch, may lose all tokens. Raises UserError for an objective that drops nothing,
    and for an unknown objective or hyperparameter.
    """
    entry = objective[name]
    entry.bind(**hyper)  # raises for an unknown hyperparameter
    keep = entry.promises.get("keep")
    if keep is None:
        raise UserError(
            f"objective '{name}' drops no tokens, so all tokens stay in the denominator. Aggregate over "
            "the batch's mask."
        )
    parameters = inspect.signature(keep).parameters.values()
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
    known = {p.name for p in parameters}
    chosen = {k: v for k, v in {**entry.defaults, **hyper}.items() if takes_all or k in known}
    kept_BT: Tensor = keep(logp_BT.detach(), batch, **chosen)
    return kept_BT & batch.mask_BT
