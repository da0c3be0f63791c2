"""Bugs planted in schedules, in the versions that they keep and in the check of what was recorded."""

from mutants.mutant import Mutant

LAWS, BUFFER = "tests/unit/staleness/test_schedules.py", "tests/unit/staleness/test_staleness.py"
AGE_DISTRIBUTION, BY_AGE = "testbed/staleness/age_distribution.py", "testbed/staleness/by_age.py"
VERSIONS, STORAGE = "testbed/staleness/versions.py", "testbed/staleness/storage.py"
CLAIMS, TABLE = "analysis/experiments/lag/lag_schedules.py", "analysis/experiments/lag/lag_anatomy.py"
FIGURE = "tests/experiments/test_lag_anatomy.py"
BOOK, PACKS = "testbed/staleness/bookkeeping.py", "testbed/execution/packs.py"

MUTANTS = (
    Mutant("schedule-draw-forgets-the-step", BY_AGE, 'f"staleness/{name}", step)', 'f"staleness/{name}", 0)', LAWS),
    Mutant("schedule-draw-forgets-the-seed", BY_AGE, "rng.generator(seed,", "rng.generator(0,", LAWS),
    Mutant("schedule-draw-is-global", BY_AGE, 'rng.generator(seed, f"staleness/{name}", step)', "np.random.default_rng()", LAWS),
    Mutant("schedule-slices-share-a-draw", BY_AGE, ".random(slices))", ".random(1).repeat(slices))", LAWS),
    Mutant("schedule-draw-closed-left", AGE_DISTRIBUTION, 'side="right"', 'side="left"', LAWS),
    Mutant("schedule-draw-past-the-end", AGE_DISTRIBUTION, "self.age_K[np.minimum(place_Y, self.age_K.size - 1)]", "self.age_K[place_Y]", LAWS),
    Mutant("schedule-keeps-ages-of-no-share", AGE_DISTRIBUTION, "kept = weights > 0", "kept = weights >= 0", LAWS),
    Mutant("schedule-one-age-in-slices", BY_AGE, "slices=1 if alone else slices", "slices=slices", LAWS),
    Mutant("schedule-depth-one-short", BY_AGE, "depth=distribution.longest + 1", "depth=distribution.longest", LAWS),
    Mutant("schedule-mean-rounded-down", BY_AGE, "math.ceil(distribution.mean - 1e-9)", "math.floor(distribution.mean + 1e-9)", LAWS),
    Mutant("schedule-uniform-without-its-oldest", "testbed/staleness/uniform.py", "lag + width + 1)", "lag + width)", LAWS),
    Mutant("schedule-two-point-shares-swapped", "testbed/staleness/two_point.py", "[upper - lag, lag - low]", "[lag - low, upper - lag]", LAWS),
    Mutant("schedule-geometric-cut-loses-mean", "testbed/staleness/geometric.py", "return cut(float(brentq(", "return cut(low)\n    return law(float(brentq(", LAWS),
    Mutant("schedule-empirical-takes-any-sum", "testbed/staleness/empirical.py", "abs(total - 1) > 1e-6", "total <= 0", LAWS),
    Mutant("schedule-periodic-two-lags-long", "testbed/staleness/periodic.py", "(2 * lag + 1) // (2 * ahead + 1)", "(2 * lag) // (2 * ahead + 1)", LAWS),
    Mutant("schedule-periodic-never-ahead", "testbed/staleness/periodic.py", "np.array([ahead * length + step % length])", "np.array([step % length])", LAWS),
    Mutant("schedule-offline-follows", "testbed/staleness/offline.py", "np.array([step])", "np.array([step // 2])", LAWS),
    Mutant("schedule-version-off-by-one", BY_AGE, "np.maximum(step - age_RY, 0)", "np.maximum(step - 1 - age_RY, 0)", LAWS),
    Mutant("schedule-recorded-version-off-by-one", BY_AGE, "with_version(rollout, version_RY)", "with_version(rollout, version_RY + 1)", LAWS),
    Mutant("schedule-slices-in-another-order", BY_AGE, "version_RY.to(rollout.token_RBT.device)", "version_RY.flip(1)", LAWS),
    Mutant("schedule-buffer-as-deep-as-asked", BY_AGE, "min(plan.depth + self.past, run.steps)", "min(plan.depth, 10**6)", LAWS),
    Mutant("schedule-stacks-unequal-slices", PACKS, "key = (*kind, _slices(cell, kind, slices))", "key = kind", LAWS),
    Mutant("schedule-check-accepts-nan", BOOK, "~((found_RBT - rollout.logp_mu_RBT).abs() <= tolerance)", "((found_RBT - rollout.logp_mu_RBT).abs() > tolerance)", LAWS),
    Mutant("schedule-check-looks-at-nothing", BOOK, "list(sample)] = True", "list(sample)] = False", LAWS),
    Mutant("schedule-check-ignores-the-engine", BOOK, "(logp or world.logp)", "world.logp", LAWS),
    Mutant("schedule-check-reads-the-newest", BOOK, "(weights[version], rollout)", "(weights[max(weights)], rollout)", LAWS),
    Mutant("schedule-claim-judged-on-seeds-it-was-made-from", CLAIMS, "later = table[~table", "later = table[table", FIGURE),
    Mutant("schedule-claim-reads-the-smallest-lag", CLAIMS, '"lag": table["lag"].max()', '"lag": table["lag"].min()', FIGURE),
    Mutant("schedule-claim-against-no-spread", TABLE, "must_exceed(ratio, (1 + predicted) / 2, note, null=(1 + predicted) / 2)", "must_exceed(ratio, 1.0, note)", FIGURE),
    Mutant("schedule-claim-growth-without-delay", CLAIMS, "past_K[law.age_K]", "past_K[0 * law.age_K]", FIGURE),
    Mutant("schedule-figure-weighs-by-pi", TABLE, "weights=np.exp(log_mu_RL)", "weights=np.exp(log_RTL[:, step])", FIGURE),
    Mutant("schedule-figure-shifts-ages", TABLE, "step - np.arange(ages)", "step - 1 - np.arange(ages)", FIGURE),
    Mutant("schedule-figure-walks-a-stale-path", TABLE, "source.batch(state.theta_RP, step)", "source.batch(world.initial(), step)", FIGURE),
    Mutant("schedule-buffer-skips-versions", VERSIONS, "if version not in (self.newest, self.newest + 1):", "if False:", BUFFER),
    Mutant("schedule-buffer-forgets-the-start", VERSIONS, "theta_RP.detach().clone() if first else None", "None", BUFFER),
    Mutant("schedule-memory-limit-ignored", STORAGE, "if size > most:", "if False:", f"{BUFFER} -k memory"),
    Mutant("schedule-memory-all-of-it", STORAGE, "available(device) // 2", "available(device)", BUFFER),
    Mutant("schedule-spill-leaves-its-file", STORAGE, "os.unlink(name)", "pass", BUFFER),
    Mutant("schedule-spill-stays-in-memory", STORAGE, "rows: Tensor = torch.from_file(name, shared=True, size=shape[0] * shape[1], dtype=dtype)", "rows = torch.empty(shape, dtype=dtype)", BUFFER),
    Mutant("schedule-spill-without-room", STORAGE, "os.posix_fallocate(descriptor, 0, max(size, 1))", "os.ftruncate(descriptor, max(size, 1))", BUFFER),
)  # fmt: skip
