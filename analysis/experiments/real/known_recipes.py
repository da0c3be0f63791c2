"""SmolLM2-135M-Instruct on data 32 optimizer steps old, with a clip and without."""

from dataclasses import replace

from analysis.experiments.real.known_model import BASE, MARGIN, prepare
from analysis.lab import Experiment, Plot, Stop
from testbed.config.run import Run, grid

LAG = 32
LOST = 0.1
"""Final accuracy below which a run has collapsed; SmolLM2 begins at about 0.3. Set before the runs."""
LAST, AREA, ESS = "last accuracy", "mean accuracy", "mean rollout_corr/ess_kish_sequence_raw"


def cells() -> tuple[Run, ...]:
    """GRPO and REINFORCE at 3e-4 and lag 32: 46 steps of 4 x 8 responses."""
    base = replace(
        BASE,
        policy_args=(*BASE.policy_args, ("attention", "eager")),
        lag=LAG,
        steps=46,
        log_every=15,
        evaluation_prompts=16,
    )
    return grid(base, recipe=["grpo", "reinforce"], seed=range(8))


EXPERIMENT = Experiment(
    "known-recipes",
    question="Does a language model that people know survive data 32 steps old without a clip?",
    source="this project; SmolLM2-135M-Instruct, Apache-2.0",
    differs="46 steps, one rate, chosen for neither, clip 0.2, bfloat16 adapters, one task",
    prepare=prepare,
    cells=cells,
    stop=Stop(block=8, cap=32),
    keys=("recipe", "seed"),
    metrics=("accuracy", LAST, AREA, ESS, "mean actor/clip_share", "mean rollout_corr/kl_mu_pi_k3"),
    margins={"accuracy that counts": MARGIN, "accuracy of a collapsed run": LOST},
    figure=Plot(
        "strips",
        x=f"{LAST}: held-out accuracy after 46 steps",
        y="recipe: ",
        says="Shows held-out accuracy of SmolLM2-135M-Instruct after 46 steps on data 32 steps old, a point "
        "per seed, by recipe (which of two numbers is larger; 64 responses a point); no verdict, as 32 "
        "of the steps learn from data of the first model.",
    ),
)
CLIPPED, PLAIN = {"recipe": "grpo"}, {"recipe": "reinforce"}

EXPERIMENT.claim(
    "a-clip-saves-smollm2-from-old-data",
    "At lag 32 and rate 3e-4 GRPO ends 0.05 above REINFORCE, in the median.",
).compare("accuracy", CLIPPED, PLAIN, by=MARGIN)

EXPERIMENT.claim(
    "smollm2-collapses-on-old-data-without-a-clip",
    "At lag 32 and rate 3e-4 REINFORCE ends below an accuracy of 0.1, in the median.",
).compare("accuracy", PLAIN, by=LOST, below=True)
