"""Names, definitions and bins of everything a run logs. Without torch, so that reading tables needs none.

ESS is always a share of N. Its name has three words: kind (kish, perplexity, max), level (token, prefix,
sequence) and weights (raw, clamped). Its floor 1/N is logged beside it.
"""

import numpy as np

from testbed.registry import table_rows

CLAMP = 2.0
"""Upper bound of "clamped" weights: verl's default truncation of rollout importance weights."""

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}

HISTOGRAM_EDGES = np.linspace(-16.0, 16.0, 129)
"""Edges of the log-ratio histogram; the first and last of its 130 counts are the open outer bins."""

PASS_KS = (1, 2, 4, 8)
"""The k of pass@k and max@k."""

METRICS = {row["metric"]: row["definition"] for row in table_rows(__file__, "metrics")}

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
