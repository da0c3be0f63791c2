"""An experiment: a question, the numbers that answer it, and the claims judged on them, in one file.

A file in an area of `analysis/experiments/` is one experiment, named as the file is, with "-" for "_":

    \"\"\"One line: what the file is about.\"\"\"

    def cells() -> tuple[Run, ...]:
        \"\"\"One line: what is varied.\"\"\"
        return grid(TOY, recipe=["grpo", "rec"], lag=[0, 16], seed=range(8))

    EXPERIMENT = Experiment(
        question="Does …?",
        source="paper or page whose question it is",
        differs="what is other here than there",
        cells=cells,
        keys=("recipe", "lag", "seed"),
        metrics=("accuracy", "collapsed"),
        margins={"accuracy that counts as equal": 0.05},
        figure=Plot("final by setting", x="lag", y="accuracy", arm=("recipe",)),
    )

    @EXPERIMENT.claim()
    def my_claim(table: pd.DataFrame) -> Evidence:
        \"\"\"The sentence that is judged.\"\"\"

In my_experiment.py this is `my-experiment`; `testbed evidence run my-experiment` runs and judges all of it.
An experiment whose table is computed has `compute` in place of `cells`; a family of exact claims has neither.

Experiments that share worlds, arms or runs are one file. Each is assigned at the left margin and begins with
its name as a literal, `STALENESS = Experiment("staleness", …)`.
"""

from __future__ import annotations

import fnmatch
import functools
import importlib.util
import inspect
import itertools
import pkgutil
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from analysis.declared_plot import Plot
from analysis.judging.sentences import Statement
from analysis.sweeps.seeds_and_rates import LEAST_CAP, Stop, Tuned
from testbed.errors import UserError, unknown
from testbed.registry import Entry

if TYPE_CHECKING:
    import pandas as pd

    from analysis.tables.committed import Table
    from testbed.config.run import Run

KINDS = ("identity", "enumerated", "statistical")
"""True by algebra; decided by computation on a world; judged on replications or runs."""
GATES = ("headroom", "tuned", "long enough", "acts", "off-switch", "rival", "worlds", "drift")
"""Conditions for a comparison to have a verdict, see analysis.judging.gates."""
Cells: TypeAlias = "Callable[[], tuple[Run, ...]]"
Check: TypeAlias = Callable[..., Any]
Gate: TypeAlias = "Callable[[pd.DataFrame], str]"


