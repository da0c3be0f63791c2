"""Row of LUSPO."""

import numpy as np


def luspo(s, rows, low=1 - 2e-3, high=1 + 2.5e-3):
    # The sequence's loss is -T min(s A, clip(s) A) and ds/dlogp_t = s / T: the two lengths cancel.
    total = 0.0
    for ratio in s.u:
        total += np.log(ratio)
    mean = np.exp(total / s.n)
    stopped = mean > high if s.adv > 0 else mean < low
    return np.zeros(s.n) if stopped else np.full(s.n, s.adv * mean)


WEIGHTS = {"luspo": luspo}

# T times GSPO's values on the same fixture: T = 2 and T = 3.
F1 = [
    ("luspo", {}, (0.8660, 0.8660), (1.3572, 1.3572, 1.3572)),
    ("luspo", {"eps_low": 0.2, "eps_high": 0.3}, (0.8660, 0.8660), (1.3572, 1.3572, 1.3572)),
]
