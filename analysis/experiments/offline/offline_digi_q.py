"""Best of N logged-policy actions by an offline critic (Digi-Q), against weighting and filtering."""

from functools import cache

from analysis.lab import Floats, Grid, Groups, Plot, Seeds, TunedArms, asks
from analysis.worlds.offline_worlds import DISCOUNT, Worlds, random_worlds
from envs.logged_data import skilled
from testbed.offline.tabular_offline import advantage, advantage_filtered, awr, best_of_n, clone, kl, policy_q

NAME = "offline-digi-q"
SEEDS, PILOTS, FRESH = 256, 96, 680_000
DRAWS = (1, 2, 4, 8, 16)
STEPS = (30, 60, 120)
MARGIN = 0.05
ARMS: dict[str, Grid] = {
    **{f"best of {n}": {} for n in DRAWS},
    "best of n": {"n": (*DRAWS, 32, 64)},
    "weighted": {"beta": tuple(2.0**i for i in range(-2, 8))},
    "filtered": {},
}
"""n: number of actions drawn; tuned, as is beta, the inverse temperature of weighting."""


@cache
def critic(seeds: Seeds, steps: int) -> tuple[Worlds, Floats, Floats, Floats]:
    """Return random worlds, the cloned log, its action values and advantages, [R, S, A] each."""
    worlds = random_worlds(seeds)
    counts = worlds.logged(skilled(worlds.best_RSA, 0.3), steps, seeds, f"log of {steps}")
    cloned_RSA = clone(counts.visit_RSA)
    q_RSA = policy_q(counts.moves_RSAS, counts.reward_RSA, cloned_RSA, DISCOUNT)
    return worlds, cloned_RSA, q_RSA, advantage(q_RSA, cloned_RSA)


def learn(seeds: Seeds, arm: str, steps: int, beta: float = 0.0, n: int = 0) -> Groups:
    """Return the score of a policy made with the critic, and its KL to the cloned log, [R] each."""
    worlds, cloned_RSA, q_RSA, ahead_RSA = critic(tuple(seed + FRESH for seed in seeds), steps)
    if arm == "weighted":
        pi_RSA = awr(cloned_RSA, ahead_RSA, beta)
    elif arm == "filtered":
        pi_RSA = advantage_filtered(cloned_RSA, ahead_RSA)
    else:
        pi_RSA = best_of_n(cloned_RSA, q_RSA, n or int(arm.removeprefix("best of ")))
    return {"score": worlds.score(pi_RSA), "kl": kl(pi_RSA, cloned_RSA).mean(-1)}


EXPERIMENT = TunedArms(ARMS, learn, "score", PILOTS, {"steps": STEPS}).experiment(
    NAME, SEEDS, ("score", "kl"),
    question="How good is the best of N actions by an offline critic, and how far from the log does it go?",
    source="Bai et al. (2025), Digi-Q",
    differs="random worlds, tables; the critic solves the model of the counts",
    margins={"score": MARGIN},
    figure=Plot(
        "frontier", x="kl: KL to the log, nats", y="score: score (1 optimal)", arm=("arm",),
        where={"steps": 60},
        says="Shows the score (0 the uniform policy, 1 the optimum) against the distance from the clone of "
        "60 logged steps, in random worlds, for policies made with one critic; best of N takes the highest "
        "Q among N actions that the clone draws (1 is the clone), N tuned; weighted tilts its probabilities "
        "by exp(beta A); filtered keeps its actions with A >= 0.",
    ),
    systems=("Digi-Q",),
)  # fmt: skip

asks(EXPERIMENT,
    ("best-of-n-beats-filtering", "At each size, with the solved model of the log's counts as critic, best "
     "of N at its best N of pilot worlds scores 0.05 more than filtering.", "best of n", "filtered"),
    ("best-of-n-beats-weighting", "At each size it scores 0.05 more than weighting at its best temperature.",
     "best of n", "weighted"),
    outcome="score", by=MARGIN, over={"steps": STEPS},
)  # fmt: skip
