"""REC: is it the clip or the importance weight that keeps group-relative REINFORCE alive on stale data?

A one-sided clip keeps a token with A < 0 whatever its ratio above 1, and an importance weight then multiplies
its gradient without bound; a weight of 1 does not. Two claims of equality therefore follow the first, in
rec_bounded.
"""

from dataclasses import replace

from analysis.lab import Experiment, Part, Plot, Stop
from analysis.sweeps.base_runs import TOY
from testbed.config.run import Arguments, Run, grid

SOURCE = "Yao et al. (2025), Group-relative REINFORCE is secretly an off-policy algorithm, arXiv:2509.24203"
MARGIN = 0.05
WEIGHT = "recipe_args.weight"
PLAIN, WEIGHTED = {WEIGHT: "none"}, {WEIGHT: "importance"}

OPEN: Arguments = (
    ("advantage", "group_mean"),
    ("aggregation", "token_mean"),
    ("eps_low", 1.0),
    ("eps_high", 1e9),
)
"""The recipe rec with a region that holds every token: nothing is ever dropped, and all else is the same."""

ARMS: tuple[tuple[str, Arguments], ...] = (
    ("rec", (("weight", "none"),)),
    ("rec", (("weight", "importance"),)),
    ("rec_oneside", (*OPEN, ("weight", "none"))),
    ("rec_oneside", (*OPEN, ("weight", "importance"))),
    ("reinforce", ()),
)
LAGS = (0, 16, 64, TOY.steps)
"""The last one is offline: all data come from the first weights."""

OFFLINE = {**PLAIN, "lag": LAGS[-1]}


def cells() -> tuple[Run, ...]:
    """REC with and without its clip and its importance weight, and REINFORCE, at four lags."""
    return tuple(
        cell
        for recipe, arguments in ARMS
        for cell in grid(replace(TOY, recipe=recipe, recipe_args=arguments), lag=LAGS, seed=[0])
    )


EXPERIMENT = Experiment(
    question=(
        "Is it the clip or the importance weight that keeps group-relative REINFORCE alive on stale data?"
    ),
    source="Yao et al. (2025), arXiv:2509.24203",
    differs="a transformer of 26,000 weights on running sums in place of large language models",
    cells=cells,
    stop=Stop(cap=32),
    keys=("recipe", "recipe_args.weight", "lag", "seed"),
    metrics=("accuracy", "best", "start", "collapsed", "actor/entropy", "mean actor/clip_share"),
    margins={"accuracy that counts as equal": MARGIN},
    figure=Plot(
        "final by setting",
        x="lag: lag (optimizer steps)",
        y="accuracy: final accuracy",
        arm=("recipe", "recipe_args.weight: weight"),
        names={str(TOY.steps): "offline"},
        says="Shows final accuracy of a transformer of 26,000 weights on running sums by age of the data, "
        "offline being all from the first weights: REC is REINFORCE with a group baseline that drops tokens "
        "out of its clip range, REC, one side the same with a range so wide that nothing is dropped, each "
        "with importance weights or none; REINFORCE has neither.",
    ),
    systems={
        "REC (Group-relative REINFORCE is off-policy)": Part(
            "the clip against the importance weight; not a much wider clip range"
        )
    },
)


EXPERIMENT.claim(
    "rec-importance-weights-change-nothing",
    "With REC's one-sided clip, importance weights change the toy LLM's final accuracy by less than 0.05 in "
    "the median over seeds, at every lag, on-policy and offline included.",
    source=SOURCE,
).equal("accuracy", WEIGHTED, PLAIN, within=MARGIN, over={"recipe": "rec", "lag": LAGS}, floor=0.0)
EXPERIMENT.claim(
    "rec-clip-alone-ends-no-lower",
    "At a learning rate of 0.003 REC's one-sided clip alone ends less than 0.05 below clip and importance "
    "weights, in the median over seeds, at every lag, on-policy and offline included.",
    source=SOURCE,
).compare("accuracy", PLAIN, WEIGHTED, by=-MARGIN, over={"recipe": "rec", "lag": LAGS})
EXPERIMENT.claim(
    "rec-clip-prevents-collapse",
    "On offline data the toy LLM collapses on more seeds when REC's clip is taken away, all else being "
    "equal.",
    source=SOURCE,
).happens("collapsed", {"recipe": "rec_oneside"}, {"recipe": "rec"}, over=OFFLINE)
EXPERIMENT.claim(
    "rec-clip-prevents-collapse-on-most-seeds",
    "On offline data the toy LLM collapses without REC's clip and does not with it on more than half of all "
    "seeds.",
    source=f"{SOURCE}; the share was chosen on a pilot",
).happens("collapsed", {"recipe": "rec_oneside"}, {"recipe": "rec"}, over=OFFLINE, alone=True)
