"""Rollouts in a format coarse enough to cost accuracy, for trainers in full precision or in that format."""

from dataclasses import replace

from analysis.arena.tasks import task
from analysis.lab import Part, asks, strips
from analysis.sweeps.base_runs import FP8, UNCORRECTED
from analysis.worlds.tuned_training import Family, Way, with_recipe

SEEDS, FIRST, GAIN, LOSS = 128, 250_000, 0.02, 0.05
"""Seeds of a run, offset past those of other tables; accuracy gained and lost that counts. Pre-set."""
FULL = task("sorted")
COARSE = (("matrices", "all"), ("mantissa", 2))
ROLLOUTS = replace(FULL, mismatch=FP8, mismatch_args=COARSE)
"""On pilots rollouts in it cost 0.05, at 0.05 nats a token; one bit less costs a trainer in it 0.28, too."""
BOTH = replace(
    FULL, policy_args=(*FULL.policy_args, ("precision", f"{FP8} matrices=all mantissa=2")), teacher_noise=0.29
)
"""Its base model saw fewer errors in imitation, so that it is right as often in its format as the others."""
RATES = (5.6e-4, 1e-3, 1.8e-3, 3e-3)
FORMATS = Family(
    {
        name: Way(with_recipe(run, "rec_oneside", "", *UNCORRECTED), rates=RATES, pilots=16)
        for name, run in (("full", FULL), ("coarse rollouts", ROLLOUTS), ("coarse on both sides", BOTH))
    },
)

EXPERIMENT = FORMATS.experiment(
    ("accuracy", "area", "start", "rise accuracy", "mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share"),
    SEEDS, first=FIRST,
    question="Where rollouts in a coarse format cost accuracy, does a trainer in that format regain it?",
    source="Jet-RL, arXiv:2601.14243 (abstract): FP8 rollouts break a trainer in BF16, one flow does not",
    differs="toy transformers that sort ten digits; floats of two mantissa bits, emulated, with full master "
    "weights; no speed",
    margins={"accuracy gained": GAIN, "accuracy lost": LOSS},
    figure=strips("accuracy: final accuracy", "Shows final accuracy of toy transformers that sort ten "
        "digits, each arm at its best rate: in full precision; with floats of two mantissa bits in rollouts "
        "only; and with them in rollouts and training, from a base model that is right as often."),
    systems={
        "Jet-RL": Part(
            "ten tokens in floats of two mantissa bits, one less than FP8 has, since FP8 costs nothing at "
            "this size",
            (
                "one-precision-ends-above-coarse-rollouts",
                "one-coarse-precision-ends-as-high-as-full-precision",
            ),
        )
    },
)  # fmt: skip

asks(EXPERIMENT,
    ("one-precision-ends-above-coarse-rollouts", "With two mantissa bits in rollouts and training alike, "
     "training ends 0.02 above one with such rollouts and full precision.",
     "coarse on both sides", "coarse rollouts", GAIN),
    ("one-coarse-precision-ends-as-high-as-full-precision", "With two mantissa bits on both sides training "
     "ends less than 0.05 below full precision on both.", "coarse on both sides", "full", -LOSS),
)  # fmt: skip
