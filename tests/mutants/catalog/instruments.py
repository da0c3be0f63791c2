"""Bugs planted in what runs log of pi itself, in the shares by sign and in the outcomes of a run."""

from mutants.mutant import Mutant

PASS, SIGN, HELD = (f"testbed/diagnostics/{name}.py" for name in ("pass_at_k", "sign_shares", "held_out"))
TOKENS, RECORDER, COLLAPSE = (
    "testbed/worlds/tokens.py",
    "testbed/training/recorder.py",
    "analysis/tables/outcomes.py",
)
TABLE = "analysis/tables/cell_table.py"
PASS_TESTS, SIGN_TESTS = (f"tests/unit/diagnostics/test_{name}.py" for name in ("pass_at_k", "sign_shares"))
HELD_TESTS, OUTCOMES = "tests/unit/worlds/test_held_out.py", "tests/unit/analysis/test_outcomes.py"
CELLS = "tests/unit/analysis/test_cell_table.py -k 'not committed'"

MUTANTS = (
    Mutant("instruments-pass-with-replacement", PASS, "comb(n - c, k) / comb(n, k) for c", "((n - c) / n) ** k for c", PASS_TESTS),
    Mutant("instruments-max-of-others", PASS, "comb(i, k - 1) / comb(n, k)", "comb(i, k) / comb(n, k)", PASS_TESTS),
    Mutant("instruments-max-unsorted", PASS, "np.sort(reward_XN, axis=-1)", "reward_XN", PASS_TESTS),
    Mutant("instruments-positive-share-signed", SIGN, "weight_BT.abs()", "weight_BT", SIGN_TESTS),
    Mutant("instruments-positive-share-of-padding", SIGN, "torch.where(batch.mask_BT, weight_BT.abs(), torch.zeros_like(weight_BT))", "weight_BT.abs()", SIGN_TESTS),
    Mutant("instruments-sign-clip-of-all-tokens", SIGN, "cut / tokens_BT.sum((-2, -1))", "cut / batch.mask_BT.sum((-2, -1))", SIGN_TESTS),
    Mutant("instruments-kl-from-the-start", HELD, "log_r_RBT.expm1() - log_r_RBT", "-log_r_RBT - log_r_RBT", HELD_TESTS),
    Mutant("instruments-kl-of-the-same-weights", TOKENS, "                start_RP,\n", "                theta_RP,\n", HELD_TESTS),
    Mutant("instruments-pass-on-the-samples-of-accuracy", TOKENS, 'rng.keys(self.seeds, "pass@k")', 'rng.keys(self.seeds, "evaluation")', HELD_TESTS),
    Mutant("instruments-last-row-without-pass", TOKENS, "if last or row % PASS_EVERY == 0:", "if row % PASS_EVERY == 0:", HELD_TESTS),
    Mutant("instruments-absent-level-is-failed", HELD, "np.full(len(count_R), np.nan)", "np.zeros(len(count_R))", HELD_TESTS),
    Mutant("instruments-replays-are-rollouts", RECORDER, 'if "staleness/replayed_share" in counts:', "if False:", HELD_TESTS),
    Mutant("instruments-baselines-are-free", RECORDER, "+ self._baselines()", "+ 0 * self._baselines()", HELD_TESTS),
    Mutant("instruments-tails-of-nan", RECORDER, "kept_M = log_w_B[log_w_B < np.inf]", "kept_M = np.nan_to_num(log_w_B)", HELD_TESTS),
    Mutant("instruments-entropy-lost-once", COLLAPSE, "first = int(above[-1]) + 1 if above.size else 0", "first = int((smooth_W < kept * value_L[0]).argmax())", OUTCOMES),
    Mutant("instruments-solved-runs-lose-entropy", COLLAPSE, "if final >= SOLVED and entropy_step is not None:", "if False:", OUTCOMES),
    Mutant("instruments-area-of-rows", COLLAPSE, "middle_L @ np.diff(step_L) / (step_L[-1] - step_L[0])", "middle_L.mean()", OUTCOMES),
    Mutant("instruments-reached-before-the-window", COLLAPSE, "value_L[value_L.size - smooth_W.size + at[0]]", "value_L[at[0]]", OUTCOMES),
    Mutant("instruments-reached-last", COLLAPSE, "+ at[0]]", "+ at[-1]]", CELLS),
    Mutant("instruments-diverged-at-the-start", COLLAPSE, "step_L[frozen_L.argmax()]", "step_L[0]", OUTCOMES),
    Mutant("instruments-not-logged-is-no-collapse", COLLAPSE, "np.nan if step is None else float(not np.isnan(step))", "float(step is not None and not np.isnan(step))", OUTCOMES),
    Mutant("instruments-known-counts-gaps", TABLE, "known_M = x_L[~np.isnan(x_L)]", "known_M = np.nan_to_num(x_L)", CELLS),
    Mutant("instruments-any-threshold", TABLE, "if not 0 < threshold <= 1:", "if False:", CELLS),
)  # fmt: skip
