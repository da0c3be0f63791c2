"""Bugs planted between a trace and the learner that follows it, and in the command that joins them."""

from mutants.mutant import Mutant

DRIVEN, TRACE = "testbed/staleness/trace_driven.py", "testbed/pipeline/trace.py"
CLOCK, THEN = "analysis/tables/wall_clock.py", "testbed/cli/pipeline_run.py"
TESTS, COMMAND = "tests/unit/staleness/test_trace_driven.py", "tests/unit/pipeline/test_pipeline_run.py"

MUTANTS = (
    Mutant("tracedrive-age-of-the-youngest-member", TRACE, "np.maximum.at(age_N, group_B, c[", "np.minimum.at(age_N, group_B, c[", f"{TESTS} -k row_by_row"),
    Mutant("tracedrive-age-at-the-last-token", TRACE, '"version_end" if token == "last" else "version_start"', '"version_end"', f"{TESTS} -k first_or_the_last"),
    Mutant("tracedrive-groups-in-order-of-number", TRACE, "age_N[order_N].reshape", "age_N.reshape", f"{TESTS} -k row_by_row"),
    Mutant("tracedrive-steps-are-batches", TRACE, 'c["version_trained"] - c["version_trained"][0]\n', 'c["batch"] - c["batch"][0]\n', f"{TESTS} -k row_by_row"),
    Mutant("tracedrive-time-of-the-first-sample", TRACE, 'np.searchsorted(step_B, np.arange(len(size_T)), side="right") - 1', "np.searchsorted(step_B, np.arange(len(size_T)))", f"{TESTS} -k 'times_are'"),
    Mutant("tracedrive-leaps-are-stepped-over", TRACE, "np.diff(step_B, prepend=0) > 1", "np.diff(step_B, prepend=0) > 99", f"{TESTS} -k cannot_follow"),
    Mutant("tracedrive-groups-may-be-cut", TRACE, "step_B != group_step_B,", "step_B < 0,", f"{TESTS} -k cannot_follow"),
    Mutant("tracedrive-in-flight-goes-unsaid", TRACE, '& (token == "")', '& (token == "first")', f"{TESTS} -k inside_a_sample"),
    Mutant("tracedrive-slices-shift-the-ages", DRIVEN, "age_TN[:, :: age_TN.shape[1] // slices]", "age_TN[:, ::-1][:, :: age_TN.shape[1] // slices]", f"{TESTS} -k groups_age"),
    Mutant("tracedrive-one-slice-too-few", DRIVEN, "if (part_TYG == part_TYG[..., :1]).all():", "if (part_TYG == part_TYG[..., :1])[0].all():", f"{TESTS} -k no_finer"),
    Mutant("tracedrive-one-step-behind", DRIVEN, "ByAge(lambda _, step: age_TY[step]", "ByAge(lambda _, step: age_TY[max(step - 1, 0)]", f"{TESTS} -k groups_age"),
    Mutant("tracedrive-depth-too-small", DRIVEN, "depth=int(age_TY.max()) + 1", "depth=max(int(age_TY.max()), 1)", f"{TESTS} -k constant_lag"),
    Mutant("tracedrive-reads-beyond-the-last-step", DRIVEN, "by_age(found.age_TN[:steps])", "by_age(found.age_TN)", f"{TESTS} -k beyond"),
    Mutant("tracedrive-clock-one-step-late", DRIVEN, "self.time_T[step])", "self.time_T[min(step + 1, len(self.time_T) - 1)])", f"{TESTS} -k groups_age"),
    Mutant("tracedrive-pipeline-of-seed-zero", DRIVEN, "-(-steps // design.updates), seed)", "-(-steps // design.updates))", f"{TESTS} -k that_it_writes"),
    Mutant("tracedrive-short-traces-pass", DRIVEN, "if run.steps > updates:", "if run.steps > updates + 1:", f"{TESTS} -k cannot_follow"),
    Mutant("tracedrive-digest-not-compared", "testbed/user_files.py", "if digest and digest != now:", "if False:", f"{TESTS} -k another_cell"),
    Mutant("tracedrive-file-read-once", DRIVEN, "_recorded(path, unchanged(path, digest, \"a lag trace\"), token)", "_recorded(path, digest, token)", f"{TESTS} -k 'again or nowhere'"),
    Mutant("tracedrive-run-does-not-pin", "testbed/cli/run.py", "pin_data(pin_trace(pin_files(cell)))", "pin_data(pin_files(cell))", f"{COMMAND} -k digest"),
    Mutant("tracedrive-pipeline-seed-is-lost", THEN, '("seed", seed))', '("seed", 0))', f"{COMMAND} -k bought"),
    Mutant("tracedrive-keeps-another-trace", THEN, "design.updates), seed), folder", "design.updates), 0), folder", f"{COMMAND} -k bought"),
    Mutant("tracedrive-file-over-words", "testbed/cli/pipeline.py", "if word.partition(\"=\")[0] not in named]", "]", f"{COMMAND} -k words_go_over"),
    Mutant("tracedrive-level-just-missed", CLOCK, "value_W >= level", "value_W > level", f"{COMMAND} -k first_row"),
    Mutant("tracedrive-unlucky-seeds-left-out", CLOCK, "float(np.median(seconds))", "float(np.nanmedian([s for s in seconds if s < math.inf] or [math.inf]))", f"{COMMAND} -k summed_up"),
    Mutant("tracedrive-accuracy-by-one-lucky-row", CLOCK, "WINDOW if column == ACCURACY else 1", "1", f"{COMMAND} -k on_average"),
)  # fmt: skip
