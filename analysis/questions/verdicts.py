"""Questions that judged claims answer: the words say what was measured, the verdicts what came of it."""

from analysis.questions.question import judged_by

TOY = "Toy transformers of some thousand weights on small tasks; lag and rate as the claim says."

judged_by(
    3,
    "How old may data be, and does a lower learning rate buy more?",
    "marin-community/marin#8955",
    "No single number is safe, and one product does not settle it. Lag times rate orders the losses "
    "better than the lag alone: {0}. Cells of an equal product do not cost the same: {1}. As rates go to "
    "zero only the product counts, in the small: {2}. A short pilot foretells the safe lag within an "
    "octave: {3}.",
    TOY,
    (
        "lag-times-rate-orders-losses-better-than-lag",
        "equal-lag-times-rate-costs-alike",
        "only-lag-times-rate-counts-as-rates-fall",
        "a-pilot-foretells-the-safe-lag-within-an-octave",
    ),
)
judged_by(
    5,
    "After new weights arrive, keep the old cache or compute it again?",
    "PrimeIntellect-ai/prime-rl#1043",
    "They are different samplers, and only one has log-probabilities per token that a version number "
    "describes. With a cache computed again each token has the distribution of its version: {0}. A kept "
    "cache has one of its own, which belongs to no version: {1}. So record what the engine reports if the"
    " cache is kept. The cost in training has not been judged here.",
    "Exact on the small transformer; no statement on the size in large models.",
    ("a-recomputed-cache-has-per-token-laws", "a-kept-cache-is-a-law-of-its-own"),
)
judged_by(
    7,
    "Which estimator of the KL divergence has the right gradient?",
    "huggingface/trl#4967",
    "As a value and as a loss are two matters. As values k1 and k3 are unbiased and k2 is not: {0}. As "
    "losses on on-policy samples k2 has the gradient of the reverse divergence, k1 has mean gradient zero"
    " and k3 that of the forward divergence: {1}. k3 varies less than k1 near the reference and more "
    "beyond a shift of about one deviation: {2}.",
    "Exact; the last for normal distributions. Relevance to what a trained model reaches has not been "
    "judged.",
    ("kl-estimators-as-values", "kl-estimators-as-losses", "k3-varies-more-than-k1-beyond-a-shift-of-1.12"),
)
judged_by(
    10,
    "Once each loss is tuned, does the choice matter on stale data?",
    "thinking-machines-lab/tinker-cookbook#600",
    "On very old data it does in this toy. At lag 256, each at its best rate, the gain in final accuracy "
    "over GRPO is for TOPR {0}; for VCPO {1}; for OAPL {2}; for AsymRE {3}. On 14 digits, "
    "tuned over rate and knob, MinPRO over GRPO: {4}. The order depends on the task.",
    TOY + " Each arm at the best of a few rates, chosen on other seeds.",
    (
        "topr-ends-above-grpo-at-lag-256",
        "vcpo-ends-above-grpo-at-lag-256",
        "oapl-ends-above-grpo-at-lag-256",
        "asymre-ends-above-grpo-at-lag-256",
        "minpro-ends-above-tuned-grpo-at-lag-256-on-long",
    ),
)
judged_by(
    11,
    "Is bit-equal sampling and training worth its price?",
    "marin-community/marin#1988",
    "Where the sampler's noise is strong, it collapses the trainer: {0}. FP8 rollouts collapse most "
    "seeds: {1}. A truncated weight repairs strong noise: {2}. One coarse precision on both sides costs "
    "nothing: {3}. At these sizes the gap matters when it is large, and the cheap repair does not replace"
    " removing it.",
    TOY,
    (
        "strong-rollout-noise-collapses-the-trainer",
        "fp8-rollouts-collapse-most-seeds",
        "tis-repairs-strong-rollout-noise",
        "one-precision-on-both-sides-costs-nothing",
    ),
)
judged_by(
    19,
    "What number should be called staleness?",
    "PrimeIntellect-ai/prime-rl#2674",
    "A lag in versions is not enough, and none of the replacements is decided to be better. Lag times "
    "rate orders losses better than lag: {0}. The divergence to the data orders them better still: {1}; "
    "the divergence per update times lag: {2}. At equal mean age the spread of the ages matters too: {3}.",
    TOY + " The last is an enumeration.",
    (
        "lag-times-rate-orders-losses-better-than-lag",
        "kl-to-the-data-orders-losses-better",
        "kl-per-update-times-lag-orders-losses-better",
        "spread-of-ages-raises-the-second-moment",
    ),
)
judged_by(
    20,
    "Several optimizer steps per rollout: are they free?",
    "radixark/miles#1697",
    "Up to eight updates per synchronous batch keep the final accuracy within the margin: two {0}, four "
    "{1}, eight {2}. They save time: {3}. These steps start from lag 0; how they add to an existing lag "
    "has been judged only for single objectives, as R2VPO over GRPO at lag 64 with four passes: {4}.",
    TOY,
    (
        "rapid-with-2-updates-is-as-good-as-synchronous",
        "rapid-with-4-updates-is-as-good-as-synchronous",
        "rapid-with-8-updates-is-as-good-as-synchronous",
        "rapid-with-8-updates-saves-time",
        "r2vpo-ends-above-grpo-x4-at-lag-64",
    ),
)
judged_by(
    21,
    "Staleness, an engine gap, or weights that never arrived: how to tell them apart?",
    "verl-project/verl#7495",
    "Set the learning rate to zero: what drift is left is the engine's: {0}. Engine noise grows the "
    "log-ratio as the root of the length, {1}; a lag that drifts in one direction grows it linearly with "
    "the lag, {2}. The variances of both add only if they are uncorrelated: {3}. Weights that never "
    "arrived look like a lag that grows by one with every step.",
    "Identities; a rule with a measured error rate has not been built.",
    (
        "at-learning-rate-zero-all-drift-is-mismatch",
        "log-mismatch-grows-as-root-t",
        "lag-log-ratio-grows-linearly-if-coherent-and-as-a-root-if-not",
        "lag-and-mismatch-variances-add-only-if-uncorrelated",
    ),
)
judged_by(
    27,
    "How many seeds before a difference or a collapse counts?",
    "allenai/open-instruct#648",
    "More than most reports have. A gap below the spread of the seeds takes dozens of them: {0}. Three "
    "steps of lag cost GRPO less than five points here: {1}. `testbed power` computes the number for a "
    "gap and a spread of yours.",
    "The first by computation; the second on the toy.",
    (
        "a-gap-below-the-seed-spread-takes-dozens-of-seeds",
        "three-steps-of-lag-cost-grpo-less-than-five-points",
    ),
)
judged_by(
    32,
    "Are rare weight updates kinder than a deep queue of the same mean age?",
    "marin-community/marin#8955",
    "The spread of ages at equal mean raises the second moment of the weights: {0}. In training, spread "
    "ages learn faster: {1}; periodic ages hold the clip back: {2}. The interaction that the thread "
    "reports, from one seed, is therefore neither confirmed nor refuted here.",
    TOY,
    (
        "spread-of-ages-raises-the-second-moment",
        "spread-ages-learn-faster",
        "periodic-ages-hold-the-clip-back",
    ),
)
judged_by(
    33,
    "Which reading foretells a collapse?",
    "pytorch/rl#1708",
    "Token ESS does not see length and so can stand near 1 while the sequence weights are degenerate: "
    "{0}. At one lag and rate ESS ranks collapses: {1}; entropy warns better than ESS there: {2}. On real"
    " models early ESS ranks collapses: {3}.",
    TOY + " The first is an identity.",
    (
        "token-ess-does-not-see-length",
        "ess-ranks-collapses-at-one-lag-and-rate",
        "entropy-warns-better-than-ess-at-one-lag-and-rate",
        "early-ess-ranks-collapses-of-real-models",
    ),
)
judged_by(
    39,
    "Does clipping itself raise entropy?",
    "TianHongZXY/RLVR-Decomposed#6",
    "The sign of the change follows from the token's probability, not from its ratio: {0}. Wrong answers "
    "with small ratios raise entropy: {1}.",
    "The first is an identity, the second an enumeration.",
    (
        "probability-not-ratio-decides-the-entropy",
        "small-ratios-on-wrong-answers-raise-entropy",
    ),
)
judged_by(
    40,
    "Can the proximal policy be interpolated instead of computed again?",
    "areal-project/AReaL#599",
    "The log-linear blend is off by a log-normalizer, which is bounded: {0}. Missing old "
    "log-probabilities cost decoupled PPO accuracy: {1}. An averaged anchor ends above missing ones: {2}.",
    "The bound is an identity; the rest small worlds and the toy.",
    (
        "loglinear-anchor-is-off-by-a-log-normalizer",
        "missing-old-logits-cost-decoupled-ppo",
        "an-ewma-anchor-ends-above-missing-log-probabilities",
    ),
)
