"""Bugs planted in latency, replay and what becomes of samples that are too old."""

from mutants.mutant import Mutant

LATENCY, TOO_OLD, REPLAY, AGES = (
    f"testbed/staleness/{name}.py" for name in ("latency", "too_old", "replay", "limited_ages")
)
AGE, OLD, AGAIN = (
    "tests/unit/staleness/test_latency.py",
    "tests/unit/staleness/test_too_old.py",
    "tests/unit/staleness/test_replay_schedule.py",
)

MUTANTS = (
    Mutant("latency-of-the-mean-response", LATENCY, "length_xG.max(-1) / speed", "length_xG.mean(-1) / speed", AGE),
    Mutant("latency-without-the-ceiling", LATENCY, "np.ceil(length_xG.max(-1) / speed)", "np.floor(length_xG.max(-1) / speed)", AGE),
    Mutant("latency-time-stands-still", LATENCY, "        self.clock += 1", "        self.clock += 0", AGE),
    Mutant("latency-lands-one-step-late", LATENCY, "self.flying[0].due <= self.clock", "self.flying[0].due < self.clock", AGE),
    Mutant("latency-last-in-first-out", LATENCY, "group = self.ready.popleft()", "group = self.ready.pop()", AGE),
    Mutant("latency-in-flight-without-bound", LATENCY, "self.plan.concurrency - len(self.flying)", "self.prompts", AGE),
    Mutant("latency-waits-draw-the-same-numbers", LATENCY, "step + wait * STRIDE", "step", AGE),
    Mutant("latency-waits-count-the-update", LATENCY, "self._delivered(waits_R - 1, made_R)", "self._delivered(waits_R, made_R)", AGE),
    Mutant("latency-version-of-the-use", LATENCY, "self.drawn[self.draws] = with_version(rollout, version_R1)", "self.drawn[self.draws] = with_version(rollout, (version_R1 - 1).clamp(min=0))", AGE),
    Mutant("latency-packs-share-a-queue", LATENCY, "[CellQueue(plan, self.prompts) for plan in plans]", "[CellQueue(plans[0], self.prompts)] * len(plans)", AGE),
    Mutant("latency-wait-admits-one-batch-more", LATENCY, "(self.plan.limit + 1) * self.prompts - out", "(self.plan.limit + 2) * self.prompts - out", AGE),
    Mutant("latency-wait-trains-in-order-of-ends", LATENCY, 'if self.plan.rule == "wait" and self.ready[0].number != self.used:', "if False:", AGE),
    Mutant("latency-discards-at-the-limit", LATENCY, "step - group.version > self.plan.limit", "step - group.version >= self.plan.limit", OLD),
    Mutant("latency-discards-nothing", LATENCY, '(self.lost if too_old else self.batch).append(group)', "self.batch.append(group)", OLD),
    Mutant("latency-wait-cuts-above-the-limit", AGES, "np.minimum(self.ages(seed, step), self.limit)", "np.minimum(self.ages(seed, step), self.limit + 1)", OLD),
    Mutant("latency-discarding-forgets-what-it-read", AGES, "        self.read[seed] = read\n", "", OLD),
    Mutant("latency-discarded-count-the-kept", AGES, "append(read - start - slices)", "append(read - start)", OLD),
    Mutant("latency-drops-at-the-limit", TOO_OLD, "step - rollout.version_RBT > limit", "step - rollout.version_RBT >= limit", OLD),
    Mutant("latency-drop-keeps-the-old", TOO_OLD, "keep_N = ~old_RB.unflatten", "keep_N = old_RB.unflatten", OLD),
    Mutant("latency-drop-keeps-all-weights", TOO_OLD, "behavior.weights_XP[whole_Y]", "behavior.weights_XP", OLD),
    Mutant("latency-truncated-tokens-keep-a-ratio", TOO_OLD, "rollout.logp_mu_RBT.masked_fill(old_RBT, 0.0)", "rollout.logp_mu_RBT", OLD),
    Mutant("latency-truncation-regroups", TOO_OLD, "group_RB=rollout.groups(),", "group_RB=rollout.groups() * 0,", OLD),
    Mutant("latency-lengths-swapped", TOO_OLD, '{"staleness/length_kept": ~lost_RB, "staleness/length_lost": lost_RB}', '{"staleness/length_kept": lost_RB, "staleness/length_lost": ~lost_RB}', OLD),
    Mutant("latency-impossible-limits-pass", TOO_OLD, "if plan.shortest > limit:", "if plan.shortest > limit + 1:", OLD),
    Mutant("latency-ragged-cells-stacked", "testbed/config/pack.py", "return 1 if run.age_limit >= 0 and run.too_old in RAGGED else", "return", OLD),
    Mutant("latency-empty-batches-train-on-the-rest", "testbed/training/recorder.py", "np.full_like(found[name], np.nan)", "np.zeros_like(found[name])", OLD),
    Mutant("latency-replay-once-more-than-allowed", REPLAY, "(uses_RM > 0) & (uses_RM < self.plan.reuse), key_RM", "(uses_RM > 0) & (uses_RM <= self.plan.reuse), key_RM", AGAIN),
    Mutant("latency-replay-of-what-never-was-fresh", REPLAY, "(uses_RM > 0) & (uses_RM < self.plan.reuse), key_RM", "uses_RM < self.plan.reuse, key_RM", AGAIN),
    Mutant("latency-replay-forgets-uses", REPLAY, ".uses_RN[r, number % self.prompts] += 1", ".uses_RN[r, number % self.prompts] += 0", AGAIN),
    Mutant("latency-replay-window-one-longer", REPLAY, "deque(maxlen=max(plan.window, 1))", "deque(maxlen=plan.window + 1)", AGAIN),
    Mutant("latency-replay-without-mark", REPLAY, "_replayed(each.rollout) for each in self.store", "replace(each.rollout, origin_RB=fresh.origin_RB) for each in self.store", AGAIN),
    Mutant("latency-replay-prefers-the-unlikely", REPLAY, "return group_RM / alpha", "return -group_RM / alpha", AGAIN),
    Mutant("latency-replay-prefers-the-old", REPLAY, "age * np.log(decay)", "-age * np.log(decay)", AGAIN),
    Mutant("latency-replay-in-order-of-weight", REPLAY, "key_RM = -self._log_weight(theta_RP) - gumbel_RM", "key_RM = -self._log_weight(theta_RP)", AGAIN),
    Mutant("latency-replay-seeds-shared", REPLAY, 'rng.generator(seed, "staleness/replay", step)', 'rng.generator(self.seeds[0], "staleness/replay", step)', AGAIN),
)  # fmt: skip
