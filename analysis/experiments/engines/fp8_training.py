"""Rollouts in FP8 or under strong noise with a trainer in full precision, and two repairs."""

from dataclasses import replace

from analysis.lab import Arm, Evidence, Experiment, Frame, Part, Plot, Stop, arms, at_floor, median_within
from analysis.sweeps.base_runs import TOY
from testbed.config.run import Arguments, Run, grid

JET_RL = "Jet-RL, arXiv:2601.14243 (abstract)"
MARGIN = 0.05
UNCORRECTED: Arguments = (
    ("advantage", "group_std"),
    ("aggregation", "token_mean"),
    ("eps_low", 1.0),
    ("eps_high", 1e9),
    ("weight", "none"),
)
"""rec_oneside with a region that holds every token, which equals the recipe tis without its weight."""
FP8 = "fp8-tensor+fp8-activations"
"""Weights and inputs of linear layers are in e4m3, embeddings and head included."""
NOISE = 0.2
"""Noise as a share of every matrix's root mean square: seven times the error of e4m3 weights."""
ARMS: dict[str, Arm] = {
    "full": {"mismatch": "off", "policy_args": "default", "recipe": "rec_oneside"},
    "fp8": {"mismatch": FP8, "policy_args": "default", "recipe": "rec_oneside"},
    "noise": {"mismatch": "layer-noise", "policy_args": "default", "recipe": "rec_oneside"},
    "unified": {"mismatch": "off", "policy_args": f"precision={FP8} matrices=all", "recipe": "rec_oneside"},
    "fp8 TIS": {"mismatch": FP8, "policy_args": "default", "recipe": "tis"},
    "noise TIS": {"mismatch": "layer-noise", "policy_args": "default", "recipe": "tis"},
}
"""Arms of the table by rollout engine, precision of the policy and recipe."""


def cells() -> tuple[Run, ...]:
    """The toy LLM with rollouts in full precision, FP8 or noise, with and without TIS; FP8 on both sides."""
    plain = replace(TOY, recipe="rec_oneside", recipe_args=UNCORRECTED)
    fp8 = replace(plain, mismatch=FP8, mismatch_args=(("matrices", "all"),))
    noise = replace(plain, mismatch="layer-noise", mismatch_args=(("matrices", "all"), ("sigma", NOISE)))
    both = replace(plain, policy_args=(("precision", f"{FP8} matrices=all"),))
    tis = [replace(run, recipe="tis", recipe_args=()) for run in (fp8, noise)]
    return tuple(cell for run in (plain, fp8, noise, both, *tis) for cell in grid(run, seed=[0]))


EXPERIMENT = Experiment(
    question="Do FP8 rollouts collapse a trainer in full precision, and what repairs it?",
    source="Jet-RL, arXiv:2601.14243 (abstract); truncated importance sampling as in verl's documentation",
    differs="a transformer of 26,000 weights on running sums; e4m3 is emulated",
    cells=cells, stop=Stop(cap=32), keys=("mismatch", "policy_args", "recipe", "seed"),
    metrics=(
        *("accuracy", "best", "start", "collapsed", "mean rollout_corr/ess_kish_sequence_raw"),
        *("mean rollout_corr/kl_mu_pi_k3", "max rollout_corr/log_rho_token_p999"),
    ),
    margins={"accuracy that counts as equal": MARGIN},
    figure=Plot(
        "distribution", x="mismatch: engine of the rollouts", y="accuracy: final accuracy",
        arm=("policy_args", "recipe"),
        names={
            "default": "full precision",
            f"precision={FP8} matrices=all": "FP8",
            "rec_oneside": "no weight",
            FP8: "FP8",
            "layer-noise": "noisy",
            "off": "the trainer's own",
        },
    ),
    systems={
        "Jet-RL": Part(
            "FP8 rollouts and one precision on both sides at one short horizon; no speed",
            claims=("fp8-rollouts-collapse-most-seeds", "one-precision-on-both-sides-costs-nothing"),
        )
    },
)  # fmt: skip


EXPERIMENT.claim(
    "strong-rollout-noise-collapses-the-trainer",
    "Rollouts whose weights are off by a fifth of their root mean square make the uncorrected trainer "
    "collapse on more seeds than full-precision rollouts do.",
    source=f"{JET_RL}; with noise seven times the error of e4m3 weights in its place",
).happens("collapsed", ARMS["noise"], ARMS["full"])
EXPERIMENT.claim(
    "fp8-rollouts-collapse-most-seeds",
    "On the toy LLM, rollouts with e4m3 weights and activations make an uncorrected full-precision trainer "
    "collapse on more than half of all seeds, full-precision rollouts not.",
    source=f"{JET_RL}; the share was chosen on a pilot",
).happens("collapsed", ARMS["fp8"], ARMS["full"], alone=True)
EXPERIMENT.claim(
    "tis-repairs-strong-rollout-noise",
    "Under the same noise token-level TIS with cap 2 ends at a higher accuracy than no correction.",
    source="truncated importance sampling, verl documentation of rollout correction",
).compare("accuracy", ARMS["noise TIS"], ARMS["noise"])


@EXPERIMENT.claim(
    "one-precision-on-both-sides-costs-nothing", source=f"{JET_RL}: one FP8 flow for rollout and training"
)
def one_precision_on_both_sides_costs_nothing(table: Frame) -> Evidence:
    """With FP8 on both sides, and with TIS under FP8 rollouts, the final accuracy is within 0.05 of that of
    training in full precision, in the median over seeds.
    """
    # A function of its own: two arms that differ in several columns are each compared with the same third.
    found = arms(table, "accuracy", ARMS)
    pairs = {name: found[name] - found["full"] for name in ("unified", "fp8 TIS")}
    floored = [name for name in pairs if at_floor([found[name], found["full"]], MARGIN)]
    return median_within(pairs, MARGIN, "median change in accuracy", floored)
