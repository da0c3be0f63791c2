"""SmolLM2-135M-Instruct learns to count from rollouts of its weights in llama.cpp's Q4_0.

GRPO clips pi over the trainer's log-probabilities. On fresh data that clips nothing, so TIS and MIS only
correct the engine's rounding. The outcome is mean accuracy over training, as final accuracies are near 1.
"""

from dataclasses import replace

from analysis.experiments.engines.real_rollouts import DRIFT, KEYS, written_by
from analysis.experiments.real.known_model import AREA, BASE, ESS, MARGIN, PROBLEMS, prepare
from analysis.lab import Experiment, Plot, Stop, Tuned
from analysis.sweeps.tuning import at_rates
from testbed.config.run import Run

ENGINE = Run(mismatch="q4-0")
RATES = (3e-5, 1e-4, 3e-4, 1e-3)


def arms() -> tuple[Run, ...]:
    """Return arms on fresh data: float32 rollouts, and those of Q4_0 uncorrected, with TIS and with MIS."""
    counting = (
        ("file", str(PROBLEMS.with_name("count.jsonl"))),
        ("verifier", "exact"),
        ("response_length", 24),
    )
    base = replace(
        BASE, task_args=counting, policy_args=(("lora", 8), ("dtype", "float32")), device="cuda", steps=48,
        log_every=8,
    )  # fmt: skip
    pairs = ((Run(), "grpo"), (ENGINE, "grpo"), (ENGINE, "tis"), (ENGINE, "mis"))
    return tuple(written_by(base, *pair, 0) for pair in pairs)


FOUR_BIT_RATES = Experiment(
    "four-bit-rates",
    question="Which learning rate suits SmolLM2 on four-bit rollouts, by correction?",
    source="design of this project: rates are chosen before arms are compared",
    prepare=prepare, cells=lambda: at_rates(arms(), RATES, seeds=2), keys=(*KEYS, "learning_rate", "seed"),
    metrics=("accuracy", "last accuracy", AREA, DRIFT),
)  # fmt: skip
FOUR_BITS = Experiment(
    "four-bit-rollouts",
    question="What do four-bit rollouts cost a language model that people know, and what corrects them?",
    source="this project; SmolLM2-135M-Instruct, Apache-2.0; llama.cpp's format Q4_0",
    differs="48 steps of 32 responses of up to 24 tokens, counting upwards; adapters of rank 8 in float32 "
    "over a model in Q4_0 for rollouts; each arm at its best of four rates",
    prepare=prepare, cells=arms, tuned=Tuned(table=FOUR_BIT_RATES.name, outcome=AREA),
    stop=Stop(block=8, cap=32, first=600, fresh=6000), keys=(*KEYS, "seed"),
    metrics=(
        *(AREA, "accuracy", "rise accuracy", "last accuracy", "collapsed", ESS, DRIFT),
        "mean actor/clip_share",
    ),
    margins={"accuracy that counts": MARGIN},
    figure=Plot(
        "strips", x=f"{AREA}: mean held-out accuracy", y="called: rollouts and correction",
        of=lambda table: table.assign(
            called=table["mismatch"].map({"off": "float32, ", "q4-0": "Q4_0, "})
            + table["recipe"].map({"grpo": "uncorrected", "tis": "TIS", "mis": "MIS"})
        ),
        says="Shows SmolLM2-135M-Instruct over 48 steps of counting, by the format of its rollouts and by "
        "their correction.",
    ),
)  # fmt: skip

TRAINER, BARE = {"mismatch": "off", "recipe": "grpo"}, {"mismatch": "q4-0", "recipe": "grpo"}
TIS, MIS = {**BARE, "recipe": "tis"}, {**BARE, "recipe": "mis"}
for _name, _statement, _first, _second, _by in (
    ("q4-0-rollouts-slow-smollm2-down",
     "On float32 rollouts mean accuracy is 0.05 higher than on uncorrected ones of Q4_0, in the median.",
     TRAINER, BARE, MARGIN),
    ("tis-gains-on-q4-0-rollouts",
     "On rollouts of Q4_0 mean accuracy is 0.05 higher with TIS than uncorrected, in the median.", TIS, BARE,
     MARGIN),
    ("mis-gains-on-q4-0-rollouts",
     "On rollouts of Q4_0 mean accuracy is 0.05 higher with MIS than uncorrected, in the median.", MIS, BARE,
     MARGIN),
    ("q4-0-rollouts-cost-smollm2-little-with-tis",
     "On rollouts of Q4_0 with TIS mean accuracy is under 0.05 below that on float32 ones, in the median.",
     TIS, TRAINER, -MARGIN),
    ("q4-0-rollouts-cost-smollm2-little-with-mis",
     "On rollouts of Q4_0 with MIS mean accuracy is under 0.05 below that on float32 ones, in the median.",
     MIS, TRAINER, -MARGIN),
):  # fmt: skip
    FOUR_BITS.claim(_name, _statement).compare(AREA, _first, _second, by=_by)
