"""Names, definitions and bins of everything a run logs. Without torch, so that reading tables needs none.

ESS is always a share of N. Its name has three words: kind (kish, perplexity, max), level (token, prefix,
sequence) and weights (raw, clamped). Its floor 1/N is logged beside it.
"""

import numpy as np

CLAMP = 2.0
"""Upper bound of "clamped" weights: verl's default truncation of rollout importance weights."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}

HISTOGRAM_EDGES = np.linspace(-16.0, 16.0, 129)
"""Edges of the log-ratio histogram; the first and last of its 130 counts are the open outer bins."""

PASS_KS = (1, 2, 4, 8)
"""The k of pass@k and max@k."""

METRICS: dict[str, str] = {
    "accuracy": "mean reward of fresh samples of the current policy on held-out prompts, by the task itself",
    "val/proxy": "mean reward of the same samples by the run's verifier, where it has one",
    "val/response_length": "mean length of the samples behind `accuracy`, tokens",
    "val/entropy": "mean of -log pi over the tokens of the samples behind `accuracy`, nats per token",
    "val/kl_start_k1": "mean of log pi - log start over tokens of pi on the first held-out prompts: "
    "estimates KL(pi, weights at the start) per token, nats",
    "val/kl_start_k3": "mean of start/pi - 1 - log(start/pi) over the same tokens: that KL, never negative",
    "val/accuracy_difficulty_D": "accuracy on held-out prompts of difficulty D; tasks of graded difficulty",
    **{
        f"val/pass@{k}": f"chance that the best of {k} samples is right, from 8 samples per prompt without "
        "bias; the first 32 held-out prompts, every 4th logged row and the last"
        for k in PASS_KS
    },
    **{
        f"val/max@{k}": f"expected reward of the best of {k} samples, from the samples of pass@{k}"
        for k in PASS_KS
    },
    "rollouts": "sequences generated for training up to this step, it included: fresh ones, those thrown "
    "away for their age, those a recipe's baseline asks for, those that filled a store of traces; not "
    "those of the held-out prompts",
    "prefix/attempts": "responses of the start weights that filled the store of traces, failures included",
    "prefix/traces": "prompts in the store of traces: those that had a success",
    "response_length/mean": "mean length of the batch's sequences under the mask, tokens",
    "reward/gold": "mean reward by the task itself of what was generated last, where a verifier rewards it",
    "reward/mean": "mean reward of the generated batch, that is of the behavior policy",
    "actor/entropy": "mean entropy of the target policy's next-token distribution on the batch, nats",
    "actor/grad_norm": "Euclidean norm of the sampled gradient before clipping",
    "actor/clip_share": "share of tokens with nonzero advantage and zero effective weight",
    "actor/clip_share_last_pass": "the clip share at the last pass, where a recipe makes several of a batch",
    "actor/clip_share_positive": "clip share of the tokens with A > 0 alone",
    "actor/clip_share_negative": "clip share of the tokens with A < 0 alone",
    "actor/positive_share": "share of gradient mass from A > 0: sum of |effective weight| over its tokens, "
    "of all; NaN where no token has a gradient",
    "actor/learning_rate": "step size after the step-size rule",
    "critic/vf_loss": "mean squared distance of a fitted critic's values from its targets, before it learns "
    "from the batch",
    "critic/vf_explained_var": "1 - that distance / variance of the targets; NaN where they do not vary",
    "diverged": "1 from the step at which the loss or gradient was not finite; the weights stay frozen",
    "rollout_corr/ess_floor": "1/N for N sequences: a sampled sequence ESS cannot read lower",
    "rollout_corr/ess_floor_token": "1/N for N tokens: a sampled token or prefix ESS cannot read lower",
    "rollout_corr/nonfinite": "number of tokens whose log-ratio is not finite; token metrics leave them out, "
    "and their sequence weighs 0 where pi = 0 and is left out otherwise",
    "rollout_corr/kl_mu_pi_k1": "mean of -log rho over tokens of mu: estimates KL(mu, pi) per token",
    "rollout_corr/kl_mu_pi_k2": "mean of (log rho)^2 / 2 over tokens of mu",
    "rollout_corr/kl_mu_pi_k3": "mean of rho - 1 - log rho over tokens of mu",
    "rollout_corr/kl_pi_mu_k1": "mean of rho log rho over tokens of mu: estimates KL(pi, mu) per token",
    "rollout_corr/kl_pi_mu_k2": "mean of rho (log rho)^2 / 2 over tokens of mu",
    "rollout_corr/kl_pi_mu_k3": "mean of rho log rho - rho + 1 over tokens of mu",
    "rollout_corr/chi2_token": "mean of rho^2 - 1 over tokens",
    "rollout_corr/chi2_sequence": "mean of W^2 - 1 over sequences",
    "rollout_corr/log_rho_sequence_histogram": "counts of log W over HISTOGRAM_EDGES since the last row",
    "staleness/age_mean_token": "mean age of the batch's tokens: optimizer steps since their weights",
    "staleness/age_max_token": "largest age of the batch's tokens",
    "staleness/stalled": "time, in optimizer steps, that the trainer waited before this step",
    "staleness/discarded": "groups thrown away for their age before this step's batch was complete",
    "staleness/dropped_share": "share of the batch's sequences that left it for their age",
    "staleness/masked_share": "share of the batch's tokens that left the loss for their age",
    "staleness/empty": "1 where nothing was left of the batch, so that no update was made",
    "staleness/length_made": "mean length of sequences that the present weights generate, tokens",
    "staleness/length_kept": "mean length of the batch's sequences when they were generated, tokens",
    "staleness/length_lost": "mean length of the sequences lost for their age; NaN where none was",
    "staleness/replayed_share": "share of the batch's groups that come from earlier generations",
    "verifier/errors": "responses at which the task's verifier raised or gave no number, since the start",
    "verifier/timeouts": "responses at which the task's verifier took longer than its limit, since the start",
    "pipeline/time": "seconds from a pipeline's start to the training of this step's batch, by its trace",
    "exact/value": "expected return of the target policy",
    "exact/kl_start": "KL(pi, weights at the start) of the episode distributions, nats",
    "exact/grad_norm": "norm of the exact policy gradient",
    "exact/grad_cosine": "cosine between the sampled update direction and the exact policy gradient",
    "exact/ess_kish_sequence": "limit of the Kish ESS share: 1 / E_mu W^2",
    "exact/ess_perplexity_sequence": "limit of the perplexity ESS share: exp(-KL(pi, mu))",
    "exact/ess_max_sequence": "limit of the max-weight ESS share: exp(-max log W)",
    "exact/kl_pi_mu": "KL(pi, mu) of the episode distributions, nats",
    "exact/kl_mu_pi": "KL(mu, pi) of the episode distributions, nats",
    "exact/chi2_sequence": "E_mu W^2 - 1",
}

_HOW = {
    "kish": "(sum w)^2 / (N sum w^2)",
    "perplexity": "exp(entropy of w / sum w) / N",
    "max": "sum w / (N max w)",
}
_WHAT = {"token": "token ratios", "prefix": "prefix ratios of all tokens", "sequence": "sequence ratios"}
_WHICH = {"raw": "as they are", "clamped": f"bounded above by {CLAMP:g}"}

for _how, _formula in _HOW.items():
    for _what, _weights in _WHAT.items():
        for _which, _bound in _WHICH.items():
            METRICS[f"rollout_corr/ess_{_how}_{_what}_{_which}"] = f"{_formula} over {_weights}, {_bound}"
METRICS |= {
    "rollout_corr/pareto_k_sequence": "shape of the Pareto tail of sequence ratios; NaN when it is flat or "
    "too few distinct weights lie in it",
    "rollout_corr/tail_hill_sequence": "Hill's index of the same tail; positive for every distribution",
}
for _level in ("token", "sequence"):
    for _label in QUANTILES:
        METRICS[f"rollout_corr/log_rho_{_level}_{_label}"] = f"{_label} of log {_level} ratios"

ON_REQUEST: dict[str, str] = {}
"""Metrics that weight_sums and tails compute from given weights; runs do not log them."""
for _level in _WHAT:
    for _which, _bound in _WHICH.items():
        _weights = f"{_WHAT[_level]}, {_bound}"
        ON_REQUEST |= {
            f"rollout_corr/max_share_{_level}_{_which}": f"max w / sum w over {_weights}; 1/N at best",
            f"rollout_corr/chi2_{_level}_{_which}": f"mean of w^2 - 1 over {_weights}",
            f"rollout_corr/kurtosis_{_level}_{_which}": f"m4 / m2^2 - 3 over {_weights}; needs E w^4",
        }
    ON_REQUEST |= {
        f"rollout_corr/pareto_k_{_level}": f"shape of the Pareto tail of {_WHAT[_level]}; absent when the "
        "tail is flat or too few distinct weights lie in it",
        f"rollout_corr/pareto_k_threshold_{_level}": "min(1 - 1/log10 N, 0.7): above it, do not trust a mean",
        f"rollout_corr/tail_hill_{_level}": f"Hill's index of the same tail of {_WHAT[_level]}; "
        "positive for every distribution",
        f"rollout_corr/tail_moment_{_level}": f"moment index of the same tail of {_WHAT[_level]}, any sign",
    }
