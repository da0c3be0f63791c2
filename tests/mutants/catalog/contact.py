"""Bugs planted in what a first-time user meets: own files, look-ups, warnings, figures, the doctor."""

from mutants.mutant import Mutant

OWN, LOOK, START = (
    "tests/unit/cli/test_own_files.py",
    "tests/unit/cli/test_look_up.py",
    "tests/unit/cli/test_before_the_start.py",
)
RUN, PANELS = "testbed/cli/run.py", "tests/experiments/test_panels.py"

MUTANTS = (
    Mutant("contact-own-hyperparameters-dropped", RUN, "words = [word for word in overrides if not word.startswith(\"recipe=\")]", "words = [word for word in overrides if not word.startswith(\"recipe\")]", OWN),
    Mutant("contact-sweep-file-arguments-dropped", RUN, 'cell.recipe_args if in_toml else ()', '()', OWN),
    Mutant("contact-step-rule-is-no-dial", "testbed/recipes/__init__.py", "step_rule=replace(made.step_rule, **rules)", "step_rule=made.step_rule", OWN),
    Mutant("contact-types-not-checked", "testbed/config/argument_types.py", "if name in declared and (reason := mistyped(value, declared[name])):", "if name in declared and (reason := ''):", OWN),
    Mutant("contact-a-truth-value-is-a-number", "testbed/config/argument_types.py", "return type(value) in parts or (float in parts and type(value) is int)", "return isinstance(value, parts) or (float in parts and isinstance(value, int))", "tests/unit/config/test_argument_types.py"),
    Mutant("contact-error-without-its-line", "testbed/execution/worker.py", 'return f"{place}: " if place else ""', 'return ""', OWN),
    Mutant("contact-divergence-untold", RUN, "if line := divergence(summary):", "if line := '':", OWN),
    Mutant("contact-divergence-not-in-the-table", "analysis/commands/summary_table.py", "lost = any(", "lost = False and any(", "tests/unit/cli/test_summary_table.py -k diverged"),
    Mutant("contact-all-names-listed", "testbed/errors.py", "shown = list(dict.fromkeys([*near, *names]))[:MOST]", "shown = list(dict.fromkeys([*near, *names]))", LOOK),
    Mutant("contact-stacks-not-looked-up", "testbed/cli/look_up.py", "if name.lower() in stacks():", "if False:", LOOK),
    Mutant("contact-dry-run-ignores-shard", RUN, "packs, ours = prepare(cells, shard, folder, ", 'packs, ours = prepare(cells, "1/1", folder, ', START),
    Mutant("contact-dry-run-ignores-limits", RUN, "        check_limits(workers, threads, timeout)\n", "", START),
    Mutant("contact-long-lag-untold", RUN, "if far and not quiet:", "if False:", START),
    Mutant("contact-empty-sweep-file-runs", "testbed/config/toml_file.py", "    if not data:\n", "    if False:\n", START),
    Mutant("contact-damage-untold", "testbed/results/store.py", 'lost = {name.partition("-")[0] for name in held} - done - failed', "lost: set[str] = set()", START),
    Mutant("contact-ctrl-c-untold", "testbed/execution/runner.py", "        threading.Thread(target=tell, daemon=True).start()\n", "", "tests/unit/execution/test_progress.py"),
    Mutant("contact-labels-collide", "paper_figs/panels.py", "found_N[order_N] = level_N + gap * np.arange(given_N.size)", "found_N[order_N] = level_N", PANELS + " -k apart"),
    Mutant("contact-legend-says-twice", "paper_figs/panels.py", "if found.count(each) > 1]", "if found.count(each) > 9]", PANELS + " -k legend"),
    Mutant("contact-runs-end-at-their-last-row", "paper_figs/staleness.py", ".tail(WINDOW)", ".tail(1)", PANELS + " -k interval"),
    Mutant("contact-atlas-text-over-curves", "paper_figs/objective_weights.py", "return preferred if not taken[preferred] or taken[not preferred] else not preferred", "return preferred", PANELS + " -k objectives-regression"),
    Mutant("contact-doctor-prints-digits", "testbed/cli/doctor.py", "return np.asarray(column).tobytes()", "return repr(np.asarray(column)).encode()", "tests/unit/cli/test_doctor.py -k bits"),
    Mutant("contact-bench-names-nobody", "tests/benchmarks/__main__.py", "        if status:\n", "        if False:\n", "tests/docs/test_benchmarks.py"),
    Mutant("contact-cells-made-many-times", "testbed/config/toml_file.py", "unique(cell for run in runs for cell in _cells(run, {}, first)) if axes else tuple(runs)", "tuple(runs)", "tests/unit/config/test_config.py -k expanded_once"),
    Mutant("contact-pace-with-its-start", "testbed/execution/progress.py", "self._pace_from or (self._began, self._at_start)", "(self._began, self._at_start)", "tests/unit/execution/test_progress.py -k steps_of_running"),
    Mutant("contact-line-of-a-user-untold", "testbed/cli/__init__.py", "if place := line_of_a_user(error):", "if place := None:", "tests/unit/cli/test_own_files.py -k line_of_an_error"),
    Mutant("contact-own-exit-ends-the-command", "testbed/cli/__init__.py", "except BaseException as error:  # click", "except Exception as error:  # click", "tests/unit/cli/test_own_exits.py"),
    Mutant("contact-own-exit-ends-the-sweep", "testbed/execution/worker.py", "    except BaseException as error:", "    except Exception as error:", "tests/unit/cli/test_own_exits.py"),
    Mutant("contact-own-error-unprintable", "testbed/user_files.py", "    except BaseException:\n        return", "    except OSError:\n        return", "tests/unit/cli/test_own_exits.py"),
    Mutant("contact-panels-marked-at-the-lag", "paper_figs/staleness.py", "ax.axvline(lag + last - longest,", "ax.axvline(lag,", "tests/experiments/test_figures.py -k equally_many"),
)  # fmt: skip
