"""Bugs planted in the pipeline simulator, its closed forms, its trace and its command."""

from mutants.mutant import Mutant

KERNEL = "testbed/pipeline/kernel.py"
RULES = "tests/unit/pipeline/test_pipeline.py"
TRACE = "tests/unit/pipeline/test_pipeline_trace.py"
CLAIMS = "tests/experiments/test_claims_exact.py -k "
REPLICATED = "tests/experiments/test_claims_pipeline.py -k "

MUTANTS = (
    Mutant("pipeline-queue-keeps-the-oldest", KERNEL, "if p.drop_rule != _DROP_OLDEST:", "if p.drop_rule == _DROP_OLDEST:", f"{RULES} -k dropping_the_oldest"),
    Mutant("pipeline-queue-last-in-first-out", KERNEL, "        if p.lifo:", "        if not p.lifo:", f"{RULES} -k 'bottleneck or last_in'"),
    Mutant("pipeline-block-never-blocks", KERNEL, "if p.drop_rule == _BLOCK and s.queue_size >= p.queue_groups:", "if False:", f"{RULES} -k blocks"),
    Mutant("pipeline-age-of-the-first-update", KERNEL, "(s.trained + 1) * p.updates - 1 - a.oldest_N[g]", "s.trained * p.updates - a.oldest_N[g]", f"{RULES} -k age_limit"),
    Mutant("pipeline-age-checked-at-the-door-only", KERNEL, "    if p.max_age < 0 or s.purged_at == s.trained:", "    if True:", f"{RULES} -k age_limit"),
    Mutant("pipeline-lag-by-batches", KERNEL, "now = s.trained * p.updates + (place + k) * p.updates // p.batch", "now = s.trained", f"{RULES} -k mini_batches"),
    Mutant("pipeline-lag-at-the-end", KERNEL, "lag = now - a.first_version_B[i]", "lag = now - a.last_version_B[i]", f"{RULES} -k in_flight_change"),
    Mutant("pipeline-tokens-of-one-version", KERNEL, "a.area_B[i] = _area(s) - a.area_B[i]", "a.area_B[i] = float(a.first_version_B[i] * a.length_B[i])", f"{REPLICATED} in-flight"),
    Mutant("pipeline-always-in-flight", KERNEL, "    if p.in_flight == 0:\n", "    if False:\n", f"{REPLICATED} in-flight"),
    Mutant("pipeline-token-histogram-shifted", KERNEL, "_count(out.token_K, now - a.swap_version_W[place], upper - lower)", "_count(out.token_K, now - a.swap_version_W[place] + 1, upper - lower)", f"{RULES} -k histograms"),
    Mutant("pipeline-capacity-off-by-one", KERNEL, "s.limit = p.lag_samples + (s.published + 1) * p.batch", "s.limit = p.lag_samples + (s.published + 2) * p.batch", f"{CLAIMS} capacity-bounds"),
    Mutant("pipeline-capacity-forgets-the-dropped", KERNEL, "if s.started - s.dropped >= s.limit:", "if s.started >= s.limit:", f"{RULES} -k returns_its_place"),
    Mutant("pipeline-threshold-forgets-the-left-over", KERNEL, "max(0, wanted - inside)", "wanted", f"{RULES} -k threshold"),
    Mutant("pipeline-attempts-in-samples", "testbed/pipeline/records.py", "-(-d.max_lag // d.group) * d.group", "d.max_lag", f"{RULES} -k attempts"),
    Mutant("pipeline-barrier-open", KERNEL, "return p.barrier == 0 or s.started < s.wave_end", "return True", f"{REPLICATED} pipeline-periods"),
    Mutant("pipeline-decoding-of-constant-speed", KERNEL, "tau = p.tau_0 + p.tau_1 * s.decoding / p.engines", "tau = p.tau_0 + p.tau_1 * p.slots / p.engines", f"{REPLICATED} pipeline-periods"),
    Mutant("pipeline-sync-is-free", KERNEL, "    if p.sync_time <= 0:\n", "    if True:\n", f"{REPLICATED} pipeline-periods"),
    Mutant("pipeline-colocated-decodes-on", KERNEL, "stopped = s.pause_end < _NEVER or (p.colocated and s.train_end < _NEVER)", "stopped = s.pause_end < _NEVER", f"{RULES} -k colocated"),
    Mutant("pipeline-publishes-every-piece", KERNEL, "    if s.piece < p.pieces:\n        return\n", "", f"{CLAIMS} periodic"),
    Mutant("pipeline-sync-every-batch", KERNEL, "    if s.trained % p.sync_every:\n        return\n", "", f"{RULES} -k synced_every"),
    Mutant("pipeline-group-of-its-fastest", KERNEL, "    if a.left_N[g] == 0:\n", "    if a.left_N[g] == p.group - 1:\n", f"{REPLICATED} pipeline-mean-lag"),
    Mutant("pipeline-lengths-share-too-little", "testbed/pipeline/records.py", "d.correlation**0.5, (1", "d.correlation, (1", f"{RULES} -k moments"),
    Mutant("pipeline-length-mean-is-the-median", "testbed/pipeline/records.py", "design.sigma**2 / 2 if", "0.0 if", f"{RULES} -k 'tool'"),
    Mutant("pipeline-slots-share-a-stream", "testbed/pipeline/kernel.py", "a.score_N[s.open_group], s.started, key)", "a.score_N[s.open_group], s.started % 8, key)", f"{RULES} -k moments"),
    Mutant("pipeline-replicas-alike", "testbed/pipeline/parallel.py", "key_R[j % replicas]", "key_R[0]", f"{RULES} -k differ"),
    Mutant("pipeline-form-without-tail", "testbed/pipeline/closed_forms.py", "before = d.slots * moments(d).tail / d.batch", "before = d.slots / d.batch", f"{REPLICATED} pipeline-mean-lag"),
    Mutant("pipeline-form-saves-all", "testbed/pipeline/closed_forms.py", "found.square / (2 * found.mean**2)", "found.square / found.mean**2", f"{REPLICATED} in-flight"),
    Mutant("pipeline-age-limit-unchecked", "testbed/pipeline/design.py", "d.max_age < d.youngest", "d.max_age < 0", f"{RULES} -k impossible"),
    Mutant("pipeline-queue-unchecked", "testbed/pipeline/design.py", "if d.queue < 1:", "if d.queue < 0:", f"{RULES} -k impossible"),
    Mutant("pipeline-trace-gap-unseen", "testbed/pipeline/trace.py", "step_B > 1,", "step_B > 99,", TRACE),
    Mutant("pipeline-trace-line-of-the-row", "testbed/pipeline/trace.py", "(int(row) + 2, why)", "(int(row) + 1, why)", TRACE),
    Mutant("pipeline-trace-negative-lag-unseen", "testbed/pipeline/trace.py", 'c["version_trained"] < c["version_end"]', 'c["version_trained"] < -1', TRACE),
    Mutant("pipeline-plan-trains-on-all", "testbed/pipeline/sizing.py", "generating = accelerators - training", "generating = accelerators", TRACE),
    Mutant("replications-one-sided", "analysis/experiments/pipelines/pipeline_replications.py", 'in (("above", 1), ("below", -1))', 'in (("above", 1),)', REPLICATED + "both_sides"),
    Mutant("replications-saving-of-the-wrong-pair", "analysis/experiments/pipelines/pipeline_replications.py", "(found[late] - found[soon])", "(found[soon] - found[late])", REPLICATED + "in-flight"),
    Mutant("replications-of-another-seed", "analysis/experiments/pipelines/pipeline_replications.py", "replicas=replicas, batches=batches", "replicas=replicas, batches=batches, seed=1", REPLICATED + "in-flight"),
)  # fmt: skip
