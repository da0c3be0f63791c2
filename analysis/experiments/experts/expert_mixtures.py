"""CHORD's mixture beside an expert on sums that GRPO alone often fails to learn, every arm tuned."""

from analysis.experiments.experts.expert_help import CHORD, MORE, TAUGHT, WAYS, well
from analysis.lab import Part, asks, strips
from analysis.worlds.tuned_training import Family, with_recipe

SEEDS, FEWER, LATER = 384, 192, 130_000
"""Seeds of a run of OPEN, and of the other arms; offset past those of other tables."""
OPEN = ("sft, then grpo", "chord-phi")
"""Arms of the claim that 64 + 64 seeds left open."""
WEIGHTS = (0.015, 0.03, 0.06, 0.12, 0.25, 0.5, 0.9)
MIXTURES = Family(
    {
        **{name: WAYS[name] for name in ("grpo", "sft", "sft, then grpo")},
        "fixed": well(with_recipe(TAUGHT, "chord", "peak+valley"), WEIGHTS),
        "chord-phi": well(with_recipe(TAUGHT, "chord", "peak+valley", ("phi", "on")), WEIGHTS),
    }
)

EXPERIMENT = MIXTURES.experiment(
    ("accuracy", "area", "start", "rise accuracy"),
    SEEDS, (((), FEWER), (OPEN, SEEDS)), LATER,
    question="Where GRPO often learns nothing, does CHORD's mixture with an expert end above its rivals?",
    source=CHORD,
    differs="a transformer of 4,000 weights on running sums of eight digits, right once in 200; the expert "
    "errs at a tenth of its steps",
    margins={"accuracy": MORE},
    figure=strips("accuracy: final accuracy", "Shows final accuracy of a transformer of 4,000 weights on "
        "running sums of eight digits, of which its base is right once in 200, by GRPO, by imitation of an "
        "expert that errs at a tenth of its steps (SFT), by GRPO after imitation, and by GRPO with imitation "
        "mixed in at one weight (fixed) or by CHORD's weights of tokens (chord-phi), each arm at its best "
        "rate and weight."),
    systems={"CHORD": Part("one expert that is right on four of ten prompts", ("mixed-in-*",))},
)  # fmt: skip

_FROM = "From a base right once in 200, CHORD-phi ends 0.02 more accurate than"
asks(EXPERIMENT,
    ("mixed-in-chord-phi-ends-above-grpo", f"{_FROM} GRPO.", "chord-phi", "grpo"),
    ("mixed-in-chord-phi-ends-above-sft", f"{_FROM} imitation.", "chord-phi", "sft"),
    ("mixed-in-chord-phi-ends-above-sft-then-grpo", f"{_FROM} imitation that is followed by GRPO.",
     "chord-phi", "sft, then grpo"),
    ("mixed-in-chord-phi-ends-above-fixed", f"{_FROM} a mixture of one weight.", "chord-phi", "fixed"),
    by=MORE,
)  # fmt: skip
