"""Which part of GRPO saves SmolLM2-135M-Instruct from old data: from REINFORCE upwards, a part a step."""

from analysis.experiments.real.known_model import MARGIN, prepare
from analysis.experiments.real.known_rates import KEYS, NAMES, WORDS, arms
from analysis.lab import Experiment, Plot, Stop, Tuned

OLD = 32
END, AREA, ESS = "accuracy", "mean accuracy", "mean rollout_corr/ess_kish_sequence_raw"

EXPERIMENT = Experiment(
    question="Which part of GRPO keeps a language model that people know from failing on old data?",
    source="this project; SmolLM2-135M-Instruct, Apache-2.0",
    differs="80 steps of 32 responses, adapters in float32, one task; each arm at its best of five rates",
    prepare=prepare,
    cells=arms,
    tuned=Tuned(table="known-rates"),
    stop=Stop(block=16, cap=32, first=400, fresh=4000),
    keys=(*KEYS, "seed"),
    metrics=(
        END,
        "rise accuracy",
        "last accuracy",
        AREA,
        "collapsed",
        ESS,
        "mean actor/clip_share",
        "mean rollout_corr/kl_mu_pi_k3",
    ),
    margins={"accuracy that counts": MARGIN},
    figure=Plot(
        "strips",
        x=f"{END}: final held-out accuracy",
        y="lag: lag",
        arm=("recipe: ", "recipe_args: "),
        names=WORDS,
    ),
)
PLAIN, WEIGHTED, STANDARD, CLIPPED = NAMES.values()

for _claim, _words, _with, _without in (
    ("importance-weights-help-smollm2", "importance weights per token add", WEIGHTED, PLAIN),
    ("standardized-advantages-help-smollm2", "standardized advantages add", STANDARD, WEIGHTED),
    ("a-clip-helps-smollm2", "a clip at 0.2 adds", CLIPPED, STANDARD),
    ("grpo-beats-reinforce-on-smollm2", "all parts of GRPO together add", CLIPPED, PLAIN),
):
    for _column, _where, _outcome in (
        (END, "at-the-end", "the final accuracy"),
        (AREA, "on-the-way", "the mean accuracy over training"),
    ):
        EXPERIMENT.claim(
            f"{_claim}-{_where}",
            f"At lag 32, each at its best rate, {_words} 0.05 to {_outcome}, in the median.",
        ).compare(_column, {**_with, "lag": OLD}, {**_without, "lag": OLD}, by=MARGIN)

EXPERIMENT.claim(
    "tuned-grpo-holds-on-smollm2-at-lag-32",
    "At lag 32 GRPO ends at most 0.05 below GRPO on fresh data, each at its best rate, in the median.",
).compare(END, {**CLIPPED, "lag": OLD}, {**CLIPPED, "lag": 0}, by=-MARGIN)

EXPERIMENT.claim(
    "tuned-reinforce-loses-on-smollm2-at-lag-32",
    "At lag 32 REINFORCE ends 0.05 below REINFORCE on fresh data, each at its best rate, in the median.",
).compare(END, {**PLAIN, "lag": 0}, {**PLAIN, "lag": OLD}, by=MARGIN)
