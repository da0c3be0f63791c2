"""Other stacks' names for the metrics of metric_names, and where such a name has another meaning."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Alias:
    """A metric key of another stack. differs: how its value differs; "" for the same definition."""

    stack: str
    key: str
    differs: str = ""

    def __str__(self) -> str:
        return f"{self.stack} {self.key}" + (f" ({self.differs})" if self.differs else "")


_REPEATED = "sequence mode: each weight is repeated at every token of its sequence, so long ones count more"
_OVER_ALL = "over all tokens, with advantage or without"
_NOT_LOG = "of the ratio, not of its logarithm"
ALIASES: dict[str, tuple[Alias, ...]] = {
    "rollout_corr/ess_kish_token_raw": (
        Alias("PipelineRL", "rl/ess"),
        Alias("miles", "ess_ratio", "averaged over samples"),
    ),
    "rollout_corr/ess_kish_token_clamped": (
        Alias("verl", "rollout_corr/rollout_is_eff_sample_size", "in token mode"),
    ),
    "rollout_corr/ess_kish_sequence_raw": (Alias("VCPO", "staleness/ess_ratio"),),
    "rollout_corr/ess_kish_sequence_clamped": (
        Alias("VCPO", "staleness/ess_ratio_clipped"),
        Alias("verl", "rollout_corr/rollout_is_eff_sample_size", _REPEATED),
    ),
    "rollout_corr/kl_mu_pi_k1": (
        Alias("verl", "rollout_corr/kl"),
        Alias("ms-swift", "kl"),
        Alias("rLLM", "offpolicy/kl"),
        Alias("tinker-cookbook", "optim/kl_sample_train_v1"),
    ),
    "rollout_corr/kl_mu_pi_k2": (Alias("tinker-cookbook", "optim/kl_sample_train_v2"),),
    "rollout_corr/kl_mu_pi_k3": (
        Alias("verl", "rollout_corr/k3_kl"),
        Alias("ms-swift", "k3_kl"),
        Alias("rLLM", "offpolicy/k3_kl"),
        Alias("TRL async", "kl", "new policy over old, not trainer over sampler"),
    ),
    "rollout_corr/chi2_token": (
        Alias("verl", "rollout_corr/chi2_token"),
        Alias("ms-swift", "chi2_token"),
        Alias("rLLM", "offpolicy/chi2_token"),
    ),
    "rollout_corr/chi2_sequence": (
        Alias("verl", "rollout_corr/chi2_seq"),
        Alias("ms-swift", "chi2_seq"),
        Alias("rLLM", "offpolicy/chi2_seq"),
    ),
    "rollout_corr/log_rho_token_p50": (Alias("CTPO", "pg_update/is_ratio/p50", _NOT_LOG),),
    "rollout_corr/log_rho_token_p90": (Alias("CTPO", "pg_update/is_ratio/p90", _NOT_LOG),),
    "rollout_corr/log_rho_token_p99": (Alias("CTPO", "pg_update/is_ratio/p99", _NOT_LOG),),
    "actor/clip_share": (
        Alias("verl", "actor/pg_clipfrac", _OVER_ALL),
        Alias("TRL", "clip_ratio/region_mean", _OVER_ALL),
        Alias("AReaL", "clip_ratio", _OVER_ALL),
        Alias("slime", "train/pg_clipfrac", _OVER_ALL),
        Alias("OpenRLHF", "ppo_clip_ratio", _OVER_ALL),
        Alias("open-instruct", "policy/clipfrac_avg", _OVER_ALL),
    ),
    "actor/entropy": (
        Alias("verl", "actor/entropy"),
        Alias("TRL", "entropy"),
        Alias("PipelineRL", "rl/entropy"),
        Alias("NeMo-RL", "approx_entropy", "estimated from the sampled tokens"),
        Alias("tinker-cookbook", "optim/entropy", "of the sampler, estimated from the sampled tokens"),
    ),
    "actor/grad_norm": (
        Alias("verl", "actor/grad_norm"),
        Alias("TRL", "grad_norm"),
        Alias("prime-rl", "optim/grad_norm"),
    ),
    "reward/mean": (
        Alias("TRL", "reward"),
        Alias("tinker-cookbook", "env/all/reward/total"),
        Alias("verl", "critic/score/mean", "without responses that have no token"),
    ),
    "response_length/mean": (
        Alias("verl", "response_length/mean"),
        Alias("TRL", "completions/mean_length"),
    ),
    "actor/clip_share_positive": (
        Alias("TRL", "clip_ratio/high_mean", "tokens above the bound, of all tokens"),
    ),
    "actor/clip_share_negative": (
        Alias("TRL", "clip_ratio/low_mean", "tokens below the bound, of all tokens"),
        Alias("verl", "actor/pg_clipfrac_lower", "the dual clip alone, over all tokens"),
    ),
    "val/kl_start_k3": (
        Alias("TRL", "kl", "over the generated batch, to the reference model"),
        Alias("verl", "actor/kl_loss", "over the generated batch, to the reference model; k1, k2 or k3"),
    ),
    "val/max@8": (
        Alias("verl", "val-core/…/reward/best@8/mean", "by bootstrap with replacement, so biased"),
    ),
}


def rows() -> list[dict[str, str]]:
    """Return name, definition, logging time and aliases of every metric, as text."""
    from testbed.diagnostics.metric_names import METRICS, ON_REQUEST

    return [
        {"name": name, "what": what, "logged": when, "elsewhere": "; ".join(map(str, ALIASES.get(name, ())))}
        for when, group in (("by runs", METRICS), ("on request", ON_REQUEST))
        for name, what in group.items()
        if not (when == "on request" and name in METRICS)
    ]
