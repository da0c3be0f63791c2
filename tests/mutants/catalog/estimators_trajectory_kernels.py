"""Planted bugs in the compiled passes over logged steps and in what is made of their sums."""

from mutants.mutant import Mutant

TESTS = "tests/unit/estimators/test_estimators_trajectory_kernels.py"
_KERNEL = "testbed/estimators/kernels.py"
_SUMS = "testbed/estimators/trajectory_sums.py"
_WEIGHTS = "testbed/estimators/trajectory_weights.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant("trajkernel-padding-is-judged", _KERNEL, " | (masked and not live_N[i])", "", TESTS),
    Mutant("trajkernel-nothing-is-judged", _KERNEL, "(masked and not live_N[i])", "masked", TESTS),
    Mutant("trajkernel-model-weighs-this-step", _KERNEL, "model = weight * (v_RNT", "model = weight * rho_RNT[r, i, t] * (v_RNT", TESTS),
    Mutant("trajkernel-error-without-model", _KERNEL, "error -= q_RNT[r, i, t]", "error -= 0.0", TESTS),
    Mutant("trajkernel-error-not-centered", _KERNEL, "reward_RNT[r, i, t] - plan_KT[1, t]", "reward_RNT[r, i, t]", TESTS),
    Mutant("trajkernel-model-not-centered", _KERNEL, "(v_RNT[r, i, t] - plan_KT[3, t])", "v_RNT[r, i, t]", TESTS),
    Mutant("trajkernel-zero-times-infinity", _KERNEL, "(dead & (weight == 0.0))", "dead", TESTS),
    Mutant("trajkernel-vanished-weights-pass", _KERNEL, "(weight > _SMALLEST)", "(weight >= 0.0)", TESTS),
    Mutant("trajkernel-infinite-weights-pass", _KERNEL, "(weight < _LARGEST)", "(weight <= np.inf)", TESTS),
    Mutant("trajkernel-only-the-last-episode-is-judged", _KERNEL, "fine &= ((weight", "fine = ((weight", TESTS),
    Mutant("trajkernel-dead-never-wakes-the-next", _KERNEL, "weight, term, dead = 1.0, 0.0, False\n            for t in", "weight, term, dead = 1.0, 0.0, i > 0 and unit_KRN[0, r, i - 1] == 0.0\n            for t in", TESTS),
    Mutant("trajkernel-last-block-unread", _KERNEL, "size = (n + blocks - 1) // blocks", "size = n // blocks - 1", TESTS),
    Mutant("trajkernel-data-sets-share-a-plan", _KERNEL, "plan_RKT[r], part_RBKT[r, block]", "plan_RKT[0], part_RBKT[r, block]", TESTS),
    Mutant("trajkernel-earlier-mass-of-this-step", _SUMS, "[np.full_like(self.mass_T[..., :1], n), self.mass_T[..., :-1]]", "[self.mass_T]", TESTS),
    Mutant("trajkernel-first-model-over-one", _SUMS, "np.full_like(self.mass_T[..., :1], n)", "np.full_like(self.mass_T[..., :1], 1)", TESTS),
    Mutant("trajkernel-value-without-model", _SUMS, "(plan_KT[..., 1, :] + plan_KT[..., 3, :])", "plan_KT[..., 1, :]", TESTS),
    Mutant("trajkernel-value-undiscounted", _SUMS, "@ self.discount_T)", "@ np.ones_like(self.discount_T))", TESTS),
    Mutant("trajkernel-pull-undiscounted", _SUMS, "self.discount_T / self.mass_T", "1.0 / self.mass_T", TESTS),
    Mutant("trajkernel-bad-products-are-used", _SUMS, "if not fine:", "if False:", TESTS),
    Mutant("trajkernel-empty-steps-divide", _SUMS, "bool((self.mass_T > 0.0).all())", "True", TESTS),
    Mutant("trajkernel-one-data-set-suffices", _SUMS, "part_RBKT.sum(axis=1)", "part_RBKT[:1].sum(axis=1).repeat(replicates, 0)", TESTS),
    Mutant("trajkernel-old-model-is-kept", _WEIGHTS, 'found.__dict__.pop("model_sums", None)', "pass", TESTS),
    Mutant("trajkernel-padding-weighs-nothing", _WEIGHTS, "np.where(self.mask_NT, given.rho_NT, 1.0)", "np.where(self.mask_NT, given.rho_NT, 0.0)", TESTS),
    Mutant("trajkernel-underflow-is-never", _WEIGHTS, "= np.nextafter(0.0, 1.0)", "= 0.0", TESTS),
    Mutant("trajkernel-actions-wrap-around", _WEIGHTS, "if chosen_NT1.min() < 0 or ", "if ", TESTS),
    Mutant("trajkernel-negative-laws", _WEIGHTS, " & (target_NTA.min(-1) >= 0.0)", "", TESTS),
    Mutant("trajkernel-mask-of-another-shape", _WEIGHTS, "np.shape(mask) != np.shape(reward_NT)", "np.size(mask) != np.size(reward_NT)", TESTS),
    Mutant("trajkernel-stderr-at-once", "testbed/estimators/trajectory.py", "Linearized(episodes.sums.value, episodes.sums.pull_N, ", "Linearized(episodes.sums.value, episodes.sums.pull_N(), ", TESTS),
)  # fmt: skip
