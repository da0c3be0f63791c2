"""RL-100: imitation, offline updates that a model approves, then a few online ones, on tasks in stages."""

import numpy as np

from analysis.lab import Grid, TunedArms, asks, by_world, key, strips

NAME = "three-stages"
SEEDS, PILOTS, FRESH, INNER = 768, 24, 590_000, 2
MORE = 0.05
"""Margin of the success probability. Set before the table was made, as the grids were."""
RATES = tuple(2.0**i for i in range(1, 11))
OFFLINE: Grid = {"offline_rate": RATES, "expectile": (0.3, 0.5, 0.7, 0.85, 0.93)}
ARMS: dict[str, Grid] = {
    "imitation": {},
    "online": {"rate": RATES, "trace": (0.0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)},
    "ungated": OFFLINE,
    "gated": {**OFFLINE, "gain": (0.0125, 0.025, 0.05, 0.1, 0.2)},
}
"""All arms but imitation see as many episodes. The last two spend six of eight collections on offline updates
and the others on PPO, at the best setting for `online`. A gate of 0.05 is the source's; one of 0 would refuse
nothing here, as each update raises the model's value."""
STARTS = [
    {"offline_rate": rate, "expectile": expectile, "gain": gain}
    for rate in (8.0, 64.0, 512.0) for expectile in (0.5, 0.85) for gain in (0.0125, 0.05)
]  # fmt: skip


@by_world("learning", "end")
def learn(seed: int, arm: str, **knobs: float) -> tuple[float, float]:
    """Return the success probability, averaged over collections and at the end."""
    from analysis.worlds.staged_robots import staged, task  # imported here: it loads the compiler

    offline = 0 if arm in ("imitation", "online") else 6
    best = {"rate": 0.0, "trace": 0.0, **(TUNED.setting("online")[0] if offline else {}), **knobs}
    # Below -1 the threshold lies under any value, so that every update passes.
    gain = -9.0 if arm == "ungated" else best.get("gain", 0.0)
    how = best["rate"], best.get("offline_rate", 0.0), best["trace"], best.get("expectile", 0.5), gain
    keys = [key(i, f"{NAME} {seed + FRESH}") % 2**32 for i in range(INNER)]
    runs = [staged(task(seed + FRESH), each, offline, *how) for each in keys]
    share_K = np.mean(runs, axis=0)
    return share_K[1:].mean(), share_K[-1]


TUNED = TunedArms(ARMS, learn, "learning", PILOTS, {}, {"gain": (0.0125,)}, {"gated": STARTS})
EXPERIMENT = TUNED.experiment(
    NAME, SEEDS, ("learning", "end"),
    question="Do offline updates between collections, approved by a model, reach success in fewer episodes?",
    source="Lei et al. (2025), RL-100, arXiv:2510.14830: imitation, iterated offline stages, online",
    differs="a task of 16 stages in a table, one clipped objective; no images, no diffusion, no distillation",
    margins={"chance of success": MORE},
    figure=strips("learning: mean chance of success", "Shows the success probability, averaged over eight "
        "collections of episodes, on random tasks of stages; imitation clones demonstrations; online adds "
        "PPO on each collection; the others update offline on all episodes after the first six collections, "
        "with every update (ungated) or only those from which a model expects a gain (gated), and run PPO "
        "after the last two."),
    systems={"RL-100": "tables in place of robots; three stages on as many episodes as online alone"},
)  # fmt: skip
STAGES = "With offline updates that a model approves after six of eight collections and PPO after the last,"
asks(EXPERIMENT,
    ("three-stages-need-fewer-episodes-than-online", f"{STAGES} the chance of success is 0.05 higher on "
     "average over them than imitation and PPO on each, all tuned.", "gated", "online"),
    ("three-stages-end-above-online", f"{STAGES} the chance of success ends 0.05 above imitation and PPO on "
     "each, all tuned.", "gated", "online", {"outcome": "end"}),
    ("a-models-approval-adds-to-offline-updates", f"{STAGES} the chance of success is 0.05 higher on average "
     "over them than if every offline update is taken, all tuned.", "gated", "ungated"),
    by=MORE, outcome="learning",
)  # fmt: skip
