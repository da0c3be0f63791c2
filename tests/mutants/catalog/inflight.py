"""Bugs planted where weights change inside a sequence, in stale caches and in rounded activations."""

from mutants.mutant import Mutant

TESTS = "tests/unit/staleness/test_in_flight.py"
DECODER, IN_FLIGHT = "testbed/policies/toy/decoder.py", "testbed/policies/toy/in_flight.py"
SAMPLER, VERSIONS = "testbed/policies/toy/sampler.py", "testbed/policies/in_flight.py"
TOY, MDP = "testbed/policies/toy/transformer.py", "envs/finite_mdp.py"
KERNELS, TREE = "envs/kernels.py", "envs/tokens/tree_kernel.py"
CHECKS, LAYERS = "envs/checks.py", "testbed/policies/toy/layers.py"
FORWARD = "tests/unit/mismatch/test_mismatch_forward.py"
CLAIMS = "tests/experiments/test_claims_exact.py -k 'cache'"
STALE, QUANTIZED = "testbed/mismatch/stale_cache.py", "testbed/mismatch/quantized.py"
ENGINES, BEHAVIOR = "testbed/mismatch/__init__.py", "testbed/mismatch/behavior.py"

MUTANTS = (
    Mutant("inflight-token-read-by-the-old-version", DECODER, "version_RB = self._present(t + 1), self.version_RBT[..., t + 1]", "version_RB = self._present(t), self.version_RBT[..., t]", TESTS),
    Mutant("inflight-cache-of-the-last-version", DECODER, "            self.kept.own[:, t] = of_version(own, version_RB)", "            pass", TESTS),
    Mutant("inflight-prompt-read-by-any-version", DECODER, "merged.append(replace(whole[0], qkv=chosen))", "merged.append(whole[0])", TESTS),
    Mutant("inflight-first-law-of-any-version", DECODER, "of_version(spread, version_RBT[..., 0])", "next(iter(spread.values()))", TESTS),
    Mutant("inflight-keys-without-a-copy", DECODER, "self.kept.own[:, t].clone()", "self.kept.own[:, t]", TESTS),
    Mutant("inflight-wrong-part-chosen", DECODER, "(version_RB == version)[:, None]", "(version_RB <= version)[:, None]", TESTS),
    Mutant("inflight-kept-is-recomputed", TOY, 'checked_cache(cache) == "kept"', "checked_cache(cache) == 0", TESTS),
    Mutant("inflight-recomputed-is-kept", TOY, 'checked_cache(cache) == "recomputed"', "checked_cache(cache) == 0", TESTS),
    Mutant("inflight-older-tokens-drawn-again", IN_FLIGHT, "version_RBT == v, version_RBT < v", "version_RBT == v, version_RBT < 0", TESTS),
    Mutant("inflight-newer-tokens-overwrite", IN_FLIGHT, "torch.where(own_RBT[..., :tokens], part_RBT, here)", "part_RBT", TESTS),
    Mutant("inflight-stops-one-token-early", IN_FLIGHT, "tokens = 1 + int(", "tokens = 0 + int(", TESTS),
    Mutant("inflight-engine-law-forgotten", IN_FLIGHT, "law_RVB = law(law_RVB, t)", "law(law_RVB, t)", TESTS),
    Mutant("inflight-read-off-by-one", SAMPLER, "decoder.after(token_RBT[..., t], t)", "decoder.after(token_RBT[..., t - 1], t)", TESTS),
    Mutant("inflight-read-stops-with-the-first-response", SAMPLER, "not mask_RBT[..., t + 1 :].any()", "not mask_RBT[..., t + 1 :].any(-1).all()", TESTS),
    Mutant("inflight-read-behind-the-end", SAMPLER, "[:, 0].where(mask_RBT[..., t], 0.0)", "[:, 0]", TESTS),
    Mutant("inflight-logp-of-the-first-version", VERSIONS, "logp(theta_RWP[:, v]), value_RBT)", "logp(theta_RWP[:, versions[0]]), value_RBT)", TESTS),
    Mutant("inflight-versions-may-fall", VERSIONS, "if bool(falls_RBT.any()):", "if False:", TESTS),
    Mutant("inflight-one-version-too-many", VERSIONS, "highest >= versions", "highest > versions", TESTS),
    Mutant("inflight-table-of-the-first-version", KERNELS, "r * versions + version_RBT[r, b, t]", "r * versions", TESTS),
    Mutant("inflight-table-by-sequence-only", KERNELS, "version_RBT[r, b, t]", "version_RBT[r, b, 0]", TESTS),
    Mutant("inflight-tables-of-other-replicas", KERNELS, "r * versions + version", "r + version", TESTS),
    Mutant("inflight-tree-by-sequence-only", TREE, "version_RBT[r, b, t], 0, 0.0", "version_RBT[r, b, 0], 0, 0.0", TESTS),
    Mutant("inflight-tables-beyond-the-end", CHECKS, "given.max() < versions", "given.max() <= versions", TESTS),
    Mutant("stalekv-past-never-left", STALE, "if self.everywhere:", "if False:", FORWARD),
    Mutant("stalekv-prompt-span-is-all", STALE, "if self.everywhere:", "if True:", FORWARD),
    Mutant("stalekv-prompt-read-by-the-present", STALE, "read_prompts(past, heads, before)", "read_prompts(now, heads, before)", FORWARD),
    Mutant("stalekv-past-reads-the-present-cache", STALE, "self.length, t, self.kept_past)", "self.length, t, self.kept)", FORWARD),
    Mutant("stalekv-read-by-the-past", STALE, "next_law(self.now,", "next_law(self.past,", FORWARD),
    Mutant("stalekv-last-token-twice", STALE, "return self._next(token_RB, t + 1)", "return self._next(token_RB, t)", FORWARD),
    Mutant("stalekv-last-token-of-other-prompts", STALE, ".repeat_interleave(prompts.group, 1)", ".repeat(1, prompts.group)", FORWARD),
    Mutant("stalekv-positions-off-by-one", STALE, "token_RNQ.shape[2] - 1\n", "token_RNQ.shape[2]\n", FORWARD),
    Mutant("stalekv-past-at-full-precision", BEHAVIOR, "past_RP = self.weights(past_RP, step, past_RP)", "pass", FORWARD),
    Mutant("stalekv-reads-without-the-engine", BEHAVIOR, "        policy = self._forward(step, past_RP)\n        policy.sample(changed_RP.detach()", "        policy = self.policy\n        policy.sample(changed_RP.detach()", FORWARD),
    Mutant("stalekv-composition-drops-forward-passes", ENGINES, "for part, change in passes:", "for part, change in passes[:1]:", FORWARD),
    Mutant("stalekv-law-without-the-past", "testbed/mismatch/report.py", "behavior.logp(theta_RP, rollout, step, past_RP)", "behavior.logp(theta_RP, rollout, step, theta_RP)", FORWARD),
    Mutant("stalekv-rounding-forgets-the-past", STALE, "self.toy.with_rounding(rounding), self.past_RP", "self.toy, self.past_RP", FORWARD),
    Mutant("stalekv-one-scale-for-all-tokens", QUANTIZED, "x_RDM.detach().abs().amax(1, keepdim=True)", "x_RDM.detach().abs().amax((1, 2), keepdim=True)", FORWARD),
    Mutant("stalekv-activations-block-the-gradient", QUANTIZED, "straight_through(x_RDM, to_float(x_RDM.detach() / scale_R1M, kind) * scale_R1M)", "to_float(x_RDM.detach() / scale_R1M, kind) * scale_R1M", FORWARD),
    Mutant("stalekv-hidden-units-not-rounded", LAYERS, "layer.down, layer.rounding(hidden_RHM)", "layer.down, hidden_RHM", FORWARD),
    Mutant("stalekv-attended-not-rounded", LAYERS, "layer.rounding(attended_RDM)", "attended_RDM", FORWARD),
    Mutant("stalekv-rounding-sticks-to-the-policy", TOY, "changed = copy(self)", "changed = self", FORWARD),
    Mutant("inflight-claim-token-read-by-the-old-version", DECODER, "version_RB = self._present(t + 1), self.version_RBT[..., t + 1]", "version_RB = self._present(t), self.version_RBT[..., t]", CLAIMS),
)  # fmt: skip
