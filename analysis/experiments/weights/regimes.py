"""Four regimes of a weight, A > 0 or < 0 times ratio above or below 1: effects on a bandit's entropy."""

from itertools import product

import numpy as np
from scipy import special

from analysis.kernels.bandit_update import entropy_rate, expected_update
from analysis.lab import Evidence, Experiment, Floats, Plot, Rows, Seeds, columns, exact, of_seeds, short_of
from testbed.rng import generator

NAME = "regimes"
MOVED = ("at random", "towards the reward")
SEEDS, ARMS, DRIFT = 64, 16, 0.7
ONE = {"eps_low_pos": 0.0, "eps_high_pos": 0.0, "eps_low_neg": 0.0, "eps_high_neg": 0.0}
"""DISPO with every ratio clipped to 1."""
REGIMES = {
    ("right", "above 1"): {"eps_high_pos": 1e6},
    ("right", "below 1"): {"eps_low_pos": 1.0},
    ("wrong", "above 1"): {"eps_high_neg": 1e6},
    ("wrong", "below 1"): {"eps_low_neg": 1.0},
}
"""The one bound that is opened, so that the ratio counts only in that regime."""


def bandit(seed: int, moved: str) -> tuple[Floats, Floats, Floats]:
    """Return (log pi, mu, advantages): logits of mu and the step to pi are normal, half of 16 arms are right;
    pi moved "at random", or mostly "towards the reward".
    """
    rng = generator(seed, NAME)
    logit_A, step_A = rng.normal(size=(2, ARMS))
    right_A = rng.permutation(np.arange(ARMS) % 2).astype(np.float64)
    mu_A = special.softmax(logit_A)
    step_A = step_A if moved == "at random" else step_A / 2 + 2 * right_A - 1
    return special.log_softmax(logit_A + DRIFT * step_A), mu_A, right_A - mu_A @ right_A


def rows(seeds: Seeds) -> Rows:
    """Return the change of the entropy's rate when a regime's ratios replace 1, over the step's size at 1."""
    for seed, moved in product(seeds, MOVED):
        log_pi_A, mu_A, adv_A = bandit(seed, moved)
        pi_A = np.exp(log_pi_A)

        one_A = expected_update("dispo", log_pi_A, mu_A, adv_A, **ONE)
        for (answers, ratio), opened in REGIMES.items():
            more_A = expected_update("dispo", log_pi_A, mu_A, adv_A, **{**ONE, **opened}) - one_A
            change = entropy_rate(pi_A, more_A) / float(np.abs(one_A).sum())
            yield columns(
                (seed,),
                moved=moved,
                answers=answers,
                ratio=ratio,
                change=change,
                entropy=float(-(pi_A @ log_pi_A)),
            )


EXPERIMENT = Experiment(
    question="Do ratios above 1 on right answers raise the entropy, and those below 1 lower it?",
    source="Karaman et al. (2026), DISPO, arXiv:2602.00983, abstract",
    differs="one expected step of a bandit of 16 answers; entropy of the policy, no lengths, no collapse",
    compute=of_seeds(NAME, rows, SEEDS, {"arms": ARMS, "drift": DRIFT, "objective": "dispo"}),
    keys=("run", "seed", "moved", "answers", "ratio"), metrics=("change", "entropy"),
    margins={"change of the entropy's rate, per unit of step": 0.0},
    figure=Plot(
        "final by setting", x="answers", y="change: change of dH/dt", arm=("ratio",), panel="moved: pi moved",
    ),
)  # fmt: skip

EXPERIMENT.claim(
    "small-ratios-on-wrong-answers-raise-entropy",
    "On wrong answers ratios below 1 in place of 1 raise the entropy, however pi has moved.",
).compare("change", {"moved": MOVED, "answers": "wrong", "ratio": "below 1"})


@EXPERIMENT.claim(
    "probability-not-ratio-decides-the-entropy",
    source="derived here; Cui et al. (2025), arXiv:2505.22617, for the natural gradient",
)
def probability_not_ratio_decides_the_entropy() -> Evidence:
    """A step towards one answer, whatever its ratio, raises the entropy if and only if pi (log pi + H) of it
    is below its mean under pi: dispo's update of one answer has this rate times its weight.
    """
    gaps, signs = [], []
    for seed in range(8):
        log_pi_A, mu_A, _ = bandit(seed, "at random")
        pi_A = np.exp(log_pi_A)
        tilt_A = pi_A * (log_pi_A - pi_A @ log_pi_A)
        for a in range(ARMS):
            update_A = expected_update(
                "dispo", log_pi_A, mu_A, np.eye(ARMS)[a], eps_low_pos=1.0, eps_high_pos=1e6
            )
            wanted = pi_A[a] * (pi_A @ tilt_A - tilt_A[a])
            gaps.append(abs(entropy_rate(pi_A, update_A) - wanted))
            if pi_A[a] > mu_A[a]:
                signs.append(wanted > 0)
    gaps += [short_of(float(np.mean(signs)), 0.1), short_of(1 - float(np.mean(signs)), 0.1)]
    return exact(gaps, 1e-12, "largest distance of an answer's rate; each sign occurs among ratios above 1")
