"""Preferences between classes of equivalent answers, in a table: values and gradients in its logits."""

import numpy as np
from scipy import special

from envs.arrays import Floats, Ints


def expected_reward(pi_A: Floats, reward_A: Floats) -> tuple[float, Floats]:
    """Return E R and its gradient pi (R - E R), [A]."""
    mean = float(pi_A @ reward_A)
    return mean, pi_A * (reward_A - mean)


def between_classes(
    pi_A: Floats, reference_A: Floats, class_A: Ints, reward_A: Floats, beta: float
) -> tuple[float, Floats]:
    """Return the mean of log sigmoid(beta (m_i - m_j)) over right classes i, wrong j, and its gradient, [A].

    m_c = mean over the members of class c of log pi/reference: all members of a class count alike, whichever
    were drawn. A class is right where its mean reward is at least 1/2. Gradient in the logits:
    d m_c = [in c] / |c| - pi, whose pi cancels between two classes. Our reading of GEPO's abstract; with
    classes of one answer it is DPO (Rafailov et al., 2023).
    """
    share_CA = np.equal.outer(np.unique(class_A), class_A).astype(np.float64)
    share_CA /= share_CA.sum(-1, keepdims=True)
    mean_C = share_CA @ np.log(pi_A / reference_A)
    right_C = share_CA @ reward_A >= 0.5
    if right_C.all() or not right_C.any():
        return 0.0, np.zeros_like(pi_A)
    margin_IJ = beta * (mean_C[right_C][:, None] - mean_C[~right_C])
    pull_IJ = beta * special.expit(-margin_IJ) / margin_IJ.size
    gradient_A: Floats = pull_IJ.sum(1) @ share_CA[right_C] - pull_IJ.sum(0) @ share_CA[~right_C]
    return float(special.log_expit(margin_IJ).mean()), gradient_A


def class_entropy(mass_K: Floats) -> float:
    """Return the entropy of a class's members given the class, nats."""
    law_K = mass_K / mass_K.sum()
    return float(special.entr(law_K).sum())
