"""Bugs planted in tuning, in base models that are kept, and in the cost of a sweep."""

from mutants.mutant import Mutant

TUNING = "tests/unit/analysis/test_tuning.py"
TUNE = "tests/unit/cli/test_tune.py"
BASE = "tests/unit/worlds/test_base_models.py"
COST = "tests/unit/execution/test_cost.py"

MUTANTS = (
    Mutant("tuning-1", "analysis/sweeps/tuning.py", 'score="median"', 'score="mean"', TUNING),
    Mutant(
        "tuning-2", "analysis/sweeps/tuning.py", "worst = np.inf if fewer else -np.inf", "worst = 0.0", TUNING
    ),
    Mutant(
        "tuning-3",
        "analysis/sweeps/tuning.py",
        "ascending=[fewer, *(True for _ in order[1:])]",
        "ascending=[fewer, *(False for _ in order[1:])]",
        TUNING,
    ),
    Mutant(
        "tuning-4",
        "analysis/sweeps/tuning.py",
        "while last < rate_G.size - 1 and near_G[last + 1]:",
        "while last < rate_G.size - 1:",
        TUNING,
    ),
    Mutant("tuning-5", "analysis/sweeps/tuning.py", "if seeds.nunique() > 1:", "if False:", TUNING),
    Mutant(
        "tuning-6", "analysis/sweeps/tuning.py", 'best[best["size"] == arms]["mean"]', 'best["size"]', TUNING
    ),
    Mutant("tuning-7", "analysis/sweeps/tuning.py", "(value != DEFAULT, value)", "(False, value)", TUNING),
    Mutant("tuning-8", "analysis/sweeps/tuning.py", "FIRST_SEED = 10_000", "FIRST_SEED = 1_000", TUNING),
    Mutant(
        "tuning-9",
        "analysis/commands/tune.py",
        "knobs = knobs and not any(arm.recipe_args for arm in arms)",
        "knobs = knobs",
        TUNE,
    ),
    Mutant("base-models-1", "testbed/worlds/base_models.py", "if not whole or", "if", BASE),
    Mutant("base-models-2", "testbed/worlds/base_models.py", "list(made_of), int(seed)", "int(seed)", BASE),
    Mutant(
        "base-models-3", "testbed/worlds/base_models.py", "list(made_of), int(seed)", "list(made_of)", BASE
    ),
    Mutant(
        "base-models-4",
        "testbed/worlds/base_models.py",
        "source_digest(type(task)), machine()",
        "machine()",
        BASE,
    ),
    Mutant(
        "base-models-5",
        "testbed/worlds/base_models.py",
        "policy.heads, policy.temperature",
        "policy.heads",
        BASE,
    ),
    Mutant(
        "base-models-6",
        "testbed/worlds/base_models.py",
        "    with contextlib.suppress(OSError, UserError):\n        path.parent",
        "    if path:\n        path.parent",
        BASE,
    ),
    Mutant(
        "base-models-7",
        "testbed/worlds/base_models.py",
        "        and torch.get_num_threads() == 1\n",
        "",
        BASE,
    ),
    Mutant(
        "base-models-8", "testbed/worlds/base_models.py", "for kind in task.__mro__:", "for kind in ():", BASE
    ),
    Mutant(
        "cost-1",
        "testbed/execution/cost.py",
        "each = first.steps * rates.step + rows * rates.row",
        "each = first.steps * rates.step",
        COST,
    ),
    Mutant(
        "cost-2", "testbed/execution/cost.py", "free[free.index(min(free))] += each", "free[0] += each", COST
    ),
    Mutant(
        "cost-3",
        "testbed/execution/cost.py",
        "known |= {(*like, seed) for seed in new} if folder() is not None else set()",
        "pass",
        COST,
    ),
    Mutant("cost-4", "testbed/execution/cost.py", "warm_start_steps=0)", "warm_start_steps=1)", COST),
    Mutant(
        "cost-5",
        "testbed/execution/cost.py",
        "known[like[0]].times(rough[kind].step / rough[like[0]].step)",
        "known[like[0]]",
        COST,
    ),
    Mutant(
        "cost-6",
        "testbed/cli/cost_prompt.py",
        "if yes or found.seconds is None or found.seconds <= ASK:",
        "if found.seconds is None or found.seconds <= ASK:",
        COST,
    ),
    Mutant("cost-7", "testbed/cli/cost_prompt.py", "if not sys.stdin.isatty():", "if False:", COST),
    Mutant("cost-kept", "testbed/execution/cost.py", "len(new - _kept(first, new))", "len(new)", COST),
    Mutant(
        "cost-clock", "testbed/execution/cost.py", "else time.process_time)", "else time.perf_counter)", COST
    ),
    Mutant(
        "cost-sample", "testbed/execution/cost.py", "int(MOMENT / (TIMED * guessed(first).step))", "0", COST
    ),
    Mutant(
        "progress-pace-of-the-sweep-before",
        "testbed/execution/progress.py",
        "time.monotonic(), None\n        self.show()",
        "time.monotonic(), self._pace_from\n        self.show()",
        "tests/unit/execution/test_progress.py -k behind",
    ),
    Mutant("cost-8", "testbed/execution/cost.py", "if pack.id not in done", "if pack.id", COST),
)
