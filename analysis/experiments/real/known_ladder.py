"""Which part of GRPO saves SmolLM2-135M-Instruct from old data: from REINFORCE to GRPO in three steps."""

from dataclasses import replace

import pandas as pd

from analysis.experiments.real.known_model import AREA, BASE, ESS, MARGIN, OLD, PARTS, prepare
from analysis.lab import Experiment, Frame, Plot, Stop, Tuned, ask, asks
from analysis.sweeps.tuning import at_rates
from analysis.tables.cell_table import arms_of
from testbed.config.run import Run

GRID = (1e-5, 3e-5, 1e-4, 3e-4, 1e-3)
LADDER = {
    "REINFORCE": PARTS["REINFORCE"],
    "with importance weights": Run(recipe="importance", recipe_args=(("level", "token"),)),
    "GRPO without its clip": PARTS["open"],
    "GRPO": PARTS["GRPO"],
}
"""From REINFORCE to GRPO, one part at a time; the third takes GRPO's mean over tokens, without a clip."""
ENDS = ("REINFORCE", "GRPO")
"""Arms that also run on fresh data: there all ratios are 1, so weights and clip change nothing."""
KEYS = ("recipe", "recipe_args", "lag")
DRIFT = "mean rollout_corr/kl_mu_pi_k3"
END = "accuracy"
PLAIN, WEIGHTED, STANDARD, CLIPPED = arms_of(LADDER, LADDER.values(), ("recipe", "recipe_args")).values()
DATA = {0: f"lag {OLD}", 10: "fresh"}
"""Offset of the arm's number in figures, for rows on fresh data."""


def arms() -> tuple[Run, ...]:
    """Return the four recipes at lag 32, two of them on fresh data too; 80 steps of 4 x 8 responses."""
    base = replace(
        BASE, policy_args=(("lora", 8), ("dtype", "float32")), device="cuda", steps=80, log_every=10,
        evaluation_prompts=64,
    )  # fmt: skip
    return tuple(
        replace(base, recipe=arm.recipe, recipe_args=arm.recipe_args, lag=lag)
        for lag in (0, OLD)
        for name, arm in LADDER.items()
        if lag == OLD or name in ENDS
    )


def at_every_rate() -> tuple[Run, ...]:
    """Every arm at five rates half a decade apart, on 3 tuning seeds."""
    return at_rates(arms(), GRID, seeds=3)


def numbered(table: Frame) -> Frame:
    """Return the table with a column that numbers the arms in the order of figures, on fresh data from 10."""
    number = pd.Series(0, index=table.index)
    for place, arm in enumerate((PLAIN, WEIGHTED, STANDARD, CLIPPED), 1):
        number[(table[list(arm)] == pd.Series(arm)).all(axis=1)] = place
    return table.assign(arm=number, recipe=number + 10 * (table["lag"] == 0))


RATES = Experiment(
    "known-rates",
    question="Which learning rate suits REINFORCE, GRPO and what lies between on SmolLM2, by lag?",
    source="design of this project: rates are chosen before arms are compared",
    prepare=prepare, cells=at_every_rate, keys=(*KEYS, "learning_rate", "seed"),
    metrics=(END, "last accuracy", AREA, DRIFT),
    figure=Plot(
        "final by setting", x="learning_rate: learning rate", y=f"{END}: final held-out accuracy",
        of=numbered, arm=("arm: ",), names={str(place): said for place, said in enumerate(LADDER, 1)},
        panel="lag", panel_label="lag", log="x",
    ),
)  # fmt: skip

STEPS = Experiment(
    "known-ladder",
    question="Which part of GRPO keeps a language model that people know from failing on old data?",
    source="this project; SmolLM2-135M-Instruct, Apache-2.0",
    differs="80 steps of 32 responses, adapters in float32, one task; each arm at its best of five rates",
    prepare=prepare, cells=arms, tuned=Tuned(table="known-rates"),
    stop=Stop(block=16, cap=32, first=400, fresh=4000), keys=(*KEYS, "seed"),
    metrics=(
        *(END, "rise accuracy", "last accuracy", AREA, "collapsed", ESS, "mean actor/clip_share", DRIFT),
    ),
    margins={"accuracy that counts": MARGIN},
    figure=Plot(
        "strips", x=f"{END}: final held-out accuracy", y="recipe: ", of=numbered,
        names={
            str(n + at): f"{data}: {said}" for n, data in DATA.items() for at, said in enumerate(LADDER, 1)
        },
        also=({"x": f"{ESS}: mean sequence ESS"},),
        says="Shows SmolLM2-135M-Instruct after 80 steps of telling which number is larger, on data 32 "
        "optimizer steps old or fresh, each recipe at its best of five rates; from REINFORCE to GRPO one "
        "part is added at a time; 16 seeds ran on a GPU, 4 on a CPU.",
    ),
)  # fmt: skip

for _name, _words, _outcome, _with, _without in (
    ("importance-weights-help-smollm2-at-the-end", "importance weights per token add", END, WEIGHTED, PLAIN),
    ("importance-weights-help-smollm2-on-the-way", "importance weights per token add", AREA, WEIGHTED,
     PLAIN),
    ("standardized-advantages-help-smollm2-at-the-end", "standardized advantages add", END, STANDARD,
     WEIGHTED),
    ("standardized-advantages-help-smollm2-on-the-way", "standardized advantages add", AREA, STANDARD,
     WEIGHTED),
    ("a-clip-helps-smollm2-at-the-end", "a clip at 0.2 adds", END, CLIPPED, STANDARD),
    ("a-clip-helps-smollm2-on-the-way", "a clip at 0.2 adds", AREA, CLIPPED, STANDARD),
    ("grpo-beats-reinforce-on-smollm2-at-the-end", "all parts of GRPO together add", END, CLIPPED, PLAIN),
    ("grpo-beats-reinforce-on-smollm2-on-the-way", "all parts of GRPO together add", AREA, CLIPPED, PLAIN),
):  # fmt: skip
    ask(STEPS, _name, f"At lag 32, each at its best rate, {_words} 0.05 to the "
        f"{'final accuracy' if _outcome == END else 'mean accuracy over training'}, in the median.",
        {**_with, "lag": OLD}, {**_without, "lag": OLD}, MARGIN, _outcome)  # fmt: skip

asks(STEPS,
    ("tuned-grpo-holds-on-smollm2-at-lag-32", "At lag 32 GRPO ends at most 0.05 below GRPO on fresh data, "
     "each at its best rate, in the median.", {**CLIPPED, "lag": OLD}, {**CLIPPED, "lag": 0}, -MARGIN),
    ("tuned-reinforce-loses-on-smollm2-at-lag-32", "At lag 32 REINFORCE ends 0.05 below REINFORCE on fresh "
     "data, each at its best rate, in the median.", {**PLAIN, "lag": 0}, {**PLAIN, "lag": OLD}, MARGIN),
    outcome=END,
)  # fmt: skip
