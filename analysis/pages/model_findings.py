"""Numbers and tables of the findings on larger models, by their names in findings.txt."""

from collections.abc import Callable
from functools import cache

import pandas as pd

from analysis.experiments.engines import real_rollouts
from analysis.experiments.engines.four_bit_rollouts import FOUR_BITS
from analysis.experiments.engines.real_rollouts import DRIFT
from analysis.experiments.real import foretold_arms, foretold_tuned, model_size
from analysis.experiments.real.known_model import AREA, ESS
from analysis.pages.finding_facts import Facts
from analysis.pages.markdown import table
from analysis.tables.cell_table import words
from analysis.tables.committed import load_committed

NARROW = words(model_size.NARROW)
SCORES = (
    "task", "lag", "seeds", "predictor", "tau",
    "90 % intervals that hold", "mean width", "mean error", "Brier",
)  # fmt: skip
PREDICTORS = ("the arena's task", "mean of the arena's tasks", "age does nothing", "lag times rate")


@cache
def _frame(name: str) -> pd.DataFrame:
    return load_committed([name])[name].frame


def _of_four_bits() -> pd.DataFrame:
    runs = _frame(FOUR_BITS.name).groupby(["mismatch", "recipe"])
    return runs[[AREA, "accuracy", ESS, DRIFT]].median()


def four_bits(_: Facts, mismatch: str, recipe: str) -> str:
    """Return mean and final accuracy and ESS of SmolLM2's arm, as cells of a table."""
    return " | ".join(f"{x:.2f}" for x in _of_four_bits().loc[(mismatch, recipe), [AREA, "accuracy", ESS]])


def _places() -> list[tuple[str, int, pd.DataFrame]]:
    """Return the runs of each predicted task and lag."""
    frame = _frame(foretold_arms.NAME)
    places = frame.loc[frame["lag"] > 0, ["task", "lag"]].drop_duplicates().itertuples(index=False)
    return [(task, lag, foretold_arms.of(frame, task, lag)) for task, lag in places]


def foretold(_: Facts) -> str:
    """Return the scores of predictions written before the runs, beside two uninformed ones."""
    lines = []
    for task, lag, rows in _places():
        scores = foretold_arms.scored(_frame(foretold_arms.NAME), task, lag)
        for name, (_at, row) in zip(PREDICTORS, scores.iterrows(), strict=True):
            held = f"{row['inside']:.0f} of {row['recipes']:.0f}"
            scored = (f"{row['tau']:.2f}", held, f"{row['width']:.2f}", f"{row['error']:.2f}")
            lines.append((task, f"{lag}", f"{rows['seed'].nunique()}", name, *scored, f"{row['brier']:.4f}"))
    return table(SCORES, lines)


def best_three(_: Facts) -> str:
    """Return the three best recipes at each place, and those that were predicted."""
    best = []
    for task, lag, rows in _places():
        said = foretold_arms.said(task, lag)["alike"].loc[sorted(set(rows["recipe"]))]
        found = rows.groupby("recipe")["final"].mean().nlargest(3)
        best.append(
            f"on {task} at lag {lag} {', '.join(f'{name} {value:.2f}' for name, value in found.items())}, "
            f"predicted {', '.join(said.nlargest(3).index)}"
        )
    return "; ".join(best)


def collapsed(_: Facts) -> str:
    """Return how many of the predicted runs collapsed."""
    stale = _frame(foretold_arms.NAME).query("lag > 0")
    return f"{stale['collapsed'].sum():.0f} of {len(stale)}"


def fresh_ends(_: Facts) -> str:
    """Return GRPO's final accuracy on fresh data, by predicted task."""
    ends = _frame(foretold_arms.NAME).query("lag == 0").groupby("task")["final"].mean()
    return " and ".join(f"{value:.2f} on {task}" for task, value in ends.items())


def sizes(_: Facts) -> str:
    """Return final accuracies of models of several sizes, with GRPO's best clip and rate at lag 64."""
    ends, tried = (model_size.weighed(_frame(x.name)) for x in (model_size.SIZES, model_size.RATES))
    medians = ends.groupby(["weights", "called"])["accuracy"].median()
    narrow = tried.query("called == 'GRPO' and learning_rate == 1.5e-4 and recipe_args == @NARROW")
    touched = narrow.groupby("weights")[model_size.CLIP].mean()
    chosen = ends.query("called == 'GRPO'").groupby("weights").first()
    arms = list(dict.fromkeys(ends["called"]))
    rows = (
        (f"{size:,}", *(f"{medians[size, arm]:.2f}" for arm in arms), chosen["recipe_args"][size],
         f"{touched[size]:.2f}")
        for size in chosen.index
    )  # fmt: skip
    return table(("weights", *arms, "GRPO's best clip", "share beyond a clip of 0.2"), rows)


def tuned_shares(_: Facts) -> str:
    """Return what tuned recipes keep of fresh data's mean final accuracy at lag 64 (and the prediction)."""
    kept = foretold_tuned.shares(_frame(foretold_tuned.TUNED.name)).sort_values(ascending=False)
    return ", ".join(f"{arm} {at:.2f} ({foretold_tuned.FORETOLD[str(arm)]:.2f})" for arm, at in kept.items())


def rollouts(_: Facts, *words: str) -> str:
    """Return final accuracies on an engine's fresh rollouts and at lag 16, as cells of a table."""
    runs = real_rollouts.named(_frame(real_rollouts.AT_A_LAG.name))
    ends = runs[runs["called"] == " ".join(words)].groupby("lag")["accuracy"].median()
    return f"{ends[0]:.2f} | {ends[16]:.2f}"


PARTS: dict[str, Callable[..., str]] = {
    "kl_of_four_bits": lambda _: f"{_of_four_bits()[DRIFT].max():.2f}",
    **{part.__name__: part for part in (
        four_bits, foretold, best_three, collapsed, fresh_ends, sizes, rollouts, tuned_shares
    )},
}  # fmt: skip
