"""RL-100: imitation, offline updates that a model approves, then a few online ones, on tasks in stages."""

import numpy as np

from analysis.lab import Grid, Part, Plot, TunedArms, ask, by_world, key

NAME = "three-stages"
SEEDS, PILOTS, INNER = 256, 24, 2
MORE = 0.05
"""Margin of the mean success probability. Set before the table was made, as the grids were."""
RATES = (3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)
ONLINE = {"rate": RATES, "trace": (0.0, 0.3, 0.6, 0.9)}
OFFLINE = {"offline_rate": RATES, "expectile": (0.3, 0.5, 0.7, 0.9)}
ARMS: dict[str, Grid] = {
    "imitation": {},
    "online": ONLINE,
    "ungated": OFFLINE,
    "gated": {**OFFLINE, "gain": (-0.05, 0.0, 0.05)},
}
"""All arms but imitation see as many episodes. The last two spend six of eight collections on offline updates
and the others on PPO, at the best setting for `online`."""


@by_world("learning", "end")
def learn(seed: int, arm: str, **knobs: float) -> tuple[float, float]:
    """Return the success probability, averaged over collections and at the end."""
    from analysis.worlds.staged_robots import staged, task  # imported here: it loads the compiler

    offline = 0 if arm in ("imitation", "online") else 6
    best = {"rate": 0.0, "trace": 0.0, **(TUNED.setting("online")[0] if offline else {}), **knobs}
    gain = -9.0 if arm == "ungated" else best.get("gain", 0.0)
    how = best["rate"], best.get("offline_rate", 0.0), best["trace"], best.get("expectile", 0.5), gain
    runs = [staged(task(seed), key(i, f"{NAME} {seed}") % 2**32, offline, *how) for i in range(INNER)]
    share_K = np.mean(runs, axis=0)
    return share_K[1:].mean(), share_K[-1]


TUNED = TunedArms(ARMS, learn, "learning", PILOTS)
EXPERIMENT = TUNED.experiment(
    NAME, SEEDS, ("learning", "end"),
    question="Do offline updates between collections, approved by a model, reach success in fewer episodes?",
    source="Lei et al. (2025), RL-100, arXiv:2510.14830: imitation, iterated offline stages, online",
    differs="a task of 16 stages in a table, one clipped objective; no images, no diffusion, no distillation",
    margins={"chance of success": MORE},
    figure=Plot(
        "strips", x="learning: mean chance of success", y="arm",
        says="Shows the success probability, averaged over eight collections of episodes, on random tasks "
        "of stages; imitation clones demonstrations; online adds PPO on each collection; the others update "
        "offline on all episodes after the first six collections, with every update (ungated) or only those "
        "from which a model expects a gain (gated), and run PPO after the last two.",
    ),
    systems={"RL-100": Part("tables in place of robots; three stages on as many episodes as online alone")},
)  # fmt: skip
ask(EXPERIMENT, "three-stages-need-fewer-episodes-than-online", "With offline updates that a model approves "
    "after six of eight collections and PPO after the last, the chance of success is 0.05 higher on average "
    "over them than imitation and PPO on each, all tuned.", "gated", "online", MORE, "learning")  # fmt: skip
