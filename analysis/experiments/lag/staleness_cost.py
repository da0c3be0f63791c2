"""What very stale data cost the toy LLM at the stress test's learning rate: REINFORCE and GRPO at lag 128."""

from analysis.lab import Experiment, Plot, Stop
from analysis.sweeps.base_runs import TOY
from testbed.config.run import Run, grid

SOURCE = "Zheng et al. (2025), Prosperity before Collapse, arXiv:2510.01161"
OLD = 128


def cells() -> tuple[Run, ...]:
    """REINFORCE and GRPO, on-policy and at lag 128."""
    return grid(TOY, recipe=["reinforce", "grpo"], lag=[0, OLD], seed=[0])


EXPERIMENT = Experiment(
    question="What do data that are 128 steps old cost, with a clip and without?",
    source=SOURCE,
    differs="a transformer of 26,000 weights on running sums; the learning rate of the stress test",
    cells=cells,
    stop=Stop(),
    keys=("recipe", "lag", "seed"),
    metrics=("accuracy", "best", "start", "collapsed", "collapse_step"),
    figure=Plot(
        "final by setting", x="lag: lag (optimizer steps)", y="accuracy: final accuracy", arm=("recipe",)
    ),
)


PLAIN, CLIPPED = {"recipe": "reinforce"}, {"recipe": "grpo"}

EXPERIMENT.claim(
    "reinforce-collapses-where-grpo-holds",
    "At lag 128, unclipped REINFORCE collapses on more seeds than clipped GRPO does.",
).happens("collapsed", PLAIN, CLIPPED, over={"lag": OLD})
EXPERIMENT.claim(
    "staleness-costs-grpo-accuracy",
    "GRPO ends with lower accuracy at lag 128 than on-policy, on most seeds.",
    source=f"{SOURCE}, figure 1",
).compare("accuracy", {"lag": 0}, {"lag": OLD}, over=CLIPPED)
