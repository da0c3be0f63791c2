"""Bugs planted in engine mismatch: formats, engines, streams, the behavior engine and its laws."""

from mutants.mutant import Mutant

OWN = "tests/unit/mismatch/test_mismatch_formats.py tests/unit/mismatch/test_mismatch.py tests/unit/mismatch/test_mismatch_distributions.py tests/unit/mismatch/test_mismatch_behavior.py"
CLAIMS = "tests/experiments/test_claims_exact.py -k 'mismatch or reft or truncation'"
FORMATS = "testbed/mismatch/number_formats.py"
QUANTIZED = "testbed/mismatch/quantized.py"
PERTURBED = "testbed/mismatch/perturbed.py"
LAWS = "testbed/mismatch/distributions.py"
BEHAVIOR = "testbed/mismatch/behavior.py"
RATIO = "testbed/mismatch/ratio_distribution.py"
ENGINES = "testbed/mismatch/__init__.py"
CLAIM_FILE = "analysis/experiments/engines/mismatch.py"

MUTANTS = (
    Mutant("mismatch-e4m3-without-subnormals", FORMATS, "exponent = exponent.clamp(min=kind.smallest_exponent)", "pass", OWN),
    Mutant("mismatch-e4m3-truncates", FORMATS, "torch.round(x / quantum) * quantum", "torch.trunc(x / quantum) * quantum", OWN),
    Mutant("mismatch-e4m3-halves-away-from-zero", FORMATS, "torch.round(x / quantum) * quantum", "torch.floor(x / quantum + 0.5) * quantum", OWN),
    Mutant("mismatch-e4m3-largest-is-480", FORMATS, "largest=448.0", "largest=480.0", OWN),
    Mutant("mismatch-fewer-bits-leave-the-mantissa", FORMATS, "replace(E4M3, mantissa=mantissa, largest", "replace(E4M3, largest", OWN),
    Mutant("mismatch-fewer-bits-reach-448", FORMATS, "min(E4M3.largest, (2 - 2.0**-mantissa) * 2.0**8)", "E4M3.largest", OWN),
    Mutant("mismatch-coarse-activations-are-e4m3", QUANTIZED, "to_float(x_RDM.detach() / scale_R1M, kind)", "to_float(x_RDM.detach() / scale_R1M, E4M3)", OWN),
    Mutant("mismatch-coarse-weights-are-e4m3", QUANTIZED, "to_float(w_RIJ / scale, kind)", "to_float(w_RIJ / scale, E4M3)", OWN),
    Mutant("mismatch-e4m3-bias-eight", FORMATS, "smallest_exponent=-6", "smallest_exponent=-7", OWN),
    Mutant("mismatch-bf16-seven-bits", FORMATS, "mantissa=7", "mantissa=6", OWN),
    Mutant("mismatch-int8-uses-minus-128", FORMATS, ".clamp(-INT8_LARGEST, INT8_LARGEST)", "", OWN),
    Mutant("mismatch-scale-of-nothing-is-zero", FORMATS, "torch.where(largest == 0, torch.ones_like(scale), scale)", "scale", OWN),
    Mutant("mismatch-power-of-two-always-one-up", FORMATS, "exponent - (mantissa == 0.5).to(exponent.dtype)", "exponent", OWN),
    Mutant("mismatch-rounding-blocks-the-gradient", FORMATS, "return grad, None", "return torch.zeros_like(grad), None", OWN),
    Mutant("mismatch-blocks-ignored", QUANTIZED, "(block, block) if block", "(w_RIJ.shape[-2], w_RIJ.shape[-1]) if block", OWN),
    Mutant("mismatch-int8-scale-per-input", QUANTIZED, "largest_by_block(w_RIJ.detach(), rows, w_RIJ.shape[-1])", "largest_by_block(w_RIJ.detach(), w_RIJ.shape[-2], rows)", OWN),
    Mutant("mismatch-head-rounded-too", ENGINES, 'which == "linear" and', "False and", OWN),
    Mutant("mismatch-stream-forgets-the-step", ENGINES, "self.step * self.ticks + tick", "tick", OWN),
    Mutant("mismatch-composition-shares-noise", ENGINES, "f\"mismatch/{self.part}/{purpose}\"", "f\"mismatch/{purpose}\"", OWN),
    Mutant("mismatch-never-redrawn", ENGINES, "self.step if redraw else 0", "0", OWN),
    Mutant("mismatch-composition-drops-laws", ENGINES, "for part, change in laws:\n            log_pi_RMV = change(log_pi_RMV", "for part, change in laws[:0]:\n            log_pi_RMV = change(log_pi_RMV", OWN),
    Mutant("mismatch-skips-half-a-block", PERTURBED, "r\"\\.(?:out|down|o_proj", "r\"\\.(?:out|o_proj", OWN),
    Mutant("mismatch-skips-first-layers", PERTURBED, "uniform_RK.argsort(-1, kind=\"stable\").argsort(-1)", "np.arange(layers) + 0 * uniform_RK", OWN),
    Mutant("mismatch-noise-not-relative", PERTURBED, "sigma * scale * rms_R11 * noise_RIJ", "sigma * scale * noise_RIJ", OWN),
    Mutant("mismatch-stale-copy-of-all", PERTURBED, "return by_matrix(theta_RP, layout, matrices, lambda", "return by_matrix(theta_RP, layout, \"all\", lambda", OWN),
    Mutant("mismatch-temperature-inverted", LAWS, "log_pi_RMV / temperature", "log_pi_RMV * temperature", OWN),
    Mutant("mismatch-noise-not-normalized", LAWS, "(log_pi_RMV + sigma * noise_RMV).log_softmax(-1)", "log_pi_RMV + sigma * noise_RMV", OWN),
    Mutant("mismatch-noise-scaled-by-variance", LAWS, "sigma * noise_RMV", "sigma**2 * noise_RMV", OWN),
    Mutant("mismatch-nucleus-without-last", LAWS, ".cumsum(-1).roll(1, -1)\n        before_RMV[..., 0] = 0.0", ".cumsum(-1)", OWN),
    Mutant("mismatch-top-p-not-renormalized", LAWS, ".masked_fill(~keep_RMV, -torch.inf).log_softmax(-1)", ".masked_fill(~keep_RMV, -torch.inf)", OWN),
    Mutant("mismatch-top-k-by-index", LAWS, "order_RMV[..., :k], True", "torch.arange(k).expand(*order_RMV.shape[:-1], k), True", OWN),
    Mutant("mismatch-sampler-ignores-the-law", "testbed/policies/toy/sampler.py", "law_RVB = law(law_RVB, t)", "law(law_RVB, t)", OWN),
    Mutant("mismatch-sampler-same-noise-every-token", "testbed/policies/toy/sampler.py", "law(law_RVB, t)", "law(law_RVB, 0)", OWN),
    Mutant("mismatch-records-the-policy", BEHAVIOR, "noted.append(log_mu_RVB.gather", "noted.append(log_pi_RVB.gather", OWN),
    Mutant("mismatch-table-at-the-wrong-state", BEHAVIOR, "rollout.states() * log_mu_RSA.shape[-1] + rollout.token_RBT", "rollout.token_RBT * log_mu_RSA.shape[-1] + rollout.states() * 0", OWN),
    Mutant("mismatch-lost-support-unseen", RATIO, "missed = bool((pi_L[mu_L == 0] > 0).any())", "missed = False", OWN),
    Mutant("mismatch-kl-without-weights", RATIO, "rho * np.where(rho > 0, log_rho, 0.0)", "np.where(rho > 0, log_rho, 0.0)", OWN),
    Mutant("mismatch-kish-forgets-the-mass", RATIO, "mass**2 / (p_L", "1.0 / (p_L", OWN),
    Mutant("mismatch-tokens-not-pooled", RATIO, "p_L[:, None], 0.0) / length", "p_L[:, None], 0.0)", OWN),
    Mutant("mismatch-quantile-of-density", RATIO, "cumulative = np.cumsum(p_N[order])", "cumulative = np.cumsum(p_N)", OWN),
    Mutant("mismatch-tree-branches-ignore-the-end", RATIO, "branch_V[tree.going] = np.arange(tree.going.size)", "branch_V[:] = 0", OWN),
    Mutant("m6-mismatch-ratio-inverted", RATIO, "d_LT = log_pi_LT - log_mu_LT", "d_LT = log_mu_LT - log_pi_LT", CLAIMS),
    Mutant("mismatch-claim-noise-not-normalized", CLAIM_FILE, " - np.log(PI @ np.exp(shift)) for shift in shifts", " for shift in shifts", CLAIMS),
    Mutant("mismatch-claim-truncation-keeps-all", LAWS, "keep_RMV = before_RMV < p", "keep_RMV = before_RMV < 2.0", CLAIMS),
)  # fmt: skip
