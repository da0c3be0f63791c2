"""Preferences over steps from a reward model that misjudges early steps, and TD look-ahead (ReARTeR)."""

import numpy as np

from analysis.lab import Floats, Grid, Groups, Ints, Plot, Seeds, TunedArms, ask, generator
from testbed.offline.improvement import softmax

NAME = "step-preferences"
SOURCE = "ReARTeR (2025), arXiv:2501.07861; from a summary"
SEEDS, WORLDS, PILOTS, LATER, MORE = 256, 8, 128, 470_000, 0.02
"""Units of a run, worlds in each, pilots, offset of seeds past those of an earlier table. Margin of the share
of questions answered, set before the table."""
STEPS, STATES, ACTIONS, RIGHT = 6, 16, 4, 0.06
"""Steps of an answer; states at each; choices in each; last choices that are right."""
BIASES = (0.0, 1.0, 2.0, 4.0)
"""Deviation of the model's logits at the first step, which falls linearly to 0 after the last."""
ROUNDS, SAMPLES, REFRESHED, AHEAD = 12, 16, 4, 4
"""Rounds; samples in each; rounds between updates of the reference; next steps sampled in a look-ahead."""
BETA = 0.1
RATES = tuple(31.25 * 2.0**i for i in range(10))
ARMS: dict[str, Grid] = {
    "outcomes": {"rate": RATES},
    "steps": {"rate": RATES},
    "steps, look-ahead": {"rate": RATES, "alpha": (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)},
}
STARTS = {"steps, look-ahead": [{"rate": rate, "alpha": 0.5} for rate in (500.0, 2000.0)]}


def drawn(seed: int, bias: float) -> tuple[Ints, Floats, Floats, Floats]:
    """Return next states [T, S, A], rewards of last choices [S, A], the base's logits and the reward model's
    scores, [T, S, A] each.

    A score is the base's probability of a right answer with a bias added to its logit.
    """
    rng = generator(seed, NAME)
    shape = (STEPS, STATES, ACTIONS)
    next_TSA = rng.integers(STATES, size=shape)
    reward_SA = (rng.random((STATES, ACTIONS)) < RIGHT).astype(float)
    logit_TSA = rng.normal(size=shape)
    value_TSA, _ = values(softmax(logit_TSA)[None], next_TSA[None], reward_SA[None])
    chance_TSA = value_TSA[0].clip(1e-3, 1 - 1e-3)
    size_T11 = bias * (1 - np.arange(STEPS) / STEPS)[:, None, None]
    judged_TSA = np.log(chance_TSA / (1 - chance_TSA)) + size_T11 * rng.normal(size=shape)
    return next_TSA, reward_SA, logit_TSA, 1 / (1 + np.exp(-judged_TSA))


def values(pi_RTSA: Floats, next_RTSA: Ints, reward_RSA: Floats) -> tuple[Floats, Floats]:
    """Return chances of a right answer after every choice [R, T, S, A], and their mean at the start [R]."""
    found = np.empty_like(pi_RTSA)
    found[:, -1] = reward_RSA
    worlds = np.arange(len(pi_RTSA))[:, None, None]
    for t in range(STEPS - 2, -1, -1):
        value_RS = (pi_RTSA[:, t + 1] * found[:, t + 1]).sum(-1)
        found[:, t] = value_RS[worlds, next_RTSA[:, t]]
    return found, (pi_RTSA[:, 0] * found[:, 0]).sum(-1).mean(-1)


