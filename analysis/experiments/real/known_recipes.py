"""SmolLM2-135M-Instruct on data 32 optimizer steps old, by GRPO and by REINFORCE, which has no clip."""

from dataclasses import replace

from analysis.experiments.real.known_model import BASE, MARGIN, prepare
from analysis.lab import Experiment, Plot, Stop
from testbed.config.run import Run, grid

LAG = 32
LOST = 0.1
"""Final accuracy below which a run has collapsed; SmolLM2 begins at about 0.3. Set before the runs."""
LAST, AREA, ESS = "last accuracy", "mean accuracy", "mean rollout_corr/ess_kish_sequence_raw"


def old(arm: Run) -> Run:
    """Return a recipe's run at 3e-4 and lag 32: 56 steps of 4 x 8 responses."""
    return replace(
        BASE,
        policy_args=(*BASE.policy_args, ("attention", "eager")),
        recipe=arm.recipe,
        recipe_args=arm.recipe_args,
        lag=LAG,
        steps=56,
        log_every=11,
        evaluation_prompts=16,
    )


def cells() -> tuple[Run, ...]:
    """GRPO and REINFORCE at 3e-4 and lag 32."""
    return grid(old(Run()), recipe=["grpo", "reinforce"], seed=range(8))


EXPERIMENT = Experiment(
    question="Does a language model that people know survive data 32 steps old without a clip?",
    source="this project; SmolLM2-135M-Instruct, Apache-2.0",
    differs="56 steps, one rate, tuned for neither, clip 0.2, bfloat16 adapters, one task",
    prepare=prepare,
    cells=cells,
    stop=Stop(block=10, cap=40, first=200, fresh=2000),
    keys=("recipe", "seed"),
    metrics=("accuracy", LAST, AREA, ESS, "mean actor/clip_share", "mean rollout_corr/kl_mu_pi_k3"),
    margins={"accuracy that counts": MARGIN, "accuracy of a collapsed run": LOST},
    figure=Plot(
        "strips",
        x=f"{LAST}: held-out accuracy after 56 steps",
        y="recipe: ",
        names={"grpo": "GRPO, clip 0.2", "reinforce": "REINFORCE"},
        also=({"x": f"{ESS}: mean sequence ESS"},),
    ),
)

EXPERIMENT.claim(
    "smollm2-collapses-on-old-data-without-a-clip",
    "At lag 32 and rate 3e-4 REINFORCE is below an accuracy of 0.1 after 56 steps, in the median.",
).compare(LAST, {"recipe": "reinforce"}, by=LOST, below=True)
