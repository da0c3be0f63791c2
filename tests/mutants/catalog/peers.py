"""Bugs planted in what public stacks compute beside the papers, in their tables, and in correction weights."""

from mutants.mutant import Mutant

CLIPPED, DECOUPLED = "testbed/objectives/clipped", "testbed/objectives/decoupled"
TIS, KL = f"{DECOUPLED}/tis.py", "testbed/objectives/terms/kl_estimators.py"
SAPO, PENALTY = "testbed/objectives/smooth/sapo.py", "testbed/objectives/terms/kl_penalty.py"
CISPO, LINEAR = "testbed/objectives/reinforce/cispo.py", "testbed/anchors/loglinear.py"
VARIANCE, GROUPS, EFFECTIVE = (
    "testbed/advantages/variance.py",
    "testbed/data/groups.py",
    "testbed/inspection/effective_weights.py",
)
COMPOSE = "testbed/recipes/from_stack.py"
PAGE, VERL = (f"testbed/stacks/{name}.py" for name in ("page", "verl"))
CONTRACT = "tests/contracts/test_objective_contract.py -k "
WEIGHTS, STACKS = "tests/unit/inspection/test_correction_weights.py", "tests/unit/stacks/test_stacks.py"
ROWS, ANCHORS = "tests/contracts/test_advantages.py", "tests/unit/anchors/test_anchors.py -k linear"

