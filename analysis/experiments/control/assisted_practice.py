"""ALOE on a task of stages: off-policy critics over action chunks, against critics of logged outcomes."""

import numpy as np

from analysis.lab import Grid, TunedArms, asks, by_world, inside, key, strips

NAME = "assisted-practice"
SEEDS, PILOTS = 64, 16
MARGIN = 0.03
"""Margin, a share of the best value, mean over practice. Set before the table was made."""
CHUNKS = ("chunks of 2", "chunks of 4", "chunks of 8")
SHARP = {"sharpness": (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)}
ARMS: dict[str, Grid] = {"cloned": {}, "outcomes": SHARP, "one action": SHARP, **dict.fromkeys(CHUNKS, SHARP)}
LENGTHS = {"cloned": 1, "outcomes": 0, "one action": 1, **{name: int(name[-1]) for name in CHUNKS}}


@by_world("learning", "end")
def learn(seed: int, arm: str, sharpness: float = 0.0) -> tuple[float, float]:
    """Return the value as a share of the best, averaged over rounds of practice and at the end."""
    from analysis.worlds.assisted_robots import practise, success, task  # it loads the compiler

    effect_LA = task(seed)
    best = success(effect_LA, (effect_LA == 1).astype(np.float64))
    share_K = practise(effect_LA, key(0, f"{NAME} {seed}") % 2**32, LENGTHS[arm], sharpness) / best
    return share_K[1:].mean(), share_K[-1]


EXPERIMENT = TunedArms(ARMS, learn, "learning", PILOTS, fine=True).experiment(
    NAME, SEEDS, ("learning", "end"),
    question="From demonstrations, tries and interventions, do chunked off-policy critics learn faster?",
    source="ALOE: action-level off-policy evaluation over action chunks; only a summary of the paper was "
    "read",
    differs="a task of 16 stages in a table; chunks are runs of single actions; no ensemble",
    margins={"share of the best value": MARGIN},
    figure=strips("learning: mean share of the best value", "Shows the value of a policy, as a share of the "
        "best and averaged over rounds of practice, on random tasks of many stages; cloned copies all "
        "episodes so far alike; the others weight them by a critic: of logged outcomes, of bootstraps after "
        "one action, or after chunks of 2, 4 or 8."),
    systems={"ALOE": "chunks against logged outcomes; bootstraps after one action learn faster than chunks, "
             "so the gain comes from off-policy bootstraps, not from chunks"},
)  # fmt: skip
asks(EXPERIMENT,
    ("chunked-critics-learn-faster-than-outcomes", "With off-policy critics over chunks of 2, 4 and 8 "
     "actions practice has 0.03 more of the best value on average than with a critic of logged outcomes, all "
     "tuned.", CHUNKS, "outcomes", {"off": {"arm": "cloned"}}),
    ("single-actions-learn-faster-than-chunks", "With single actions practice has 0.03 more of the best "
     "value than with chunks of 2, 4 and 8 actions.", "one action", CHUNKS),
    outcome="learning", by=MARGIN, gates={"tuned": inside()},
)  # fmt: skip
