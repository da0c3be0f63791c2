"""Losses that no battery can judge, one per way of being wrong."""

import os
import time

import numpy as np
from torch import Tensor


def raises(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    raise KeyError("beta")


def mute(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    class Gone(BaseException):
        def __str__(self) -> str:
            raise ValueError

    raise Gone


def elsewhere(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return logp.to("meta").sum()


def a_leaf(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return -(logp.detach().requires_grad_() * advantages * mask).sum()


def hangs(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    time.sleep(1000)
    return logp


def dies(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    os._exit(3)


def not_a_number(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return (logp * 0 / 0).sum()


def wrong_shape(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return logp.sum(0)


def numpy_number(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> np.float64:
    return np.float64(3)


def changes(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    advantages.mul_(2)
    return -(logp * advantages * mask).sum()


def changes_a_batch(logp_BT, batch):
    batch.adv_BT.mul_(2)
    return -logp_BT


def other_signature(logp: Tensor, widget: Tensor) -> Tensor:
    return logp.sum()


def detached(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    return -(logp.detach() * advantages * mask).sum()


def no_policy(advantages: Tensor, mask: Tensor) -> Tensor:
    return (advantages * mask).sum()


def fine(logp: Tensor, old_logp: Tensor, advantages: Tensor, mask: Tensor) -> Tensor:
    print("this must not reach the report")
    return -((logp - old_logp).exp() * advantages * mask).sum() / mask.sum()
