"""Numbers of docs/findings.md as text, read from the arena's tables and the verdicts."""

import math
import re
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pandas as pd

from analysis.arena.table import costly
from analysis.arena.tasks import NEAR, PIPELINE
from analysis.experiment import EXPERIMENTS
from analysis.judging.e_values import WORDS
from analysis.judging.seed_intervals import student_interval
from analysis.judging.verdicts import Row

LAG = 64
CITED = re.compile(r"\[\^([^\]]+)\]")


class Facts:
    """Numbers of the tables, as text."""

    def __init__(self, frame: pd.DataFrame, tuning: pd.DataFrame, rows: dict[str, Row]) -> None:
        self.frame, self.tuning, self.rows = frame, tuning, rows

    def claim(self, name: str) -> str:
        """Return "0.17 [0.13, 0.27][^name]", followed by the verdict if it is open."""
        return self._said(name, lambda value: f"{value:.2g}")

    def factor(self, name: str) -> str:
        """Return the same for a claim on a logarithm, as a factor."""
        return self._said(name, lambda value: f"{math.exp(value):.2f}")

    def _said(self, name: str, shown: Callable[[float], str]) -> str:
        row, word = self.rows[name], str(self.rows[name]["verdict"])
        if row["effect"] is None:
            return f"not run[^{name}]"
        open_word = "" if word in WORDS else f" ({word})"
        return f"{shown(row['effect'])} [{shown(row['low'])}, {shown(row['high'])}]{open_word}[^{name}]"

    def footnotes(self, text: str) -> str:
        """Return verdict, size and statement of each claim that a text cites, in order of first citation."""
        return "\n".join(
            f"[^{name}]: {str(row['verdict']).capitalize()}, n = {row['n']:.0f}: {_statement(row)} `{name}`"
            for name, row in ((name, self.rows[name]) for name in dict.fromkeys(CITED.findall(text)))
        )

    def final(self, task: str, arm: str, lag: int = LAG) -> str:
        """Return an arm's mean final accuracy."""
        return f"{self._finals(task, arm, lag).mean():.2f}"

    def gain(self, task: str, arm: str, rival: str = "grpo", lag: int = LAG) -> str:
        """Return the mean difference to a rival on the same seeds, with its interval."""
        return in_words(*self.interval(task, arm, rival, lag))

    def aged(self, arm: str) -> tuple[float, float, float]:
        """Return low end, mean and high end of the gain from a pipeline's ages over lag NEAR on sorted."""
        more = self._finals("sorted", arm, PIPELINE) - self._finals("sorted", arm, NEAR)
        found = student_interval(more.dropna().to_numpy())
        return found.low, found.center, found.high

    def interval(
        self, task: str, arm: str, rival: str = "grpo", lag: int = LAG
    ) -> tuple[float, float, float]:
        """Return low end, mean and high end of the difference to a rival on the same seeds."""
        gain_N = (self._finals(task, arm, lag) - self._finals(task, rival, lag)).dropna().to_numpy()
        found = student_interval(gain_N)
        return found.low, found.center, found.high

    def by_clip_and_rate(self, task: str) -> list[str]:
        """Return GRPO's tuning scores at LAG: clip 0.2 and any clip, at fresh data's rate and at any."""
        rows = self.tuning[(self.tuning["task"] == task) & (self.tuning["lag"] == LAG)]
        rows = rows[rows["arm"] == "grpo"]
        fresh = self.frame[(self.frame["task"] == task) & (self.frame["lag"] == 0)]
        rate = fresh[fresh["arm"] == "grpo"]["rate"].iloc[0]
        narrow = rows[rows["knob"].str.contains("eps_low=0.2")]
        wide = rows[rows["rate"] == rate]
        found = (narrow[narrow["rate"] == rate], wide, narrow, rows[rows["seeds"] == rows["seeds"].max()])
        return [f"{part['final'].max():.2f}" if len(part) else "not tried" for part in found]

    def by_grid(self, task: str, lag: int) -> tuple[float, float]:
        """Return GRPO's best tuning score on all five seeds: at rates half a decade apart, and at any."""
        rows = self.tuning[(self.tuning["task"] == task) & (self.tuning["lag"] == lag)]
        rows = rows[rows["arm"] == "grpo"]
        rows = rows[rows["seeds"] == rows["seeds"].max()]
        coarse = [abs(math.remainder(math.log10(rate), 0.5)) < 0.1 for rate in rows["rate"]]
        return float(rows["final"][coarse].max()), float(rows["final"].max())

    def verdicts(self, ending: str) -> dict[str, dict[str, str]]:
        """Return the verdicts of the claims STEM + ending + TASK, by stem and task."""
        found: dict[str, dict[str, str]] = {}
        for name, row in self.rows.items():
            stem, _, task = name.partition(ending)
            if task:
                found.setdefault(stem, {})[task] = str(row["verdict"])
        return found

    def best(self, task: str, lag: int = LAG, count: int = 5) -> list[str]:
        """Return the arms with the largest mean final at a lag, best first."""
        rows = self.frame[(self.frame["task"] == task) & (self.frame["lag"] == lag)]
        return list(rows.groupby("arm")["final"].mean().sort_values(ascending=False).index[:count])

    def _finals(self, task: str, arm: str, lag: int) -> pd.Series:
        found: pd.Series = self._final.iloc[self._places.get((task, arm, lag), [])]
        return found

    @cached_property
    def _final(self) -> pd.Series:
        return self.frame.set_index("seed")["final"]

    @cached_property
    def _places(self) -> dict[Any, Any]:
        """Row numbers of each task, arm and lag."""
        return self.frame.groupby(["task", "arm", "lag"]).indices

    def lags(self, task: str) -> list[int]:
        """Return the lags above 0 at which a task ran."""
        return sorted(set(self.frame[self.frame["task"] == task]["lag"]) - {0, PIPELINE})

    @property
    def tasks(self) -> list[str]:
        """Tasks on which LAG costs accuracy."""
        return costly(self.frame, LAG)


def in_words(low: float, center: float, high: float) -> str:
    """Return "+0.05 [0.03, 0.06]"."""
    return f"{center:+.2f} [{low:.2f}, {high:.2f}]"


def _statement(row: Row) -> str:
    return str(EXPERIMENTS[str(row["experiment"])].claims[str(row["claim"])].promises["statement"])
