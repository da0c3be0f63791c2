"""SOPHIA on descriptions and reasoning: a blind teacher reasons on the policy's own descriptions."""

import numpy as np

from analysis.lab import Floats, Grid, Groups, Ints, Part, Plot, Seeds, TunedArms, asks, generator
from analysis.worlds.offline_worlds import pick
from testbed.offline.improvement import softmax

NAME = "half-foreign-answers"
SEEDS, PILOTS, STEPS, SAMPLES = 256, 24, 10, 4
PICTURES, SCENES, TOKENS, WORDS = 12, 6, 4, 4
"""Pictures; scenes that a first token may describe; reasoning tokens after it, each one of several words."""
REASONS = 0.75
"""Probability that a token of the teacher's reasoning fits the description; its descriptions are random."""
MARGIN = 0.05
"""Success. Set before the table was made."""
RATE = {"rate": (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)}
REWARDED = {**RATE, "centered": (0.0, 0.5, 1.0)}
ARMS: dict[str, Grid] = {
    "imitation": RATE,
    "imitation of right answers": RATE,
    "on policy": REWARDED,
    "half foreign": REWARDED,
    "half foreign, descriptions kept": REWARDED,
}
"""Learning rate; share of the picture's mean reward that is subtracted as a baseline."""


def started(seeds: Seeds) -> tuple[Ints, Floats, Floats, Ints]:
    """Return the scene of each picture [R, X], logits of descriptions [R, X, V] and of words [R, V, T, W] of
    the policy before training, which is right less than once in a hundred, and the right words [R, V, T].
    """
    rngs = [generator(seed, NAME) for seed in seeds]
    scene_RX = np.stack([rng.integers(SCENES, size=PICTURES) for rng in rngs])
    see_RXV = np.stack([0.5 * rng.normal(size=(PICTURES, SCENES)) for rng in rngs])
    see_RXV += 1.2 * np.eye(SCENES)[scene_RX]
    word_RVTW = np.stack([0.5 * rng.normal(size=(SCENES, TOKENS, WORDS)) for rng in rngs])
    right_RVT = np.stack([rng.integers(WORDS, size=(SCENES, TOKENS)) for rng in rngs])
    return scene_RX, see_RXV, word_RVTW, right_RVT


def success(scene_RX: Ints, see_RXV: Floats, word_RVTW: Floats, right_RVT: Ints) -> Floats:
    """Return the exact probability of a right answer: the right scene, and every word right for it, [R]."""
    words_RV = np.take_along_axis(softmax(word_RVTW), right_RVT[..., None], -1)[..., 0].prod(-1)
    seen_RX = np.take_along_axis(softmax(see_RXV), scene_RX[..., None], -1)[..., 0]
    return np.asarray((seen_RX * np.take_along_axis(words_RV, scene_RX, -1)).mean(-1))


def answers(
    arm: str, see_RXV: Floats, word_RVTW: Floats, right_RVT: Ints, u_RXNK: Floats
) -> tuple[Ints, Ints]:
    """Return descriptions [R, X, N] and words [R, X, N, T] of one step, by the policy or by the teacher."""
    size, place = len(see_RXV), np.arange(len(see_RXV))[:, None, None]
    said_RXNV = np.repeat(softmax(see_RXV)[:, :, None], SAMPLES, 2)
    if arm.startswith("imitation"):
        said_RXNV = np.full_like(said_RXNV, 1 / SCENES)
    said_RXN = pick(said_RXNV, u_RXNK[..., 0])
    law_RVTW = softmax(word_RVTW)
    if arm != "on policy":
        law_RVTW = np.full((size, SCENES, TOKENS, WORDS), (1 - REASONS) / (WORDS - 1))
        np.put_along_axis(law_RVTW, right_RVT[..., None], REASONS, -1)
    return said_RXN, pick(law_RVTW[place, said_RXN], u_RXNK[..., 1:])