@dataclass(frozen=True)
class Part:
    """The part of a published method's claim that this experiment tests.

    what: the part, in words, and what stays open; "" if the claims cover all of it. claims: names or shell
    patterns of the experiment's claims about it; () for all.
    """

    what: str = ""
    claims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Experiment:
    """The declaration of one experiment; its table has the same name.

    name: of the experiment and of its table; by default that of the file that declares it, with "-" for "_".
        In a file of several, each has one.
    question: one sentence that ends in "?".
    source: paper or page whose question it is.
    differs: what is other here than in the source; "" for a question of this project.
    prepare: () -> None, makes what the runs need and is not there yet; called before they start.
    cells: () -> the runs behind the table; `testbed run NAME` runs them.
    tuned: how the cells' learning rates are chosen, where they are; then `arms` are the cells without.
    drawn: which cells a seed has, where it has not all of them: those of a task drawn by the seed, say.
    seeds: those of the table, where `cells` has fewer, for a first look.
    stop: the rule by which seeds are added in place of that, and run again on fresh ones.
    fresh: seeds of a replication of a table that had one run, all above those of that run; of a table without
        a column "seed", its replicas. They were run after the first run's design, which stays as it was.
    runs: name of the experiment whose runs this one reads in place of cells of its own.
    from_rows: result rows -> table; by default one row per cell, see analysis.tables.cell_table.
    compute: () -> table, for numbers that need no runs.
    old: () -> arms of such a table that learn from old data, where it has no column "lag".
    pilots: () -> how many pilot seeds chose an arm's setting, by the arm's name.
    keys: columns that tell the rows apart; of cells, fields of Run, or arguments as "recipe_args.eps".
    metrics: the other columns; of cells, words as analysis.tables.cell_table explains.
    budget: at which equal budget arms that still learn are compared, where that is the question.
    margins: what counts as equal, or as an effect, set before the table is made; name: value.
    figure: a shared plot of the table, or the name of the file's figure in paper_figs ("x-*" for several).
    see: claims of other experiments that speak of this table.
    command: what runs it, where `testbed evidence run NAME` cannot.
    systems: those of the literature whose statement it judges, by their names in
        analysis/judging/systems.csv; a mapping where it judges only a part, {name: what in words}, or
        where not every claim is about it, {name: Part}.

    Raises UserError for a declaration that contradicts itself.
    """

    name: str = ""
    _: KW_ONLY
    question: str
    source: str
    differs: str = ""
    prepare: Callable[[], None] | None = None
    cells: Cells | None = None
    tuned: Tuned | None = None
    drawn: Callable[[Run], bool] | None = None
    seeds: range | None = None
    stop: Stop | None = None
    fresh: range | None = None
    runs: str = ""
    from_rows: Callable[[pd.DataFrame], Table] | None = None
    compute: Callable[[], Table] | None = None
    old: Callable[[], Collection[str]] | None = None
    pilots: Callable[[], Mapping[str, int]] | None = None
    keys: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    budget: str = ""
    margins: Mapping[str, float] = field(default_factory=dict)
    figure: str | Plot = ""
    see: tuple[str, ...] = ()
    command: str = ""
    systems: Mapping[str, Part | str] | tuple[str, ...] = ()
    claims: dict[str, Entry] = field(default_factory=dict, init=False, compare=False)
    arms: Cells | None = field(default=None, init=False, compare=False)

    def __post_init__(self) -> None:
        """Name it; raise UserError naming the first contradiction."""
        if not self.name:  # frame 1 is the dataclass's __init__, frame 2 the file's
            module = str(sys._getframe(2).f_globals["__name__"])
            object.__setattr__(self, "name", module.rpartition(".")[2].replace("_", "-"))
        sources = [name for name in ("cells", "compute", "runs") if getattr(self, name)]
        wrong = {
            "its name has other characters than a-z, 0-9 and '-'": not re.fullmatch(r"[a-z0-9-]+", self.name),
            "its question does not end in '?'": not self.question.endswith("?"),
            f"it has both {' and '.join(sources)}, expected one": len(sources) > 1,
            "it computes a table without saying its keys": bool(self.compute or self.runs) and not self.keys,
            "it has a stopping rule, but no cells with the key 'seed', or seeds as well": bool(self.stop)
            and (self.cells is None or "seed" not in self.keys or self.seeds is not None),
            "it has fresh seeds, but a stopping rule that has its own, or no key 'seed' or 'replica'": bool(
                self.fresh
            )
            and (self.stop is not None or not {"seed", "replica"} & set(self.keys)),
            f"its stopping rule ends under {LEAST_CAP} seeds a run, too few to decide a gap of one standard "
            "deviation (testbed power)": self.stop is not None and self.stop.cap < LEAST_CAP,
            "it has keys or a figure, but neither cells nor a computation": (
                bool(self.keys or self.metrics or self.figure) and not sources
            ),
        }
        plot = self.figure if isinstance(self.figure, Plot) and self.figure.of is None else None
        if plot and (extra := plot.columns - {*self.keys, *self.metrics}):
            wrong[f"its plot reads {', '.join(sorted(extra))}, which is neither a key nor a metric"] = True
        for what, holds in wrong.items():
            if holds:
                raise UserError(f"Experiment '{self.name}' cannot be: {what}.")
        object.__setattr__(self, "arms", self.cells)
        if self.tuned is not None and self.cells is not None:
            object.__setattr__(
                self, "cells", functools.update_wrapper(functools.partial(self._at_own_rates), self.cells)
            )

    def _at_own_rates(self) -> tuple[Run, ...]:
        """Return the arms, each at the learning rate that its tuning runs chose."""
        assert self.tuned is not None
        assert self.arms is not None
        return self.tuned.chosen(self.arms(), EXPERIMENTS[self.tuned.table].keys)

    def claim(
        self,
        name: str = "",
        statement: str = "",
        *,
        source: str = "",
        kind: str = "",
        gates: Mapping[str, Gate] | None = None,
    ) -> Statement:
        """Declare a claim of this experiment; its evidence follows (see analysis.judging.sentences).

        Args:
            name: how the claim is asked for; one name among all experiments. By default the check's, with "-"
                for "_".
            statement: the sentence that is judged; by default the first paragraph of the check's docstring.
            source: paper or page that says so; by default the experiment's.
            kind: "identity", what algebra makes true in any world; "enumerated", what a computation on a
                world decides; "statistical". By default statistical if the check takes the table, else
                identity.
            gates: checks of the table by gate (analysis.judging.gates): "" where it holds, else why not.
        """

        def register(check: Check) -> Check:
            called = name or check.__name__.replace("_", "-")
            said = " ".join((statement or (check.__doc__ or "").partition("\n\n")[0]).split())
            on_table = bool(inspect.signature(check).parameters)
            wrong = {
                f"has kind '{kind}'; expected {', '.join(KINDS)}": kind not in ("", *KINDS),
                **{
                    f"declares gate '{gate}'; expected {', '.join(GATES)}": gate not in GATES
                    for gate in gates or ()
                },
                "says nothing; give its check a docstring, or a statement": not said,
                f"takes a table, but experiment '{self.name}' makes none": on_table and not self.keys,
                f"is already made by {self.name}; pick another name": called in self.claims,
            }
            for what, holds in wrong.items():
                if holds:
                    raise UserError(f"Claim '{called}' {what}.")
            promises = {
                "kind": kind or ("statistical" if on_table else "identity"),
                "statement": said,
                "table": self.name if on_table else None,
                "experiment": self.name,
                "stop": self.stop,
                "fresh": self.stop.fresh if self.stop else self.fresh.start if self.fresh else None,
                "gates": dict(gates or {}),
            }
            self.claims[called] = Entry(called, check, source or self.source, promises)
            return check

        return Statement(register, "mean" if self.compute else "median")

    def judges(self) -> dict[str, Part]:
        """Return, for each system, the part of its statement that is judged, with the claims that judge it.

        Raises UserError for a claim that the experiment does not make.
        """
        given = self.systems if isinstance(self.systems, Mapping) else dict.fromkeys(self.systems, "")
        found = {}
        for system, said in given.items():
            part = said if isinstance(said, Part) else Part(said)
            named = {each: fnmatch.filter(self.claims, each) for each in part.claims or ("*",)}
            if other := [each for each in part.claims if not named[each]]:
                raise UserError(
                    f"Experiment '{self.name}' judges '{system}' by {', '.join(sorted(other))}; "
                    f"it makes {', '.join(self.claims) or 'no claim'}."
                )
            found[system] = replace(part, claims=tuple(itertools.chain.from_iterable(named.values())))
        return found

    def make_ready(self, *, quiet: bool = False) -> None:
        """Make what the runs need and is missing."""
        if self.prepare is None:
            return
        if not quiet:
            print(f"Making ready what {self.name} needs", file=sys.stderr, flush=True)
        self.prepare()

    def table_cells(self) -> tuple[Run, ...]:
        """Return the cells of the committed table, or of its largest first run; () for a computed one.

        Raises UserError for fresh seeds that overlap the first run's.
        """
        first = self.first_cells()
        if self.cells is None or self.fresh is None:
            return first
        if (last := max(cell.seed for cell in first)) >= self.fresh.start:
            raise UserError(
                f"Experiment '{self.name}' has fresh seeds from {self.fresh.start} on, but the first goes "
                f"to seed {last}; begin the fresh ones above it."
            )
        return (*first, *self.cells_at(self.fresh))

    def first_cells(self) -> tuple[Run, ...]:
        """Return the cells of the first run, at its largest; () for a computed table."""
        if self.cells is None:
            return ()
        if self.stop is not None:
            return self.cells_at(range(self.stop.first, self.stop.first + self.stop.cap))
        return self.cells() if self.seeds is None else self.cells_at(self.seeds)

    def cells_at(self, seeds: Sequence[int]) -> tuple[Run, ...]:
        """Return the cells with these seeds instead."""
        assert self.cells is not None
        first = dict.fromkeys(replace(cell, seed=0) for cell in self.cells())
        found = tuple(replace(cell, seed=seed) for cell in first for seed in seeds)
        return found if self.drawn is None else tuple(filter(self.drawn, found))


