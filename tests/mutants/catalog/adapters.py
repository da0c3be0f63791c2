"""Planted bugs of the adapters, LUSPO, and the benchmark's scan; see mutants.py."""

from mutants.mutant import Mutant

ADAPTED, TRL, VERL = (f"testbed/adapters/{name}.py" for name in ("adapted", "trl", "verl"))
IN_TRL, IN_VERL = "tests/unit/adapters/test_adapters.py", "tests/unit/adapters/test_adapters_verl.py"
QUICK = "tests/unit/adapters/test_adapters.py -m not(slow)"
LUSPO, CONTRACT = "testbed/objectives/clipped/luspo.py", "tests/contracts/test_objective_contract.py -k luspo"

MUTANTS: tuple[Mutant, ...] = (
    Mutant("adapter-luspo-divided-by-length", LUSPO, "1 + eps_high) * batch.adv_BT", "1 + eps_high) * batch.adv_BT / batch.mask_BT.sum(-1, keepdim=True)", CONTRACT),
    Mutant("adapter-luspo-multiplied-by-length", LUSPO, "1 + eps_high) * batch.adv_BT", "1 + eps_high) * batch.adv_BT * batch.mask_BT.sum(-1, keepdim=True)", CONTRACT),
    Mutant("adapter-luspo-reads-behavior", LUSPO, 'base="anchor"', 'base="mu"', CONTRACT),
    Mutant("adapter-luspo-bounds-swapped", LUSPO, "1 - eps_low, 1 + eps_high)", "1 - eps_high, 1 + eps_low)", "tests/unit/objectives/test_trl_parity.py -k luspo"),
    Mutant("adapter-luspo-sign", LUSPO, "return -one", "return one", CONTRACT),
    Mutant("adapter-weight-on-terms", ADAPTED, "if weight_BT is not None:\n            loss_BT = loss_BT * weight_BT\n", "", IN_VERL),
    Mutant("adapter-term-coefficient-forgotten", ADAPTED, "term.at(0, 1) * added_BT", "added_BT", IN_VERL),
    Mutant("adapter-term-arguments-forgotten", ADAPTED, "added_BT = objective[term.objective].bind(**dict(term.args))", "added_BT = objective[term.objective].bind()", IN_VERL),
    Mutant("adapter-hyper-forgotten", ADAPTED, "loss_BT: Tensor = objective[self.objective].bind(**self.hyper)", "loss_BT: Tensor = objective[self.objective].bind()", IN_VERL),
    Mutant("adapter-outside-reads-nothing", ADAPTED, "return self.readers(field_name) + silent", "return self.readers(field_name)", IN_VERL),
    Mutant("adapter-terms-correct-too", ADAPTED, "return bool(Adapted(self.objective, self.hyper).may_read", "return bool(self.may_read", IN_VERL),
    Mutant("adapter-length-weighted-counts-rows", ADAPTED, '("token_mean", "length_weighted")', '("token_mean",)', QUICK),
    Mutant("adapter-local-token-mean", ADAPTED, "return value * (mask_BT.sum().double() / counted).to(value.dtype)", "return value", QUICK),
    Mutant("adapter-local-sequence-mean", ADAPTED, "return value * (mask_BT.shape[-2] / counted)", "return value", QUICK),
    Mutant("adapter-trl-tool-tokens-counted", TRL, 'return mask & inputs["tool_mask"].bool() if "tool_mask" in inputs else mask', "return mask", QUICK),
    Mutant("adapter-trl-generation-batch-divides", TRL, "return tokens * _parts(trainer) / trainer.args.steps_per_generation", "return tokens", QUICK),
    Mutant("adapter-trl-accumulation-forgotten", TRL, "return float(rows * _parts(trainer))", "return float(rows)", QUICK),
    Mutant("adapter-trl-router-loss-whole", TRL, "* router / _parts(trainer)", "* router", QUICK),
    Mutant("adapter-trl-truncated-rows-leave", TRL, "_divisor(trainer, aggregation, inputs, len(some_B))", "_divisor(trainer, aggregation, inputs, int(some_B.sum()))", QUICK),
    Mutant("adapter-trl-width-for-length", TRL, 'if aggregation == "constant" and not length:', "if False:", QUICK),
    Mutant("adapter-trl-corrected-twice", TRL, 'None if adapted.corrects else kept.get("importance_sampling_ratio")', 'kept.get("importance_sampling_ratio")', QUICK),
    Mutant("adapter-trl-never-corrected", TRL, 'None if adapted.corrects else kept.get("importance_sampling_ratio")', "None", QUICK),
    Mutant("adapter-trl-anchor-is-current", TRL, 'inputs.get("old_per_token_logps", logp_BT.detach())', "logp_BT.detach()", QUICK),
    Mutant("adapter-trl-anchor-not-detached", TRL, 'inputs.get("old_per_token_logps", logp_BT.detach())', 'inputs.get("old_per_token_logps", logp_BT)', QUICK),
    Mutant("adapter-trl-mu-is-anchor", TRL, 'inputs.get("sampling_per_token_logps", anchor_BT) if adapted.may_read("mu") else anchor_BT', "anchor_BT", QUICK),
    Mutant("adapter-trl-mu-always-read", TRL, 'inputs.get("sampling_per_token_logps", anchor_BT) if adapted.may_read("mu") else anchor_BT', 'inputs.get("sampling_per_token_logps", anchor_BT)', QUICK),
    Mutant("adapter-trl-groups-not-shuffled", TRL, '// size\n', "% size\n", IN_TRL),
    Mutant("adapter-trl-rewards-unweighted", TRL, 'output["testbed_reward"] = self._testbed_rewards[first : first + rows]', 'output["testbed_reward"] = 0 * self._testbed_rewards[first : first + rows]', IN_TRL),
    Mutant("adapter-trl-options-unchecked", TRL, "if name in fields and getattr(args, name) != fields[name].default:", "if False:", QUICK),
    Mutant("adapter-trl-beta-ignored", TRL, 'if args.beta and not adapted.may_read("ref"):', "if False:", QUICK),
    Mutant("adapter-verl-modes-swapped", VERL, '"seq-mean-token-sum": ("constant", 1.0', '"seq-mean-token-sum": ("constant", 0.0', IN_VERL),
    Mutant("adapter-verl-processes-forgotten", VERL, "float(own if counted is None else counted)) * processes", "float(own if counted is None else counted))", IN_VERL),
    Mutant("adapter-verl-factor-forgotten", VERL, '_entry(info, "loss_scale_factor") or _entry(config, "loss_scale_factor") or 0', "0", IN_VERL),
    Mutant("adapter-verl-global-count-forgotten", VERL, "own if counted is None else counted", "own", IN_VERL),
    Mutant("adapter-verl-mu-made-up", VERL, 'if reads and rollout_BT is None and old_is != "mu":', "if False:", IN_VERL),
    Mutant("adapter-verl-mu-is-anchor", VERL, "mu[some_B], advantages", "old_log_prob[some_B], advantages", IN_VERL),
    Mutant("adapter-verl-corrected-twice", VERL, "if adapted.corrects and weights_BT is not None:", "if False:", IN_VERL),
    Mutant("adapter-verl-weights-dropped", VERL, "None if rollout_is_weights is None else rollout_is_weights[some_B]", "None", IN_VERL),
    Mutant("adapter-verl-kl-sign", VERL, "batch.logp_anchor_BT - kept_BT.detach()", "kept_BT.detach() - batch.logp_anchor_BT", IN_VERL),
)  # fmt: skip
