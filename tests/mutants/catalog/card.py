"""Bugs planted in report cards, the checks of the contract and the leaderboard."""

from mutants.mutant import Mutant

CARD = "tests/unit/analysis/test_report_card.py"
FACTS = "tests/unit/exact/test_objective_facts.py"
PROMISES = "tests/unit/inspection/test_promises.py"
ROWS, TRAINED = "analysis/cards/card_rows.py", "tests/unit/analysis/test_card_rows.py"
CHECKPOINT = "tests/unit/training/test_checkpoint.py -k 'at_once or minute or unless_they'"
CONTEXT = "tests/unit/worlds/test_short_context.py"

MUTANTS = (
    Mutant("card-percentile-upside-down", "analysis/cards/report_card.py", "other_N < value) if better > 0", "other_N > value) if better > 0", CARD),
    Mutant("card-ties-lose", "analysis/cards/report_card.py", "0.5 * np.sum(other_N == value)", "0.0 * np.sum(other_N == value)", CARD),
    Mutant("card-among-itself", "analysis/cards/report_card.py", 'pd.DataFrame()).drop(index=name, errors="ignore")', "pd.DataFrame())", CARD),
    Mutant("card-slow-seeds-dropped", ROWS, '["steps_to 0.5"].fillna(np.inf)', '["steps_to 0.5"].dropna()', TRAINED),
    Mutant("card-traceback-of-own-code", "analysis/cards/card_promises.py", "    except Exception as error:  # the user's own code: a message, not our traceback", "    except OSError as error:", CARD),
    Mutant("card-a-mean-is-a-loss", "analysis/cards/card_promises.py", "loss.shape != logp.shape", "False", CARD),
    Mutant("card-parts-without-stacking", "analysis/cards/card_promises.py", 'NEEDED = ("one finite loss per token", "stacked replicas equal separate calls")', "NEEDED = ()", CARD),
    Mutant("card-facts-with-scale", "testbed/exact/objective_facts.py", "scale = max(inner, 0.0) / square if square > (ZERO * target) ** 2 else 0.0", "scale = 1.0", FACTS),
    Mutant("card-ess-of-equal-groups", "testbed/exact/objective_facts.py", "bench.leaves.mask_LT[index_RB] & unequal_R[:, None, None]", "bench.leaves.mask_LT[index_RB]", FACTS),
    Mutant("card-noise-is-a-variance", "testbed/exact/objective_facts.py", "float(np.sqrt(max(square - mean**2, 0.0))) / mean", "max(square - mean**2, 0.0)", FACTS),
    Mutant("card-top-whole-batches", "testbed/exact/objective_facts.py", "np.clip((top - (reach - law)) / np.where(law > 0, law, 1.0), 0.0, 1.0)", "(reach - law < top).astype(float)", FACTS),
    Mutant("card-bandit-sums", "testbed/exact/objective_facts.py", "(weight * (onehot - pi[..., None, :])).mean(-2)", "(weight * onehot).mean(-2)", FACTS + " -k cloning"),
    Mutant("card-padding-unread", "testbed/inspection/promises.py", "return _differs(padded[other.mask_BT], plain[batch.mask_BT])", 'return ""', PROMISES),
    Mutant("card-parts-unsplit", "testbed/inspection/promises.py", "rows = [torch.tensor([0, 1, 2, 3]), torch.tensor([4, 5, 6, 7])]\n    parts = [", "rows = [torch.arange(8), torch.tensor([4, 5, 6, 7])][:1] * 2\n    parts = [", PROMISES),
    Mutant("card-bound-seen-near", "testbed/inspection/promises.py", "bounded=far <= near * (1 + 1e-6)", "bounded=True", PROMISES),
    Mutant("card-relatives-by-length", "testbed/inspection/relatives.py", "likeness = float(mine_N @ theirs_N) / (own * norm)", "likeness = float(mine_N @ theirs_N) / own", PROMISES),
    Mutant("card-rate-chosen-on-its-own-seed", ROWS, "(known.sum() - known)", "(known.sum() + 0 * known)", TRAINED),
    Mutant("card-lag-safe-though-a-smaller-one-is-not", ROWS, "holds &= np.array(", "holds = np.array(", TRAINED),
    Mutant("card-safe-lag-ends-swapped", ROWS, "[lost.center, lost.high, lost.low]", "[lost.center, lost.low, lost.high]", TRAINED),
    Mutant("card-ties-have-a-side", ROWS, "values_N > typical)", "values_N >= typical)", TRAINED),
    Mutant("card-side-by-six-of-eight", ROWS, "DECIDED = {5: 5, 8: 7}", "DECIDED = {5: 5, 8: 6}", TRAINED),
    Mutant("card-tried-rates-collapse-too", ROWS, 'cells["arm"].isin(SHOWN)', 'cells["arm"].isin(ARMS)', TRAINED),
    Mutant("card-every-arm-again", "analysis/cards/report_card.py", "if others.empty or not side(", "if True or not side(", f"{CARD} -k only_where"),
    Mutant("card-end-of-one-rounding", "testbed/exact/objective_facts.py", "if high - low <= SAME", "if True", f"{FACTS} -k last_digits"),
    Mutant("card-successes-are-failures-too", "testbed/advantages/raw.py", "signals.reward_B < best, -1.0", "signals.reward_B <= best, -1.0", "tests/unit/advantages/test_advantages_facts.py -k alone"),
    Mutant("card-dial-keeps-the-papers-advantage", "testbed/recipes/__init__.py", "replace(make(), **_dialed(dials)) if dials else make()", "make()", "tests/unit/cli/test_own_files.py -k registered"),
    Mutant("checkpoint-by-the-minute-at-once", "testbed/training/checkpoint.py", "time.monotonic() - self.last >= self.seconds", "True", CHECKPOINT),
    Mutant("checkpoint-stops-what-cannot-have-one", "testbed/training/checkpoint.py", "if self.seconds is None:\n                raise", "raise\n            if False:\n                raise", CHECKPOINT),
    Mutant("checkpoint-place-stays-in-the-environment", "testbed/execution/runner.py", "del os.environ[CHECKPOINT], os.environ[EVERY]", "del os.environ[EVERY]", CHECKPOINT),
    Mutant("context-of-the-first-prompt", "testbed/worlds/build.py", "+ task.response_length - 1  # the", "+ task.response_length - 2  # the", CONTEXT),
)  # fmt: skip