def learn(seeds: Seeds, arm: str, rate: float, centered: float = 0.0) -> Groups:
    """Return the final success and its mean over 10 steps of 4 answers to each picture, [R] each.

    The teacher's words are trained on as they are, weighted by the reward minus a baseline. The reward of
    reasoning on a description is propagated back to that description, which is the policy's.
    """
    scene_RX, see_RXV, word_RVTW, right_RVT = started(seeds)
    place, area_R = np.arange(len(seeds))[:, None, None], np.zeros(len(seeds))
    rngs = [generator(seed, f"{NAME} draws") for seed in seeds]
    for _ in range(STEPS):
        u_RXNK = np.stack([rng.random((PICTURES, SAMPLES, 1 + TOKENS)) for rng in rngs])
        said_RXN, words_RXNT = answers(arm, see_RXV, word_RVTW, right_RVT, u_RXNK)
        good_RXN = (words_RXNT == right_RVT[place, said_RXN]).all(-1)
        reward_RXN = (good_RXN & (said_RXN == scene_RX[..., None])).astype(np.float64)
        weight_RXN = reward_RXN - centered * reward_RXN.mean(-1, keepdims=True)
        if arm == "imitation":
            weight_RXN = np.ones_like(reward_RXN)
        scale = rate / SAMPLES
        if arm != "half foreign, descriptions kept":
            score_RXNV = np.eye(SCENES)[said_RXN] - softmax(see_RXV)[:, :, None]
            see_RXV = see_RXV + scale * (weight_RXN[..., None] * score_RXNV).sum(2)
        score_RXNTW = np.eye(WORDS)[words_RXNT] - softmax(word_RVTW)[place, said_RXN]
        step_RVTW = np.zeros_like(word_RVTW)
        where = (np.broadcast_to(place, said_RXN.shape), said_RXN)
        np.add.at(step_RVTW, where, weight_RXN[..., None, None] * score_RXNTW)
        word_RVTW = word_RVTW + scale * step_RVTW
        area_R += success(scene_RX, see_RXV, word_RVTW, right_RVT) / STEPS
    return {"success": success(scene_RX, see_RXV, word_RVTW, right_RVT), "area": area_R}


EXPERIMENT = TunedArms(ARMS, learn, "success", PILOTS).experiment(
    NAME, SEEDS, ("success", "area"), {"steps": STEPS, "samples": SAMPLES},
    question="Do own descriptions with a blind teacher's reasoning teach more than imitation or RL?",
    source="Shen et al. (2025), SOPHIA, arXiv:2507.16814; abstract",
    differs="12 pictures of 6 scenes, 4 words of reasoning, tables; success below 0.01 before training",
    margins={"success": MARGIN},
    figure=Plot(
        "strips", x="success: success after training", y="arm",
        says="Shows exact success after ten steps in tables of 12 pictures, each described and then "
        "reasoned on in 4 tokens; a teacher that sees no picture writes everything (imitation, of all or of "
        "right answers), nothing (on policy), or the reasoning after the policy's own description (half "
        "foreign), which may stay untrained (descriptions kept); each arm has its best setting.",
    ),
    systems={"SOPHIA": Part("ten steps; the teacher, who sees no picture, describes at random")},
)  # fmt: skip
asks(EXPERIMENT,
    ("half-foreign-answers-beat-imitation-and-rl", "Where less than one answer in a hundred is right, own "
     "descriptions with a teacher's reasoning end ten steps 0.05 above imitation of the teacher, who "
     "describes at random, of its right answers, and on-policy learning, all tuned.", "half foreign",
     ("imitation", "imitation of right answers", "on policy")),
    ("rewards-propagate-to-descriptions", "Rewards that are propagated back to the descriptions add 0.05 to "
     "the success.", "half foreign", "half foreign, descriptions kept"),
    outcome="success", by=MARGIN,
)  # fmt: skip
