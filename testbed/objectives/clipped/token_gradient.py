"""A weight over many tokens with a gradient through the current token only."""

from torch import Tensor


def through_own_token(log_weight_BT: Tensor, log_u_BT: Tensor) -> Tensor:
    """Return log of sg[weight] pi/sg[pi]: the weight's value, and the gradient of log pi at each token.

    log_u_BT is any log-ratio of pi at the tokens; its base does not matter, since only its gradient is used.
    """
    return log_weight_BT.detach() + (log_u_BT - log_u_BT.detach())
