"""Expert iteration on random provers: a filter of steps by perplexity, and retraining (BFS-Prover-V2)."""

import numpy as np

from analysis.lab import Floats, Grid, Groups, Part, Plot, Seeds, TunedArms, asks, generator
from testbed.offline.improvement import softmax

NAME = "expert-iteration"
SOURCE = "Xin et al. (2025), BFS-Prover-V2, arXiv:2509.06493; from secondary notes"
SEEDS, PILOTS, FRESH, MORE = 128, 24, 470_000, 0.02
"""Worlds of a run, pilots, offset of seeds past those of an earlier table; margin, a share of problems. Set
before the table was made."""
PROBLEMS, LONGEST, TACTICS, FEATURES, HIDDEN = 48, 6, 6, 16, 16
ROUNDS, TRIES, DESCENTS, RETRAINED = 40, 8, 15, 8
"""Rounds; tries per problem and gradient steps in each; rounds between trainings from scratch."""
KNOWN, UNSEEN, LUCKY = 0.3, 0.5, 0.3
"""Weight of the truth in the first prover; noise that features do not explain; share of steps with a lucky
tactic."""
RATES = tuple(0.125 * 2.0**i for i in range(11))
TAILS: Grid = {"easy": (0.0, 0.025, 0.05, 0.1, 0.2, 0.4), "hard": (0.0, 0.025, 0.05, 0.1, 0.2)}
"""Shares of steps left out, with the lowest and with the highest perplexity."""
ARMS: dict[str, Grid] = {
    "expert iteration": {"rate": RATES},
    "filtered": {"rate": RATES, **TAILS},
    "retrained": {"rate": RATES},
    "filtered, retrained": {"rate": RATES, **TAILS},
}
STARTS = {
    arm: [
        {"rate": rate, "easy": 0.1, "hard": 0.05} if "easy" in grid else {"rate": rate} for rate in (2.0, 8.0)
    ]
    for arm, grid in ARMS.items()
}


def drawn(seed: int) -> tuple[Floats, ...]:
    """Return features [K, L, F], valid tactics [K, L, A], existing steps [K, L], and the first weights.

    A problem is a sequence of steps. At each step the best tactic under a hidden network is valid; sometimes
    a lucky one is too, which no feature predicts.
    """
    rng = generator(seed + FRESH, NAME)
    hidden = [rng.normal(size=size) for size in ((FEATURES, HIDDEN), (HIDDEN, TACTICS))]
    seen_KLF = rng.normal(size=(PROBLEMS, LONGEST, FEATURES)) / np.sqrt(FEATURES)
    score_KLA = np.tanh(seen_KLF @ hidden[0]) @ hidden[1] / np.sqrt(HIDDEN)
    score_KLA += UNSEEN * rng.normal(size=score_KLA.shape)
    valid_KLA = np.eye(TACTICS)[score_KLA.argmax(-1)]
    lucky_KLA = np.eye(TACTICS)[rng.integers(TACTICS, size=(PROBLEMS, LONGEST))]
    valid_KLA = np.maximum(valid_KLA, lucky_KLA * (rng.random((PROBLEMS, LONGEST, 1)) < LUCKY))
    there_KL = (np.arange(LONGEST) <= rng.integers(LONGEST, size=(PROBLEMS, 1))).astype(float)
    first = [KNOWN * each + rng.normal(size=each.shape) * (1 - KNOWN) for each in hidden]
    return seen_KLF, valid_KLA, there_KL, first[0], first[1] / np.sqrt(HIDDEN)


def proofs(p_RKLA: Floats, valid_RKLA: Floats, there_RKL: Floats, rng: np.random.Generator) -> Floats:
    """Return which tactics stand in a proof that a round's tries found, [R, K, L, A]."""
    found = np.zeros_like(p_RKLA)
    below_RKLA = p_RKLA.cumsum(-1)
    for _ in range(TRIES):
        chosen = (rng.random((*p_RKLA.shape[:-1], 1)) > below_RKLA).sum(-1).clip(max=TACTICS - 1)
        taken_RKLA = np.eye(TACTICS)[chosen] * there_RKL[..., None]
        proved_RK = ((taken_RKLA * valid_RKLA).sum(-1) >= there_RKL).all(-1)
        found = np.maximum(found, taken_RKLA * proved_RK[..., None, None])
    return found


def kept(data_RKLA: Floats, p_RKLA: Floats, easy: float, hard: float) -> Floats:
    """Return the data without the shares of lowest and of highest perplexity, in each world."""
    surprise = np.where(data_RKLA > 0, -np.log(p_RKLA + 1e-12), np.nan).reshape(len(p_RKLA), -1)
    low_R, high_R = np.nanquantile(surprise, [easy, 1 - hard], axis=1)
    inside_RX = (surprise >= low_R[:, None]) & (surprise <= high_R[:, None])
    return np.asarray(data_RKLA * inside_RX.reshape(data_RKLA.shape))