def learn(seeds: Seeds, arm: str, bias: float, rate: float, alpha: float = 0.0) -> Groups:
    """Return the final probability of a right answer, and that of the base, [R] each.

    Every round samples responses. Online DPO prefers the choice with the higher score, of two at each step,
    or the right one of two responses. A look-ahead moves a step's score by `alpha` toward the mean score of
    sampled next steps; it samples no answer for this.
    """
    next_RTSA, reward_RSA, logit_RTSA, judged_RTSA = (
        np.stack(each) for each in zip(*(drawn(int(seed) + LATER, bias) for seed in seeds), strict=True)
    )
    rng, R = generator(int(seeds[0]) + LATER, f"{NAME} samples"), len(seeds)
    row_RN = np.arange(R)[:, None]

    def pick(pi_RNA: Floats) -> Ints:
        below_RNA = pi_RNA.cumsum(-1)
        return np.asarray((rng.random((R, pi_RNA.shape[1], 1)) > below_RNA).sum(-1).clip(max=ACTIONS - 1))

    _, base_R = values(softmax(logit_RTSA), next_RTSA, reward_RSA)
    for each in range(ROUNDS):
        if each % REFRESHED == 0:
            reference_RTSA = logit_RTSA.copy()
        pi_RTSA, state_RN = softmax(logit_RTSA), rng.integers(STATES, size=(R, SAMPLES))
        change_RTSA, path = np.zeros_like(logit_RTSA), []
        drift_RTSA = logit_RTSA - reference_RTSA
        for t in range(STEPS):
            one_RN, other_RN = (pick(pi_RTSA[row_RN, t, state_RN]) for _ in range(2))
            path.append((state_RN, one_RN))
            if arm != "outcomes":
                score = [judged_RTSA[row_RN, t, state_RN, a_RN] for a_RN in (one_RN, other_RN)]
                if alpha and t < STEPS - 1:
                    for i, a_RN in enumerate((one_RN, other_RN)):
                        after_RN = next_RTSA[row_RN, t, state_RN, a_RN]
                        ahead = [
                            judged_RTSA[row_RN, t + 1, after_RN, pick(pi_RTSA[row_RN, t + 1, after_RN])]
                            for _ in range(AHEAD)
                        ]
                        score[i] = (1 - alpha) * score[i] + alpha * np.mean(ahead, 0)
                won_RN = np.where(score[0] >= score[1], one_RN, other_RN)
                lost_RN = np.where(score[0] >= score[1], other_RN, one_RN)
                gap_RN = drift_RTSA[row_RN, t, state_RN, won_RN] - drift_RTSA[row_RN, t, state_RN, lost_RN]
                pull_RN = BETA / (1 + np.exp(BETA * gap_RN)) / SAMPLES
                np.add.at(change_RTSA[:, t], (row_RN, state_RN, won_RN), pull_RN)
                np.add.at(change_RTSA[:, t], (row_RN, state_RN, lost_RN), -pull_RN)
            if t < STEPS - 1:
                state_RN = next_RTSA[row_RN, t, state_RN, one_RN]
        if arm == "outcomes":
            right_RN = reward_RSA[row_RN, path[-1][0], path[-1][1]] > 0
            pi_log = np.log(pi_RTSA) - np.log(softmax(reference_RTSA))
            moved_RN = sum(pi_log[row_RN, t, s_RN, a_RN] for t, (s_RN, a_RN) in enumerate(path))
            # Answers are paired at random; a pair with equal outcomes has sign 0 and teaches nothing.
            mate_RN = rng.permutation(SAMPLES)[None].repeat(R, 0)
            sign_RN = right_RN.astype(float) - right_RN[row_RN, mate_RN]
            gap_RN = sign_RN * (moved_RN - moved_RN[row_RN, mate_RN])
            pull_RN = sign_RN * BETA / (1 + np.exp(BETA * gap_RN)) / SAMPLES
            for t, (s_RN, a_RN) in enumerate(path):
                np.add.at(change_RTSA[:, t], (row_RN, s_RN, a_RN), pull_RN)
                change_RTSA[:, t] -= _spread(pull_RN, s_RN, pi_RTSA[:, t])
                mate = (s_RN[row_RN, mate_RN], a_RN[row_RN, mate_RN])
                np.add.at(change_RTSA[:, t], (row_RN, *mate), -pull_RN)
                change_RTSA[:, t] += _spread(pull_RN, mate[0], pi_RTSA[:, t])
        logit_RTSA = logit_RTSA + rate * change_RTSA
    _, end_R = values(softmax(logit_RTSA), next_RTSA, reward_RSA)
    return {"accuracy": end_R, "base": base_R}


def _spread(pull_RN: Floats, state_RN: Ints, pi_RSA: Floats) -> Floats:
    """Return the normalizing part of grad log pi, summed over samples, [R, S, A]."""
    found_RS = np.zeros(pi_RSA.shape[:2])
    np.add.at(found_RS, (np.arange(len(pi_RSA))[:, None], state_RN), pull_RN)
    return found_RS[..., None] * pi_RSA


EXPERIMENT = TunedArms(ARMS, learn, "accuracy", PILOTS, {"bias": BIASES}, starts=STARTS).experiment(
    NAME, SEEDS, ("accuracy", "base"), {"pilots": PILOTS}, WORLDS, continued=True,
    question="Does TD look-ahead mend preferences over steps whose early scores are biased?",
    source=SOURCE,
    differs="layered decision trees in tables; an artificial bias of early scores; no learned reward model, "
    "no explanations, no search at test time",
    budget="12 rounds, for which settings were chosen",
    margins={"share of questions answered": MORE},
    figure=Plot(
        "final by setting", x="bias: bias of early scores, logits", y="accuracy: chance of a right answer",
        arm=("arm",),
        says="Shows the probability of a right answer after online DPO in layered decision trees, against "
        "the bias of a process reward model, whose early scores err most; outcomes prefers right responses "
        "to wrong ones; steps prefers the choice with the higher score at each step; look-ahead first moves "
        "a score toward those of sampled next steps.",
    ),
    systems={"ReARTeR": "look-ahead on artificial scores; explanations, search at test time and retrieval "
             "are not tested"},
)  # fmt: skip
ask(EXPERIMENT, "look-ahead-mends-step-preferences", "With TD look-ahead preferences over steps end with "
    "0.02 more right answers than without, at biases of 1, 2 and 4 logits.", "steps, look-ahead", "steps",
    MORE, over={"bias": BIASES[1:]})  # fmt: skip
