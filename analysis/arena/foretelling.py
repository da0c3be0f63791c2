"""What the arena alone says of twelve recipes on models of a million weights: written before they ran.

    python -m analysis.arena.foretelling

writes foretold.csv beside this file. A final accuracy is foretold as a share of what fresh data reach with
GRPO at its best setting. Two dumb predictors stand beside the arena: that age does nothing, and that the loss
grows with lag times learning rate.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from analysis.arena import table

FILE = Path(__file__).with_name("foretold.csv")
RECIPES = (
    "grpo", "reinforce", "tis", "mis", "gspo", "cispo", "m2po", "vcpo", "minpro", "topr", "asymre", "r2vpo",
)  # fmt: skip
"""Those that the arena has on sums and on sorting at both lags; R2VPO is the last in its order of work."""
OLD = (16, 64)
"""Optimizer steps. The runs have 144, so that lag 256 cannot be asked of them."""
ALIKE = {"running-sum": "sums", "reasoning-gym": "sorted"}
"""By task of the real models: the arena's task that is most alike. Both of the second reorder the prompt."""
CONFIDENCE = 0.9
SEEDS = 16
"""Of the real runs that a mean is taken over."""
KEYS = ("task", "lag", "recipe")


def shares(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row per task, lag and arm of the arena: share of the fresh final, rate, collapses, seeds."""
    stale = frame[frame["lag"].isin(OLD) & frame["arm"].isin(RECIPES)]
    found = stale.groupby(["task", "lag", "arm"], as_index=False).agg(
        final=("final", "mean"),
        rate=("rate", "first"),
        collapsed=("collapsed", "sum"),
        seeds=("seed", "size"),
    )
    return found.assign(share=found["final"] / found["task"].map(table.fresh(frame)))


def foretold(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row per task, lag and recipe with what the arena and the dumb predictors say.

    alike: share on the task most alike, which orders the recipes; its interval holds what seeds alone do,
    `-+ z s sqrt(2 / 16)`, s the spread between fresh seeds as a share. Its collapses are a probability,
    (collapses + 1/2) / (seeds + 1) over the tasks. mean: mean share over the tasks at the lag, with an
    interval for a new task, `-+ t s sqrt(1 + 1/T)`, s the spread between the four tasks at lag 64, t at 3
    degrees of freedom. none: 1, the interval of alike, no collapse. product: 1 - a (lag x rate) by least
    squares, `-+ z s` with what the fit leaves; its collapses likewise, within 0 and 1.
    """
    arena = shares(frame)
    wide = arena[arena["lag"] == 64].pivot(index="arm", columns="task", values="share")
    spread, tasks = float(np.sqrt(wide.var(axis=1, ddof=1).mean())), wide.shape[1]
    x = (arena["lag"] * arena["rate"]).to_numpy()
    slope = float(x @ (1 - arena["share"]) / (x @ x))
    left = float(np.sqrt(np.mean((arena["share"] - (1 - slope * x)) ** 2)))
    often = float(x @ (arena["collapsed"] / arena["seeds"]) / (x @ x))
    seed = frame[(frame["lag"] == 0) & (frame["arm"] == "grpo")].groupby("task")["final"]
    z = float(stats.norm.ppf((1 + CONFIDENCE) / 2))
    still = z * float((seed.std() / seed.mean()).mean()) * np.sqrt(2 / SEEDS)
    t = stats.t.ppf((1 + CONFIDENCE) / 2, tasks - 1)
    found = []
    for task, near in ALIKE.items():
        for (lag, arm), rows in arena.groupby(["lag", "arm"]):
            at = rows[rows["task"] == near].iloc[0]
            moved = at["lag"] * at["rate"]
            said = {
                "alike": (at["share"], still),
                "mean": (rows["share"].mean(), t * spread * np.sqrt(1 + 1 / len(rows))),
                "none": (1.0, still),
                "product": (1 - slope * moved, z * left),
            }
            row: dict[str, object] = dict(zip(KEYS, (task, lag, arm), strict=True))
            for name, (center, width) in said.items():
                row |= {name: center, f"{name} low": max(center - width, 0), f"{name} high": center + width}
            row["alike collapses"] = (rows["collapsed"].sum() + 0.5) / (rows["seeds"].sum() + 1)
            row["none collapses"] = 0.0
            row["product collapses"] = float(np.clip(often * moved, 0, 1))
            found.append(row)
    return pd.DataFrame(found).round(4)


def load() -> pd.DataFrame:
    """Return the committed predictions."""
    return pd.read_csv(FILE)


if __name__ == "__main__":
    foretold(table.load()).to_csv(FILE, index=False)
    print(load().to_string())