_NAMED = re.compile(r'^[A-Z_0-9]+ = (?:.*\.e|E)xperiment\(\s*"([a-z0-9-]+)",', re.MULTILINE)
"""An experiment that is assigned with its name first."""


class Experiments(Mapping[str, Experiment]):
    """The experiments of a package's areas by name; a file is imported when its experiment is first used.

    Names are read from the text of files, so listing them imports none.
    """

    def __init__(self, package: str) -> None:
        self._package = package

    @functools.cached_property
    def _modules(self) -> dict[str, str]:
        """Name -> module, sorted by name."""
        found: dict[str, str] = {}
        path = importlib.import_module(self._package).__path__
        for module in pkgutil.walk_packages(path, f"{self._package}."):
            if module.ispkg:
                continue
            spec = importlib.util.find_spec(module.name)
            text = Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""
            of_file = module.name.rpartition(".")[2].replace("_", "-")
            for name in _NAMED.findall(text) or [of_file]:
                if name in found:
                    raise UserError(f"Two files have an experiment '{name}'; a name belongs to one file.")
                found[name] = module.name
        return dict(sorted(found.items()))

    def areas(self) -> dict[str, tuple[str, ...]]:
        """Return the names of the experiments in each area, both sorted."""
        found: dict[str, tuple[str, ...]] = {}
        for name, module in self._modules.items():
            area = module.split(".")[-2]
            found[area] = (*found.get(area, ()), name)
        return dict(sorted(found.items()))

    def about(self, area: str) -> str:
        """Return the first sentence of an area's description."""
        package = self._modules[self.areas()[area][0]].rpartition(".")[0]
        return (importlib.import_module(package).__doc__ or "").strip()

    def module(self, name: str) -> str:
        """Return the dotted name of the module that holds an experiment."""
        if name not in self._modules:
            raise unknown("experiment", name, self.names())
        return self._modules[name]

    def names(self) -> tuple[str, ...]:
        return tuple(self._modules)

    def __getitem__(self, name: str) -> Experiment:
        if name not in self._modules:
            raise unknown("experiment", name, self.names())
        module = importlib.import_module(self._modules[name])
        found = {each.name: each for each in vars(module).values() if isinstance(each, Experiment)}
        if name not in found:
            given = f"'{', '.join(found)}'" if found else "none"
            raise UserError(f"{module.__file__} declares {given}, expected EXPERIMENT named '{name}'.")
        return found[name]

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


EXPERIMENTS = Experiments("analysis.experiments")


def sweeps() -> dict[str, tuple[Run, ...]]:
    """Return the sweeps of `testbed run NAME`: the cells of every experiment that has some."""
    return {name: each.cells() for name, each in EXPERIMENTS.items() if each.cells is not None}


def sweep(name: str) -> tuple[Run, ...]:
    """Return the cells of an experiment; raise UserError with the nearest name for an unknown one."""
    if name not in EXPERIMENTS:
        raise unknown("sweep", name, sweeps())
    each = EXPERIMENTS[name]
    if each.cells is None:
        instead = f"testbed run {each.runs}" if each.runs else f"testbed evidence run {name}"
        raise UserError(f"Experiment '{name}' has no cells. Instead: {instead}")
    return each.cells()
