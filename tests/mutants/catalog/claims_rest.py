"""Bugs planted in what the claims about updates and bounds rest on, and in the sequential assertions."""

from mutants.mutant import Mutant

OURS = "group-reinforce or topr-taper or token-ratio-bias"
CLAIMS = f"tests/experiments/test_claims_exact.py -k '{OURS}'"
LIMITS = "tests/experiments/test_claims_exact.py -k 'asymre or oapl or pairwise-residuals'"
SEQUENTIAL = "tests/unit/testing/test_testing_sequential.py"

MUTANTS = (
    Mutant("rest-pairs-mean-of-all-groups", "testbed/objectives/regression/opmd.py", "(d_B - group_average(d_B, batch.group_B)).square()", "d_B.square()", CLAIMS),
    Mutant("rest-topr-token-never-tapers", "testbed/objectives/reinforce/topr.py", "log_token(logp_BT, batch).exp().clamp(max=1.0)", "log_token(logp_BT, batch).exp()", CLAIMS),
    Mutant("rest-topr-geometric-by-token", "testbed/objectives/reinforce/topr.py", "log_geometric(logp_BT, batch).exp().clamp(max=1.0)", "log_token(logp_BT, batch).exp().clamp(max=1.0)", CLAIMS),
    Mutant("rest-topr-positives-taper", "testbed/objectives/reinforce/topr.py", "torch.where(batch.adv_BT > 0, torch.ones_like(tapered_BT), tapered_BT)", "torch.where(batch.adv_BT > 0, tapered_BT, torch.ones_like(tapered_BT))", CLAIMS),
    Mutant("rest-sequence-ratio-averaged", "testbed/losses/ratios.py", "_at_tokens(log_token(logp_BT, batch, base).sum(-1, keepdim=True), batch.mask_BT)", "_at_tokens(log_token(logp_BT, batch, base).mean(-1, keepdim=True), batch.mask_BT)", CLAIMS),
    Mutant("rest-sides-bet-the-wrong-way", "testbed/testing/e_process.py", 'self._alarm = EProcess(good, bounds, "above" if small else "below")', 'self._alarm = EProcess(good, bounds, "below" if small else "above")', SEQUENTIAL),
    Mutant("rest-sides-rates-swapped", "testbed/testing/e_process.py", "alarm_N >= self._log_rates[0], proof_N >= self._log_rates[1]", "alarm_N >= self._log_rates[1], proof_N >= self._log_rates[0]", SEQUENTIAL),
    Mutant("rest-sides-count-the-whole-chunk", "testbed/testing/e_process.py", "self.n += last + 1", "self.n += x_N.size", SEQUENTIAL),
    Mutant("rest-sides-proof-of-good", "testbed/testing/e_process.py", "self._proof = EProcess(bad, bounds,", "self._proof = EProcess(good, bounds,", SEQUENTIAL),
    Mutant("rest-coverage-sides-swapped", "testbed/testing/assertions.py", "Declared(level, level - discrepancy,", "Declared(level - discrepancy, level,", SEQUENTIAL),
    Mutant("rest-coverage-without-low-end", "testbed/testing/sequential.py", "((low_N <= expected) & (expected <= high_N))", "(expected <= high_N)", SEQUENTIAL),
    Mutant("rest-variance-shown-too-easily", "testbed/testing/assertions.py", "Declared(-_declared(discrepancy), 0.0, spread.bounds", "Declared(-_declared(discrepancy), 0.02, spread.bounds", SEQUENTIAL),
    Mutant("rest-variance-pairs-of-two-seeds", "testbed/testing/sequential.py", "chunks(bound, *source), strict", "chunks(bound, 99, source[1]), strict", SEQUENTIAL),
    Mutant("rest-variance-of-one-only", "testbed/testing/sequential.py", "yield (x_N - mean_x) ** 2 - (y_N - mean_y) ** 2", "yield (x_N - mean_x) ** 2 - 0 * y_N", SEQUENTIAL),
    Mutant("rest-fixed-data-in-other-shares", "analysis/worlds/fixed_data.py", "count_K = in_proportion(mu_K)", "count_K = np.ones_like(mu_K)", LIMITS),
    Mutant("rest-fixed-data-without-a-normalizer", "analysis/worlds/fixed_data.py", "return pushed_K - pushed_K.sum() * np.exp(log_pi_K)", "return pushed_K", LIMITS),
    Mutant("rest-own-answer-among-the-others", "analysis/worlds/fixed_data.py", "np.concatenate([own_N[:, None], np.sort(others_NG, axis=-1)], axis=-1)", "np.concatenate([np.sort(others_NG, axis=-1), own_N[:, None]], axis=-1)", LIMITS),
    Mutant("rest-about-the-function-before", "analysis/planted_bugs/bug.py", "if each.lineno <= line <=", "if each.lineno <= line - 3 <=", "tests/experiments/test_claims_can_fail.py -k named"),
    Mutant("rest-claim-without-a-bug", "analysis/planted_bugs/foundations.py", 'Bug("hill-finds-a-tail-in-every-law"', 'Bug("hill-finds-a-tail-in-every-law-2"', "tests/experiments/test_claims_can_fail.py -k every_computed"),
    Mutant("rest-undecided-passes", "testbed/testing/sequential.py", "if test.verdict is None:\n        raise Undecided(", "if test.verdict == 0:\n        raise Undecided(", SEQUENTIAL),
)  # fmt: skip