MUTANTS = (
    Mutant("peers-normalized-before-the-cap", TIS, "    log_h_BT = log_h_BT.masked_fill", "    log_h_BT = log_mismatch_at(level, batch).masked_fill", CONTRACT + "normalized"),
    Mutant("peers-normalized-counts-padding", TIS, "log_h_BT.masked_fill(~batch.mask_BT, -torch.inf)", "log_h_BT", CONTRACT + "normalized"),
    Mutant("peers-normalized-by-the-sum", TIS, "log_h_1K.logsumexp(-1) - count.log()", "log_h_1K.logsumexp(-1) - 0 * count.log()", CONTRACT + "normalized"),
    Mutant("peers-normalized-by-tokens-at-sequence-level", TIS, 'if level == "token" else', "if True else", WEIGHTS),
    Mutant("peers-normalized-without-weights", TIS, "log_mean > math.log(1e-8)", "log_mean > -math.inf", WEIGHTS),
    Mutant("peers-normalized-multiplied", TIS, "log_h_BT - MEAN_WEIGHT", "log_h_BT + MEAN_WEIGHT", CONTRACT + "normalized"),
    Mutant("peers-areal-truncates-from-above-alone", TIS, "log_bound(low), log_bound(high))\n    return weighted_clip(logp_BT, batch, eps_low=eps_low, eps_high=eps_high, log_h_BT=log_h_BT, c=c)", "max=log_bound(high))\n    return weighted_clip(logp_BT, batch, eps_low=eps_low, eps_high=eps_high, log_h_BT=log_h_BT, c=c)", CONTRACT + "areal"),
    Mutant("peers-areal-sequence-is-a-product", TIS, 'level: str = "geometric"', 'level: str = "sequence"', CONTRACT + "areal"),
    Mutant("peers-mis-without-dual-clip", f"{DECOUPLED}/mis.py", "        c=c,\n", "", CONTRACT + "options"),
    Mutant("peers-icepop-without-dual-clip", f"{DECOUPLED}/icepop.py", ", c=c)", ")", CONTRACT + "options"),
    Mutant("peers-kl-rejection-without-dual-clip", f"{DECOUPLED}/kl_rejection.py", "keep_BT=keep_BT, c=c)", "keep_BT=keep_BT)", CONTRACT + "options"),
    Mutant("peers-decoupled-without-dual-clip", f"{DECOUPLED}/decoupled_ppo.py", "log_h_BT=log_d_BT, c=c)", "log_h_BT=log_d_BT)", CONTRACT + "options"),
    Mutant("peers-decoupled-areal-without-dual-clip", f"{DECOUPLED}/decoupled_ppo.py", "        c=c,\n", "", CONTRACT + "options"),
    Mutant("peers-opsm-without-dual-clip", f"{CLIPPED}/opsm.py", "1 + eps_high, c)", "1 + eps_high)", CONTRACT + "options"),
    Mutant("peers-dual-clip-on-by-default", f"{DECOUPLED}/mis.py", "c: float = math.inf", "c: float = 1.5", CONTRACT + "mis"),
    Mutant("peers-sapo-of-tokens", SAPO, 'log_s_BT = log_geometric(logp_BT, batch, base="anchor")', 'log_s_BT = log_token(logp_BT, batch, base="anchor")', CONTRACT + "sapo"),
    Mutant("peers-sapo-divided-by-t", SAPO, "temperature(log_s_BT, adv_BT, tau_pos, tau_neg)) * adv_BT", "temperature(log_s_BT, adv_BT, tau_pos, tau_neg)) * adv_BT / batch.mask_BT.sum(-1, keepdim=True)", CONTRACT + "sapo"),
    Mutant("peers-sapo-temperatures-swapped", SAPO, "temperature(log_s_BT, adv_BT, tau_pos, tau_neg)", "temperature(log_s_BT, adv_BT, tau_neg, tau_pos)", CONTRACT + "sapo"),
    Mutant("peers-geomean-is-a-product", f"{CLIPPED}/ctpo.py", "log_prefix_BT / count_BT", "log_prefix_BT", CONTRACT + "geomean"),
    Mutant("peers-geomean-window-widens", f"{CLIPPED}/ctpo.py", "p: float = -0.5", "p: float = 0.5", CONTRACT + "geomean"),
    Mutant("peers-geomean-counts-tool-tokens", f"{CLIPPED}/ctpo.py", "count_BT = batch.mask_BT.cumsum(-1).clamp(min=1)", "count_BT = batch.mask_BT.long().fill_(1).cumsum(-1)", CONTRACT + "geomean"),
    Mutant("peers-m2po-floors-swapped", f"{CLIPPED}/m2po.py", "torch.where(log_rho_BT > 0, limit.clamp(min=up), limit.clamp(min=down))", "torch.where(log_rho_BT < 0, limit.clamp(min=up), limit.clamp(min=down))", CONTRACT + "m2po"),
    Mutant("peers-m2po-floors-are-caps", f"{CLIPPED}/m2po.py", "limit.clamp(min=up)", "limit.clamp(max=up)", CONTRACT + "m2po"),
    Mutant("peers-m2po-floors-of-the-ratio", f"{CLIPPED}/m2po.py", "math.log(least) ** 2", "(least - 1) ** 2", CONTRACT + "m2po"),
    Mutant("peers-m2po-kept-without-floors", f"{CLIPPED}/m2po.py", "(log_rho_BT.square() <= limit_BT)\n\n", "(log_rho_BT.square() <= limit)\n\n", "tests/unit/objectives/test_objectives_clipped_batch.py tests/contracts/test_objective_contract.py -k m2po"),
    Mutant("peers-prime-rl-scales-the-pull", f"{CLIPPED}/dppo.py", "-rho_BT * adv_tau * batch.adv_BT * keep_BT + kl_tau", "-rho_BT * batch.adv_BT * keep_BT + adv_tau * kl_tau", CONTRACT + "prime"),
    Mutant("peers-cispo-mask-has-the-weights-window", CISPO, "(eps_high if mask_high is None else mask_high)", "eps_high", CONTRACT + "trinity"),
    Mutant("peers-cispo-weight-has-the-masks-window", CISPO, "return cispo(logp_BT, batch, eps_low=eps_low, eps_high=eps_high) * kept_BT", "return cispo(logp_BT, batch, eps_low=mask_low or eps_low, eps_high=mask_high or eps_high) * kept_BT", CONTRACT + "trinity"),
    Mutant("peers-corrected-k3-uncapped", PENALTY, 'return weighted_k3(logp_BT, batch, "mu", cap)', 'return weighted_k3(logp_BT, batch, "mu")', CONTRACT + "trinity"),
    Mutant("peers-corrected-k3-still-beyond-the-cap", PENALTY, "-cap * torch.expm1(-x_BT), slope_BT", "cap * x_BT, slope_BT", CONTRACT + "trinity"),
    Mutant("peers-corrected-k3-value-uncapped", PENALTY, "log_rho_BT.clamp(max=math.log(cap)) - below_BT", "log_rho_BT - below_BT", "tests/unit/objectives/test_objectives_terms.py -k capped"),
    Mutant("peers-abs-is-k1", KL, '("reverse", "abs"): lambda x: x.abs(),', '("reverse", "abs"): lambda x: x,', CONTRACT + "options"),
    Mutant("peers-abs-both-is-pathwise", KL, "lambda x: x.abs() + x.sign()", "lambda x: x.sign()", CONTRACT + "options"),
    Mutant("peers-abs-forward-sign", KL, "lambda x: x.sign() * (-x).exp()", "lambda x: -x.sign() * (-x).exp()", CONTRACT + "options"),
    Mutant("peers-linear-is-loglinear", LINEAR, "torch.logaddexp((1 - alpha_CBT).log() + log_mu_CBT, alpha_CBT.log() + inputs.logp_CBT)", "log_mu_CBT + alpha_CBT * (inputs.logp_CBT - log_mu_CBT)", ANCHORS),
    Mutant("peers-linear-from-the-wrong-end", LINEAR, "(1 - alpha_CBT).log() + log_mu_CBT, alpha_CBT.log() + inputs", "alpha_CBT.log() + log_mu_CBT, (1 - alpha_CBT).log() + inputs", ANCHORS),
    Mutant("peers-median-is-the-mean", VARIANCE, "return group_weighted_quantile(value_B, log_weight_B, group_B, 0.5)", "return group_weighted_average(value_B, log_weight_B, group_B)", ROWS),
    Mutant("peers-winsorized-unweighted", VARIANCE, "return group_weighted_average(value_B.clamp(low_B, high_B), log_weight_B, group_B)", "return group_weighted_average(value_B.clamp(low_B, high_B), 0 * log_weight_B, group_B)", ROWS),
    Mutant("peers-winsorized-not-at-all", VARIANCE, "value_B.clamp(low_B, high_B)", "value_B", ROWS),
    Mutant("peers-quantile-past-the-share", GROUPS, ">= q - 1e-9", "> q + 1e-9", "tests/unit/data/test_groups.py"),
    Mutant("peers-quantile-of-nothing-is-nan", GROUPS, "torch.where(weightless_N1, equal_NG, log_weight_NG)", "log_weight_NG", "tests/unit/data/test_groups.py"),
    Mutant("peers-correction-at-pi", EFFECTIVE, "effective_weights(name, batch.logp_anchor_BT,", "effective_weights(name, batch.logp_mu_BT,", WEIGHTS),
    Mutant("peers-correction-keeps-the-advantage", EFFECTIVE, "replace(batch, adv_BT=sign_BT)", "batch", WEIGHTS),
    Mutant("peers-correction-of-anything", EFFECTIVE, 'or promised.get("penalty"):', "and False:", WEIGHTS),
    Mutant("peers-first-rule-always-holds", COMPOSE, "return all(_fits(values[name], want) for name, want in when.items())", "return any(_fits(values[name], want) for name, want in when.items()) or not when", STACKS),
    Mutant("peers-null-stays-null", COMPOSE, "return values | {name: values[other] for name, other in empty.items()}, set(empty)", "return values, set(empty)", STACKS),
    Mutant("peers-defaults-depend-on-nothing", COMPOSE, "if key.by is not None and key.name not in given:", "if False:", STACKS),
    Mutant("peers-settings-of-a-group-leave-it-off", COMPOSE, "values[key.name] = True", "pass", STACKS),
    Mutant("peers-everything-has-an-effect", COMPOSE, "if name not in {*used, chosen.passes}", "if False", STACKS),
    Mutant("peers-command-without-its-settings", COMPOSE, "        if self.given:\n", "        if False:\n", STACKS),
    Mutant("peers-command-without-its-anchor", COMPOSE, 'words.append(f"anchor={self.anchor}")', "pass", STACKS),
    Mutant("peers-recipe-without-terms", COMPOSE, "terms=tuple(Term(name, factor, pairs(**args)) for name, factor, args in self.terms)", "terms=()", "tests/unit/stacks/test_stacks_trl.py"),
    Mutant("peers-recipe-without-length", COMPOSE, "            length=self.length,\n", "", STACKS),
    Mutant("peers-recipe-keeps-all", COMPOSE, 'denominator="kept" if self.denominator == "kept" else "all"', 'denominator="all"', STACKS),
    Mutant("peers-range-is-a-number", COMPOSE, 'if "_" in text:', "if False:", STACKS),
    Mutant("peers-infinite-setting", COMPOSE, "(is_number(value) and math.isfinite(value)))", "is_number(value))", STACKS),
    Mutant("peers-page-without-remarks", PAGE, "noted = any(_remark(rule) for rule in rules)", "noted = False", STACKS),
    Mutant("peers-verl-gspo-not-spread", VERL, '"gspo@verl", CLIP, aggregation="constant", length=1.0)', '"gspo@verl", CLIP)', STACKS),
    Mutant("peers-verl-bounds-swapped", VERL, 'CLIP = {"eps_low": Their("clip_ratio_low"), "eps_high": Their("clip_ratio_high")}', 'CLIP = {"eps_low": Their("clip_ratio_high"), "eps_high": Their("clip_ratio_low")}', STACKS),
    Mutant("peers-trl-cispo-by-distance", "testbed/stacks/trl.py", '{"eps_high": Their("epsilon_high")},', '{"eps_high": Their("epsilon_high", lambda eps: 1 + eps)},', "tests/unit/stacks/test_stacks_trl.py"),
    Mutant("peers-trl-mean-of-sequences", "testbed/stacks/trl.py", 'Rule({"loss_type": ("dapo", "cispo", "vespo")}, "token_mean")', 'Rule({"loss_type": ("dapo", "cispo", "vespo")}, "sequence_mean")', "tests/unit/stacks/test_stacks_trl.py"),
)  # fmt: skip
