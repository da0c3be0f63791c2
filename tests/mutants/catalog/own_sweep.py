"""Bugs planted in what draws, compares, reports, extends and merges a sweep."""

from mutants.mutant import Mutant

TABLE, COMPARISON, WARNINGS = (
    f"analysis/sweeps/sweep_{name}.py" for name in ("table", "comparison", "warnings")
)
PLOT, REPORT = "paper_figs/plot.py", "paper_figs/report.py"
MANIFEST, MERGING, PACKS = (
    "testbed/results/manifest.py",
    "testbed/results/merging.py",
    "testbed/execution/packs.py",
)
OF_TABLE = "tests/unit/analysis/test_sweep_table.py"
OF_COMPARISON = "tests/unit/analysis/test_sweep_comparison.py"
OF_PLOT = "tests/experiments/test_plot.py -m 'not slow'"
OF_REPORT = "tests/experiments/test_report.py -m 'not slow'"
POWER, OF_POWER = "analysis/judging/seed_power.py", "tests/unit/analysis/test_seed_power.py"
OF_GROWTH = "tests/unit/results/test_extending.py"

OF_WATCHING = "tests/unit/cli/test_watch.py -k 'counts_as_the_runner or killed_runner'"

MUTANTS: tuple[Mutant, ...] = (
    Mutant("plot-reads-formulas", "paper_figs/base.py", "text.set_parse_math(False)", "text.set_parse_math(True)", OF_PLOT),
    Mutant("plot-numbers-without-notation", "paper_figs/base.py", "text not in of_numbers", "True", OF_PLOT),
    Mutant("watch-notes-of-the-dead", "testbed/results/locks.py", "fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)", "raise OSError", OF_WATCHING),
    Mutant("watch-old-notes", "testbed/results/locks.py", "os.ftruncate(descriptor, 0)", "pass", OF_WATCHING),
    Mutant("watch-without-parts", "testbed/cli/status.py", "display.steps(pack, store.packs[pack], share)", "pass", OF_WATCHING),
    Mutant("stop-though-all-is-done", "testbed/execution/runner.py", "interrupt.is_set() and feed.unsettled()", "interrupt.is_set()", "tests/unit/execution/test_resume.py -k ctrl_c"),
    Mutant("compare-first-heading", COMPARISON, "dial(rows, by) if by else usual_axis(rows)", 'dial(rows, by or "recipe")', OF_COMPARISON),
    Mutant("sweep-cells-counted-twice", TABLE, 'rows.drop_duplicates(["cell", "step"], ignore_index=True)', "rows", OF_TABLE),
    Mutant("sweep-dependent-dials-told", TABLE, "nunique(dropna=False).max() > 1:", "nunique(dropna=False).max() > 0:", OF_TABLE),
    Mutant("sweep-other-cells-kept", TABLE, "rows = rows[shown.isin(wanted)]", "rows = rows", OF_TABLE),
    Mutant("sweep-gaps-of-rare-metrics", TABLE, "expected & ~known", "~known", OF_TABLE),
    Mutant("power-of-arms-without-spread", "analysis/commands/power.py", "if arm[1] != 0 and arm[2] > 0", "if True", OF_POWER),
    Mutant("power-of-t-one-short", "testbed/testing/t_test_seeds.py", "return below + 2", "return below + 1", OF_POWER),
    Mutant("compare-sign", COMPARISON, "less = paired(cells, metric, ours, theirs)", "less = paired(cells, metric, theirs, ours)", OF_COMPARISON),
    Mutant("compare-without-holm", COMPARISON, 'table["p_holm"] = [adjusted[str(index)] for index in range(len(table))]', 'table["p_holm"] = table["p"]', OF_COMPARISON),
    Mutant("compare-ties-count-nothing", COMPARISON, "0.5 * (x_N[:, None] == y_N)", "0.0 * (x_N[:, None] == y_N)", OF_COMPARISON),
    Mutant("compare-interval-too-narrow", COMPARISON, " * (1 + more) / n**2", " / n**2", OF_COMPARISON),
    Mutant("compare-too-few-seeds-asked-for", COMPARISON, "t_seeds(row[\"difference\"], row[\"spread\"], alpha, 1 - MISSED)", "0", OF_COMPARISON),
    Mutant("compare-settings-mixed", COMPARISON, "{ARM: each, SETTING: setting}", "{ARM: each}", OF_COMPARISON),
    Mutant("compare-baseline-collapses-for-the-arm", COMPARISON, '"collapsed": share.center', '"collapsed": float(lost_there.mean())', OF_COMPARISON),
    Mutant("plot-settings-pass-for-seeds", PLOT, "arms = [*arms, *left]", "arms = [*arms]", OF_PLOT),
    Mutant("plot-crowded-panel", PLOT, "FEW = 5", "FEW = 50", OF_PLOT),
    Mutant("plot-arm-changes-its-look", PLOT, "order=tuple(order) if arms else ()", "order=()", OF_PLOT),
    Mutant("plot-lost-cells-untold", PLOT, "if ax is None and cells and (lost", "if False and (lost", OF_PLOT),
    Mutant("plot-scales-differ", PLOT, "span=(float(means.min()), float(means.max())), ", "", OF_PLOT),
    Mutant("report-floor-passed-over", WARNINGS, "rows[ESS] <= NEAR * rows[ESS_FLOOR]", "rows[ESS] < rows[ESS_FLOOR]", OF_REPORT),
    Mutant("report-limit-always-active", WARNINGS, "(rows[GRADIENT] > rows[LIMIT])", "(rows[GRADIENT] > 0)", OF_REPORT),
    Mutant("report-names-unescaped", REPORT, '<td>{escape(str(v))}</td>', "<td>{v}</td>", "tests/experiments/test_report.py -k text"),
    Mutant("extend-forgets-old-packs", PACKS, "return there + tuple(", "return tuple(", OF_GROWTH),
    Mutant("extend-runs-old-cells-again", PACKS, "if name not in held]", "]", OF_GROWTH),
    Mutant("extend-unasked", PACKS, "if not there or not (extend or held == ours.keys()):", "if not there:", OF_GROWTH),
    Mutant("extend-overwrites-another", MANIFEST, "if there.rebuilt or held == [pack.id for pack in packs[: len(held)]]:", "if held:", OF_GROWTH),
    Mutant("merge-cells-twice", MERGING, "held.update(pack.names)", "pass", OF_GROWTH),
    Mutant("merge-pending-before-done", MERGING, "for finished in (True, False):", "for finished in (False, True):", OF_GROWTH),
    Mutant("merge-takes-contradictions", MERGING, "known.setdefault(pack.id, store).result(pack.id) != store.result(pack.id)", "False", OF_GROWTH),
    Mutant("range-without-its-end", "testbed/config/toml_file.py", "int(match[2]) + 1)", "int(match[2]))", OF_GROWTH),
    Mutant("toml-leaves-fields-out", "testbed/config/toml_text.py", "if value != getattr(Run(), name)}", "if name == 'task'}", "tests/unit/config/test_toml_text.py"),
    Mutant("closing-drawn-after-failure", "testbed/cli/run.py", "    if status.done and has", "    if has", "tests/unit/cli/test_summary_table.py -m 'not slow'"),
    Mutant("closing-breaks-words", "testbed/cli/show.py", "widths = _widths(rows, console.width) if console.is_terminal else dict.fromkeys(rows[0])", "widths = dict.fromkeys(rows[0])", "tests/unit/cli/test_summary_table.py -m 'not slow'"),
    Mutant("board-kills-the-sweep", "testbed/execution/progress.py", "except Exception as error:", "except OSError as error:", "tests/unit/cli/test_watch.py"),
)  # fmt: skip
