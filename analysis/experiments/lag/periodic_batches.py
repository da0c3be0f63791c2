"""OAPL on two generations of 450 batches each, as its authors train on code, beside fresh batches; all arms
tuned.
"""

from dataclasses import replace

from analysis.arena.tasks import task
from analysis.lab import asks, inside, strips
from analysis.worlds.tuned_training import Family, Way, with_recipe

CLIPS, BETAS, CAPS = (0.1, 0.2, 0.5, 0.9, 3.0), (1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1.0), (1, 2, 4, 8, 32)
FRESH = replace(task("sorted"), steps=900, log_every=15)
OLD = replace(FRESH, staleness="periodic", lag=225, staleness_args=(("period", 450),))
"""Each of 28,800 responses is trained on once; samples are up to 449 steps old."""
VARIED = ("dynamic_sampling", True)
"""As in its paper, OAPL leaves out prompts on which all or none of the responses are right."""
BATCHES = Family({
    name: replace(way, rates=(5.6e-4, 1e-3, 1.8e-3), pilots=6)
    for name, way in {
        "oapl": Way(with_recipe(OLD, "oapl", "beta2", VARIED), BETAS),
        "tis": Way(with_recipe(OLD, "tis", "cap"), CAPS),
        "grpo": Way(with_recipe(OLD, "grpo", "eps_low+eps_high"), CLIPS),
        "fresh oapl": Way(with_recipe(FRESH, "oapl", "beta2", VARIED), (0.03,)),
        "fresh grpo": Way(with_recipe(FRESH, "grpo")),
    }.items()
}, by="area")  # fmt: skip
"""On fresh data neither a clip nor beta2 is tuned: beta2 scales the gradient, which Adam ignores."""
METRICS = ("area", "accuracy", "rise accuracy", "mean rollout_corr/kl_mu_pi_k3", "mean actor/clip_share")
SEEDS, LATER, MORE, LESS, TIMES = 32, 70_000, 0.02, 0.05, 3
"""Seeds of a run, offset so that no other table has them; the smallest gain and loss in accuracy that count;
and the factor between numbers of responses. Set before the table was made."""

EXPERIMENT = BATCHES.experiment(
    (*METRICS, "steps_to 0.5"), SEEDS, first=LATER,
    question="Does OAPL learn more from two old generations than GRPO with importance sampling?",
    source="Ritter et al. (2026), OAPL, arXiv:2602.19362",
    differs="toy transformers that sort ten digits; 28,800 responses, every one trained on once",
    margins={"accuracy gained": MORE, "accuracy lost": LESS, "times as many generations": TIMES},
    figure=strips("area: mean accuracy along 28,800 responses", "Shows mean accuracy along 28,800 responses "
        "of toy transformers that sort ten digits, each arm at its best rate and knob; OAPL, which regresses "
        "log-ratios on advantages, GRPO, and GRPO with truncated importance weights (TIS) learn from two "
        "generations of 14,400 responses, up to 449 steps old; OAPL and GRPO also learn from fresh ones."),
    systems={"OAPL": "one task; the responses come from the trained policy there, not from DeepCoder; beta2 "
             "in steps of three"},
)  # fmt: skip
asks(EXPERIMENT,
    ("oapl-gains-over-tis-on-two-generations",
     "Where two generations of 450 batches are trained on once, up to 449 steps later, OAPL's mean accuracy "
     "along 28,800 responses is 0.02 above that of GRPO with truncated importance weights.",
     "oapl", "tis", {"by": MORE, "outcome": "area"}),
    ("oapl-gains-over-grpo-on-two-generations",
     "Where two generations of 450 batches are trained on once, up to 449 steps later, OAPL's mean accuracy "
     "along 28,800 responses is 0.02 above that of GRPO at its best clip.",
     "oapl", "grpo", {"by": MORE, "outcome": "area"}),
    ("oapl-keeps-its-accuracy-at-lags-over-400",
     "On samples up to 449 steps old OAPL's mean accuracy along 28,800 responses is less than 0.05 below its "
     "own on fresh ones.", "oapl", "fresh oapl", {"by": -LESS, "outcome": "area"}),
)  # fmt: skip
EXPERIMENT.claim(
    "oapl-needs-a-third-of-the-generations-of-fresh-grpo",
    "On two generations OAPL needs under a third of the responses that GRPO on fresh batches needs to an "
    "accuracy of 0.5, on most seeds, each at its best mean accuracy.",
    gates={"tuned": inside(arm=("oapl", "fresh grpo"))},
).happens("steps_to 0.5", {"arm": "oapl"}, {"arm": "fresh grpo"}, times=TIMES)
