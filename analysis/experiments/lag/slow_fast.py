"""SFPO beside GRPO with and without reuse of batches on fresh sums, each arm tuned for its mean accuracy."""

from functools import partial

from analysis.arena.tasks import task
from analysis.lab import asks, strips
from analysis.worlds.tuned_training import Family, Way, with_recipe
from testbed.config.run import Run

SEEDS, GRPO_SEEDS, LATER, MORE, FAST = 450, 160, 410_000, 0.02, (0, 1, 3, 7, 15)
"""Seeds of a run, those of GRPO without reuse, offset past those of other tables; mean accuracy that counts;
updates a batch, less one."""
SUMS = task("sums")
_way = partial(Way, rates=(5.6e-4, 1e-3, 1.8e-3), pilots=32)


def _pulled(alpha: float) -> Run:
    """Return SFPO with the number of updates that is best at alpha .8."""
    fast = int(REUSED.value("sfpo at .8"))
    return with_recipe(SUMS, "sfpo", "alpha", ("fast", fast))(alpha)


REUSED = Family({
    "grpo": _way(with_recipe(SUMS, "grpo")),
    "reused grpo": _way(with_recipe(SUMS, "sfpo", "fast", ("alpha", 1.0)), FAST),
    "sfpo at .8": _way(with_recipe(SUMS, "sfpo", "fast", ("alpha", 0.8)), FAST, pilots=16),
    "sfpo": _way(_pulled, (0.5, 0.65, 0.8, 0.9, 0.95), True),
}, by="area")  # fmt: skip

EXPERIMENT = REUSED.experiment(
    ("area", "accuracy"), SEEDS, ((("sfpo", "reused grpo"), SEEDS), (("grpo",), GRPO_SEEDS)), LATER,
    question="Tuned for it, how much sooner does SFPO learn sums than GRPO with and without reuse?",
    source="SFPO (2025), arXiv:2510.04072", differs="toy transformers; no entropy trigger",
    margins={"mean accuracy": MORE},
    figure=strips("area: mean accuracy", "Shows mean accuracy of toy transformers along 200 steps of fresh "
        "16-digit sums: GRPO with one update a batch and with its best number, and SFPO at its best number "
        "of updates and alpha."),
    systems={"SFPO (Slow-Fast)": "no time is measured"},
)  # fmt: skip
_SAID = "Tuned for its mean accuracy on fresh sums, SFPO has 0.02 more of it than GRPO"
asks(EXPERIMENT,
    ("sfpo-learns-faster-than-grpo-on-sums-again", f"{_SAID}.", "sfpo", "grpo"),
    ("sfpo-learns-faster-than-reused-grpo-on-sums-again", f"{_SAID} with its best number of updates a batch.",
     "sfpo", "reused grpo"),
    by=MORE, outcome="area",
)  # fmt: skip
