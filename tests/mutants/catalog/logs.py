"""Bugs planted in the readers of training logs, in what is said of them, and in the live numbers."""

from mutants.mutant import Mutant

R = "testbed/logs/readers"
READERS, TRAPS, CUT = (f"tests/unit/logs/test_{name}.py" for name in ("readers", "traps", "clip_report"))
LIVE, PAGE = "tests/unit/adapters/test_live.py", "tests/experiments/test_diagnose.py"
CHECKS, RATIOS = "tests/unit/logs/test_ratio_checks.py", "testbed/logs/ratio_checks.py"
PACKED = "tests/unit/logs/test_packed.py"
MALFORMED, SCALARS = "tests/unit/logs/test_malformed.py", "tests/unit/logs/test_scalars.py"
MEASURE, DOUBTS, WEIGH, ARRAYS = (
    f"testbed/logs/{name}.py" for name in ("measure", "sanity_checks", "clip_report", "arrays")
)
ALERTS, LEARNED = "testbed/diagnostics/peer_limits.py", "analysis/sweeps/early_warning.py"
CALLBACK = "testbed/adapters/trl_callback.py"

MUTANTS = (
    Mutant("logs-prompt-tokens-in-the-mask", f"{R}/prime_rl.py", "mask=mask[first:],", "mask=np.ones(len(mask), dtype=bool)[first:],", f"{TRAPS} -k zero_and_padding"),
    Mutant("logs-left-padding-shifts-tokens", f"{R}/skyrl.py", "token=token[response],", "token=token[-width:][: int(kept.sum())],", f"{TRAPS} -k left_and"),
    Mutant("logs-list-of-one-token-unwrapped-twice", f"{R}/nemo_rl.py", "and isinstance(value[0], list) else value", "else value", f"{TRAPS} -k list_of_one"),
    Mutant("logs-missing-rank-is-silent", f"{R}/prime_rl.py", "if there - given:", "if False:", f"{TRAPS} -k missing_one"),
    Mutant("logs-newest-version-of-a-mixed-response", f"{R}/slime.py", "min(versions)", "max(versions)", f"{TRAPS} -k oldest"),
    Mutant("logs-cut-line-in-the-middle-dropped", "testbed/logs/files.py", "if number != filled[-1][0] or len(filled) == 1:", "if False:", f"{TRAPS} -k in_the_middle"),
    Mutant("logs-pickles-are-loaded", "testbed/logs/files.py", "weights_only=True", "weights_only=False", f"{READERS} -k pickles"),
    Mutant("logs-groups-span-steps", f"{R}/verl.py", """group=f"{step}/{row.get('uid', prompt)}",""", """group=f"{row.get('uid', prompt)}",""", f"{TRAPS} -k another_step"),
    Mutant("logs-infinity-is-missing", "testbed/logs/record.py", "return None if math.isnan(value) else str(value)", "return None", f"{READERS} -k json_lines_of"),
    Mutant("logs-ages-from-the-oldest", ARRAYS, "newest[one.step] = max(", "newest[one.step] = min(", f"{TRAPS} -k mixed_versions"),
    Mutant("logs-missing-stays-in-the-mask", ARRAYS, """& ~np.isnan(_of(one, "logp_mu"))""", "", f"{TRAPS} -k leave_the_mask"),
    Mutant("logs-split-without-cross", MEASURE, '"k2_cross": float((d_N * s_N).mean())', '"k2_cross": 0.0', f"{TRAPS} -k add_up"),
    Mutant("logs-temperature-never-suspected", DOUBTS, "SLOPE = 1.1", "SLOPE = 9.0", f"{TRAPS} -k temperature_in_one"),
    Mutant("logs-rounding-noise-too-small", DOUBTS, ".mean() / 24)", ".mean() / 96)", f"{TRAPS} -k sixteen"),
    Mutant("logs-certainty-is-a-placeholder", DOUBTS, "(other < -SURE)", "(other < 0)", f"{TRAPS} -k placeholders"),
    Mutant("logs-cut-counts-tokens-without-weight", WEIGH, "read_BT = batch.mask_BT & (on_BT > 0)", "read_BT = torch.ones_like(batch.mask_BT)", f"{CUT} -k weigh_nothing"),
    Mutant("logs-anchor-of-the-log-ignored", WEIGH, "if tokens.log_anchor_N is None", "if True", f"{CUT} -k logged_anchor"),
    Mutant("logs-infinite-tokens-reach-objectives", WEIGH, "(tokens.total(lost_N.long()) == 0) &", "", f"{CUT} -k not_finite"),
    Mutant("logs-lines-end-at-u2028", "testbed/logs/files.py", 'text.split("\\n")', "text.splitlines()", f"{MALFORMED} -k separators"),
    Mutant("logs-large-numbers-cast-silently", "testbed/logs/record.py", " & (np.abs(found) <= EXACT)", "", f"{MALFORMED} -k exact_place"),
    Mutant("logs-groups-of-open-instruct-span-steps", f"{R}/open_instruct.py", """group=f"{step}/{row.get('prompt_idx', where)}",""", """group=f"{row.get('prompt_idx', where)}",""", f"{MALFORMED} -k two_steps"),
    Mutant("logs-on-policy-at-the-logged-anchor", WEIGH, "there = replace(batch, logp_anchor_BT=batch.logp_mu_BT)", "there = batch", f"{CUT} -k on_policy_weights"),
    Mutant("logs-groups-taken-as-equal", WEIGH, "group_B.bincount(minlength=len(reward_B)))[group_B]", "(len(reward_B) / len(group_B.unique())))[group_B]", f"{CUT} -k unequal"),
    Mutant("logs-ess-of-all-ages", MEASURE, "float(ess(log_rho_N))", "float(ess(raw_N[finite_N]))", f"{TRAPS} -k ess_of_an_age"),
    Mutant("logs-ratio-errors-of-tokens", RATIOS, "error = spread * math.sqrt(many) / tokens", "error = spread / math.sqrt(tokens)", f"{CHECKS} -k clustered"),
    Mutant("logs-few-sequences-tested", RATIOS, "if carrying < FEW:", "if False:", f"{CHECKS} -k undecided"),
    Mutant("logs-impossible-tokens-left-out-of-the-mean", RATIOS, "row[row < np.inf]", "row[np.isfinite(row)]", f"{CHECKS} -k emit"),
    Mutant("logs-refused-objective-is-silent", "analysis/logs/diagnosis.py", "if objectives and not rows:", "if False:", f"{PAGE} -k bad_input"),
    Mutant("logs-shift-named-backwards", RATIOS, "side = \"behind\" if best > 0", "side = \"behind\" if best < 0", f"{CHECKS} -k cause"),
    Mutant("logs-alert-on-the-wrong-side", ALERTS, "sign = 1.0 if threshold.below else -1.0", "sign = 1.0", f"{PAGE} -k since_when"),
    Mutant("logs-alert-silent-about-its-floor", ALERTS, "if not floor >= threshold.limit:", "if True:", f"{PAGE} -k floor_is_above"),
    Mutant("logs-laboratory-limit-without-evidence", LEARNED, "if least.low <= most.high:", "if False:", f"{PAGE} -k laboratorys"),
    Mutant("logs-callback-of-the-last-micro-batch", CALLBACK, "parts, self._parts = self._parts, []", "parts, self._parts = self._parts[-1:], []", f"{LIVE} -k joins"),
    Mutant("logs-callback-hears-the-anchor", CALLBACK, 'inputs.get("sampling_per_token_logps", logp_BT if old_BT is None else old_BT)', "logp_BT if old_BT is None else old_BT", f"{LIVE} -k joins"),
    Mutant("logs-names-that-mean-another-number", "testbed/adapters/live.py", "if alias.stack == stack and not alias.differs", "if alias.stack == stack", f"{LIVE} -k borrowed"),
    Mutant("logs-prefix-runs-over-sequences", ARRAYS, "for row in self.rows(raw_N):", "for row in (raw_N,):", f"{PACKED} -k padded"),
    Mutant("logs-ragged-batch-padded-whole", WEIGH, "return padded > max(FREE, WASTE * sum(lengths))", "return False", f"{PACKED} -k groups"),
    Mutant("logs-groups-split-by-length", WEIGH, "members.setdefault(group[i], [])", "members.setdefault(i, [])", f"{PACKED} -k groups"),
    Mutant("scalars-kl-of-the-other-trainer", f"{R}/trl_scalars.py", '"TRL async" if "ratio" in keys else "TRL"', '"TRL"', f"{SCALARS} -k async"),
    Mutant("scalars-null-is-no-number", "testbed/logs/scalars.py", "    if value is None:\n        return math.nan", "    if value is None:\n        return None", f"{SCALARS} -k finite"),
    Mutant("scalars-key-that-differs-first", "testbed/logs/scalars.py", "return (2 if known[key].differs else 1), known[key]", "return -1, known[key]", f"{SCALARS} -k callback"),
    Mutant("scalars-last-alert-named", "testbed/logs/scalars.py", "key=lambda alert: alert.first)", "key=lambda alert: -alert.first)", f"{SCALARS} -k first_step"),
    Mutant("scalars-nearest-by-count", f"{R}/__init__.py", "sum(key in first for key in reader.keys) / len(reader.keys)", "len(reader.keys)", f"{SCALARS} -k nearest"),
    Mutant("record-after-the-wrong-policy", "testbed/training/token_record.py", '"logp_pi": logp_BT,', '"logp_pi": batch.logp_mu_BT[place],', "tests/unit/training/test_token_record.py -k metrics"),
)  # fmt: skip