def learn(seeds: Seeds, arm: str, rate: float, easy: float = 0.0, hard: float = 0.0) -> Groups:
    """Return the share of problems solved in one try and in 32, means of the last 5 rounds, [R] each."""
    seen_RKLF, valid_RKLA, there_RKL, *first = (
        np.stack(each).astype(np.float32) for each in zip(*(drawn(int(seed)) for seed in seeds), strict=True)
    )
    rng, seen_RNF = (
        generator(int(seeds[0]) + FRESH, f"{NAME} tries"),
        seen_RKLF.reshape(len(seeds), -1, FEATURES),
    )
    weights, data_RKLA = first, np.zeros_like(valid_RKLA)
    at_one, at_many = [], []

    def prover() -> tuple[Floats, Floats]:
        hidden_RNH = np.tanh(seen_RNF @ weights[0])
        return hidden_RNH, softmax(hidden_RNH @ weights[1])

    for each in range(ROUNDS):
        p_RKLA = prover()[1].reshape(valid_RKLA.shape)
        if each >= ROUNDS - 5:
            chance_RK = np.where(there_RKL > 0, (p_RKLA * valid_RKLA).sum(-1), 1.0).prod(-1)
            at_one.append(chance_RK.mean(-1))
            at_many.append((1 - (1 - chance_RK) ** 32).mean(-1))
        found_RKLA = proofs(p_RKLA, valid_RKLA, there_RKL, rng)
        anew = "retrained" in arm and each % RETRAINED == RETRAINED - 1
        # From scratch on what the present prover can prove.
        data_RKLA = np.maximum(data_RKLA * (not anew), found_RKLA)
        used_RKLA = kept(data_RKLA, p_RKLA, easy, hard) if easy or hard else data_RKLA
        share_R11 = used_RKLA.sum((1, 2, 3)).clip(min=1)[:, None, None]
        used_RNA = used_RKLA.reshape(len(seeds), -1, TACTICS).astype(np.float32) / share_R11
        weights = first if anew else weights
        for _ in range(DESCENTS * (RETRAINED if anew else 1)):
            hidden_RNH, p_RNA = prover()
            pull_RNA = used_RNA - p_RNA * used_RNA.sum(-1, keepdims=True)
            below_RNH = (pull_RNA @ weights[1].swapaxes(1, 2)) * (1 - hidden_RNH**2)
            slopes = seen_RNF.swapaxes(1, 2) @ below_RNH, hidden_RNH.swapaxes(1, 2) @ pull_RNA
            weights = [x + rate * slope for x, slope in zip(weights, slopes, strict=True)]
    return {"at one try": np.mean(at_one, 0), "at 32 tries": np.mean(at_many, 0)}


EXPERIMENT = TunedArms(ARMS, learn, "at 32 tries", PILOTS, starts=STARTS).experiment(
    NAME, SEEDS, ("at one try", "at 32 tries"),
    question="Do a filter of steps by perplexity and retraining raise the plateau of expert iteration?",
    source=SOURCE,
    differs="provers are networks of two layers that see features of random steps, some with a lucky tactic; "
    "retraining comes every 8 rounds, not at a plateau; 32 tries in place of a search; no planner",
    margins={"share of problems solved": MORE},
    figure=Plot(
        "strips", x="at 32 tries: share of problems solved at 32 tries", y="arm",
        says="Shows the share of problems that a network of two layers solves in 32 tries after 40 rounds of "
        "learning from its own proofs of random problems, where some steps have a lucky tactic; it learns "
        "from all proofs (expert iteration), without the steps of lowest and highest perplexity (filtered), "
        "from scratch every 8 rounds on problems that it can prove then (retrained), or both, each at its "
        "best setting.",
    ),
    systems={
        "BFS-Prover-V2": Part(
            "a filter of steps and retraining; search and planner are not tested",
            claims=("filtered-steps-*", "retraining-*"),
        )
    },
)  # fmt: skip
asks(EXPERIMENT,
    ("filtered-steps-raise-the-plateau", "Without steps of lowest and highest perplexity expert iteration "
     "ends with 0.02 more of the problems solved at 32 tries.", "filtered", "expert iteration",
     {"outcome": "at 32 tries"}),
    ("filtered-steps-raise-the-plateau-at-one-try", "It ends with 0.02 more solved at one try.", "filtered",
     "expert iteration", {"outcome": "at one try"}),
    ("retraining-raises-the-plateau", "With a training from scratch every 8 rounds, on proofs of the present "
     "prover, it ends with 0.02 more of the problems solved at 32 tries.", "retrained",
     "expert iteration", {"outcome": "at 32 tries"}),
    ("retraining-raises-the-plateau-at-one-try", "It ends with 0.02 more solved at one try.", "retrained",
     "expert iteration", {"outcome": "at one try"}),
    ("filter-and-retraining-raise-the-plateau", "With both it ends with 0.02 more at 32 tries.",
     "filtered, retrained", "expert iteration", {"outcome": "at 32 tries"}),
    by=MORE,
)  # fmt: skip
