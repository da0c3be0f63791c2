"""T-PPO on answers of free lengths by a clock: PPO on windows that nobody waits for, each arm tuned."""

from collections.abc import Sequence

import numpy as np

from analysis.lab import Grid, Groups, TunedArms, inside, strips

NAME = "truncated-answers"
SEEDS, PILOTS, FRESH, LEVEL, MOST = 512, 16, 70_000, 0.8, 12_000.0
"""Worlds of a run, of which 32 left both claims open; pilots; offset of seeds past those of other tables."""
FASTER, SOONER = 1.5, 1.1
"""Ratios of times: windows to whole answers, and EGAE to GAE. Set before the table was made."""
GRID: Grid = {
    "rate": (10.0, 18.0, 30.0, 55.0, 100.0, 180.0, 300.0, 550.0),
    "lam": (0.0, 0.15, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0), "size": (8, 16, 32, 64),
}  # fmt: skip
FROM = [{"rate": 100.0, "lam": 0.7, "size": 16}, {"rate": 55.0, "lam": 0.9, "size": 64}]
ARMS = {"whole": GRID, "windows, egae": GRID, "windows, gae": GRID}


def learn(seeds: Sequence[int], arm: str, rate: float, lam: float, size: float) -> Groups:
    """Return the ticks until the mean chance of a right token is .8, at most `MOST`, and their logarithm."""
    from analysis.worlds.long_answers import ticks  # imported here: it loads the compiler

    how = list(ARMS).index(arm)
    tick_R = np.array([ticks(seed + FRESH, how, rate, lam, int(size), LEVEL, MOST) for seed in seeds])
    return {"ticks": tick_R, "sooner": -np.log(tick_R)}


TUNED = TunedArms(
    ARMS, learn, "sooner", PILOTS, endless={"size": (64,)}, starts=dict.fromkeys(ARMS, FROM)
)  # size 64: all slots at once
EXPERIMENT = TUNED.experiment(
    NAME, SEEDS, ("ticks", "sooner"), {"level": LEVEL},
    question="How much time does PPO save by learning from windows of answers instead of whole answers?",
    source="T-PPO (2025), arXiv:2506.15050",
    differs="policies and critics are tables; lengths are drawn, lognormal, the longest of 64 about 3.5 "
    "times the mean; a tick decodes a token in every slot, and training on a token takes .025 ticks",
    margins={"factor of time": FASTER, "factor over GAE": SOONER},
    figure=strips("ticks: ticks to a chance of .8", "Shows the time until tokens are right with a mean "
        "probability of .8, on random worlds in which answers have free lengths; PPO learns from whole "
        "answers, where a step waits for the longest, or from windows of all slots, with EGAE or with GAE "
        "that takes an unknown reward for 0; each has its best rate, lambda, and number of answers or of "
        "tokens at once."),
    systems={"T-PPO (Truncated PPO)": "tables; lengths do not depend on the policy"},
)  # fmt: skip
for _name, _statement, _slow, _fast, _by in (
    ("windows-of-answers-save-a-third-of-the-time",
     "PPO with EGAE on windows of answers is right with a mean chance of .8 after less than 1 / 1.5 of the "
     "time of PPO on whole answers, in the mean of logarithms.", "whole", "windows, egae", FASTER),
    ("egae-on-windows-is-sooner-than-gae",
     "On windows it is there 1.1 times as soon with EGAE as with GAE, which takes an unknown reward for 0.",
     "windows, gae", "windows, egae", SOONER),
):  # fmt: skip
    EXPERIMENT.claim(_name, _statement, gates={"tuned": inside(arm=(_slow, _fast))}).compare(
        "ticks", {"arm": _slow}, {"arm": _fast}, times=_by
    )
