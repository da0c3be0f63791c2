"""Fixed clip against BAPO's moving one under replay on a bandit: share of negatives, entropy, value."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from scipy import special

from analysis.lab import Evidence, Experiment, Part, Plot, Seeds, columns, exact, of_seeds, short_of
from envs.arrays import Floats
from testbed.rng import generator

NAME = "replayed-clips"
SEEDS, ARMS, RIGHT, ROUNDS, STEPS, RATE = 12, 16, 4, 12, 8, 1.0
HYPER = {
    "fixed clip": ("ppo_clip", {}),
    "higher clip": ("ppo_clip", {"eps_high": 0.28}),
    "BAPO": ("bapo", {}),
}
MARGIN = 0.05


def bandit(seed: int) -> tuple[Floats, Floats]:
    """Return start and rewards: 16 answers with normal logits, 4 of them right and mostly unlikely."""
    rng = generator(seed, NAME)
    right_A = np.isin(np.arange(ARMS), rng.permutation(ARMS)[:RIGHT]).astype(np.float64)
    return special.softmax(rng.normal(size=ARMS) - 1.5 * right_A), right_A


def rows(seeds: Seeds) -> Iterator[pd.DataFrame]:
    """Return the negatives' share of the weights' mass after the last step, entropy and value, by clip."""
    from testbed.exact.bandit_update import answer_weights, inner_steps

    for seed in seeds:
        start_A, right_A = bandit(seed)
        for clip, (name, hyper) in HYPER.items():
            pi_A, shares = start_A, []
            for _ in range(ROUNDS):
                mu_A, adv_A = (
                    pi_A,
                    (right_A - pi_A @ right_A) / np.sqrt(pi_A @ right_A * (1 - pi_A @ right_A) + 1e-6),
                )
                log_KA = inner_steps(name, mu_A, adv_A, steps=STEPS, rate=RATE, **hyper)
                mass_A = mu_A * np.abs(answer_weights(name, log_KA[-2], mu_A, adv_A, **hyper))
                shares.append(mass_A[right_A == 0].sum() / max(mass_A.sum(), 1e-12))
                pi_A = np.maximum(np.exp(log_KA[-1]), 1e-12)
            entropy = float(special.entr(pi_A[right_A == 1] / pi_A[right_A == 1].sum()).sum())
            yield columns(
                (seed,),
                clip=clip,
                negatives=float(np.mean(shares)),
                entropy=entropy,
                value=float(pi_A @ right_A),
            )


EXPERIMENT = Experiment(
    NAME,
    question="Does a fixed clip let negatives dominate and entropy fall, and does BAPO's moving one not?",
    source="Xi et al. (2025), BAPO, arXiv:2510.18927",
    differs="expected steps on a bandit of 16 answers, 8 on each batch; entropy over the right answers",
    compute=of_seeds(NAME, rows, SEEDS, {"arms": ARMS, "rounds": ROUNDS, "steps": STEPS, "rate": RATE}),
    keys=("run", "seed", "clip"),
    metrics=("negatives", "entropy", "value"),
    margins={"nats of entropy, or value": MARGIN, "share of the mass that is domination": 0.6},
    figure=Plot("distribution", x="clip", y="entropy: entropy over right answers, nats"),
    systems={"BAPO": Part("share of negatives, entropy and its rule on a bandit; no language model")},
)


@EXPERIMENT.claim(source="arXiv:2510.18927, the entropy-clip rule; Cui et al. (2025), arXiv:2505.22617")
def entropy_clip_rule() -> Evidence:
    """Along the natural gradient with clipped answers left out the entropy changes by -Cov(log pi, A X), X =
    0 on clipped answers: leaving out unlikely answers with A > 0 takes away what would raise it.
    """
    from testbed.exact.bandit_update import clip_rule

    gaps = []
    for seed in range(8):
        pi_A, right_A = bandit(seed)
        adv_A = right_A - pi_A @ right_A
        unlikely_A = (adv_A > 0) & (np.log(pi_A) < pi_A @ np.log(pi_A))
        rates = []
        for gain_A in (adv_A, np.where(unlikely_A, 0.0, adv_A)):
            size = 1e-5
            ends = [special.entr(special.softmax(np.log(pi_A) + s * size * gain_A)).sum() for s in (1, -1)]
            rates.append(clip_rule(pi_A, gain_A))
            gaps.append(abs((ends[0] - ends[1]) / (2 * size) - rates[-1]))
        gaps.append(short_of(rates[0] - rates[1], 1e-4) if unlikely_A.any() else 0.0)
    return exact(
        gaps, 1e-8, "largest distance of the rule from a central difference; unlikely answers raise it"
    )


@EXPERIMENT.claim(source="derived here")
def centered_advantages_halve_the_mass() -> Evidence:
    """On policy the negatives carry half of the weights' mass whatever the success rate, under the fixed clip
    as under BAPO: advantages that sum to 0 leave no imbalance for a clip to mend.
    """
    from testbed.exact.bandit_update import answer_weights

    gaps = []
    for seed in range(8):
        pi_A, right_A = bandit(seed)
        adv_A = right_A - pi_A @ right_A
        for name in ("ppo_clip", "bapo"):
            mass_A = pi_A * np.abs(answer_weights(name, np.log(pi_A), pi_A, adv_A))
            gaps.append(abs(float(mass_A[adv_A < 0].sum() / mass_A.sum()) - 0.5))
    return exact(gaps, 1e-9, "largest distance of the negatives' share from 1/2")


EXPERIMENT.claim(
    "negatives-dominate-under-a-fixed-clip",
    "Under the fixed clip negatives carry 60% of the weights' mass at the last step on a batch.",
).compare("negatives", {"clip": "fixed clip"}, by=0.6)


EXPERIMENT.claim(
    "bapo-keeps-entropy", "BAPO ends with 0.05 nats more entropy over the right answers than the fixed clip."
).compare("entropy", {"clip": "BAPO"}, {"clip": "fixed clip"}, by=MARGIN)

EXPERIMENT.claim("bapo-ends-higher", "BAPO ends with a value 0.05 above the fixed clip's.").compare(
    "value", {"clip": "BAPO"}, {"clip": "fixed clip"}, by=MARGIN
)
