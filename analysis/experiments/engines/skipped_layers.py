"""Rollouts of a model without one of its eight layers, drawn for every batch, each arm tuned."""

from dataclasses import replace

from analysis.arena.tasks import task
from analysis.lab import ask, strips
from analysis.sweeps.base_runs import UNCORRECTED
from analysis.worlds.tuned_training import Family, Way, with_recipe

SEEDS, FIRST, LITTLE = 16, 30_000, 0.05
"""Seeds of a run, offset past those of other tables; accuracy loss that counts. Set before the table."""
WHOLE = replace(task("sorted"), policy_args=(("layers", 8), ("width", 16)))
SKIPS = replace(WHOLE, mismatch="skip-layers", mismatch_args=(("ratio", 0.125),))
RATES, CAPS = (3e-4, 5.6e-4, 1e-3, 1.8e-3), (1, 2, 4, 8, 32, 128, 1024)
NESTED = Family(
    {
        "all layers": Way(with_recipe(WHOLE, "rec_oneside", "", *UNCORRECTED), rates=RATES, pilots=4),
        "no weights": Way(with_recipe(SKIPS, "rec_oneside", "", *UNCORRECTED), rates=RATES),
        "weights by token": Way(with_recipe(SKIPS, "tis", "cap", ("level", "token")), CAPS, rates=RATES),
        "weights by sequence": Way(
            with_recipe(SKIPS, "tis", "cap", ("level", "sequence")), CAPS, rates=RATES
        ),
    },
)

EXPERIMENT = NESTED.experiment(
    ("accuracy", "area", "rise accuracy", "mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share"),
    SEEDS,
    first=FIRST,
    question="Do rollouts that leave out one of eight layers keep the accuracy of rollouts of all layers?",
    source="Nested-ReFT (2025), arXiv:2508.10123: accuracy kept by cheaper rollouts and a correction",
    differs=(
        "toy transformers of eight layers that sort ten digits, on fresh data; this project's weights, "
        "truncated by token or by sequence, in place of the source's three corrections"
    ),
    margins={"accuracy lost": LITTLE},
    figure=strips("accuracy: final accuracy", "Shows final accuracy of toy transformers of eight layers that "
        "sort ten digits, each arm at its best rate and cap; rollouts have all layers, or seven drawn for "
        "every batch, without weights or with importance weights truncated by token or by sequence."),
    systems={"Nested-ReFT": "one of eight layers, which moves rollouts by 0.3 to 0.4 nats a token, more than "
             "it would in a large model; this project's corrections; unbiasedness is shown by enumeration, "
             "speed is not measured"},
)  # fmt: skip

for _name, _weights, _arm in (
    ("no-weights-keep-accuracy-without-an-eighth-of-the-layers", "no", "no weights"),
    ("token-weights-keep-accuracy-without-an-eighth-of-the-layers", "token", "weights by token"),
    ("sequence-weights-keep-accuracy-without-an-eighth-of-the-layers", "sequence", "weights by sequence"),
):
    ask(
        EXPERIMENT, _name, f"With one of eight layers left out of rollouts and {_weights} weights, training "
        "ends less than 0.05 below training on rollouts of all layers.", _arm, "all layers", -LITTLE,
    )  # fmt: skip
