"""Up to sixteen updates on every batch, by plain reuse, SFPO and R2VPO."""

from collections.abc import Iterator
from functools import partial

from analysis.experiments.lag.class_rates import KEYS, NAME, PASS_LAG, PASSES, pass_cells
from analysis.lab import Check, Experiment, Part, Plot, Stop, above, declare, named, sooner
from analysis.sweeps.tuned_cells import tuned
from testbed.config.run import Run

KEPT = 0.1
"""Share of tokens more that keep a gradient. Set before the sweep was run."""
FRESH, OLD = named(PASSES, lag=0), named(PASSES, lag=PASS_LAG)
DRIFT, CUT = "val/kl_start_k3", "mean actor/clip_share_last_pass"


def cells() -> tuple[Run, ...]:
    """The arms on fresh data and three of them at lag 64, each at its rate with the largest area."""
    return tuned(pass_cells(), NAME, KEYS, "area")


def claims() -> Iterator[tuple[str, str, Check]]:
    """Yield who needs fewer rollouts than whom to accuracy 0.8, who drifts less and who keeps more tokens."""
    for name, rival, times in (
        *((f"SFPO, {fast} fast", "GRPO", 1) for fast in (1, 3, 5)),
        ("SFPO, 3 fast", "GRPO x4", 1),
        *((f"R2VPO x{passes}", "GRPO", 2) for passes in (4, 16)),
        ("R2VPO x16", "GRPO x16", 1),
    ):
        share = "half the rollouts of" if times > 1 else "fewer rollouts than"
        yield (
            f"{_slug(name)}-needs-{_slug(share)}-{_slug(rival)}",
            f"{name} needs {'under ' if times > 1 else ''}{share} {rival} to accuracy 0.8, on most seeds.",
            partial(sooner, pair={name: FRESH[name], rival: FRESH[rival]}, times=times),
        )
    for name in ("SFPO, 3 fast", "SFPO, alpha 0.25"):
        yield (
            f"{_slug(name)}-drifts-less-than-plain-reuse",
            f"GRPO with four passes ends further from the base model in KL than {name}, on most seeds.",
            partial(above, pair={"GRPO x4": FRESH["GRPO x4"], name: FRESH[name]}, outcome=DRIFT),
        )
    for rival in ("GRPO x4", "GRPO"):
        pair = {"R2VPO x4": OLD["R2VPO x4"], rival: OLD[rival]}
        yield (
            f"r2vpo-halves-the-rollouts-of-{_slug(rival)}-at-lag-64",
            f"At lag 64, R2VPO x4 needs under half the rollouts of {rival} to accuracy 0.8, on most seeds.",
            partial(sooner, pair=pair, times=2),
        )
        yield (
            f"r2vpo-ends-above-{_slug(rival)}-at-lag-64",
            f"At lag 64, R2VPO x4 ends with a higher accuracy than {rival}, on most seeds.",
            partial(above, pair=pair),
        )
    yield (
        "r2vpo-keeps-tokens-that-the-clip-drops-at-lag-64",
        "At lag 64, the clip takes the gradient from 0.1 more of all tokens at GRPO's last of four passes "
        "than R2VPO's variance term, on most seeds.",
        partial(above, pair={name: OLD[name] for name in ("GRPO x4", "R2VPO x4")}, outcome=CUT, margin=KEPT),
    )


def _slug(words: str) -> str:
    return words.lower().replace(", ", "-").replace(" ", "-").replace(".", "-")


CLAIMS = tuple(claims())


def _part(subject: str) -> Part:
    return Part(claims=tuple(name for name, *_ in CLAIMS if name.startswith(subject)))


EXPERIMENT = Experiment(
    "passes",
    question="How many rollouts do more updates on every batch save, by whose rule, and what do they cost?",
    source="SFPO, arXiv:2510.04072; R2VPO, arXiv:2601.03320",
    differs="a transformer of 7,000 weights, sums of 6 digits, 150 steps of 32 responses; no entropy "
    "trigger; plain reuse clips around the weights of a batch's first pass, not around its sampler",
    cells=cells,
    stop=Stop(block=12, cap=36, begun_with=24),
    keys=("recipe", "recipe_args", "lag", "seed"),
    metrics=(
        *("accuracy", "area", "collapsed", "rollouts_to 0.5", "rollouts_to 0.8", "rollouts_to 0.9"),
        *(DRIFT, CUT, "mean actor/learning_rate"),
    ),
    margins={"share of tokens more that keep a gradient": KEPT},
    figure=Plot(
        "strips",
        x="rollouts_to 0.8",
        y="recipe_args",
        where={"lag": 0},
        names={str(arm["recipe_args"]): name for name, arm in FRESH.items()},
        x_label="rollouts to accuracy 0.8, fresh data",
        y_label="updates on a batch",
    ),
    systems={
        "SFPO (Slow-Fast)": _part("sfpo"),
        "R²VPO": _part("r2vpo"),
    },
)
declare(EXPERIMENT, CLAIMS)
