"""Periodic batches, a noisy engine, and baselines without a critic: what each recipe keeps, all tuned.

The tasks are the arena's: guesses from fresh batches, running sums from periodic ones.
`python -m analysis.experiments.lag.periodic_batches` chooses rates and knobs, arm by arm.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from analysis.arena.tasks import task
from analysis.lab import Part, Plot
from analysis.worlds.pilots import inside
from analysis.worlds.tuned_training import Family, Way, with_recipe

FRESH = task("guess")
"""Where the greedy response is right as often as a sampled one, on .37 of prompts; on sums it is right on .87
and a sampled one on .003, which no language model is like."""
PERIODIC = replace(task("sums"), staleness="periodic", lag=25, steps=400, log_every=40)
"""Eight generations of 51 batches each in 400 steps, which is lag 25 in the mean."""
NOISE = {"mismatch": "logit-noise", "mismatch_args": (("sigma", 0.5),)}
"""An engine whose logits have noise of half a nat."""
CLIPS, BETAS, CAPS = (0.1, 0.2, 0.5, 0.9, 3.0), (1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0), (1, 2, 4, 8, 32)
WAYS: Mapping[str, Way] = {
    "remax": Way(with_recipe(FRESH, "remax", "kappa"), (0.0, 1e-4, 1e-3, 1e-2, 0.1), True),
    "reinforce, mean baseline": Way(with_recipe(FRESH, "reinforce")),
    "ppo": Way(with_recipe(FRESH, "ppo", "lam", critic="head"), (0.5, 0.8, 0.95, 0.99, 1.0), True),
    "periodic grpo": Way(with_recipe(PERIODIC, "grpo", "eps_low+eps_high"), CLIPS),
    "periodic oapl": Way(with_recipe(PERIODIC, "oapl", "beta2"), BETAS),
    "periodic tis": Way(with_recipe(PERIODIC, "tis", "cap"), CAPS),
    "noisy grpo": Way(with_recipe(PERIODIC, "grpo", "eps_low+eps_high", **NOISE), CLIPS),
    "noisy oapl": Way(with_recipe(PERIODIC, "oapl", "beta2", **NOISE), BETAS),
}
BATCHES = Family(WAYS, Path(__file__).with_suffix(".csv"))


SEEDS, MORE, LESS = 48, 0.02, 0.05
"""Accuracy that counts as gained, and as lost. Set before the table was made."""
METRICS = ("accuracy", "area", "val/entropy", "max actor/grad_norm")


EXPERIMENT = BATCHES.experiment(
    METRICS,
    SEEDS,
    question="What do recipes keep where weights are sent eight times in 400 steps, or to a noisy engine?",
    source="OAPL (2026), arXiv:2602.19362, and the sources of the other arms, as each claim says",
    differs=(
        "toy transformers; running sums of sixteen digits where weights are sent every 51 steps, guesses on "
        "fresh data; noise of 0.5 on the engine's logits"
    ),
    margins={"accuracy gained": MORE, "accuracy lost": LESS},
    figure=Plot(
        "strips",
        x="accuracy: final accuracy",
        y="arm",
        says="Shows final accuracy of toy transformers, each arm at its best setting: periodic arms write "
        "sums of sixteen digits with weights sent to the engine every 51 steps, noisy ones the same with "
        "noise on the engine's logits, by GRPO, truncated importance sampling (TIS) or OAPL, which "
        "regresses log-ratios on advantages; the others guess from fresh data, by PPO with a critic or "
        "REINFORCE with the greedy response (ReMax) or the group's mean as baseline.",
    ),
    systems={
        "OAPL": Part(
            "one run length; no lag above 400 steps, no count of generations, no pass@k",
            ("oapl-ends-above-grpo-on-periodic-batches", "oapl-ends-above-tis-on-periodic-batches"),
        ),
        "KARL": Part(
            "one task; no agents, no search; noise of half a nat, 20 to 70 times bfloat16's KL",
            (
                "oapl-ends-above-noisy-grpo-on-periodic-batches",
                "oapl-bears-a-noisy-engine-on-periodic-batches",
            ),
        ),
        "ReMax": Part("no memory or time is measured", ("remax-ends-as-high-as-ppo",)),
    },
)


def _ask(name: str, statement: str, first: str, second: str, by: float, source: str) -> None:
    """Declare that an arm ends above another by a margin, in the mean."""
    EXPERIMENT.claim(name, statement, source=source, gates={"tuned": inside(arm=(first, second))}).compare(
        "accuracy", {"arm": first}, {"arm": second}, by=by
    )


OAPL = "Ritter et al. (2026), OAPL, arXiv:2602.19362"
KARL = "KARL (2026): OAPL on large batches, several times over"
for _name, _statement, _first, _second, _by, _source in (
    ("oapl-ends-above-grpo-on-periodic-batches",
     "Where weights are sent eight times in 400 steps, with a mean lag of 25, OAPL ends 0.02 more accurate "
     "than GRPO at its best clip.",
     "periodic oapl", "periodic grpo", MORE, OAPL),
    ("oapl-ends-above-tis-on-periodic-batches",
     "There OAPL ends 0.02 more accurate than truncated importance sampling at its best cap.",
     "periodic oapl", "periodic tis", MORE, OAPL),
    ("oapl-ends-above-noisy-grpo-on-periodic-batches",
     "With noise of half a nat on the engine's logits, too, OAPL ends 0.02 more accurate than GRPO there.",
     "noisy oapl", "noisy grpo", MORE, KARL),
    ("oapl-bears-a-noisy-engine-on-periodic-batches",
     "Noise of half a nat on the engine's logits costs OAPL less than 0.05 of accuracy there.",
     "noisy oapl", "periodic oapl", -LESS, KARL),
    ("remax-ends-as-high-as-ppo",
     "On fresh data, with the greedy response as baseline, REINFORCE ends less than 0.05 below PPO.",
     "remax", "ppo", -LESS, "Li et al. (2023), ReMax, arXiv:2310.10505"),
):  # fmt: skip
    _ask(_name, _statement, _first, _second, _by, _source)


if __name__ == "__main__":
    BATCHES.choose()
